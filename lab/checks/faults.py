# SPDX-License-Identifier: GPL-2.0
"""Memory hotplug that is called off half-way: what it must leave of the targets and the gate.

The kernel's memory-notifier error injector refuses MEM_GOING_OFFLINE or MEM_GOING_ONLINE; all who were told before
are then told that it is cancelled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from lab.checks.boots import quiet, series_boot, tells_tiers
from lab.checks.results import Results, expect
from lab.guests import gate
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


def look(machine: Guest) -> tuple[tuple[str, int], dict[int, str]]:
    """What a cancelled event must leave as it was."""
    return gate.state(machine), gate.targets(machine)


@contextlib.contextmanager
def refused(machine: Guest, action: str) -> Iterator[None]:
    """Within this block the injector refuses the action."""
    machine.sh(f"echo {ERROR} >{INJECT.format(action)}")
    try:
        yield
    finally:
        machine.sh(f"echo 0 >{INJECT.format(action)}")


def switch(machine: Guest, block: int, word: str) -> str:
    """Write to a block's state; the error it gives, or nothing."""
    output = machine.sh(f"echo {word} >{BLOCKS}/memory{block}/state", check=False, timeout=120)
    return output.text.rpartition(": ")[2].strip() if output.status else ""


def expect_event(machine: Guest, block: int, word: str, error: str, rebuilds: int = 0) -> None:
    """Switch a block: the error it must give, and how often it has the targets built."""
    for _ in range(TRIES):
        before = gate.rebuilds(machine)
        found = switch(machine, block, word)
        if found not in BUSY:  # pages in use for a moment: refused before anyone was told
            break
        machine.sh("sleep 0.2")
    expect(f"error of writing {word} to block {block}", error, found)
    expect(f"rebuilds by {word} of block {block}", rebuilds, gate.rebuilds(machine) - before)


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


def cancelled_offline(machine: Guest, block: int, rebuilds: bool) -> None:
    """It is one event, and all else stays as it was."""
    before = look(machine)
    with refused(machine, "MEM_GOING_OFFLINE"):
        expect_event(machine, block, "offline", MESSAGE, rebuilds)
    expect("policy and gate, targets", before, look(machine))
    expect(f"state of block {block}", "online", machine.read(f"{BLOCKS}/memory{block}/state"))


def cancelled_online(machine: Guest, block: int, word: str) -> None:
    """A block that was offline stays so: no event at all."""
    before = look(machine)
    with refused(machine, "MEM_GOING_ONLINE"):
        expect_event(machine, block, word, MESSAGE)
    expect("policy and gate, targets", before, look(machine))


def there_and_back(machine: Guest, block: int, always: bool) -> None:
    """A block goes, is first refused when it comes back, and then not."""
    word = online_word(machine, block)
    expect_event(machine, block, "offline", "", always)
    cancelled_online(machine, block, word)
    expect_event(machine, block, word, "", always)


def last_block(machine: Guest, kernel: Kernel, node: int, policy: str) -> None:
    """The same for the last block of a node, which takes the node's memory with it."""
    last, *others = movable(machine, node)
    word = online_word(machine, last)
    always, opened = policy == "always", look(machine)
    for block in others:
        expect_event(machine, block, "offline", "", always)
    # Where the targets are in mm/migrate.c they were all disabled before the offline was refused.
    restored = policy == "auto" and kernel.keeper == "mm/migrate.c"
    cancelled_offline(machine, last, always or restored)
    # Not refused it goes, and takes the gate with it under `auto`; and comes back, first refused, then not.
    expect_event(machine, last, "offline", "", always)
    expect("policy and gate without the node", (policy, int(always)), gate.state(machine))
    cancelled_online(machine, last, word)
    expect_event(machine, last, word, "", always or policy == "auto")
    for block in others:
        expect_event(machine, block, word, "", always)
    expect("policy and gate, targets, with the node back", opened, look(machine))


def policies(machine: Guest) -> Iterator[str]:
    """Each policy in turn; the default at the end, whatever happened."""
    try:
        for policy in gate.POLICIES:
            gate.set_policy(machine, policy)
            yield policy
    finally:
        gate.set_policy(machine, "auto")


def machine_faults(results: Results, machine: Guest, kernel: Kernel, name: str, plugged: bool) -> None:
    own = find_block(machine, 0)
    for policy in policies(machine):
        with results.case(f"{name} {policy}: a cancelled offline is one event and changes nothing"):
            cancelled_offline(machine, own, policy == "always")
        with results.case(f"{name} {policy}: a cancelled online is no event"):
            there_and_back(machine, own, policy == "always")
        if plugged:
            with results.case(f"{name} {policy}: a cancelled offline of a node's last block"):
                last_block(machine, kernel, 1, policy)
    if plugged:
        with results.case(f"{name} the targets are those of a new build"):
            before = look(machine)
            expect("policy and gate", ("auto", 1), before[0])
            gate.set_policy(machine, "never")
            gate.set_policy(machine, "auto")
            expect("policy and gate, targets", before, look(machine))
            expect("targets of node 0", "1" if tells_tiers(kernel) else "", before[1][0])


def run(results: Results, kernel: Kernel, variant: str, logs: Path, *, one_thread: bool = False) -> None:
    """Cancelled events in every machine that has some to show."""
    for topology, priority, plugged in MACHINES:
        name = f"{kernel.name} {variant} {topology} faults{f' (injector first)' if priority else ''}:"
        log = logs / f"faults-{variant}-{topology}-{priority}.console"
        append = f"memory-notifier-error-inject.priority={priority}"
        with quiet(results, name):
            with series_boot(kernel, variant, topology, log, append=append, one_thread=one_thread) as machine:
                if plugged:
                    machine.plug()
                machine_faults(results, machine, kernel, name, plugged)
