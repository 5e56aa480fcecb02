# SPDX-License-Identifier: GPL-2.0
"""The tests that boot: the selftest and what only the outside can do, in every topology."""

import contextlib
import random
import re
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

# Which selftest cases a topology cannot show, by a pattern of their names. What skips and is not in here has failed.
DEMOTED = r"demotion_gate\.(pages_are_demoted|demotion_comes_back)"
MAY_SKIP = (  # the cases, the reason, the topologies
    (r"demotion_gate\.cpus_leave_under_another_policy|policy\..*\.node_cpu_events",
     "no node's CPUs can all go while another has some", ("one", "tiered", "hot-add")),
    (r"demotion_gate\.memory_leaves_under_another_policy|policy\..*\.(node_memory_events|cancelled_offline_of_a_node)",
     "no node's memory can all go", ("one", "two-socket", "tiered")),
    (DEMOTED, "no node has a lower tier that stays", ("one", "two-socket", "hot-add")),
)  # fmt: skip


def declared(kernel: Kernel, topology: str) -> dict[str, str]:
    found = {cases: why for cases, why, where in MAY_SKIP if topology in where}
    untiered = {DEMOTED: "this kernel puts plain nodes into one tier, whatever the HMAT says"}
    return found if tells_tiers(kernel) else found | untiered


def tells_tiers(kernel: Kernel) -> bool:
    """Can this kernel tell the nodes of `tiered` apart? By the HMAT, or, before memory tiers, by their CPUs."""
    return kernel.keeper == "mm/migrate.c" or "mt_calc_adistance" in (kernel.source / kernel.keeper).read_text()


def boot_state(machine: Guest, nodes: int) -> None:
    """What must hold after booting with the default policy: a gate that fits the nodes, and a build if it is open.

    With one node the log has no word of it. The key is looked at where it is asked for: these kernels are built for
    size, where a function that is only `inline` becomes a call.
    """
    several = int(nodes > 1)
    expect("policy and gate", ("auto", several), gate.state(machine))
    expect("builds since boot", several, gate.rebuilds(machine))
    if not several:
        expect("lines about demotion in the log", "", machine.sh("dmesg | grep -i demot", check=False).text)
    found = machine.sh("grep -w demotion_gate_is_open /proc/kallsyms", check=False).text
    expect("a function demotion_gate_is_open()", "", found)


def dimm_comes_and_goes(machine: Guest, target: str) -> None:
    """The gate opens with the second node's memory and closes when it is gone; node 0's targets follow."""
    for _ in range(2):
        before = gate.rebuilds(machine)
        expect("gate before the DIMM", 0, gate.state(machine)[1])
        dimm = machine.plug()
        expect("gate with the DIMM", 1, gate.state(machine)[1])
        expect("builds by the DIMM's memory", 1, gate.rebuilds(machine) - before)
        expect("targets", {0: target, 1: ""}, gate.targets(machine))
        machine.unplug(dimm)
        expect("gate without the DIMM", 0, gate.state(machine)[1])
        expect("targets of node 0", "", gate.targets(machine)[0])
        expect("builds when it went", 1, gate.rebuilds(machine) - before)


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


def one_node(results: Results, kernel: Kernel, logs: Path, *, one_thread: bool = False) -> None:
    """What the gate is there for: nothing is built and nothing waits while it is closed, from power-on.

    With `always`, each event builds and waits once. In a boot of its own: the unit tests would build.
    """
    name, log = f"{kernel.name} one node, traced from power-on:", logs / "one-node.console"
    script = "toggle cpu --cycles {0} >/dev/null && toggle memory --cycles {0} >/dev/null"
    boot = series_boot(kernel, "debug", "one", log, append=f"kunit.enable=0 {gate.TRACED}", one_thread=one_thread)
    with (
        results.case(f"{name} no build, no wait, no message, 100 CPU and block cycles; with always, each event once"),
        boot as machine,
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
def series_boot(
    kernel: Kernel, variant: str, topology: str, log: Path, *, append: str = "", **more: Any
) -> Iterator[Guest]:
    """A guest with the series kernel of that variant: with the time and the words its checkers need."""
    image, words = build.image(kernel, "series", variant), f"{build.BOOT_WORDS.get(variant, '')} {append}"
    with guest.boot(image, topology, log=log, timeout=BOOT_SECONDS[variant], append=words, **more) as machine:
        yield machine
        if variant == "kcsan":
            have_watched(machine.read(KCSAN))


def have_watched(counters: str) -> None:
    """KCSAN is quiet when it is off, too."""
    found = {name: int(number) for name, number in re.findall(r"^(\w+): (\d+)$", counters, re.M)}
    if not found.get("enabled") or found.get("setup_watchpoints", 0) < WATCHED:
        expected = f"KCSAN to be on, and to have watched {WATCHED} accesses"
        raise LabError(KCSAN, expected=expected, found=counters, do="see lab/kernels/config/kcsan.config")


def topology_boot(
    results: Results, kernel: Kernel, variant: str, topology: str, logs: Path, *, one_thread: bool = False
) -> None:
    """Everything that is tried in one boot."""
    name, log = f"{kernel.name} {variant} {topology}:", logs / f"{variant}-{topology}.console"
    with quiet(results, name), series_boot(
        kernel, variant, topology, log, append=UNIT_TESTS, programs=[build.selftest(kernel)], one_thread=one_thread
    ) as machine:
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


def first_commit(results: Results, kernel: Kernel, logs: Path) -> None:
    """The first commit alone boots; the last one is what all other boots are of."""
    with results.case(f"{kernel.name} the first commit alone, tiered: boots, quiet to the end"):
        mine = replace(build.beside(kernel, "first"), files=render.render(kernel).files(1))
        with guest.boot(build.image(mine, "series"), "tiered", log=logs / "first-tiered.console") as machine:
            absent = machine.sh(f"test -e {gate.SYSFS}", check=False).status
            assert absent, f"{gate.SYSFS} is there: this is not the first commit alone"


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
