# SPDX-License-Identifier: GPL-2.0
"""`make check`: everything that can be tried, and a count of it."""

import argparse
import itertools
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

from lab.checks import boots, faults, fixes, lint, matrix, mutants, storm
from lab.checks.results import Results, expect
from lab.common import BUILD, ROOT, SEED, LabError, count, launch, run, say
from lab.comparison import here
from lab.guests import guest
from lab.kernels import trees
from lab.kernels.trees import Kernel
from lab.rendering import render


def units(results: Results) -> None:
    """The lab's own tests; each is a result."""
    say("\n== the lab's own tests")
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "units.xml"
        options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        done = run([sys.executable, "-m", "pytest", *options, "lab/tests"], cwd=ROOT, check=False)
        found = list(xml.parse(report).iter("testcase")) if report.exists() else []
    for test in found:
        bad = [*test.iter("failure"), *test.iter("error"), *test.iter("skipped")]
        name = f"{test.get('classname', '').rpartition('.')[2]} {test.get('name')}"
        results.note(name, not bad, "\n".join(each.text or each.get("message") or "" for each in bad))
    if not found or (done.returncode and not results.failures):
        results.note("pytest", False, done.stdout)


def rendering(results: Results, kernel: Kernel) -> None:
    """The series renders for this tree, twice to the same bytes, and leaves the tree alone."""
    with results.case(f"{kernel.name} the series renders, repeatably"):
        rendered = render.render(kernel)
        if trees.word(kernel.name):
            expect("parts of the series that find no place", {}, rendered.left)
        with tempfile.TemporaryDirectory() as scratch:
            out = [render.series(kernel, Path(scratch) / name, who=render.NOBODY) for name in ("one", "two")]
            for one, two in zip(*out, strict=True):
                assert one.read_bytes() == two.read_bytes(), f"{one.name} differs between two renderings"
            expect("patches", len(rendered.commits) + 1, len(out[0]))


def kernel_checks(results: Results, kernel: Kernel, everything: bool, seed: int, storm_seconds: float) -> None:
    logs = kernel.build / "check"
    logs.mkdir(parents=True, exist_ok=True)
    say(f"\n== {kernel.name}: rendering and static checks")
    rendering(results, kernel)
    lint.run(kernel, results)
    say(f"\n== {kernel.name}: boots")
    for topology in guest.TOPOLOGIES:
        boots.topology_boot(results, kernel, "plain", topology, logs)
    if everything or kernel.name == trees.DEFAULT or kernel.name not in trees.DEBIAN:
        boots.parameter(results, kernel, logs, seed)
        say(f"\n== {kernel.name}: lockdep, unit tests, faults, storm")
        for topology in guest.TOPOLOGIES:
            boots.topology_boot(results, kernel, "debug", topology, logs)
        boots.one_node(results, kernel, logs)
        faults.run(results, kernel, "debug", logs)
        storm.run(results, kernel, logs, seed, storm_seconds)
    if everything:
        say(f"\n== {kernel.name}: the slow part")
        boots.each_fix(results, kernel, logs)
        matrix.run(kernel, results)
        for variant, topology in itertools.product(("kasan", "kcsan"), guest.TOPOLOGIES):
            boots.topology_boot(results, kernel, variant, topology, logs)
        storm.races(results, kernel, logs, seed)
        here.prove(results, kernel)
        fixes.both(results, kernel, logs)
        mutants.run(results, kernel, logs, seed)


def parser() -> argparse.ArgumentParser:
    words = trees.command("lab.checks.check", __doc__, every=True)
    words.add_argument("--all", action="store_true", help="the slow part too")
    words.add_argument("--seed", type=int, default=SEED, help="of what is drawn by lot (default %(default)s)")
    about = "how long it storms (default %(default)s)"
    words.add_argument("--storm", type=count, default=storm.SECONDS, metavar="SECONDS", help=about)
    return words


def main(given: argparse.Namespace) -> int:
    results = Results()
    BUILD.mkdir(exist_ok=True)
    units(results)
    kernels = trees.chosen(given)
    if len(kernels) > 1:
        results.skip("5.15", "no 5.15 tree (KSRC=)")  # which is in no package
    for kernel in kernels:
        try:
            kernel_checks(results, kernel, given.all, given.seed, given.storm)
        except LabError as error:
            results.note(f"{kernel.name} to the end", False, str(error))
    return results.end()


if __name__ == "__main__":
    launch(main, parser())
