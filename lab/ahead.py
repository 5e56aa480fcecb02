# SPDX-License-Identifier: GPL-2.0
"""Look at a command's words before anything is installed: refuse them, or print the packages of the kernels they name.

    python3 -m lab.ahead lab.comparison.bench --kernel 6.1

The libraries that the command works with may not be there yet. Parsing needs none: here, nothing stands in for them.
"""

import argparse
import importlib
import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from unittest.mock import MagicMock

LIBRARIES = ("jinja2", "matplotlib", "numpy", "rich", "scipy")


class Finder(Loader):
    """Finds nothing, whether the library is there or not: that is quicker, too."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.partition(".")[0] in LIBRARIES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return MagicMock()

    def exec_module(self, module: ModuleType) -> None:
        pass


def main(given: argparse.Namespace) -> None:
    debian = importlib.import_module("lab.kernels.trees").DEBIAN
    names = given.kernel if "ksrc" in given and not given.ksrc else ()
    print(*(f"linux-source-{name}" for name in names if name in debian))


if __name__ == "__main__":
    sys.meta_path.insert(0, Finder())
    from lab.common import launch

    del sys.argv[0]  # what is left is the command, and its words
    launch(main, importlib.import_module(sys.argv[0]).parser())
