# SPDX-License-Identifier: GPL-2.0
"""`make reach TREES=folder`: for each kernel tree in a folder: does the series render, apply and compile? A table."""

import argparse
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from unittest import SkipTest

from lab.checks import lint
from lab.checks.results import Results, expect
from lab.common import CACHE, launch, locked, say
from lab.kernels import trees
from lab.kernels.trees import Kernel
from lab.rendering import render

STAGES = ("renders", "git am", "checkpatch", "compiles", "without KUnit")


def compile_touched(here: lint.Scratch, files: Mapping[str, bytes], off: str) -> None:
    """What the series touches, for x86-64. A tree that does not compile without it says nothing of it."""
    texts = {path: data for path, data in files.items() if lint.in_kernel(path)}
    objects = [name for name in lint.objects_of(texts, texts) if not (off and "kunit" in name)]

    def warnings(laid: Mapping[str, bytes], names: Iterable[str]) -> Counter[str]:
        here.lay(laid)
        here.configure("objects", lint.base_config(here.kernel) + off)
        return here.compile("objects", [*names], lint.compiler())

    try:
        known = warnings({}, (name for name in objects if (here.stock / name).with_suffix(".c").exists()))
    except AssertionError as error:
        raise SkipTest(f"nor without the series: {'; '.join(str(error).splitlines()[1:3])}") from None
    lint.no_lines("new warnings", (warnings(files, objects) - known).elements())


def try_tree(kernel: Kernel, results: Results) -> str:
    """Each stage is a result at least. What was left out."""
    rendering = render.render(kernel)
    results.note(f"{kernel.name} renders", True)
    with results.case(f"{kernel.name} git am"), tempfile.TemporaryDirectory(prefix="reach-") as out:
        patches = render.series(kernel, Path(out) / "series", rendering, render.NOBODY)
        git = render.Git(Path(out) / "tree", render.NOBODY)
        git.copy(kernel, rendering)
        git("am", "-q", *patches[1:])
        for path, data in rendering.files().items():
            expect(path, data, (git.top / path).read_bytes())
    lint.patches(kernel, results)
    with lint.scratch(kernel) as here:
        for stage, off in zip(STAGES[3:], ("", "# CONFIG_KUNIT is not set\n"), strict=True):
            with results.case(f"{kernel.name} {stage}"):
                compile_touched(here, rendering.files(), off)
    short = (re.sub("/.*", "", what) if what.startswith(render.TEXTS) else what for what in rendering.left)
    return "; ".join(dict.fromkeys(short))


def main(given: argparse.Namespace) -> int:
    results, rows = Results(), [("kernel", "tree", *STAGES, "left out", "s"), ("---",) * (len(STAGES) + 4)]
    for path in sorted(path for path in given.trees.iterdir() if (path / "Kbuild").exists()):
        start, at, version, left = time.monotonic(), (len(results.failures), len(results.skipped)), "?", ""
        with locked(CACHE / "reach/run.lock"), results.case(refusal := f"{path.name}: one for the series"):
            # One cache for all: what a tree has in common with the one before is not copied again.
            kernel = replace(trees.own(path), name=path.name.replace(" ", "-"), cache=CACHE / "reach")
            version = kernel.version
            shutil.rmtree(kernel.cache / "lint/objects", ignore_errors=True)
            left = try_tree(kernel, results)
        failed, skipped = str(results.failures[at[0] :]), str(results.skipped[at[1] :])
        none = [stage for stage in STAGES if stage in skipped or refusal in failed]
        marks = ["-" if stage in none else "no" if stage in failed else "yes" for stage in STAGES]
        rows.append((version, path.name, *marks, left or "-", f"{time.monotonic() - start:.0f}"))
    for row in rows:
        say(f"| {' | '.join(row)} |")
    return results.end()


def parser() -> argparse.ArgumentParser:
    words = argparse.ArgumentParser("python3 -m lab.checks.reach", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--trees", type=Path, required=True, metavar="FOLDER", help="a folder with kernel trees in it")
    return words


if __name__ == "__main__":
    launch(main, parser())
