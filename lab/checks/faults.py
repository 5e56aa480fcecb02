# SPDX-License-Identifier: GPL-2.0
"""Memory hotplug that is called off half-way: what it must leave of the targets and the gate.

The kernel's memory-notifier error injector refuses an event; all who were told of it before hear that it is cancelled.
"""

from pathlib import Path

from lab.checks.boots import quiet, series_boot, tells_tiers
from lab.checks.results import Results, expect
from lab.guests import gate
from lab.guests.guest import Guest
from lab.kernels.trees import Kernel

INJECT = "/sys/kernel/debug/notifier-error-inject/memory/actions/{}/error"
BLOCK = "/sys/devices/system/memory/memory{}/state"
ERROR, MESSAGE = -28, "No space left on device"  # one that hotplug itself does not give
BUSY = ("Device or resource busy", "Resource temporarily unavailable")
# Topologies, and the injector's priority: 200 is before the tier code, which then hears of the cancelling alone.
MACHINES = ("one", 0), ("two-socket", 0), ("hot-add", 0), ("hot-add", 200)


def look(machine: Guest) -> tuple[tuple[str, int], dict[int, str]]:
    """What a cancelled event must leave as it was."""
    return gate.state(machine), gate.targets(machine)


def switch(machine: Guest, block: int, word: str) -> str:
    """Write to a block's state; the error it gives, or nothing."""
    output = machine.sh(f"echo {word} >{BLOCK.format(block)}", check=False, timeout=120)
    return output.text.rpartition(": ")[2].strip() if output.status else ""


def event(machine: Guest, block: int, word: str, rebuilds: int = 0, error: str = "") -> None:
    """Switch a block: how often it has the targets built, and the error it must give."""
    for _ in range(20):
        before = gate.rebuilds(machine)
        found = switch(machine, block, word)
        if found not in BUSY:  # pages in use for a moment: refused before anyone was told
            break
        machine.sh("sleep 0.2")
    expect(f"error of writing {word} to block {block}", error, found)
    expect(f"rebuilds by {word} of block {block}", rebuilds, gate.rebuilds(machine) - before)


def cancelled(machine: Guest, block: int, word: str, rebuilds: int = 0) -> None:
    """The injector refuses it: it is one event for an offline, none for an online, and all else stays as it was."""
    inject = INJECT.format("MEM_GOING_OFFLINE" if word == "offline" else "MEM_GOING_ONLINE")
    before, state = look(machine), machine.read(BLOCK.format(block))
    machine.sh(f"echo {ERROR} >{inject}")
    try:
        event(machine, block, word, rebuilds, MESSAGE)
    finally:
        machine.sh(f"echo 0 >{inject}")
    expect("policy and gate, targets", before, look(machine))
    expect(f"state of block {block}", state, machine.read(BLOCK.format(block)))


def movable(machine: Guest, node: int) -> dict[int, str]:
    """The blocks of a node that may go offline, and what brings each back into its zone."""
    script = f"""
    for path in /sys/devices/system/node/node{node}/memory[0-9]*; do
        [ "$(cat $path/state)" = online ] && echo "${{path##*memory}} $(cat $path/valid_zones)"
    done"""
    lines = (line.split() for line in machine.sh(script, check=False).text.splitlines())
    found = {int(block): zones[0] for block, *zones in lines if len(zones) == 1 and zones[0] != "none"}
    back = {"Movable": "online_movable"}
    # The highest first: the kernel's own memory is mostly in low ones.
    return {block: back.get(found[block], "online_kernel") for block in sorted(found, reverse=True)}


def find_block(machine: Guest, node: int) -> tuple[int, str]:
    """A block of this node that goes and comes back, and what brings it back."""
    for block, word in movable(machine, node).items():
        if not switch(machine, block, "offline") and not switch(machine, block, word):
            return block, word
    raise AssertionError(f"node {node} has no block that goes offline and online again")


def last_block(machine: Guest, kernel: Kernel, node: int, policy: str) -> None:
    """The same for the last block of a node, which takes the node's memory with it."""
    blocks = movable(machine, node)
    last, *others = blocks
    always, opened = policy == "always", look(machine)
    for block in others:
        event(machine, block, "offline", always)
    # Where the targets are in mm/migrate.c they were all disabled before the offline was refused.
    restored = policy == "auto" and kernel.keeper == "mm/migrate.c"
    cancelled(machine, last, "offline", always or restored)
    # Not refused it goes, and takes the gate with it under `auto`; and comes back, first refused, then not.
    event(machine, last, "offline", always)
    expect("policy and gate without the node", (policy, int(always)), gate.state(machine))
    cancelled(machine, last, blocks[last])
    event(machine, last, blocks[last], always or policy == "auto")
    for block in others:
        event(machine, block, blocks[block], always)
    expect("policy and gate, targets, with the node back", opened, look(machine))


def machine_faults(results: Results, machine: Guest, kernel: Kernel, name: str, plugged: bool) -> None:
    if plugged:
        machine.plug()
    own, word = find_block(machine, 0)
    for policy in gate.POLICIES:
        gate.set_policy(machine, policy)
        always = policy == "always"
        with results.case(f"{name} {policy}: a cancelled offline is one event and changes nothing"):
            cancelled(machine, own, "offline", always)
        with results.case(f"{name} {policy}: a cancelled online is no event"):
            event(machine, own, "offline", always)
            cancelled(machine, own, word)
            event(machine, own, word, always)
        if plugged:
            with results.case(f"{name} {policy}: a cancelled offline of a node's last block"):
                last_block(machine, kernel, 1, policy)
    gate.set_policy(machine, "auto")
    if plugged:
        with results.case(f"{name} the targets are those of a new build"):
            before = look(machine)
            expect("policy and gate", ("auto", 1), before[0])
            gate.set_policy(machine, "never")
            gate.set_policy(machine, "auto")
            expect("policy and gate, targets", before, look(machine))
            expect("targets of node 0", "1" if tells_tiers(kernel) else "", before[1][0])


def run(results: Results, kernel: Kernel, variant: str, logs: Path) -> None:
    for topology, priority in MACHINES:
        name = f"{kernel.name} {variant} {topology} faults{f' (injector first)' if priority else ''}:"
        log = logs / f"faults-{variant}-{topology}-{priority}.console"
        words = f"memory-notifier-error-inject.priority={priority}"
        with quiet(results, name), series_boot(kernel, variant, topology, log, words) as machine:
            machine_faults(results, machine, kernel, name, topology == "hot-add")
