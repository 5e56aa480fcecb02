# SPDX-License-Identifier: GPL-2.0
"""Everything at once, for a time: policies, CPUs, memory blocks, DIMMs, demotion, readers. Then all must add up.

`lab/guests/storm.c` does it from inside, here is what comes from outside.
"""

import random
import re
import time
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from lab.checks.boots import quiet, series_boot, slow_cpus_come, tells_tiers
from lab.checks.results import Results, expect
from lab.common import say
from lab.guests import gate
from lab.guests.guest import Guest
from lab.kernels.trees import Kernel

SECONDS = 300
RACE_SECONDS = 30
FUZZ_TRIES = 4000
DIMM = 512 << 20
UNPLUG_SECONDS = 30
END_SECONDS = 180  # for the workers to put back what they took, on a slow machine
# Events beyond its blocks' going, by a DIMM of four blocks. The kernel tries each block, and if one stays, each again.
LATE_UNPLUG = 4 + 3
REFUSED_UNPLUG = 4 + 4 + 2 * 4  # and takes those that went online again
BLOCK_LOCK = "/run/storm.lock"  # who makes this directory in the guest may open memory blocks' files, or remove them
LEAKS = "/sys/kernel/debug/kmemleak"


@dataclass(frozen=True)
class Storm:
    """A line of `storms.toml`."""

    topology: str
    workers: str
    part: float = 1
    policy: str = "auto"


_TABLE = tomllib.loads(Path(__file__).with_name("storms.toml").read_text())
STORMS, RACES = ([Storm(**words) for words in _TABLE[kind]] for kind in ("storms", "races"))


def play_dimms(machine: Guest, chance: random.Random, end: float) -> tuple[int, int]:
    """DIMMs come and go until the time is over, and none stays. How many there were, and the tries at unplugging."""
    dimms = tries = 0
    while time.monotonic() < end:
        dimms += 1
        name = machine.add_dimm(DIMM, 1)  # and the guest is not waited for
        time.sleep(min(chance.uniform(0.5, 5), max(0.5, end - time.monotonic())))
        give_up = max(end, time.monotonic()) + 4 * UNPLUG_SECONDS
        while True:  # it may refuse: pages can be busy, a block be offline already
            tries += 1
            # The workers are kept from memory blocks' files, for a reason that `lab/guests/storm.c` gives.
            machine.sh(f"until mkdir {BLOCK_LOCK} 2>/dev/null; do usleep 5000; done")
            try:
                refusal = machine.remove_dimm(name, UNPLUG_SECONDS)
            finally:
                machine.sh(f"rmdir {BLOCK_LOCK}")
            if not refusal:
                break
            if time.monotonic() > give_up:
                raise machine.error(f"the guest to give back {name} once the storm is over", "it does not")
            time.sleep(chance.uniform(0.1, 1))
        time.sleep(chance.uniform(0, 1))
    return dimms, tries


def every_policy(machine: Guest) -> None:
    """The gate is as the policy and the nodes have it; closed, there is no target; open, those of a new build."""
    ranges = re.findall(r"(\d+)-?(\d*)", machine.read("/sys/devices/system/node/has_memory"))
    memory = sum(int(last or first) - int(first) + 1 for first, last in ranges)
    for wanted in ("", *gate.POLICIES, "auto"):  # first, with the one that is set
        if wanted:
            gate.set_policy(machine, wanted)
        policy, is_open = gate.state(machine)
        opens = {"auto": int(memory > 1), "always": 1, "never": 0}[policy]
        expect(f"gate, policy {policy}, {memory} nodes with memory", opens, is_open)
        now = gate.targets(machine)
        none = dict.fromkeys(now, "")
        if not is_open:
            expect("targets with the gate closed", none, now)
        gate.set_policy(machine, "never")
        expect("targets under never", none, gate.targets(machine))
        gate.set_policy(machine, policy)
        expect("targets after a new build", now, gate.targets(machine))


def add_up(kernel: Kernel, what: Storm, found: dict[str, int], blocks: list[int], per_dimm: int, built: int) -> None:
    """No event has the targets built twice, with `always` each has them built, and with `auto` only a DIMM that comes.

    As many blocks have gone offline as came online, but for the difference in blocks that are online. What was refused
    may or may not have been told to anyone, hence is one event or none. A policy that opens the gate is one rebuild.
    """
    refused, late = REFUSED_UNPLUG * (found["unplug_tries"] - found["dimms"]), LATE_UNPLUG * found["dimms"]
    online = found["block_on"] + per_dimm * found["dimms"]
    least = found["cpu_off"] + found["cpu_on"] + 2 * online - (blocks[1] - blocks[0])
    most = least + found["refused"] + found["opening"] + refused + late
    if "policy" in what.workers:
        least = 0
    elif what.policy == "auto":
        least, most = found["dimms"], found["dimms"] + refused
        if kernel.keeper == "mm/migrate.c":  # which must restore what it disabled before the offline was refused
            most += found["refused"] + late
    why = f"  expected: {least} to {most}\n  from: {found}, blocks online {blocks[0]} -> {blocks[1]}"
    assert least <= built <= most, f"rebuilds grew by {built}\n{why}"


def demoted(machine: Guest) -> int:
    return sum(map(int, re.findall(r"^pgdemote_\w+ (\d+)$", machine.read("/proc/vmstat"), re.M)))


def rage(machine: Guest, what: Storm, seconds: float, seed: int, words: str = "") -> dict[str, int]:
    """The storm itself: what the workers counted, and what came from outside."""
    command = f"storm --seconds {seconds:.0f} --seed {seed} --lock {BLOCK_LOCK} {words} {what.workers}"
    script = f"rm -f /run/storm.status; ({command} >/run/storm.out 2>&1; echo $? >/run/storm.status) >/dev/null 2>&1 &"
    machine.sh(script)
    end = time.monotonic() + seconds
    dimms, tries = play_dimms(machine, random.Random(seed), end) if what.topology == "hot-add" else (0, 0)
    time.sleep(max(0, end - time.monotonic()))
    wait = ": the storm, whose time is over; until [ -s /run/storm.status ]; do sleep 1; done; cat /run/storm.status"
    status, text = machine.sh(wait, timeout=END_SECONDS).text.strip(), machine.read("/run/storm.out")
    assert status == "0", f"the workers ended with status {status}\n{text}"
    found = {name: int(value) for name, value in re.findall(r"^([\w.]+) (\d+)$", text, re.M)}
    found |= {"dimms": dimms, "unplug_tries": tries}
    say("      " + " ".join(f"{key}={value}" for key, value in found.items()))
    for role in ("cpu", "block"):
        assert role not in what.workers or found[f"{role}_off"], f"{role}_off is 0 after {seconds:.0f} s\n{text}"
    return found


def storm(results: Results, machine: Guest, kernel: Kernel, name: str, what: Storm, seconds: float, seed: int) -> None:
    demotes = f"{name} pages were demoted meanwhile"
    # Can a cgroup be told to give memory back? Filling a node instead has the kernel warn when a block must go.
    on_request = any('"reclaim"' in file.read_text() for file in (kernel.source / "mm").glob("memcontrol*.c"))
    if "reclaim" in what.workers and not on_request:
        results.skip(demotes, "this kernel's cgroups have no memory.reclaim")
        what = replace(what, workers=what.workers.replace("reclaim", ""))
    machine.sh("echo 1 >/sys/kernel/mm/numa/demotion_enabled")
    gate.set_policy(machine, what.policy)
    before, blocks, pages = gate.rebuilds(machine), machine.online_blocks(), demoted(machine)
    cpus = machine.read("/sys/devices/system/cpu/online")
    found = None
    with results.case(f"{name} every worker ends, none sees a fault"):
        found = rage(machine, what, seconds, seed)
    if found is None:
        return
    with results.case(f"{name} CPUs and memory blocks are back"):
        expect("CPUs online", cpus, machine.read("/sys/devices/system/cpu/online"))
        expect("memory blocks online", blocks, machine.online_blocks())
    built = gate.rebuilds(machine) - before
    with results.case(f"{name} the rebuilds add up"):
        add_up(kernel, what, found, [blocks, machine.online_blocks()], DIMM // machine.block_size(), built)
    tiers = tells_tiers(kernel)
    if "reclaim" in what.workers and tiers:
        with results.case(demotes):
            assert demoted(machine) > pages, f"pgdemote_* stayed at {pages}"
    with results.case(f"{name} the gate fits the policy, the targets fit a new build"):
        every_policy(machine)
    if what.topology == "hot-add":
        with results.case(f"{name} the gate follows a DIMM as before"):
            dimm = machine.plug(timeout=120)
            every_policy(machine)
            now = (gate.state(machine)[1], gate.targets(machine)[0])
            expect("gate, targets of node 0 with the DIMM", (1, "1" if tiers else ""), now)
            machine.unplug(dimm, timeout=120)
            expect("gate without the DIMM", 0, gate.state(machine)[1])


def run(results: Results, kernel: Kernel, logs: Path, seed: int, seconds: float) -> None:
    """The storms, one boot for each machine, and in each random input for the policy: only its three words may do."""
    for topology in dict.fromkeys(each.topology for each in STORMS):
        name, log = f"{kernel.name} debug {topology} storm (seed {seed}):", logs / f"storm-debug-{topology}.console"
        with quiet(results, name), series_boot(kernel, "debug", topology, log) as machine:
            with results.case(f"{name} fuzz of the policy, {FUZZ_TRIES} words"):
                output = machine.sh(f"storm --tries {FUZZ_TRIES} --seed {seed} fuzz", timeout=600, check=False)
                assert not output.status, f"status {output.status}\n{output.text}"
            if topology == "slow-cpus":
                slow_cpus_come(machine)
            for number, each in enumerate(STORMS):
                if each.topology == topology:
                    label = f"{name} {'policies too,' if 'policy' in each.workers else f'under {each.policy},'}"
                    storm(results, machine, kernel, label, each, seconds * each.part, seed + number)
            with results.case(f"{name} no leak"):  # memory must look unreferenced in two scans to be reported
                machine.sh(f"echo scan >{LEAKS}; sleep 6; echo scan >{LEAKS}", timeout=300)
                leaks = machine.read(LEAKS)
                assert not re.search(r"demotion|memory_tier", leaks), leaks


def races(results: Results, kernel: Kernel, logs: Path, seed: int) -> None:
    """Reads and writes of the same at the same time, for KCSAN to see."""
    for each in RACES:
        name = f"{kernel.name} kcsan {each.topology} races (seed {seed}):"
        log = logs / f"races-{each.topology}.console"
        with quiet(results, name), series_boot(kernel, "kcsan", each.topology, log) as machine:
            gate.set_policy(machine, each.policy)
            rage(machine, each, RACE_SECONDS, seed, "--eager")
