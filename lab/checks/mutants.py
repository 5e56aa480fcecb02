# SPDX-License-Identifier: GPL-2.0
"""Planted faults: each is a small mistake somebody could make, and some test must notice it.

A mutant is one text of ours in the rendered kernel, replaced by another; mutants.toml has them. It gets a tree and
objects of its own beside those of the kernel, is compiled, booted, and tested until a test fails. One that survives is
a missing test.
"""

import argparse
import functools
import os
import re
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.checks import boots, faults, fixes, lint, storm
from lab.checks.results import Results
from lab.common import LabError, launch, say
from lab.guests import guest
from lab.kernels import build, trees
from lab.kernels.trees import Kernel
from lab.rendering import render

TABLE = Path(__file__).resolve().with_name("mutants.toml")
GATE_FILE = "mm/demotion_gate.c"
STORM_SECONDS = 60


@dataclass(frozen=True)
class Mutant:
    """A fault, and the test that is there for it; the table says what each word means."""

    name: str
    breaks: str
    old: str
    new: str
    check: str
    test: str
    file: str = GATE_FILE
    tiers: bool = False
    targets: bool = False


@functools.cache
def table() -> tuple[Mutant, ...]:
    found, at = [], ""
    try:
        for name, words in tomllib.loads(TABLE.read_text()).items():
            at = f" [{name}]"
            found.append(Mutant(name, **words))
            if found[-1].check not in CHECKS:
                raise ValueError(f"no check {found[-1].check!r}; there are: {', '.join(CHECKS)}")
    except (TypeError, ValueError) as error:  # Python's own text names the word that is unknown or missing
        expected = "a table as its first lines say"
        raise LabError(f"{TABLE}{at}", expected=expected, found=str(error), do="correct it") from None
    return tuple(found)


def chosen(kernel: Kernel, only: Sequence[str] = ()) -> list[Mutant]:
    """The mutants that this kernel can have, or those of them that are named."""
    if unknown := set(only) - (known := {mutant.name for mutant in table()}):
        name = min(unknown)
        raise LabError(f"mutant {name}", expected=" or ".join(sorted(known)), found=name, do="check the name")
    told = boots.tells_tiers(kernel)
    tiers = told and kernel.keeper == "mm/memory-tiers.c"
    return [m for m in table() if (told >= m.targets and tiers >= m.tiers) and (not only or m.name in only)]


def plant(mutant: Mutant, path: str, rendered: Mapping[str, bytes]) -> dict[str, bytes]:
    text = rendered[path].decode() if path in rendered else ""
    count = text.count(mutant.old)
    if count != 1:
        raise LabError(f"mutant {mutant.name}", expected=f"exactly once in the rendered {path}:\n{mutant.old}",
                       found=f"{count} times", do=f"the series has changed: change {TABLE.name} with it")  # fmt: skip
    return {**rendered, path: text.replace(mutant.old, mutant.new).encode()}


@dataclass(frozen=True)
class Check:
    """Some tests on one kernel variant."""

    variant: str
    perform: Callable[[Results, Kernel, Path, int], None]


def kunit(results: Results, kernel: Kernel, logs: Path) -> None:
    """A boot for the unit tests alone, which are done when it is up."""
    name, log = f"{kernel.name} debug one:", logs / "kunit-one.console"
    boot = boots.series_boot(kernel, "debug", "one", log, append=boots.UNIT_TESTS, one_thread=True)
    with boots.quiet(results, name), boot as machine:
        boots.run_kunit(results, machine, name)


def sure(variant: str, test: Callable[..., None], /, **how: object) -> Check:
    """A check that draws nothing by lot."""
    return Check(variant, lambda results, kernel, logs, _: test(results, kernel, logs=logs, **how))


def booted(variant: str, topology: str) -> Check:
    return sure(variant, boots.topology_boot, variant=variant, topology=topology, one_thread=True)


# In the order in which they are tried after the one that is named: what is quick comes first. In one thread, as all
# may die of a key that flips where CPUs run at once; but for the races, which flip none.
CHECKS: dict[str, Check] = {
    "kunit one": sure("debug", kunit),
    **{f"plain {topology}": booted("plain", topology) for topology in guest.TOPOLOGIES},
    "faults": sure("plain", faults.run, variant="plain", one_thread=True),
    **{f"debug {topology}": booted("debug", topology) for topology in guest.TOPOLOGIES},
    "one node": sure("debug", boots.one_node, one_thread=True),
    "kasan one": booted("kasan", "one"),
    "parameter": Check("plain", boots.parameter),
    "storm": Check("debug", functools.partial(storm.run, seconds=STORM_SECONDS)),
    "races": Check("kcsan", storm.races),
    "semantics": Check("plain", lambda to, kernel, *_: lint.semantic(kernel, build.source(kernel, "series"), to)),
    **{f"fix {fault.name}": sure("plain", fixes.gone, fault=fault) for fault in fixes.FAULTS},
}


def perform(check: str, kernel: Kernel, rendered: Mapping[str, bytes], logs: Path, seed: int) -> Results:
    """One check on a kernel with these files. The tests must not know that it is not the usual one."""
    results = Results(show=lambda line: None)  # they are the mutant's, not the user's
    kernel = replace(kernel, files=rendered)
    build.image(kernel, "series", CHECKS[check].variant)  # what does not compile is no mutant that a test caught
    tree = build.source(kernel, "series")
    for name, data in rendered.items():
        assert (tree / name).read_bytes() == data, f"{tree / name} is not what was to be tried"
    CHECKS[check].perform(results, kernel, logs, seed)
    return results


@dataclass(frozen=True)
class Fate:
    """What became of a mutant: the results of one check that caught it, if any."""

    mutant: Mutant
    failures: tuple[str, ...] = ()
    as_named: tuple[str, ...] = ()  # those that the table names

    @property
    def caught_by(self) -> str:
        return (self.as_named or self.failures or ("nothing",))[0]


def hunt(mutant: Mutant, attempt: Callable[[str], Sequence[str]]) -> Fate:
    """Try one check after the other until one fails; `attempt` says what fails in a check."""
    for check in (mutant.check, *(check for check in CHECKS if check != mutant.check)):
        if failures := tuple(attempt(check)):
            named = tuple(name for name in failures if check == mutant.check and re.search(mutant.test, name))
            return Fate(mutant, failures, named)
    return Fate(mutant)


def rows(fates: Sequence[Fate]) -> Iterator[str]:
    yield "| mutant | what it breaks | test that is there for it | test that caught it |"
    yield "|---|---|---|---|"
    for fate in fates:
        mutant = fate.mutant
        yield f"| {mutant.name} | {mutant.breaks} | {mutant.check}: `{mutant.test}` | {fate.caught_by} |"


def run(results: Results, kernel: Kernel, logs: Path, seed: int, only: Sequence[str] = ()) -> None:
    """All mutants, or those that are named. A survivor is a failure."""
    mutants = chosen(kernel, only)
    rendered = render.render(kernel).files()
    at = {"(keeper)": kernel.keeper}
    planted = {mutant: plant(mutant, at.get(mutant.file, mutant.file), rendered) for mutant in mutants}
    mine = build.beside(kernel, "mutants")
    logs.mkdir(parents=True, exist_ok=True)

    @functools.cache
    def unsound(check: str) -> set[str]:
        """What fails anyway, and so says nothing about a mutant."""
        clean = perform(check, mine, rendered, logs, seed)
        why = "\n".join(f"{name}\n{reason}" for name, reason in zip(clean.failures, clean.reasons, strict=True))
        results.note(f"{kernel.name} no fault planted: {check} passes", not clean.failures, why)
        return set(clean.failures)

    def attempt(mutant: Mutant, check: str) -> list[str]:
        known = unsound(check)
        return [name for name in perform(check, mine, planted[mutant], logs, seed).failures if name not in known]

    for check in dict.fromkeys(mutant.check for mutant in mutants):
        unsound(check)
    fates = []
    for mutant in mutants:
        start = time.monotonic()
        try:
            fate = hunt(mutant, functools.partial(attempt, mutant))
        except LabError as error:  # it does not even compile
            results.note(f"{kernel.name} mutant {mutant.name}", False, str(error))
            continue
        fates.append(fate)
        why = f"{mutant.breaks}: no test notices. Expected {mutant.check}: {mutant.test}"
        name = f"{kernel.name} mutant {mutant.name}: caught by {fate.caught_by}"
        results.note(name, bool(fate.failures), why, time.monotonic() - start)
        if fate.failures and not fate.as_named:
            say(f"      warning: not by {mutant.check}: {mutant.test}")
    report = kernel.build / "mutants.md"
    report.write_text("\n".join(rows(fates)) + "\n")
    say(f"table: {os.path.relpath(report)}")


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
