# SPDX-License-Identifier: GPL-2.0
"""The kernels the lab knows, and what a given tree is: told by what is in it, never by its version string."""

import argparse
import hashlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from lab.common import BUILD, CACHE, LabError, locked, run, say
from lab.kernels import latest

DEBIAN = ("6.12", "6.1")  # KERNEL= ; Debian's package linux-source-X.Y has it
DEFAULT = "6.12"
CHOICES = (*DEBIAN, "latest")
SELFTESTS = ("tools/testing/selftests/mm", "tools/testing/selftests/vm")
MARK = "include/linux/demotion_gate.h"  # a tree that has it has the series
KEEPERS = ("mm/memory-tiers.c", "mm/migrate.c")  # where a tree may keep node_demotion[]


@dataclass(frozen=True)
class Kernel:
    """A kernel source tree that the lab only reads."""

    name: str
    source: Path
    cache: Path  # object directories and working copies, shared by all checkouts of this repository
    # Its series as files, where that is not to be rendered: it has been, ends at a fix, or has a planted fault.
    files: Mapping[str, bytes] | None = field(default=None, compare=False)

    @property
    def build(self) -> Path:
        """What this checkout makes of the kernel: the patches, the tree, the reports."""
        return BUILD / self.name

    @property
    def is_git(self) -> bool:
        return (self.source / ".git").exists()

    def git(self, *words: str, index: Path | None = None) -> str:
        """Ask the user's repository: its index is not even refreshed, and files have the line ends that git keeps."""
        environment = {"GIT_OPTIONAL_LOCKS": "0", **({"GIT_INDEX_FILE": str(index)} if index else {})}
        settings = ("-c", "safe.directory=*", "-c", "core.autocrlf=false")
        return run(["git", *settings, "-C", self.source, *words], env=environment, quiet=True).stdout

    @cached_property
    def version(self) -> str:
        """VERSION.PATCHLEVEL.SUBLEVEL, as the Makefile has them."""
        makefile = self.source / "Makefile"
        text = makefile.read_text(errors="replace") if makefile.exists() else ""
        parts = re.findall(r"^(?:VERSION|PATCHLEVEL|SUBLEVEL) = (\d+)$", text, re.M)  # they stand in this order
        if len(parts) != 3:
            raise LabError(str(self.source), expected="a kernel source tree", found="no Makefile with a kernel version",
                           do="check KSRC=")
        return ".".join(parts)

    @cached_property
    def keeper(self) -> str:
        """The file that keeps node_demotion[]."""
        for path in KEEPERS:
            file = self.source / path
            if file.exists() and re.search(r"^\w.*\bnode_demotion\b", file.read_text(errors="replace"), re.M):
                return path
        raise LabError(str(self.source), expected=f"node_demotion[] in {' or '.join(KEEPERS)}",
                       found=f"none of them keeps it (Makefile says {self.version})",
                       do="name a tree of 5.15 or later with KSRC=")

    @cached_property
    def selftests(self) -> str:
        """Where this tree keeps the mm selftests, if it does."""
        return next((path for path in SELFTESTS if (self.source / path).is_dir()), SELFTESTS[0])


def known(name: str) -> str:
    """The name of one of Debian's kernels."""
    if name not in CHOICES:
        raise LabError(f"KERNEL={name}", expected=" or ".join(CHOICES), found=name, do="use KSRC=path for another tree")
    return name


def word(name: str) -> str:
    """What KERNEL= is for the kernel of this name; nothing if it is the user's own."""
    return name if name in DEBIAN else "" if "-" in name else CHOICES[-1]


def debian(name: str) -> Kernel:
    """One of Debian's kernels, unpacked into the cache; unpacked again when the package is newer."""
    name, packed = (name, Path(f"/usr/src/linux-source-{name}.tar.xz")) if name in DEBIAN else latest.newest()
    if not packed.exists():
        raise LabError(str(packed), expected=f"the source from package linux-source-{name}", found="no file",
                       do=f"run `make setup KERNEL={name}`")
    cache, state = CACHE / name, packed.stat()
    source, stamp = cache / "stock", cache / "stock.from"
    wanted = f"{packed} {state.st_size} {int(state.st_mtime)}\n"
    with locked(cache / "unpack.lock"):  # not the build lock: reading a tree need not wait for a build
        if not stamp.exists() or stamp.read_text() != wanted:
            say(f"unpacking {packed}")
            shutil.rmtree(source, ignore_errors=True)
            source.mkdir(parents=True)
            # With the time of unpacking: files older than what was built from the package before would not be compiled.
            run(["tar", "-I", "xz -T0", "-xmf", packed, "-C", source, "--strip-components=1"])
            stamp.write_text(wanted)
    return Kernel(name, source, cache)


def own(path: str | Path) -> Kernel:
    """The user's own tree: read where it is, and never written. Its next point release takes over what is cached."""
    source = Path(path).expanduser().resolve()
    if not source.is_dir():
        raise LabError(f"KSRC={path}", expected="a folder", found="none", do="check KSRC=")
    kernel = Kernel("", source, CACHE)
    check(kernel)
    name = f"{kernel.version.rpartition('.')[0]}-{hashlib.sha256(str(source).encode()).hexdigest()[:6]}"
    return replace(kernel, name=name, cache=CACHE / name)


def check(kernel: Kernel) -> None:
    """Refuse a tree that the series can't be meant for, or that is not what git has. Changes nothing in it."""
    if (kernel.source / MARK).exists():
        raise LabError(str(kernel.source), expected="a tree without the series", found=f"it already has {MARK}",
                       do="name a tree without the series with KSRC=")
    if b"\r\n" in (kernel.source / kernel.keeper).read_bytes():
        raise LabError(f"{kernel.source}/{kernel.keeper}", expected="lines that end as the kernel's do", found="CR LF",
                       do="check it out with core.autocrlf=false")
    asked = kernel.is_git and shutil.which("git")  # which may be installed only after a command's words were looked at
    if asked and (dirty := kernel.git("status", "--porcelain", "--untracked-files=no").splitlines()):
        raise LabError(str(kernel.source), expected="no uncommitted changes in tracked files",
                       found=f"{len(dirty)} of them, the first: {dirty[0].strip()}", do="commit or stash them")


def options(*, every: bool = False) -> argparse.ArgumentParser:
    """For argparse's `parents`: KERNEL= and KSRC= of the Makefile; `every`: all of Debian's, if none is named."""
    words = argparse.ArgumentParser(add_help=False)
    one = words.add_mutually_exclusive_group()
    default = CHOICES if every else (DEFAULT,)
    about = f"one of Debian's: {', '.join(CHOICES)} (default: {', '.join(default)})"
    one.add_argument("--kernel", type=lambda word: (known(word),), default=default, metavar="VERSION", help=about)
    one.add_argument("--ksrc", type=own, metavar="PATH", help="your own kernel tree, 5.15 or later, which is only read")
    return words


def command(module: str, doc: str | None, *, every: bool = False) -> argparse.ArgumentParser:
    """The parser of a module that is a command and works on a kernel."""
    return argparse.ArgumentParser(f"python3 -m {module}", description=(doc or "").partition("\n")[0],
                                   parents=[options(every=every)])


def chosen(given: argparse.Namespace) -> list[Kernel]:
    """The kernels that were chosen; one, unless the command takes all."""
    return [given.ksrc] if given.ksrc else [debian(name) for name in given.kernel]
