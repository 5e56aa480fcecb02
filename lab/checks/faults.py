# SPDX-License-Identifier: GPL-2.0
"""Memory hotplug that is called off half-way: what it must leave of the targets, the counters and the gate.

The kernel's memory-notifier error injector refuses MEM_GOING_OFFLINE or MEM_GOING_ONLINE; all who were told before
are then told that it is cancelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.checks.boots import GATE, WORDS, counters, gate, series_boot, targets, tells_tiers
from lab.checks.results import Results, expect
from lab.common import LabError
from lab.guests.guest import Guest
from lab.kernels.trees import Kernel

INJECT = "/sys/kernel/debug/notifier-error-inject/memory/actions/{}/error"
BLOCKS = "/sys/devices/system/memory"
ERROR, MESSAGE = -28, "No space left on device"  # one that hotplug itself does not give
BUSY = ("Device or resource busy", "Resource temporarily unavailable")
TRIES = 20
MACHINES = (  # topology, the injector's priority, what is plugged
    ("one", 0, False),
    ("two-socket", 0, False),
    ("hot-add", 0, True),
    ("hot-add", 200, True),  # before the tier code, which then hears of the cancelling alone
)


@dataclass(frozen=True)
class State:
    """All that a cancelled event must leave as it was, and the counters."""

    gate: tuple[str, int]
    targets: dict[int, str]
    counters: tuple[int, int]


def nodes(machine: Guest) -> list[int]:
    names = machine.sh("cd /sys/devices/system/node; echo node[0-9]*").text.split()
    return sorted(int(name[4:]) for name in names)


def look(machine: Guest) -> State:
    return State(gate(machine), {node: targets(machine, node) for node in nodes(machine)}, counters(machine))


def inject(machine: Guest, action: str, error: int) -> None:
    machine.sh(f"echo {error} >{INJECT.format(action)}")


def switch(machine: Guest, block: int, word: str) -> str:
    """Write to a block's state; the error it gives, or nothing."""
    output = machine.sh(f"echo {word} >{BLOCKS}/memory{block}/state", check=False, timeout=120)
    return output.text.rpartition(": ")[2].strip() if output.status else ""


def expect_event(machine: Guest, block: int, word: str, error: str, grown: tuple[int, int]) -> None:
    """Switch a block: the error it must give, and by how much rebuilds and skipped grow."""
    for _ in range(TRIES):
        before = counters(machine)
        found = switch(machine, block, word)
        if found not in BUSY:  # pages in use for a moment: refused before anyone was told
            break
        machine.sh("sleep 0.2")
    after = counters(machine)
    expect(f"error of writing {word} to block {block}", error, found)
    expect(f"rebuilds, skipped by {word} of block {block}", grown, (after[0] - before[0], after[1] - before[1]))


def movable(machine: Guest, node: int) -> list[int]:
    """The blocks of a node that may go offline, the highest first: the kernel's own memory is mostly in low ones."""
    script = f"""
    for path in /sys/devices/system/node/node{node}/memory[0-9]*; do
        [ "$(cat $path/state)" = online ] && echo "${{path##*memory}} $(cat $path/valid_zones)"
    done"""
    lines = (line.split() for line in machine.sh(script, check=False).text.splitlines())
    return sorted((int(block) for block, *zones in lines if len(zones) == 1 and zones[0] != "none"), reverse=True)


def online_word(machine: Guest, block: int) -> str:
    """What brings a block back into the zone it is in."""
    return "online_movable" if machine.read(f"{BLOCKS}/memory{block}/valid_zones") == "Movable" else "online_kernel"


def find_block(machine: Guest, node: int) -> int:
    """A block of this node that goes and comes back."""
    for block in movable(machine, node):
        word = online_word(machine, block)
        if not switch(machine, block, "offline") and not switch(machine, block, word):
            return block
    raise AssertionError(f"node {node} has no block that goes offline and online again")


def grown(rebuilds: bool) -> tuple[int, int]:
    return (1, 0) if rebuilds else (0, 1)


def cancelled_offline(machine: Guest, block: int, rebuilds: bool) -> None:
    """It is one event, and all else stays as it was."""
    before = look(machine)
    inject(machine, "MEM_GOING_OFFLINE", ERROR)
    try:
        expect_event(machine, block, "offline", MESSAGE, grown(rebuilds))
    finally:
        inject(machine, "MEM_GOING_OFFLINE", 0)
    after = look(machine)
    expect("policy and gate, targets", (before.gate, before.targets), (after.gate, after.targets))
    expect(f"state of block {block}", "online", machine.read(f"{BLOCKS}/memory{block}/state"))


def cancelled_online(machine: Guest, block: int, always: bool) -> None:
    """A block that was offline stays so: no event at all. Then the way back is free."""
    word = online_word(machine, block)
    expect_event(machine, block, "offline", "", grown(always))
    before = look(machine)
    inject(machine, "MEM_GOING_ONLINE", ERROR)
    try:
        expect_event(machine, block, word, MESSAGE, (0, 0))
    finally:
        inject(machine, "MEM_GOING_ONLINE", 0)
    expect("policy, gate, targets, counters", before, look(machine))
    expect_event(machine, block, word, "", grown(always))


def last_block(machine: Guest, kernel: Kernel, node: int, policy: str) -> None:
    """The same for the last block of a node, which takes the node's memory with it."""
    blocks = movable(machine, node)
    word = online_word(machine, blocks[0])
    always, opened = policy == "always", look(machine)
    for block in blocks[:-1]:
        expect_event(machine, block, "offline", "", grown(always))
    # Where the targets are in mm/migrate.c they were all disabled before the offline was refused.
    restored = policy == "auto" and kernel.keeper == "mm/migrate.c"
    cancelled_offline(machine, blocks[-1], always or restored)
    # Not refused it goes, and takes the gate with it under `auto`; and comes back, first refused, then not.
    expect_event(machine, blocks[-1], "offline", "", grown(always))
    expect("policy and gate without the node", (policy, int(always)), gate(machine))
    gone = look(machine)
    inject(machine, "MEM_GOING_ONLINE", ERROR)
    try:
        expect_event(machine, blocks[-1], word, MESSAGE, (0, 0))
    finally:
        inject(machine, "MEM_GOING_ONLINE", 0)
    expect("policy, gate, targets, counters without the node", gone, look(machine))
    expect_event(machine, blocks[-1], word, "", grown(always or policy == "auto"))
    for block in blocks[:-1]:
        expect_event(machine, block, word, "", grown(always))
    back = look(machine)
    expect("policy and gate, targets, with the node back", (opened.gate, opened.targets), (back.gate, back.targets))


def policies(machine: Guest) -> Iterator[str]:
    """Each policy in turn; the default at the end, whatever happened."""
    try:
        for policy in WORDS:
            machine.sh(f"echo {policy} >{GATE}/policy")
            yield policy
    finally:
        machine.sh(f"echo auto >{GATE}/policy")


def machine_faults(results: Results, machine: Guest, kernel: Kernel, name: str, plugged: bool) -> None:
    own = find_block(machine, 0)
    for policy in policies(machine):
        with results.case(f"{name} {policy}: a cancelled offline is one event and changes nothing"):
            cancelled_offline(machine, own, policy == "always")
        with results.case(f"{name} {policy}: a cancelled online is no event"):
            cancelled_online(machine, own, policy == "always")
        if plugged:
            with results.case(f"{name} {policy}: a cancelled offline of a node's last block"):
                last_block(machine, kernel, 1, policy)
    if plugged:
        with results.case(f"{name} the targets are those of a new build"):
            before = look(machine)
            machine.sh(f"echo never >{GATE}/policy; echo auto >{GATE}/policy")
            expect("gate, targets", (("auto", 1), before.targets), (before.gate, look(machine).targets))
            expect("targets of node 0", "1" if tells_tiers(kernel) else "", before.targets[0])


def run(results: Results, kernel: Kernel, variant: str, logs: Path) -> None:
    """Cancelled events in every machine that has some to show."""
    for topology, priority, plugged in MACHINES:
        name = f"{kernel.name} {variant} {topology} faults{f' (injector first)' if priority else ''}:"
        log = logs / f"faults-{variant}-{topology}-{priority}.console"
        append = f"memory-notifier-error-inject.priority={priority}"
        try:
            with series_boot(kernel, variant, topology, log, append=append) as machine:
                if plugged:
                    machine.plug()
                machine_faults(results, machine, kernel, name, plugged)
        except (LabError, AssertionError) as error:
            results.note(f"{name} quiet to the end", False, str(error))
        else:
            results.note(f"{name} quiet to the end", True)
