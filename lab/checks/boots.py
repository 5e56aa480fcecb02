# SPDX-License-Identifier: GPL-2.0
"""The tests that boot: the selftest and what only the outside can do, in every topology."""

import contextlib
import random
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.checks.results import Results, expect, ktap
from lab.common import LabError
from lab.guests import gate, guest
from lab.guests.guest import Guest
from lab.kernels import build
from lab.kernels.trees import Kernel
from lab.rendering import render

# Under TCG, on a machine that does something else as well.
BOOT_SECONDS = {"plain": 60, "debug": 180, "kasan": 300, "kcsan": 300}
TEST_SECONDS = 1800
KCSAN = "/sys/kernel/debug/kcsan"
UNIT_TESTS = "kunit.enable=1 kunit.autorun=1"  # KUnit waits to be asked, twice since 6.16
WATCHED = 1000  # accesses: less is no look
MAY_SKIP = tomllib.loads(Path(__file__).with_name("skips.toml").read_text())["skip"]


def declared(kernel: Kernel, topology: str) -> dict[str, str]:
    """The cases that may skip, by a pattern of their names, and why."""
    here = (skip for skip in MAY_SKIP if topology in skip.get("topologies", guest.TOPOLOGIES))
    libfs = (kernel.source / "fs/libfs.c").read_text()
    only = {"untiered": not tells_tiers(kernel), "unsigned": "simple_attr_write_signed" not in libfs}
    return {skip["cases"]: skip["why"] for skip in here if all(only[word] for word in only.keys() & skip)}


def tells_tiers(kernel: Kernel) -> bool:
    """Can this kernel tell the nodes of `tiered` apart? By the HMAT, or, before memory tiers, by their CPUs."""
    return kernel.keeper == "mm/migrate.c" or "mt_calc_adistance" in (kernel.source / kernel.keeper).read_text()


def boot_state(machine: Guest, nodes: int) -> None:
    """What must hold after booting with the default policy: a gate that fits the nodes, and a build if it is open."""
    several = int(nodes > 1)
    expect("policy and gate", ("auto", several), gate.state(machine))
    expect("builds since boot", several, gate.rebuilds(machine))
    if not several:
        expect("lines about demotion in the log", "", machine.sh("dmesg | grep -i demot", check=False).text)
    # These kernels are built for size, where a function that is only `inline` would become a call.
    found = machine.sh("grep -w demotion_gate_is_open /proc/kallsyms", check=False).text
    expect("a function demotion_gate_is_open()", "", found)


def dimm_comes_and_goes(machine: Guest, target: str) -> None:
    """The gate opens with the second node's memory and closes when it is gone; node 0's targets follow."""
    for _ in range(2):
        before = gate.rebuilds(machine)
        expect("gate before the DIMM", 0, gate.state(machine)[1])
        dimm = machine.plug()
        there = gate.state(machine)[1], gate.rebuilds(machine) - before, gate.targets(machine)
        expect("gate, builds by its memory, targets with the DIMM", (1, 1, {0: target, 1: ""}), there)
        machine.unplug(dimm)
        gone = gate.state(machine)[1], gate.rebuilds(machine) - before, gate.targets(machine)[0]
        expect("gate, builds since before it came, targets of node 0 without the DIMM", (0, 1, ""), gone)


def slow_cpus_come(machine: Guest) -> None:
    """The first CPU of the slow node has the targets built again, the second one does not."""
    for cpu, built in ((2, 1), (3, 0)):
        before = gate.rebuilds(machine)
        machine.sh(f"echo 1 >/sys/devices/system/cpu/cpu{cpu}/online")
        expect(f"builds by CPU {cpu}", built, gate.rebuilds(machine) - before)


def note_cases(results: Results, name: str, text: str, may_skip: dict[str, str]) -> int:
    """Each result in KTAP text is one of ours. How many there are."""
    cases = list(ktap(text))
    for case, state, why in cases:
        if state != "skip":
            results.note(f"{name} {case}", state == "ok", why)
        elif reason := next((reason for key, reason in may_skip.items() if re.fullmatch(key, case)), ""):
            results.skip(f"{name} {case}", reason)
        else:
            results.note(f"{name} {case}", False, f"skipped, which is not declared for this topology: {why}")
    return len(cases)


def run_kunit(results: Results, machine: Guest, name: str) -> None:
    text = machine.sh("cat /sys/kernel/debug/kunit/demotion_gate/results", check=False).text
    cases = "\n".join(line.strip() for line in text.splitlines() if line.startswith(" "))  # without the suite's own
    if not note_cases(results, f"{name} kunit", cases, {}):
        results.note(f"{name} kunit", False, f"no results in debugfs:\n{text}")


def one_node(results: Results, kernel: Kernel, logs: Path) -> None:
    """What the gate is there for: nothing is built and nothing waits while it is closed, from power-on."""
    name, log = f"{kernel.name} one node, traced from power-on:", logs / "one-node.console"
    script = "toggle cpu --cycles {0} >/dev/null && toggle memory --cycles {0} >/dev/null"
    with (
        results.case(f"{name} no build, no wait, no message, 100 CPU and block cycles; with always, each event once"),
        series_boot(kernel, "debug", "one", log, f"kunit.enable=0 {gate.TRACED}") as machine,  # unit tests would build
    ):
        boot_state(machine, 1)
        assert gate.waits(machine)[0], "tracing saw no grace period of anyone during boot: it was not on"
        machine.sh(script.format(100), timeout=TEST_SECONDS)
        now = gate.rebuilds(machine), gate.waits(machine)[1]
        expect("rebuilds, grace periods of the demotion code since power-on", (0, 0), now)
        gate.set_policy(machine, "always")
        machine.sh(f"echo >{gate.TRACING}/trace")
        before = gate.rebuilds(machine)
        machine.sh(script.format(5), timeout=TEST_SECONDS)
        built = gate.rebuilds(machine) - before
        assert built >= 20, f"rebuilds grew by {built} with `always`, expected at least 20"
        expect("grace periods of the demotion code with `always`", built, gate.waits(machine)[1])


def quiet(results: Results, name: str) -> contextlib.AbstractContextManager[None]:
    """The result that a boot has beside those of its tests: it ran to its end, and the kernel had nothing to say."""
    return results.case(f"{name} quiet to the end")


@contextlib.contextmanager
def series_boot(kernel: Kernel, variant: str, topology: str, log: Path, words: str = "", **how: Any) -> Iterator[Guest]:
    """A guest with the series kernel of that variant: with the time and the words its checkers need."""
    image, words = build.image(kernel, "series", variant), f"{build.BOOT_WORDS.get(variant, '')} {words}"
    how |= {"timeout": BOOT_SECONDS[variant], "at_once": variant == "kcsan"}  # or that one has nothing to see
    with guest.boot(image, topology, log=log, append=words, **how) as machine:
        yield machine
        if variant == "kcsan":
            have_watched(machine.read(KCSAN))


def have_watched(counters: str) -> None:
    """KCSAN is quiet when it is off, too."""
    found = {name: int(number) for name, number in re.findall(r"^(\w+): (\d+)$", counters, re.M)}
    if not found.get("enabled") or found.get("setup_watchpoints", 0) < WATCHED:
        expected = f"KCSAN to be on, and to have watched {WATCHED} accesses"
        raise LabError(KCSAN, expected=expected, found=counters, do="see lab/kernels/config/kcsan.config")


def topology_boot(results: Results, kernel: Kernel, variant: str, topology: str, logs: Path) -> None:
    """Everything that is tried in one boot."""
    name, log = f"{kernel.name} {variant} {topology}:", logs / f"{variant}-{topology}.console"
    how = {"programs": [build.selftest(kernel)]}
    with quiet(results, name), series_boot(kernel, variant, topology, log, UNIT_TESTS, **how) as machine:
        if "debug" in build.VARIANTS[variant]:
            run_kunit(results, machine, name)
        else:
            with results.case(f"{name} gate as the nodes have it at boot, built if it is open"):
                boot_state(machine, 1 if topology in ("one", "hot-add") else 2)
        if topology == "hot-add":
            with results.case(f"{name} the gate follows the DIMM"):
                dimm_comes_and_goes(machine, "1" if tells_tiers(kernel) else "")
            machine.plug()
        if topology == "slow-cpus":
            with results.case(f"{name} builds follow the slow node's CPUs"):
                slow_cpus_come(machine)
            machine.plug(node=2)
        text = machine.sh("demotion_gate", timeout=TEST_SECONDS, check=False).text
        seen, plan = note_cases(results, name, text, declared(kernel, topology)), re.search(r"^1\.\.(\d+)$", text, re.M)
        with results.case(f"{name} selftest ran to its end"):
            expect("results of the selftest, as its plan has them", int(plan[1]) if plan else "a plan", seen)


def each_fix(results: Results, kernel: Kernel, logs: Path) -> None:
    """The kernel boots after each commit before the gate; all other boots are of the last one."""
    rendering, mine = render.render(kernel), build.beside(kernel, "fix")
    for upto, commit in enumerate(rendering.commits, 1):
        if "mm/demotion_gate.c" in commit.files:
            break
        with results.case(f"{kernel.name} up to {commit.slug}, tiered: boots, quiet to the end"):
            image = build.image(replace(mine, files=rendering.files(upto)), "series")
            with guest.boot(image, "tiered", log=logs / f"fix-{upto}-tiered.console") as machine:
                absent = machine.sh(f"test -e {gate.SYSFS}", check=False).status
                assert absent, f"{gate.SYSFS} is there: this is not the kernel before the gate"


def parameter(results: Results, kernel: Kernel, logs: Path, seed: int) -> None:
    """The boot parameter: the three words; what is none of them gives one warning and leaves what was set."""
    chance = random.Random(seed)
    bad = ["", "AUTO", "auto,never", "x" * 900, "nevery", "0"]
    alphabet = "abcdefghijklmnopqrstuvwxyzALWAYS0123456789-_.[]"
    bad += ["".join(chance.choices(alphabet, k=chance.randint(1, 40))) for _ in range(20)]
    given = [(value,) for value in (*gate.POLICIES[1:], *chance.sample(bad, 4))]
    for values in [*given, ("never", "nope"), ("never", "always")]:
        shown = " demotion_gate=".join(value if len(value) < 45 else value[:20] + "…" for value in values)
        append, log = " ".join(f"demotion_gate={value}" for value in values), logs / "parameter.console"
        with results.case(f"{kernel.name} demotion_gate={shown}"):
            with guest.boot(build.image(kernel, "series"), "one", log=log, append=append) as machine:
                policy = ["auto", *(value for value in values if value in gate.POLICIES)][-1]
                expect("policy and gate", (policy, int(policy == "always")), gate.state(machine))
                warned = machine.sh("dmesg | grep -c 'demotion_gate: expected'", check=False).text.strip()
                expect("warnings", str(sum(value not in gate.POLICIES for value in values)), warned)
                # What no part of the kernel takes is handed to init.
                unknown = "dmesg | grep 'Unknown kernel command line' | grep demotion_gate"
                expect("words of ours that the kernel does not know", "", machine.sh(unknown, check=False).text)
