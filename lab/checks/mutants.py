# SPDX-License-Identifier: GPL-2.0
"""Planted faults: each is a small mistake somebody could make, and some test must notice it.

A mutant is one text of ours in the rendered kernel, replaced by another. It gets a tree and objects of its own beside
those of the kernel, is compiled, booted, and tested until a test fails. One that survives is a missing test.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.checks import boots, faults, storm
from lab.checks.results import Results
from lab.common import LabError, launch, say
from lab.guests import guest
from lab.kernels import build, trees
from lab.kernels.trees import Kernel
from lab.rendering import render

GATE = "mm/demotion_gate.c"
TIERS = "mm/memory-tiers.c"
KEEPER = "(keeper)"  # the file that keeps node_demotion[], whichever it is
STORM_SECONDS = 60


@dataclass(frozen=True)
class Mutant:
    """A fault, and the test that is there for it: a check, and what its failing results are to be named."""

    name: str
    breaks: str
    old: str
    new: str
    check: str
    test: str
    file: str = GATE
    tiers: bool = False  # only where the kernel has tiers, and puts the nodes of `tiered` into two
    targets: bool = False  # only where a node of `tiered` has a target


MUTANTS = (
    # What decides
    Mutant(
        "opens-with-one-node", "auto opens the gate of a machine with one node",
        "\t\treturn memory_nodes > 1;", "\t\treturn memory_nodes > 0;",
        "kunit one", r"kunit demotion_gate_opens_test",
    ),
    Mutant(
        "opens-with-three-nodes", "auto keeps the gate of a machine with two nodes closed",
        "\t\treturn memory_nodes > 1;", "\t\treturn memory_nodes > 2;",
        "kunit one", r"kunit demotion_gate_opens_test",
    ),
    Mutant(
        "cpu-nodes-ignored", "targets stay as they are when a node gets its first or loses its last CPU",
        "\treturn event == DEMOTION_EVENT_CPU && cpu_nodes_changed;", "\treturn false;",
        "kunit one", r"kunit demotion_event_rebuilds_test",
    ),
    Mutant(
        "always-is-like-auto", "always rebuilds no more than auto does",
        "\tif (policy == DEMOTION_GATE_ALWAYS || due)", "\tif (due)",
        "kunit one", r"kunit demotion_event_rebuilds_test",
    ),
    # What a flip of the gate needs
    Mutant(
        "flip-without-rebuild", "the gate opens and there are no targets",
        "\tif (demotion_gate_is_open() && demotion_build_due)\n\t\tdemotion_gate_rebuild();\n", "",
        "kunit one", r"kunit demotion_gate_(always|round_trip)_test",
    ),
    Mutant(
        "plain-flip", "the key is flipped with the variant that takes the CPU lock a second time",
        "\t\tstatic_branch_enable_cpuslocked(", "\t\tstatic_branch_enable(",
        "kunit one", r"quiet to the end",
    ),
    Mutant(
        "close-flips-nothing", "a gate that should close stays open",
        "\tstatic_branch_disable_cpuslocked(&demotion_gate_key);\n", "",
        "kunit one", r"kunit demotion_gate_round_trip_test",
    ),
    Mutant(
        "close-clears-nothing", "targets from before are in force when the gate opens, until they are built",
        "\tdemotion_targets_clear();\n", "",
        "kunit tiered", r"kunit demotion_gate_clear_test", targets=True,
    ),
    Mutant(
        "close-makes-nothing-due", "a gate that was closed and opens believes its targets to be current",
        "\tdemotion_targets_clear();\n\tdemotion_build_due = true;\n", "\tdemotion_targets_clear();\n",
        "kunit one", r"kunit demotion_gate_never_test",
    ),
    Mutant(
        "policy-set-last", "a policy is in force with the next event, not when it is written",
        "\tWRITE_ONCE(demotion_gate_policy, policy);\n\tdemotion_gate_evaluate();\n",
        "\tdemotion_gate_evaluate();\n\tWRITE_ONCE(demotion_gate_policy, policy);\n",
        "kunit one", r"kunit demotion_gate_\w+_test",
    ),
    Mutant(
        "locks-the-other-way-round", "a policy writer takes the memory lock before the CPU lock",
        "\tcpus_read_lock();\n\tget_online_mems();\n\tmutex_lock(&demotion_gate_lock);\n\n\tWRITE_ONCE",
        "\tget_online_mems();\n\tcpus_read_lock();\n\tmutex_lock(&demotion_gate_lock);\n\n\tWRITE_ONCE",
        "kunit one", r"quiet to the end",
    ),
    # Events
    Mutant(
        "forgotten-node-event", "a node that came, or one whose going was cancelled, rebuilds nothing",
        "\tdemotion_build_due = true;\n\tmutex_unlock(&demotion_gate_lock);\n",
        "\tmutex_unlock(&demotion_gate_lock);\n",
        "kunit tiered", r"kunit demotion_gate_node_event_test",
    ),
    Mutant(
        "forgotten-cancel", "a cancelled offline is no event",
        "\tcase MEM_CANCEL_OFFLINE:\n", "",
        "plain one", r"policy\.\w+\.cancelled_offline",
    ),
    Mutant(
        "before-the-tiers", "the gate's notifier runs before that of the tier code",
        "#define DEMOTION_GATE_MEMORY_PRI\t90", "#define DEMOTION_GATE_MEMORY_PRI\t110",
        "plain hot-add", r"memory_leaves_under_another_policy",
    ),
    Mutant(
        "cpu-state-in-the-wrong-place", "a dead CPU is handled before node_states[N_CPU] is updated",
        "(CPUHP_MM_DEMOTION_DEAD,", "(CPUHP_BP_PREPARE_DYN,",
        "plain two-socket", r"policy\.auto\.node_cpu_events",
    ),
    Mutant(
        "stale-top-tier", "under never, node_is_toptier() goes by the CPUs of before",
        "\t\tdemotion_top_tier_refresh();\n", "\t\t;\n",
        "kunit tiered", r"kunit demotion_gate_top_tier_test", tiers=True,
    ),
    # Counters
    Mutant(
        "skipped-not-counted", "skipped stands still",
        "WRITE_ONCE(demotion_skipped, demotion_skipped + 1);", "WRITE_ONCE(demotion_skipped, demotion_skipped);",
        "kunit one", r"kunit demotion_gate_never_test",
    ),
    Mutant(
        "rebuild-not-counted", "rebuilds stands still",
        "\tWRITE_ONCE(demotion_rebuilds, demotion_rebuilds + 1);\n", "",
        "kunit one", r"kunit demotion_gate_always_test",
    ),
    Mutant(
        "rebuild-not-remembered", "every event rebuilds",
        "\tdemotion_build_due = false;\n", "",
        "kunit one", r"kunit demotion_gate_always_test",
    ),
    Mutant(
        "cpu-nodes-not-remembered", "with the gate open, every CPU event rebuilds",
        "\tdemotion_built_cpu_nodes = node_states[N_CPU];\n", "",
        "kunit tiered", r"kunit demotion_gate_cpu_nodes_test",
    ),
    # Boot
    Mutant(
        "no-evaluation-at-boot", "the gate of a machine with two nodes is closed until something happens",
        "\tdemotion_gate_evaluate();\n\t/*\n\t * Also if", "\t/*\n\t * Also if",
        "plain two-socket", r"gate as the nodes have it at boot",
    ),
    Mutant(
        "no-build-at-boot", "a machine boots with an open gate and no targets",
        "\tif (demotion_gate_is_open())\n\t\tdemotion_gate_rebuild();\n\tmutex_unlock", "\tmutex_unlock",
        "plain two-socket", r"gate as the nodes have it at boot",
    ),
    Mutant(
        "build-at-every-boot", "a machine with one node builds and waits once, at boot",
        "\tif (demotion_gate_is_open())\n\t\tdemotion_gate_rebuild();\n\tmutex_unlock",
        "\tdemotion_gate_rebuild();\n\tmutex_unlock",
        "one node", r"no build, no wait",
    ),
    Mutant(
        "message-at-every-boot", "a machine with one node hears of the gate at boot",
        "\tdemotion_gate_add_debugfs();\n\n\treturn 0;", '\tpr_info("closed\\n");\n\treturn 0;',
        "plain one", r"gate as the nodes have it at boot",
    ),
    Mutant(
        "key-behind-a-call", "in a kernel built for size, each look at the gate is a call",
        "static __always_inline bool demotion_gate_is_open(void)", "static inline bool demotion_gate_is_open(void)",
        "plain one", r"gate as the nodes have it at boot", file="include/linux/demotion_gate.h",
    ),
    Mutant(
        "bad-parameter-means-auto", "a misspelt boot parameter takes back the one before it",
        "\t\t\tstr);\n\t\treturn 1;\n", "\t\t\tstr);\n\t\tpolicy = DEMOTION_GATE_AUTO;\n",
        "parameter", r"demotion_gate=",
    ),
    Mutant(
        "parameter-handed-to-init", "the kernel says that it does not know demotion_gate=, and gives it to init",
        "\tdemotion_gate_policy = policy;\n\treturn 1;\n", "\tdemotion_gate_policy = policy;\n\treturn 0;\n",
        "parameter", r"demotion_gate=",
    ),
    # Files
    Mutant(
        "embedded-nul", "what follows a NUL in a written policy is not looked at",
        "\tif (strlen(buf) != count)\n", "\tif (!count)\n",
        "plain one", r"bad_policy_is_refused",
    ),
    Mutant(
        "prefix-is-enough", "a policy may be followed by anything",
        "\tpolicy = sysfs_match_string(demotion_gate_policies, buf);\n",
        '\tpolicy = strncmp(buf, "auto", 4) ? sysfs_match_string(demotion_gate_policies, buf) : 0;\n',
        "plain one", r"bad_policy_is_refused",
    ),
    Mutant(
        "wrong-mark", "policy marks those that are not in force",
        "len, i == policy ?", "len, i != policy ?",
        "plain one", r"policy\.\w+\.files",
    ),
    Mutant(
        "open-inverted", "open says the opposite",
        '"%d\\n", demotion_gate_is_open());', '"%d\\n", !demotion_gate_is_open());',
        "plain one", r"policy\.\w+\.files",
    ),
    # Users of the key
    Mutant(
        "inverted-key", "pages are demoted through a closed gate, and through an open one not",
        "\tif (!demotion_gate_is_open())\n\t\treturn NUMA_NO_NODE;",
        "\tif (demotion_gate_is_open())\n\t\treturn NUMA_NO_NODE;",
        "plain tiered", r"pages_are_demoted", file=KEEPER, targets=True,
    ),
    Mutant(
        "key-not-looked-at", "a gate that closes leaves reclaim its targets until they are cleared",
        "\tif (!demotion_gate_is_open())\n\t\treturn NUMA_NO_NODE;\n", "",
        "kunit tiered", r"kunit demotion_gate_(key|lookup)_test", file=KEEPER, targets=True,
    ),
    Mutant(
        "allowed-targets-not-gated", "node_get_allowed_targets() does not look at the key",
        "\tif (!demotion_gate_is_open()) {\n\t\t*targets = NODE_MASK_NONE;",
        "\tif (0) {\n\t\t*targets = NODE_MASK_NONE;",
        "kunit tiered", r"kunit demotion_gate_lookup_test", file=TIERS, tiers=True,
    ),
    # Memory
    Mutant(
        "one-node-too-many", "closing writes behind the array of the targets",
        "node_demotion && node < nr_node_ids;", "node_demotion && node <= nr_node_ids;",
        "kasan one", r"quiet to the end", file=KEEPER, tiers=True,
    ),
    # Marks on what is read without a lock
    Mutant(
        "policy-written-plainly", "who reads the policy meanwhile may get anything",
        "\tWRITE_ONCE(demotion_gate_policy, policy);", "\tdemotion_gate_policy = policy;",
        "races", r"quiet to the end",
    ),
    Mutant(
        "counter-written-plainly", "who reads a counter meanwhile may get anything",
        "\t\tWRITE_ONCE(demotion_skipped, demotion_skipped + 1);", "\t\tdemotion_skipped++;",
        "races", r"quiet to the end",
    ),
    Mutant(
        "targets-copied-plainly", "who reads the targets while they are built is not said to know",
        "data_race(node_demotion[node].preferred)", "node_demotion[node].preferred",
        "races", r"quiet to the end", file=TIERS, tiers=True,
    ),
)  # fmt: skip


# --- Planting --------------------------------------------------------------------------------------------------------


def path_of(mutant: Mutant, kernel: Kernel) -> str:
    return kernel.keeper if mutant.file == KEEPER else mutant.file


def chosen(kernel: Kernel, only: Sequence[str] = ()) -> list[Mutant]:
    """The mutants that this kernel can have, or those of them that are named."""
    known = {mutant.name for mutant in MUTANTS}
    for name in only:
        if name not in known:
            raise LabError(f"mutant {name}", expected=" or ".join(sorted(known)), found=name, do="check the name")
    told = boots.tells_tiers(kernel)
    tiers = told and kernel.keeper == TIERS
    return [m for m in MUTANTS if (told >= m.targets and tiers >= m.tiers) and (not only or m.name in only)]


def plant(mutant: Mutant, path: str, rendered: Mapping[str, bytes]) -> dict[str, bytes]:
    """The rendered files with this fault in them."""
    text = rendered[path].decode() if path in rendered else ""
    count = text.count(mutant.old)
    if count != 1:
        raise LabError(
            f"mutant {mutant.name}", expected=f"exactly once in the rendered {path}:\n{mutant.old}",
            found=f"{count} times", do="the series has changed: change the mutant in lab/checks/mutants.py with it",
        )  # fmt: skip
    return {**rendered, path: text.replace(mutant.old, mutant.new).encode()}


# --- Testing ---------------------------------------------------------------------------------------------------------


class Quiet(Results):
    """Results that are not the user's, only the mutant's: kept, not shown."""

    def note(self, name: str, ok: bool, why: str = "", seconds: float | None = None) -> None:
        if ok:
            self.passed += 1
        else:
            self.failures.append(name)
            self.reasons.append(why)

    def skip(self, name: str, why: str) -> None:
        self.skips.append(name)

    def __init__(self) -> None:
        super().__init__()
        self.reasons: list[str] = []


@dataclass(frozen=True)
class Check:
    """Some tests on one kernel variant."""

    variant: str
    perform: Callable[[Results, Kernel, Path, int], None]


def kunit(topology: str) -> Check:
    """A boot for the unit tests alone, which are done when it is up."""

    def perform(results: Results, kernel: Kernel, logs: Path, seed: int) -> None:
        name, log = f"{kernel.name} debug {topology}:", logs / f"kunit-{topology}.console"
        boot = boots.series_boot(kernel, "debug", topology, log, append="kunit.enable=1", one_thread=True)
        with boots.quiet(results, name), boot as machine:
            boots.run_kunit(results, machine, name, boots.kunit_declared(kernel, topology))

    return Check("debug", perform)


def booted(variant: str, topology: str) -> Check:
    def perform(results: Results, kernel: Kernel, logs: Path, seed: int) -> None:
        boots.topology_boot(results, kernel, variant, topology, logs, one_thread=True)

    return Check(variant, perform)


# In the order in which they are tried after the one that is named: what is quick comes first. In one thread, as all
# may die of a key that flips where CPUs run at once; but for the races, which flip none.
CHECKS: dict[str, Check] = {
    **{f"kunit {topology}": kunit(topology) for topology in guest.TOPOLOGIES},
    **{f"plain {topology}": booted("plain", topology) for topology in guest.TOPOLOGIES},
    "faults": Check(
        "plain", lambda results, kernel, logs, _: faults.run(results, kernel, "plain", logs, one_thread=True)
    ),
    **{f"debug {topology}": booted("debug", topology) for topology in guest.TOPOLOGIES},
    "one node": Check("debug", lambda results, kernel, logs, _: boots.one_node(results, kernel, logs, one_thread=True)),
    "kasan one": booted("kasan", "one"),
    "parameter": Check("plain", boots.parameter),
    "storm": Check(
        "debug", lambda results, kernel, logs, seed: storm.run(results, kernel, "debug", logs, STORM_SECONDS, seed)
    ),
    "races": Check("kcsan", storm.races),
}


def perform(check: str, kernel: Kernel, rendered: Mapping[str, bytes], logs: Path, seed: int) -> Quiet:
    """One check on a kernel with these files. The tests must not know that it is not the usual one."""
    results, kernel = Quiet(), replace(kernel, files=rendered)
    build.image(kernel, "series", CHECKS[check].variant)  # what does not compile is no mutant that a test caught
    tree = build.source(kernel, "series")
    for name, data in rendered.items():
        assert (tree / name).read_bytes() == data, f"{tree / name} is not what was to be tried"
    CHECKS[check].perform(results, kernel, logs, seed)
    return results


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: the check and the results that caught it, if any."""

    mutant: Mutant
    check: str = ""
    failures: tuple[str, ...] = ()

    @property
    def as_named(self) -> tuple[str, ...]:
        """Those failures that the table names."""
        if self.check != self.mutant.check:
            return ()
        return tuple(failure for failure in self.failures if re.search(self.mutant.test, failure))

    @property
    def caught_by(self) -> str:
        return (self.as_named or self.failures or ("nothing",))[0]


def hunt(mutant: Mutant, attempt: Callable[[str], Sequence[str]]) -> Verdict:
    """Try one check after the other until one fails; `attempt` says what fails in a check."""
    for check in (mutant.check, *(check for check in CHECKS if check != mutant.check)):
        if failures := tuple(attempt(check)):
            return Verdict(mutant, check, failures)
    return Verdict(mutant)


def rows(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The table, in Markdown."""
    yield "| mutant | what it breaks | test that is there for it | test that caught it |"
    yield "|---|---|---|---|"
    for verdict in verdicts:
        mutant = verdict.mutant
        yield f"| {mutant.name} | {mutant.breaks} | {mutant.check}: `{mutant.test}` | {verdict.caught_by} |"


def run(results: Results, kernel: Kernel, logs: Path, seed: int, only: Sequence[str] = ()) -> None:
    """All mutants, or those that are named. A survivor is a failure."""
    mutants = chosen(kernel, only)
    rendered = render.render(kernel).files()
    planted = {mutant.name: plant(mutant, path_of(mutant, kernel), rendered) for mutant in mutants}
    mine = build.beside(kernel, "mutants")
    logs.mkdir(parents=True, exist_ok=True)

    # What fails anyway says nothing about a mutant.
    sound: dict[str, set[str]] = {}

    def attempt(check: str, files: Mapping[str, bytes]) -> list[str]:
        if check not in sound:
            clean = perform(check, mine, rendered, logs, seed)
            sound[check] = set(clean.failures)
            why = "\n".join(f"{name}\n{reason}" for name, reason in zip(clean.failures, clean.reasons))
            results.note(f"{kernel.name} no fault planted: {check} passes", not clean.failures, why)
        if files is rendered:
            return []
        return [name for name in perform(check, mine, files, logs, seed).failures if name not in sound[check]]

    for check in dict.fromkeys(mutant.check for mutant in mutants):
        attempt(check, rendered)
    verdicts = []
    for mutant in mutants:
        start = time.monotonic()
        try:
            verdict = hunt(mutant, lambda check, files=planted[mutant.name]: attempt(check, files))
        except LabError as error:  # it does not even compile
            results.note(f"{kernel.name} mutant {mutant.name}", False, str(error))
            continue
        verdicts.append(verdict)
        took = time.monotonic() - start
        name = f"{kernel.name} mutant {mutant.name}: caught by {verdict.caught_by}"
        why = f"{mutant.breaks}: no test notices. Expected {mutant.check}: {mutant.test}"
        results.note(name, bool(verdict.failures), why, took)
        if verdict.failures and not verdict.as_named:
            say(f"      warning: not by {mutant.check}: {mutant.test}")
    table = kernel.build / "mutants.md"
    table.parent.mkdir(parents=True, exist_ok=True)
    table.write_text("\n".join(rows(verdicts)) + "\n")
    say(f"table: {os.path.relpath(table)}")


def parser() -> argparse.ArgumentParser:
    words = trees.command("lab.checks.mutants", __doc__)
    words.add_argument("--only", action="append", default=[], metavar="NAME", help="this mutant; may be repeated")
    words.add_argument("--list", action="store_true", help="print the mutants, try none")
    words.add_argument("--seed", type=int, default=1, help="of what is drawn by lot (default %(default)s)")
    return words


def main(given: argparse.Namespace) -> int:
    kernel = trees.chosen(given)[0]
    if given.list:
        for mutant in chosen(kernel, given.only):
            say(f"{mutant.name}: {mutant.breaks} ({mutant.check}: {mutant.test})")
        return 0
    results = Results()
    run(results, kernel, kernel.build / "mutants", given.seed, given.only)
    return results.end()


if __name__ == "__main__":
    launch(main, parser())
