# SPDX-License-Identifier: GPL-2.0
"""Look at a command's words before anything is installed: refuse them, or print the packages of the kernels they name.

    python3 -m lab.ahead lab.comparison.bench --kernel 6.1

The libraries that the command works with may not be there yet. Parsing needs none: here, nothing stands in for them.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

LIBRARIES = ("jinja2", "matplotlib", "numpy", "rich", "scipy")


class Nothing(ModuleType):
    """Every name in it, and what comes of calling that, is nothing again."""

    def __getattr__(self, name: str) -> Nothing:
        return self

    def __call__(self, *_: object, **__: object) -> Nothing:
        return self


class Finder(MetaPathFinder, Loader):
    """Finds nothing, whether the library is there or not: that is quicker, too."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.partition(".")[0] in LIBRARIES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Nothing(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def main(given: argparse.Namespace) -> None:
    trees = importlib.import_module("lab.kernels.trees")
    words = importlib.import_module(given.module).parser().parse_args(given.words)
    print(*trees.packages(words) if "ksrc" in words else ())


if __name__ == "__main__":
    sys.meta_path.insert(0, Finder())
    from lab.common import launch

    parser = argparse.ArgumentParser("python3 -m lab.ahead", add_help=False)
    parser.add_argument("module")
    parser.add_argument("words", nargs=argparse.REMAINDER)
    launch(main, parser)
