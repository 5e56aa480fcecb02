# SPDX-License-Identifier: GPL-2.0
"""The tests that boot: the selftest and what only the outside can do, in every topology."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from lab.checks.results import Results, expect, ktap
from lab.common import LabError
from lab.guests import guest
from lab.guests.guest import Guest
from lab.kernels import build
from lab.kernels.trees import Kernel
from lab.rendering import render

GATE = "/sys/kernel/mm/numa/demotion_gate"
COUNTERS = "/sys/kernel/debug/demotion_gate"
# Under TCG, on a machine that does something else as well.
BOOT_SECONDS = {"plain": 60, "debug": 180, "kasan": 300, "kcsan": 300}
TEST_SECONDS = 1800
KCSAN = "/sys/kernel/debug/kcsan"
WATCHED = 1000  # accesses: less is no look

# Which selftest cases a topology cannot show, by a pattern of their names. What skips and is not in here has failed.
NO_SECOND_NODE = "one node has memory"
NO_CPUS_TO_EMPTY = "no node's CPUs can all go while another has some"
NO_MOVABLE_NODE = "no node's memory can all go"
NO_LOWER_TIER = "no node has a lower tier that stays"
CPU_NODE = r"demotion_gate\.cpus_leave_under_another_policy|policy\..*\.node_cpu_events"
MEMORY_NODE = (
    r"demotion_gate\.memory_leaves_under_another_policy|policy\..*\.(node_memory_events|cancelled_offline_of_a_node)"
)
DEMOTED = r"demotion_gate\.pages_are_demoted"
DECLARED: dict[str, dict[str, str]] = {
    "one": {
        r"demotion_gate\.(open_gate_gives_the_right_targets|round_trips_of_the_policy)": NO_SECOND_NODE,
        CPU_NODE: NO_CPUS_TO_EMPTY, MEMORY_NODE: NO_MOVABLE_NODE, DEMOTED: NO_LOWER_TIER,
    },
    "two-socket": {MEMORY_NODE: NO_MOVABLE_NODE, DEMOTED: NO_LOWER_TIER},
    "tiered": {CPU_NODE: NO_CPUS_TO_EMPTY, MEMORY_NODE: NO_MOVABLE_NODE},
    "hot-add": {CPU_NODE: NO_CPUS_TO_EMPTY, DEMOTED: NO_LOWER_TIER},
}  # fmt: skip
UNTIERED = {DEMOTED: "this kernel puts plain nodes into one tier, whatever the HMAT says"}


def declared(kernel: Kernel, topology: str) -> dict[str, str]:
    """What may skip there."""
    return DECLARED[topology] | (UNTIERED if not tells_tiers(kernel) else {})


def kunit_declared(kernel: Kernel, topology: str) -> dict[str, str]:
    """What KUnit may skip there."""
    skips = {}
    if topology in ("one", "hot-add"):  # it runs before there is a DIMM
        skips["demotion_gate_cpu_nodes_test"] = NO_SECOND_NODE
    if topology != "tiered" or not tells_tiers(kernel):
        skips["demotion_gate_top_tier_test"] = NO_LOWER_TIER
        skips |= dict.fromkeys(("demotion_gate_key_test", "demotion_gate_lookup_test"), NO_LOWER_TIER)
    return skips


def tells_tiers(kernel: Kernel) -> bool:
    """Can this kernel tell the nodes of `tiered` apart? By the HMAT, or, before memory tiers, by their CPUs."""
    return kernel.keeper == "mm/migrate.c" or "mt_calc_adistance" in (kernel.source / kernel.keeper).read_text()


def gate(machine: Guest) -> tuple[str, int]:
    """The policy and whether the gate is open."""
    policy = re.search(r"\[(\w+)\]", machine.read(f"{GATE}/policy"))
    return policy[1] if policy else "?", int(machine.read(f"{GATE}/open"))


def counters(machine: Guest) -> tuple[int, int]:
    """Rebuilds and skipped events since boot."""
    return int(machine.read(f"{COUNTERS}/rebuilds")), int(machine.read(f"{COUNTERS}/skipped"))


def targets(machine: Guest, node: int) -> str:
    return machine.read(f"/sys/devices/system/node/node{node}/demotion_targets")


def boot_state(machine: Guest, nodes: int) -> None:
    """What must hold after booting with the default policy: a gate that fits the nodes, and a build if it is open.

    With one node the log has no word of it. The key is looked at where it is asked for: these kernels are built for
    size, where a function that is only `inline` becomes a call.
    """
    several = nodes > 1
    expect("policy and gate", ("auto", int(several)), gate(machine))
    expect("builds since boot", int(several), counters(machine)[0])
    if not several:
        expect("lines about demotion in the log", "", machine.sh("dmesg | grep -i demot", check=False).text)
    expect("a function demotion_gate_is_open()", "",
           machine.sh("grep -w demotion_gate_is_open /proc/kallsyms", check=False).text)  # fmt: skip


def dimm_comes_and_goes(machine: Guest, target: str) -> None:
    """The gate opens with the second node's memory and closes when it is gone; node 0's targets follow."""
    for _ in range(2):
        expect("gate before the DIMM", 0, gate(machine)[1])
        rebuilds = counters(machine)[0]
        dimm = machine.plug()
        expect("gate with the DIMM", 1, gate(machine)[1])
        expect("builds by the DIMM's memory", 1, counters(machine)[0] - rebuilds)
        expect("targets of node 0", target, targets(machine, 0))
        expect("targets of node 1", "", targets(machine, 1))
        machine.unplug(dimm)
        expect("gate without the DIMM", 0, gate(machine)[1])
        expect("targets of node 0", "", targets(machine, 0))
        expect("builds when it went", 1, counters(machine)[0] - rebuilds)


def run_selftest(results: Results, machine: Guest, name: str, may_skip: dict[str, str]) -> None:
    """The selftest; each of its cases is a result."""
    output = machine.sh("demotion_gate", timeout=TEST_SECONDS, check=False)
    seen = 0
    for case, state, why in ktap(output.text):
        seen += 1
        label = f"{name} {case}"
        reason = next((reason for key, reason in may_skip.items() if re.fullmatch(key, case)), None)
        if state == "skip" and reason:
            results.skip(label, reason)
        else:
            undeclared = "skipped, which is not declared for this topology: " if state == "skip" else ""
            results.note(label, state == "ok", undeclared + why)
    plan = re.search(r"^1\.\.(\d+)$", output.text, re.M)
    with results.case(f"{name} selftest ran to its end"):
        expect("results of the selftest, as its plan has them", int(plan[1]) if plan else "a plan", seen)


def run_kunit(results: Results, machine: Guest, name: str, may_skip: dict[str, str]) -> None:
    """The KUnit results of the boot."""
    text = machine.sh("cat /sys/kernel/debug/kunit/demotion_gate/results", check=False).text
    lines = (line.strip() for line in text.splitlines() if line.startswith(" "))  # the suite's own result is not
    cases = [found for line in lines for found in ktap(line)]
    for case, state, why in cases:
        if state == "skip" and case in may_skip:
            results.skip(f"{name} kunit {case}", may_skip[case])
        else:
            results.note(f"{name} kunit {case}", state == "ok", why or text)
    if not cases:
        results.note(f"{name} kunit", False, f"no results in debugfs:\n{text}")


TRACE = "/sys/kernel/debug/tracing"
TRACED = "ftrace=function ftrace_filter=synchronize_rcu trace_buf_size=8M"  # from before the first initcall


def waits(machine: Guest) -> tuple[int, int]:
    """The grace periods waited for since tracing began: all, and those of the demotion code, by the caller."""
    demotion = "<-(.*demotion|.*migrate_target|.*migration_target)"
    script = f"grep -c synchronize_rcu {TRACE}/trace; grep -cE '{demotion}' {TRACE}/trace; true"
    everyone, own = (int(line) for line in machine.sh(script).text.split())
    return everyone, own


def counted(machine: Guest, cycles: int = 100) -> None:
    """A machine with one node, traced from its boot on: nothing is built and nothing waits while the gate is closed.

    With `always`, each event builds and waits once.
    """
    script = "toggle cpu --cycles {0} >/dev/null && toggle memory --cycles {0} >/dev/null"
    boot_state(machine, 1)
    booted = waits(machine)
    assert booted[0], "tracing saw no grace period of anyone during boot: it was not on"
    machine.sh(script.format(cycles), timeout=TEST_SECONDS)
    found = (counters(machine)[0], waits(machine)[1])
    expect("rebuilds, grace periods of the demotion code since power-on", (0, 0), found)
    skipped = counters(machine)[1]
    assert skipped >= 4 * cycles, f"{skipped} events were skipped, expected at least {4 * cycles}"
    machine.sh(f"echo always >{GATE}/policy; echo >{TRACE}/trace")
    rebuilds, skipped = counters(machine)
    machine.sh(script.format(5), timeout=TEST_SECONDS)
    now = counters(machine)
    expect("skipped with `always`", 0, now[1] - skipped)
    assert now[0] - rebuilds >= 20, f"rebuilds grew by {now[0] - rebuilds} with `always`, expected at least 20"
    expect("grace periods of the demotion code with `always`", now[0] - rebuilds, waits(machine)[1])


def one_node(results: Results, kernel: Kernel, logs: Path) -> None:
    """What the gate is there for, in a boot of its own: the unit tests would build."""
    name, log = f"{kernel.name} one node, traced from power-on:", logs / "one-node.console"
    with results.case(f"{name} no build, no wait, no message, 100 CPU and block cycles; with always, each event once"):
        with series_boot(kernel, "debug", "one", log, append=f"kunit.enable=0 {TRACED}") as machine:
            counted(machine)


@contextlib.contextmanager
def series_boot(
    kernel: Kernel, variant: str, topology: str, log: Path, *, append: str = "", programs: Sequence[Path] = ()
) -> Iterator[Guest]:
    """A guest with the series kernel of that variant: with the time and the words its checkers need."""
    image, words = build.image(kernel, "series", variant), f"{build.BOOT_WORDS.get(variant, '')} {append}"
    seconds = BOOT_SECONDS[variant]
    with guest.boot(image, topology, log=log, append=words, programs=programs, timeout=seconds) as machine:
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
    name = f"{kernel.name} {variant} {topology}:"
    log = logs / f"{variant}-{topology}.console"
    unit_tests = "debug" in build.VARIANTS[variant]
    try:
        # Without default symbols, KUnit waits to be asked; a kernel without it does not know the parameter.
        append, programs = "kunit.enable=1", [build.selftest(kernel)]
        with series_boot(kernel, variant, topology, log, append=append, programs=programs) as machine:
            if unit_tests:
                run_kunit(results, machine, name, kunit_declared(kernel, topology))
            else:
                with results.case(f"{name} gate as the nodes have it at boot, built if it is open"):
                    boot_state(machine, 2 if topology in ("two-socket", "tiered") else 1)
            if topology == "hot-add":
                with results.case(f"{name} the gate follows the DIMM"):
                    dimm_comes_and_goes(machine, "1" if tells_tiers(kernel) else "")
                machine.plug()
            run_selftest(results, machine, name, declared(kernel, topology))
    except LabError as error:
        results.note(f"{name} quiet to the end", False, str(error))
    else:
        results.note(f"{name} quiet to the end", True)


def first_commit(results: Results, kernel: Kernel, logs: Path) -> None:
    """The first commit alone boots; the last one is what all other boots are of."""
    with results.case(f"{kernel.name} the first commit alone, tiered: boots, quiet to the end"):
        mine = build.beside(kernel, "first")
        with build.instead(render.render(kernel).files(1)):
            image = build.image(mine, "series")
        with guest.boot(image, "tiered", log=logs / "first-tiered.console") as machine:
            absent = machine.sh(f"test -e {GATE}", check=False).status
            assert absent, f"{GATE} is there: this is not the first commit alone"


WORDS = ("auto", "always", "never")


def parameter(results: Results, kernel: Kernel, logs: Path, seed: int, boots: int = 4) -> None:
    """The boot parameter: the three words; what is none of them gives one warning and leaves what was set."""
    chance = random.Random(seed)
    bad = ["", "AUTO", "auto,never", "x" * 900, "nevery", "0"]
    alphabet = "abcdefghijklmnopqrstuvwxyzALWAYS0123456789-_.[]"
    bad += ["".join(chance.choices(alphabet, k=chance.randint(1, 40))) for _ in range(20)]
    given = [(value,) for value in (*WORDS[1:], *chance.sample(bad, boots))]
    for values in [*given, ("never", "nope"), ("never", "always")]:
        shown = " demotion_gate=".join(value if len(value) < 45 else value[:20] + "…" for value in values)
        with results.case(f"{kernel.name} demotion_gate={shown}"):
            log = logs / "parameter.console"
            append = " ".join(f"demotion_gate={value}" for value in values)
            with guest.boot(build.image(kernel, "series"), "one", log=log, append=append) as machine:
                policy = ["auto", *(value for value in values if value in WORDS)][-1]
                expect("policy and gate", (policy, int(policy == "always")), gate(machine))
                warned = machine.sh("dmesg | grep -c 'demotion_gate: expected'", check=False).text.strip()
                expect("warnings", str(sum(value not in WORDS for value in values)), warned)
                # What no part of the kernel takes is handed to init.
                unknown = "dmesg | grep 'Unknown kernel command line' | grep demotion_gate"
                expect("words of ours that the kernel does not know", "", machine.sh(unknown, check=False).text)

