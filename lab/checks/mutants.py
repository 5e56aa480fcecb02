# SPDX-License-Identifier: GPL-2.0
"""Planted faults: each is a small mistake somebody could make, and some test must notice it.

Each gets objects of its own beside the kernel's, and is tested until a test fails. One that survives is a missing test.
"""

import argparse
import functools
import re
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
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

Check = tuple[str, Callable[[Results, Kernel, Path, int], None]]  # a kernel variant, and tests on it


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
    known = {mutant.name for mutant in table()}
    for name in sorted(set(only) - known):
        raise LabError(f"mutant {name}", expected=" or ".join(sorted(known)), found=name, do="check the name")
    told = boots.tells_tiers(kernel)
    tiers = told and kernel.keeper == "mm/memory-tiers.c"
    return [m for m in table() if (told >= m.targets and tiers >= m.tiers) and (not only or m.name in only)]


def plant(mutant: Mutant, path: str, rendered: Mapping[str, bytes]) -> dict[str, bytes]:
    text = rendered.get(path, b"").decode()
    if (count := text.count(mutant.old)) != 1:
        raise LabError(f"mutant {mutant.name}", expected=f"exactly once in the rendered {path}:\n{mutant.old}",
                       found=f"{count} times", do=f"the series has changed: change {TABLE.name} with it")  # fmt: skip
    return {**rendered, path: text.replace(mutant.old, mutant.new).encode()}


def kunit(results: Results, kernel: Kernel, logs: Path) -> None:
    """A boot for the unit tests alone, which are done when it is up."""
    name, log = f"{kernel.name} debug one:", logs / "kunit-one.console"
    with boots.quiet(results, name), boots.series_boot(kernel, "debug", "one", log, boots.UNIT_TESTS) as machine:
        boots.run_kunit(results, machine, name)


def sure(variant: str, test: Callable[..., None], /, **how: object) -> Check:
    """A check that draws nothing by lot."""
    return variant, lambda results, kernel, logs, _: test(results, kernel, logs=logs, **how)


def booted(variant: str, topology: str) -> Check:
    return sure(variant, boots.topology_boot, variant=variant, topology=topology)


# In the order in which they are tried after the one that is named: what is quick comes first.
CHECKS: dict[str, Check] = {
    "kunit one": sure("debug", kunit),
    **{f"plain {topology}": booted("plain", topology) for topology in guest.TOPOLOGIES},
    "faults": sure("plain", faults.run, variant="plain"),
    **{f"debug {topology}": booted("debug", topology) for topology in guest.TOPOLOGIES},
    "one node": sure("debug", boots.one_node),
    "kasan one": booted("kasan", "one"),
    "parameter": ("plain", boots.parameter),
    "storm": ("debug", functools.partial(storm.run, seconds=STORM_SECONDS)),
    "races": ("kcsan", storm.races),
    "semantics": ("plain", lambda to, kernel, *_: lint.semantic(kernel, build.source(kernel, "series"), to)),
    **{f"fix {fault.name}": sure("plain", fixes.gone, fault=fault) for fault in fixes.FAULTS},
}


def perform(check: str, kernel: Kernel, rendered: Mapping[str, bytes], logs: Path, seed: int) -> Results:
    """One check on a kernel with these files. The tests must not know that it is not the usual one."""
    results = Results(show=lambda line: None)  # they are the mutant's, not the user's
    kernel, (variant, tests) = replace(kernel, files=rendered), CHECKS[check]
    build.image(kernel, "series", variant)  # what does not compile is no mutant that a test caught
    tree = build.source(kernel, "series")
    for name, data in rendered.items():
        assert (tree / name).read_bytes() == data, f"{tree / name} is not what was to be tried"
    tests(results, kernel, logs, seed)
    return results


def hunt(mutant: Mutant, attempt: Callable[[str], Sequence[str]]) -> tuple[str, bool]:
    """Try one check after the other until one fails, as `attempt` has it: a result that failed, if it is as named."""
    for check in (mutant.check, *(check for check in CHECKS if check != mutant.check)):
        if failures := attempt(check):
            named = [name for name in failures if check == mutant.check and re.search(mutant.test, name)]
            return (named or failures)[0], bool(named)
    return "", False


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
    for mutant in mutants:
        wanted = f"{mutant.check}: {mutant.test}"
        start = time.monotonic()
        try:
            caught_by, as_named = hunt(mutant, functools.partial(attempt, mutant))
        except LabError as error:  # it does not even compile
            results.note(f"{kernel.name} mutant {mutant.name}", False, str(error))
            continue
        why, took = f"{mutant.breaks}: no test notices. Expected {wanted}", time.monotonic() - start
        name = f"{kernel.name} mutant {mutant.name}: caught by {caught_by or 'nothing'}"
        results.note(name, bool(caught_by), why, took)
        if caught_by and not as_named:
            say(f"      warning: not by {wanted}")


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
