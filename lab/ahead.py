# SPDX-License-Identifier: GPL-2.0
"""Look at a command's words before anything is installed: refuse them, or print the packages of the kernels they name.

    python3 -m lab.ahead lab.comparison.bench --kernel 6.1

The libraries that the command works with may not be there yet. Parsing needs none: here, something stands in for them.
"""

import argparse
import importlib
import sys
from unittest.mock import MagicMock

LIBRARIES = ("jinja2", "matplotlib", "matplotlib.axes", "matplotlib.figure", "matplotlib.pyplot", "matplotlib.ticker",
             "numpy", "rich", "rich.console", "scipy")  # fmt: skip


def main(given: argparse.Namespace) -> None:
    debian = importlib.import_module("lab.kernels.trees").DEBIAN
    names = given.kernel if "ksrc" in given and not given.ksrc else ()
    print(*(f"linux-source-{name}" for name in names if name in debian))


if __name__ == "__main__":
    sys.modules.update({name: MagicMock() for name in LIBRARIES})
    from lab.common import launch

    del sys.argv[0]  # what is left is the command, and its words
    launch(main, importlib.import_module(sys.argv[0]).parser())
