# SPDX-License-Identifier: GPL-2.0
"""The kernels the lab knows, and what a given tree is: told by what is in it, never by its version string."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from lab.common import BUILD, CACHE, LabError, locked, run, say

DEBIAN = {  # KERNEL= : the Debian package that holds its source
    "6.12": "linux-source-6.12",
    "6.1": "linux-source-6.1",
}
DEFAULT = "6.12"
SELFTESTS = ("tools/testing/selftests/mm", "tools/testing/selftests/vm")
KEEPERS = ("mm/memory-tiers.c", "mm/migrate.c")  # where a tree may keep node_demotion[]


@dataclass(frozen=True)
class Kernel:
    """A kernel source tree that the lab only reads."""

    name: str
    source: Path
    cache: Path  # object directories and working copies, shared by all checkouts of this repository
    # Its series as files, where that is not to be rendered: it has been, or is the first commit, or has a fault planted.
    files: Mapping[str, bytes] | None = field(default=None, compare=False)

    @property
    def build(self) -> Path:
        """What this checkout makes of the kernel: the patches, the tree, the reports."""
        return BUILD / self.name

    @cached_property
    def version(self) -> str:
        return tree_version(self.source)

    @cached_property
    def keeper(self) -> str:
        """The file that keeps node_demotion[]."""
        for path in KEEPERS:
            file = self.source / path
            if file.exists() and re.search(r"^static .*\bnode_demotion\b", file.read_text(), re.M):
                return path
        raise LabError(
            str(self.source),
            expected="node_demotion[] in " + " or ".join(KEEPERS),
            found=f"none of them keeps it (Makefile says {self.version})",
            do="name a tree of 5.15 or later with KSRC=",
        )

    @cached_property
    def selftests(self) -> str:
        """Where this tree keeps the mm selftests."""
        for path in SELFTESTS:
            if (self.source / path).is_dir():
                return path
        raise LabError(
            str(self.source), expected=" or ".join(SELFTESTS), found="neither", do="name a complete tree with KSRC="
        )

    def lock(self):
        return locked(self.cache / "lock")


def tree_version(source: Path) -> str:
    """VERSION.PATCHLEVEL.SUBLEVEL of a tree, as its Makefile has them."""
    makefile = source / "Makefile"
    text = makefile.read_text(errors="replace") if makefile.exists() else ""
    parts = [re.search(rf"^{word} = (\d+)$", text, re.M) for word in ("VERSION", "PATCHLEVEL", "SUBLEVEL")]
    if not all(parts):
        raise LabError(
            str(source), expected="a kernel source tree", found="no Makefile with a kernel version", do="check KSRC="
        )
    return ".".join(part[1] for part in parts if part)


def debian(name: str) -> Kernel:
    """One of Debian's kernels, unpacked into the cache; unpacked again when the package is newer."""
    if name not in DEBIAN:
        raise LabError(f"KERNEL={name}", expected=" or ".join(DEBIAN), found=name, do="use KSRC=path for another tree")
    package = DEBIAN[name]
    cache = CACHE / name
    source = cache / "stock"
    tarball = Path("/usr/src") / f"{package}.tar.xz"
    if not tarball.exists():
        expected = f"the source from package {package}"
        raise LabError(str(tarball), expected=expected, found="no file", do="run `make setup`")
    stamp = cache / "stock.from"
    state = tarball.stat()
    wanted = f"{tarball} {state.st_size} {int(state.st_mtime)}\n"
    with locked(cache / "unpack.lock"):  # not the build lock: reading a tree need not wait for a build
        if not stamp.exists() or stamp.read_text() != wanted:
            say(f"unpacking {tarball}")
            shutil.rmtree(source, ignore_errors=True)
            source.mkdir(parents=True)
            # With the time of unpacking: files older than what was built from the package before would not be compiled.
            run(["tar", "-I", "xz -T0", "-xmf", tarball, "-C", source, "--strip-components=1"])
            stamp.write_text(wanted)
    return Kernel(name, source, cache)


def own(path: Path) -> Kernel:
    """The user's own tree: read where it is, and never written."""
    source = path.expanduser().resolve()
    if not source.is_dir():
        raise LabError(f"KSRC={path}", expected="a folder", found="none", do="check KSRC=")
    name = f"{tree_version(source)}-{hashlib.sha256(str(source).encode()).hexdigest()[:6]}"
    return Kernel(name, source, CACHE / name)


def get(name: str | None = None, ksrc: str | None = None) -> Kernel:
    """What KSRC= or KERNEL= names, else the default."""
    return own(Path(ksrc)) if ksrc else debian(name or DEFAULT)
