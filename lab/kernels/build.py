# SPDX-License-Identifier: GPL-2.0
"""Builds kernels: keeps a stock and a series source tree beside each other, configures, compiles, reports progress.

The series tree is a farm of hard links to the stock tree with the rendered files in place of the originals, so it costs
no disk, and a changed series costs only what `make` must compile anew. The farm's rule: never write through a link.
"""

import argparse
import contextlib
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from lab.common import CACHE, LabError, console, launch, locked, run, say, tail
from lab.kernels import trees
from lab.kernels.trees import Kernel
from lab.rendering import render

CONFIG = Path(__file__).resolve().parent / "config"
_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
VARIANTS, BOOT_WORDS, MAKE_WORDS = _TABLE["variants"], _TABLE["boot"], _TABLE["make"]
PRODUCT = re.compile("|".join(_TABLE["products"]))
ENVIRONMENT = {"CCACHE_DIR": str(CACHE / "ccache"), "CCACHE_BASEDIR": str(CACHE), **_TABLE["environment"]}
JOBS = f"-j{len(os.sched_getaffinity(0))}"
CCACHE = "ccache " if shutil.which("ccache") else ""
# For our own configurations: the compiler names the headers, no preprocessor runs before it. That saves a quarter of a
# cold build. But ccache then does not see an .incbin, which kernels have in assembler files (the compressed kernel is
# one): those it must not keep.
QUICK = (f"CC=$(if $(filter %.S,$<),,{CCACHE})gcc", "CCACHE_DEPEND=1")


def _digest(*things: object) -> str:
    return hashlib.sha256(repr(things).encode()).hexdigest()


def _files(top: Path) -> Iterator[str]:
    """Every file and symbolic link of a source tree, without what a build left there."""
    for folder, folders, names in os.walk(top):
        prefix = f"{os.path.relpath(folder, top)}/".removeprefix("./")
        kept = [name for name in sorted(folders + names) if not PRODUCT.search(prefix + name)]
        folders[:] = [name for name in kept if name in folders and not os.path.islink(f"{folder}/{name}")]
        yield from (prefix + name for name in kept if name not in folders)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A place for a new version of `path`, then renamed over it: an old inode may be shared and stays as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".tmp_{path.name}")
    fresh.unlink(missing_ok=True)
    yield fresh
    fresh.rename(path)


def _remove(top: Path, names: Iterable[str]) -> None:
    """Files that may be there, and the folders that this leaves empty."""
    for name in names:
        (top / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            (top / name).parent.rmdir()


def sync(source: Path, to: Path) -> None:
    """Make `to` a copy of a source tree. What is the same keeps its time; what is copied is new, or is not compiled."""
    wanted = set(_files(source))
    to.mkdir(parents=True, exist_ok=True)
    _remove(to, set(_files(to)) - wanted)
    options = ["--links", "--perms", "--chmod=Du+w", "--checksum", "--force", "--from0", "--files-from=-"]
    run(["rsync", *options, f"{source}/", to], stdin="\0".join(f"./{name}" for name in wanted))


def _stock(kernel: Kernel) -> str:
    """See to the stock tree, `stock` in the cache; what it was made from."""
    stock, stamp = kernel.cache / "stock", kernel.cache / "stock.from"
    if kernel.source == stock:
        return stamp.read_text()
    files = ((name, (kernel.source / name).lstat()) for name in _files(kernel.source))  # not looked at if git knows
    known = render.source_stamp(kernel) or _digest([(n, s.st_mode, s.st_size, s.st_mtime_ns) for n, s in files])
    state = f"{kernel.source} {known}\n"
    if not stamp.exists() or stamp.read_text() != state:
        say(f"copying {kernel.source}, so that it is never written")
        stamp.unlink(missing_ok=True)
        if kernel.is_git:
            with tempfile.TemporaryDirectory(prefix="stock-", dir=kernel.cache) as tree:
                render.unpack(kernel, Path(tree))
                sync(Path(tree), stock)
        else:
            sync(kernel.source, stock)
        stamp.write_text(state)
    return state


def farm(stock: Path, stock_state: str, series: Path, rendered: Mapping[str, bytes]) -> None:
    """Make `series` the stock tree with the rendered files in it; for `make`, what is so already keeps its time."""
    stamp = series.with_name(f"{series.name}.state")
    known = json.loads(stamp.read_text()) if stamp.exists() else {}
    stamp.unlink(missing_ok=True)  # whoever finds none, after an interrupted run, looks at every file
    if not series.exists():
        run(["cp", "-al", stock.resolve(), series])
        stale: set[str] = set()
    elif known.get("stock") == stock_state:
        stale = set(known["rendered"])
    else:
        stale = set(_files(stock))
        _remove(series, set(_files(series)) - stale - set(rendered))
    for name in stale | set(rendered):
        theirs, ours = stock / name, series / name
        if name in rendered:
            if not ours.is_file() or ours.read_bytes() != rendered[name]:
                with _replacing(ours) as fresh:
                    fresh.write_bytes(rendered[name])
                    fresh.chmod(0o755 if theirs.exists() and theirs.stat().st_mode & 0o100 else 0o644)
        elif not os.path.lexists(theirs):
            _remove(series, [name])
        elif not (there := os.path.lexists(ours)) or not os.path.samestat(theirs.lstat(), ours.lstat()):
            if there:
                os.utime(theirs, follow_symlinks=False)  # or `make` would keep what it compiled from the file that goes
            with _replacing(ours) as fresh:
                os.link(theirs, fresh, follow_symlinks=False)
    stamp.write_text(json.dumps({"stock": stock_state, "rendered": sorted(rendered)}))


# Rendering takes seconds: once a run is enough.
@functools.cache
def _all_of(kernel: Kernel) -> dict[str, bytes]:
    render.tell(rendering := render.render(kernel))
    return rendering.files()


def _source(kernel: Kernel, which: str) -> tuple[Path, str, Mapping[str, bytes]]:
    """A source tree, a digest of what is in it, the files in it that are of the series. The caller holds the lock."""
    stock, series = kernel.cache / "stock", kernel.cache / "series"
    if which == "stock":
        return stock, _digest(_stock(kernel)), {}
    rendered = _all_of(kernel) if kernel.files is None else kernel.files  # may fail, so first
    farm(stock, state := _stock(kernel), series, rendered)
    return series, _digest(state, sorted(rendered.items())), rendered


def beside(kernel: Kernel, name: str) -> Kernel:
    """The same kernel with a tree and objects of its own; it shares the stock tree, which nobody writes."""
    source(kernel, "stock")
    cache = kernel.cache / name
    cache.mkdir(exist_ok=True)
    for shared in ("stock", "stock.from"):
        with contextlib.suppress(FileExistsError):
            (cache / shared).symlink_to(Path("..") / shared)
    return Kernel(kernel.name, cache / "stock", cache)


def source(kernel: Kernel, which: str) -> Path:
    """The stock source tree, or the one with the series."""
    with locked(kernel.cache / "lock"):
        return _source(kernel, which)[0]


def fragments(kernel: Kernel, variant: str) -> list[Path]:
    """The configuration fragments of a variant, in order."""
    kept = ("migrate",) if kernel.keeper == "mm/migrate.c" else ()
    return [CONFIG / f"{name}.config" for name in ("base", *kept, *VARIANTS[variant])]


def symbols(text: str) -> dict[str, str]:
    """The symbols that a .config or a fragment sets; "n" for those it unsets. The last one counts."""
    found = re.findall(r"^(?:CONFIG_(\w+)=(.*)|# CONFIG_(\w+) is not set)$", text, re.M)
    return {name or unset: value if name else "n" for name, value, unset in found}


def not_taken(wanted: Mapping[str, str], taken: Mapping[str, str], tree: Path) -> list[str]:
    """What the fragments ask for, the tree's Kconfig files know, and the configuration lacks."""
    words = run(["grep", "-rhoE", "--include=Kconfig*", r"^\s*(menu)?config\s+\w+", tree]).stdout
    known = set(re.findall(r"config\s+(\w+)", words))
    return [f"{name}={value} (is {taken.get(name, 'n')})" for name, value in wanted.items()
            if name in known and taken.get(name, "n") != value]


def _make(tree: Path, obj: Path) -> list[str]:
    """The start of a make command line for these objects.

    Every tree is compiled under one name, the link `src` beside the objects: ccache then finds what was compiled
    elsewhere, and objects can be moved.
    """
    with _replacing(obj / "src") as link:
        link.symlink_to(os.path.relpath(tree, obj))
    return ["make", "-C", str(tree.resolve()), f"O={obj}", f"srctree={obj}/src"]


def _begin(stock: Path, obj: Path, tree: Path, rendered: Iterable[str]) -> None:
    """Begin the objects of the series as a copy of the stock kernel's: `make` then compiles only what differs.

    ccache does not see that the rest stays the same: all files include autoconf.h, and that differs by a symbol. This
    and QUICK are there for a cold `make demo`: on two cores 13.5 minutes with them, about 19 without.
    """
    with locked(stock.with_suffix(".lock")):
        if not (stock / "lab.built").exists():
            return
        fresh = obj.with_name(f".tmp_{obj.name}")
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(stock, fresh, symlinks=True, ignore=shutil.ignore_patterns("lab.*"))
    for command in fresh.rglob("*.cmd"):  # a command that changes makes its object be built again
        text = command.read_text(errors="surrogateescape").replace(f"{stock}/", f"{obj}/")
        command.write_text(text, errors="surrogateescape")
    for name in rendered:  # may have been written before the stock kernel was built
        os.utime(tree / name)
    fresh.rename(obj)


def _objects(kernel: Kernel, which: str, variant: str) -> tuple[list[str], Path, str]:
    """For configured objects: make's words, their place, a digest of source and configuration. The caller locks."""
    tree, state, rendered = _source(kernel, which)
    stock, obj = (kernel.cache / f"obj-{kind}-{variant}".removesuffix("-plain") for kind in ("stock", which))
    if which == "series" and not obj.exists():
        _begin(stock, obj, tree, rendered)
    make = _make(tree, obj)
    asked = symbols(text := "".join(path.read_text() for path in fragments(kernel, variant)))
    kconfig = [rendered[name] for name in sorted(rendered) if Path(name).name.startswith("Kconfig")]
    wanted = _digest((kernel.cache / "stock.from").read_text(), asked, kconfig, run(["gcc", "--version"]).stdout)
    stamp, config = obj / "lab.config", obj / ".config"
    if not stamp.exists() or stamp.read_text() != wanted or not config.exists():
        every = obj / "lab.fragments"
        every.write_text(text)
        # As tinyconfig does, but with our symbols in the same step: what they make visible stays off unless named.
        run([*make, "-s", "allnoconfig"], env={**ENVIRONMENT, "KCONFIG_ALLCONFIG": str(every)})
        if missing := not_taken(asked, symbols(config.read_text()), tree):
            say(f"{obj.name}: {kernel.version} knows but did not take {', '.join(missing)}")
        stamp.write_text(wanted)
    return make, obj, _digest(state, wanted)


def compile_kernel(command: Sequence[str], what: str, log: Path, total: int | None) -> None:
    """Run make, and show how far it is of about so many files."""
    start = told = time.monotonic()
    done, of = 0, f" of about {total}" if total else ""
    with (log.open("w", buffering=1) as out, console.status(what) as status,
          subprocess.Popen(command, env={**os.environ, **ENVIRONMENT}, text=True, errors="replace",
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process):
        out.write(" ".join(command) + "\n")
        try:
            for line in process.stdout or ():
                out.write(line)
                done += bool(re.match(r"  (?:CC|AS|HOSTCC|HOSTLD|AR|LD|GEN|CPP)\b", line))
                now = time.monotonic()
                message = f"{what}: {done}{of} files, {now - start:.0f} s"
                status.update(message)
                if not console.is_terminal and now - told >= 30:
                    say(message)
                    told = now
        except BaseException:
            process.terminate()  # make ends its children
            raise
    if process.returncode:
        errors = re.findall(r"^.*(?:\berror\b|\*\*\*|undefined reference).*$", log.read_text(), re.M)
        raise LabError(what, expected="it to compile", do=f"read {log}",
                       found="\n".join([f"exit status {process.returncode}", *errors[:8], "--", tail(log)]))
    if done:
        say(f"{what}: {done} files in {time.monotonic() - start:.0f} s")


def image(kernel: Kernel, which: str, variant: str = "plain") -> Path:
    """A bootable kernel, built if anything changed."""
    with locked(kernel.cache / "lock"):
        make, obj, state = _objects(kernel, which, variant)
    state += "".join(words := MAKE_WORDS.get(variant, ()))
    with locked(obj.with_suffix(".lock")):  # another kernel's guests need not wait for this build
        stamp, made = obj / "lab.built", obj / "arch/x86/boot/bzImage"
        if stamp.exists() and stamp.read_text() == state and made.exists():
            return made
        stamp.unlink(missing_ok=True)
        cold = not (obj / "vmlinux").exists()  # neither built before nor begun with another kernel's objects
        what = f"building {kernel.name} {which}" + (f" ({variant})" if variant != "plain" else "")
        say(f"{what}, log in {obj}/lab.log" + (": the first time takes minutes" if cold else ""))
        compile_kernel([*make, JOBS, *QUICK, *words, "bzImage"], what, obj / "lab.log", 1450 if cold else None)
        packed = made.parent / "compressed/vmlinux.bin.gz"
        if packed.read_bytes() not in made.read_bytes():
            raise LabError(str(made), expected=f"{packed.name}, as just built, in it", found="another kernel",
                           do=f"remove {obj} and {ENVIRONMENT['CCACHE_DIR']}")
        stamp.write_text(state)
        return made


def selftest(kernel: Kernel) -> Path:
    """The series' selftest, as a static program for a guest."""
    folder = source(kernel, "series") / kernel.selftests
    program = kernel.cache / "selftest" / "demotion_gate"
    flags = ["-static", "-O2", "-Wall", "-D_GNU_SOURCE=", f"-I{folder.parent}", f"-I{folder}"]
    with locked(kernel.cache / "lock"), _replacing(program) as fresh:
        run(["gcc", *flags, folder / "demotion_gate.c", "-o", fresh])
    return program


def deb_config(given: str | None) -> Path | None:
    """Where the packages' configuration starts: DEB_CONFIG=, else the running kernel's, else (None) the defconfig."""
    path = Path(given or f"/boot/config-{platform.release()}").expanduser()
    if given and not path.is_file():
        raise LabError(f"DEB_CONFIG={given}", expected="a configuration", found="no file", do="check its path")
    return path if path.exists() else None


def deb(kernel: Kernel, *, local: bool = False) -> list[Path]:
    """Debian packages of the series kernel. `local`: only the modules that are loaded now, which is much quicker."""
    start = deb_config(os.environ.get("DEB_CONFIG"))
    tree = source(kernel, "series")
    work = kernel.cache / "deb"  # where ccache finds what other builds compiled; packages land beside the objects
    with locked(work / "lock"):  # packaging takes long, and guests need not wait for it
        make, config = _make(tree, work / "objects"), work / "objects/.config"
        say(f"configuration from {start or 'the defconfig of x86-64'}")
        if not start:
            run([*make, "-s", "x86_64_defconfig"], env=ENVIRONMENT)
        text = (start or config).read_text() + (CONFIG / "deb.config").read_text()  # of two values the last one counts
        config.write_text(text)
        run([*make, "-s", "olddefconfig"], env=ENVIRONMENT)
        if local:  # an empty line is the default for a question
            run([*make, "-s", "localmodconfig"], env=ENVIRONMENT, stdin="\n" * 10000)
        out = kernel.build / "deb"
        for old in (*work.glob("*.deb"), *out.glob("*.deb")):
            old.unlink()
        compile_kernel([*make, JOBS, f"CC={CCACHE}gcc", "bindeb-pkg"], f"packaging {kernel.name}", work / "build.log",
                       3000 if local else 25000)
        made = sorted(work.glob("*.deb"))
        if not made:
            raise LabError("make deb", expected=f"packages in {work}", found="none", do=f"read {work / 'build.log'}")
        out.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.move(package, out / package.name)) for package in made]


def parser() -> argparse.ArgumentParser:
    words = trees.command("lab.kernels.build", "Installable packages of the series kernel.")
    words.add_argument("--local", action="store_true", help="only the modules that are loaded now")
    words.epilog = "DEB_CONFIG= in the environment names a configuration to start from."
    return words


def main(given: argparse.Namespace) -> None:
    for package in deb(trees.chosen(given)[0], local=given.local):
        say(str(package))
    say("install with: sudo apt install PACKAGE…; then boot it and see /sys/kernel/mm/numa/demotion_gate/")


if __name__ == "__main__":
    launch(main, parser())
