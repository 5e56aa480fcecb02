# SPDX-License-Identifier: GPL-2.0
"""What a user can type, and what happens then: what is refused, what is installed, how a command ends."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from lab import common
from lab.common import ROOT, LabError
from lab.kernels import latest, prune, trees

COMMANDS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in ROOT.glob("lab/*/*.py")
    if 'if __name__ == "__main__"' in path.read_text() and path.parent.name != "tests"
)
TARGETS = dict(re.findall(r"^([a-z-]+):.*\n\t\$\(RUN\) (\S+)", (ROOT / "Makefile").read_text(), re.M))
TARGETS |= {"bench": "lab.comparison.bench", "here": "lab.comparison.here"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """As much of a kernel tree as is looked at before it is read."""
    top = tmp_path / "linux"
    (top / "mm").mkdir(parents=True)
    (top / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 118\n")
    (top / "mm/memory-tiers.c").write_text("static struct demotion_nodes *node_demotion;\n")
    return top


# --- What is refused -------------------------------------------------------------------------------------------------

KERNEL = "6.12 or 6.1 or latest"
REFUSED = (
    *((name, "--kernel 5.15", KERNEL) for name in COMMANDS
      if name.rpartition(".")[2] not in ("prune", "reach", "render", "report")),
    ("lab.rendering.render", "series --kernel 6", KERNEL),
    ("lab.rendering.render", "tree --ksrc /nowhere", "expected: a folder"),
    ("lab.rendering.render", "tree --ksrc /usr", "a kernel source tree"),
    ("lab.rendering.render", "patches", "invalid choice: 'patches'"),
    ("lab.guests.guest", "--kernel 6", KERNEL),
    ("lab.guests.guest", "--topology ring", "'two-socket'"),
    ("lab.guests.guest", "--topology two-socket --cpus 3", "an even number"),
    ("lab.guests.guest", "--cpus 0", "expected 1 or more"),
    ("lab.kernels.build", "--kernel 6", KERNEL),
    ("lab.guests.guest", "--variant tsan", "'kcsan'"),
    ("lab.kernels.build", "--which stock", "unrecognized"),
    ("lab.comparison.bench", "--design grand", "'quick'"),
    ("lab.comparison.bench", "--scenarios cpu disk", "'memhotplug'"),
    ("lab.comparison.bench", "--topologies one ring", "two-socket"),
    ("lab.comparison.bench", "--topologies one/3", "an even number"),
    ("lab.comparison.bench", "--topologies one/0", "expected 1 or more"),
    ("lab.comparison.bench", "--blocks 0", "expected 1 or more"),
    ("lab.comparison.bench", "--blocks many", "invalid count"),
    ("lab.comparison.here", "--rounds 0", "expected 1 or more"),
    ("lab.comparison.here", "--arms sometimes", "expected some of"),
    ("lab.comparison.here", "--scenarios disk", "expected some of"),
    ("lab.checks.check", "--storm -1", "expected 1 or more"),
    ("lab.kernels.prune", "--days 0", "expected 1 or more"),
)  # fmt: skip


@pytest.mark.parametrize("module, words, said", REFUSED)
def test_refused(module: str, words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((SystemExit, LabError)) as refusal:
        importlib.import_module(module).parser().parse_args(words.split())
    assert said in str(refusal.value) + capsys.readouterr().err


OTHERWISE = {"lab.kernels.prune", "lab.comparison.here", "lab.checks.reach"}  # take no kernel, or none at all


@pytest.mark.parametrize("module", sorted({*TARGETS.values()} - OTHERWISE))
def test_one_kernel_only(module: str, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["series"] if module == "lab.rendering.render" else []
    parse = importlib.import_module(module).parser().parse_args
    (own,) = trees.chosen(parse([*command, "--ksrc", str(source)]))
    assert own.source == source.resolve()
    with pytest.raises(SystemExit):
        parse([*command, "--kernel", "6.12", "--ksrc", str(source)])
    assert "not allowed with" in capsys.readouterr().err


@pytest.mark.parametrize("words, said", [
    ("bench HERE=0", "HERE=0"), ("shell TOPOLOGY=ring", "two-socket"), ("tree KERNEL=6.1 KSRC={}", "not allowed with"),
    ("demo KERNEL=5.15", KERNEL), ("bench ARGS=--blocks=0", "1 or more"), ("bench HERE=1 KERNEL=6.1", "no KERNEL="),
])  # fmt: skip
def test_make_refuses_before_it_installs(words: str, said: str, source: Path, bare: dict[str, str]) -> None:
    """On a machine that has nothing but make, sh and Python, where installing would say so."""
    done = subprocess.run(["/usr/bin/make", *words.format(source).split()], cwd=ROOT, capture_output=True, text=True,
                          env={**bare, "LAB_PYTHON": sys.executable})  # fmt: skip
    assert done.returncode and said in done.stderr and not done.stdout


def test_odd_surroundings(tmp_path: Path) -> None:
    """Quotes and spaces in paths, no home, what a hook of another repository has set."""
    source, temporary = tmp_path / "Ann's tree", tmp_path / "a b"
    for part in ("common", "5.15"):
        shutil.copytree(ROOT / "lab/tests/standin" / part, source, dirs_exist_ok=True)
    temporary.mkdir()
    for words in ("init -q", "add -A", "-c user.name=x -c user.email=x@x commit -qm kernel"):
        subprocess.run(["git", *words.split()], cwd=source, check=True)
    hidden = ("HOME", "MAKEFLAGS", "MFLAGS", "KERNEL", "KSRC")  # of the make that runs this
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"TMPDIR": str(temporary), "DEMOTION_GATE_CACHE": "", "GIT_DIR": "/none", "GIT_INDEX_FILE": "/none",
                    "GIT_AUTHOR_NAME": "Ann", "GIT_AUTHOR_EMAIL": "ann@example.org", "LAB_PYTHON": sys.executable}
    command = ["make", "series", f"KSRC={source}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    patches = [Path(line) for line in done.stdout.splitlines() if line.endswith(".patch")]
    assert len(patches) == 6 and "not needed here: mm/memory-tiers" in done.stdout
    shutil.rmtree(patches[0].parent.parent)


def test_tree_that_is_too_old(source: Path) -> None:
    (source / "mm/memory-tiers.c").unlink()
    with pytest.raises(LabError, match="5.15 or later"):
        trees.options().parse_args(["--ksrc", str(source)])


# --- What helps ------------------------------------------------------------------------------------------------------


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        for each in (action.choices or {}).values() if isinstance(action, argparse._SubParsersAction) else ():
            yield from parsers(each)


@pytest.mark.parametrize("module", COMMANDS)
def test_help_names_the_command_and_all_it_takes(module: str) -> None:
    for parser in parsers(importlib.import_module(module).parser()):
        assert parser.prog.startswith(f"python3 -m {module}") and parser.description
        for action in parser._actions:
            assert action.help or isinstance(action, argparse._SubParsersAction), (module, action.dest)


@pytest.mark.parametrize("module", COMMANDS)
def test_module_is_a_command(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[argparse.ArgumentParser] = []
    monkeypatch.setattr(common, "launch", lambda main, parser: launched.append(parser))
    monkeypatch.delitem(sys.modules, module, raising=False)
    runpy.run_module(module, run_name="__main__")
    assert launched[0].prog == f"python3 -m {module}"


# --- How a command ends ----------------------------------------------------------------------------------------------


def start(body: str, stdout: int | IO[str] = subprocess.PIPE) -> subprocess.Popen[str]:
    script = "import time\nfrom argparse import ArgumentParser\nfrom lab.common import LabError, launch, say\n"
    script += f"def main(_):\n    {body}\nlaunch(main, ArgumentParser())"
    return popen([sys.executable, "-c", script], stdout)


def popen(command: Sequence[str], stdout: int | IO[str] = subprocess.PIPE, **env: str) -> subprocess.Popen[str]:
    def hear() -> None:  # in the background of a shell, nobody does
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=stdout, stderr=subprocess.PIPE, preexec_fn=hear,
                            env={**os.environ, **env})  # fmt: skip


@pytest.mark.parametrize("body, status, said", [
    ("say('done')", 0, ""),
    ("return 3", 3, ""),
    ("raise LabError('x', expected='a', found='b', do='c')", 1,
     "error: x\n  expected: a\n  found:    b\n  do:       c\n"),
    ("open('/nowhere/x')", 1, "error: /nowhere/x: No such file or directory\n"),
    ("raise PermissionError(13, 'Permission denied', '/x')", 1, "error: /x: Permission denied\n"),
    ("raise KeyboardInterrupt", 130, "stopped; what is built and measured is kept\n"),
    ("raise KeyboardInterrupt('stopped here')", 130, "stopped here\n"),
])  # fmt: skip
def test_end(body: str, status: int, said: str) -> None:
    process = start(body)
    out, err = process.communicate()
    assert (process.returncode, err, out) == (status, said, "done\n" if "say" in body else "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal(number: int) -> None:
    process = start("say('up'); time.sleep(60)")
    assert process.stdout and process.stdout.readline()
    process.send_signal(number)
    assert process.communicate()[1].startswith("stopped") and process.returncode == 130


def test_interrupted_while_it_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(60)\n")
    process = popen([sys.executable, "-m", "lab.kernels.prune"], PYTHONPATH=str(tmp_path))
    assert process.stdout and process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.communicate()[1] == "" and process.returncode == -signal.SIGINT


def test_full_disk() -> None:
    with open("/dev/full", "w") as full:
        process = start("print('x')", stdout=full)
        assert process.communicate()[1] == "error: [Errno 28] No space left on device\n" and process.returncode == 1


@pytest.mark.parametrize("body", ["say('x' * 100000)", "print('x')", "raise SystemExit(print('x'))"])
def test_nobody_reads(body: str) -> None:
    read, write = os.pipe()
    os.close(read)
    process = start(body, stdout=write)
    os.close(write)
    assert process.communicate()[1] == "error: nobody reads the output any more\n" and process.returncode == 1


# --- What is installed -----------------------------------------------------------------------------------------------

TOOLS = ("basename", "cat", "env", "grep", "mktemp", "rm", "sh", "tail")


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine that has next to nothing; its Python has no library, and says what it is to do."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in TOOLS:
        (programs / tool).symlink_to(f"/usr/bin/{tool}")
    write(programs, "python", '[ "$1" = -c ] && exit 1\n[ "$2" = lab.ahead ] && echo $SOURCES || echo "runs $*"')
    write(programs, "id", "echo 1000")
    return {"PATH": str(programs), "LAB_PYTHON": f"{programs}/python", "TMPDIR": str(tmp_path)}


def write(programs: Path | str, name: str, script: str) -> None:
    (Path(programs) / name).write_text(f"#!/bin/sh\n{script}\n")
    (Path(programs) / name).chmod(0o755)


def prepare(env: dict[str, str], target: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", "lab/setup.sh", target, *words]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("target", [*TARGETS])
def test_libraries_of_a_target_are_installed_by_it(target: str, bare: dict[str, str]) -> None:
    script = f"""
import importlib, sys
from importlib.machinery import ModuleSpec
from unittest.mock import MagicMock
from lab import ahead

class Finder:  # of what stands in for each library, when it is asked for
    def find_spec(self, name, *_):
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in ahead.LIBRARIES else None

    create_module, exec_module = lambda *_: MagicMock(), lambda *_: None

sys.meta_path.insert(0, Finder())
importlib.import_module("{TARGETS[target]}")
asked = {{name for name in sys.modules if name.partition(".")[0] in ahead.LIBRARIES}}
assert asked <= {{*ahead.LIBRARIES}}, asked  # or that command could not be looked at ahead
print(*{{name.partition(".")[0] for name in asked}})
"""
    # Without site, Python finds nothing that is not its own.
    done = subprocess.run([sys.executable, "-S", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    installed = prepare(bare, target).stderr
    assert "rich" in done.stdout and all(f"python3-{library}" in installed for library in done.stdout.split())


def test_series_needs_little_and_no_root(bare: dict[str, str]) -> None:
    done = prepare({**bare, "SOURCES": "linux-source-none"}, "series", "lab.rendering.render", "series")
    assert done.returncode == 1 and "runs" not in done.stdout
    assert "Debian calls git coccinelle python3-rich linux-source-none;" in done.stderr and "KSRC=" in done.stderr
    for program in ("git", "spatch"):
        write(bare["PATH"], program, "")
    write(bare["PATH"], "python", '[ "$1" = -c ] && exit 0\n[ "$2" = lab.ahead ] || echo "runs $*"')
    assert prepare(bare, "series", "lab.rendering.render", "series").stdout == "runs -m lab.rendering.render series\n"


def test_without_root_the_packages_are_named(bare: dict[str, str]) -> None:
    write(bare["PATH"], "apt-get", "echo called >&2")
    done = prepare(bare, "series", "lab.rendering.render", "series")
    assert done.returncode == 1 and "called" not in done.stderr
    assert "apt-get install --no-install-recommends git coccinelle python3-rich\n" in done.stderr


@pytest.mark.parametrize("lock", ["/var/lib/apt/lists/lock", "/var/lib/dpkg/lock-frontend"])
def test_another_apt_is_waited_for(bare: dict[str, str], lock: str) -> None:
    write(bare["PATH"], "id", "echo 0")
    write(bare["PATH"], "sleep", ': >"$TMPDIR/waited"')
    write(bare["PATH"], "apt-get", f'[ -e "$TMPDIR/waited" ] || {{ echo "E: Could not get lock {lock}."; exit 100; }}')
    done = prepare(bare, "series", "lab.rendering.render", "series")
    assert done.returncode == 0 and "runs" in done.stdout and done.stdout.count("waiting for another apt") == 1
    assert not [*Path(bare["TMPDIR"]).glob("demotion-gate-setup.*")]
    (Path(bare["TMPDIR"]) / "waited").unlink()
    done = prepare({**bare, "LAB_APT_SECONDS": "0"}, "series", "lab.rendering.render", "series")
    assert done.returncode == 1 and "Could not get lock" in done.stderr


def test_log_of_an_installation_that_fails(bare: dict[str, str]) -> None:
    write(bare["PATH"], "id", "echo 0")
    write(bare["PATH"], "apt-get", "echo E: no such package; exit 100")
    logs = []
    for _ in range(2):
        done = prepare(bare, "series", "lab.rendering.render", "series")
        assert done.returncode == 1 and "runs" not in done.stdout and "E: no such package" in done.stderr
        logs.append(done.stderr.split()[-1])
    assert logs[0] != logs[1] and all(Path(log).read_text() for log in logs)


@pytest.mark.parametrize("words, packages", [
    (["lab.comparison.bench", "--kernel", "6.1"], "linux-source-6.1"),
    (["lab.checks.check"], "linux-source-6.12 linux-source-6.1"),
    (["lab.rendering.render", "series", "--ksrc", "{}"], ""),
    (["lab.comparison.here"], ""),
    (["lab.kernels.prune"], ""),
])  # fmt: skip
def test_sources_are_told_before_there_is_any_library(words: Sequence[str], packages: str, source: Path) -> None:
    command = [sys.executable, "-S", "-m", "lab.ahead", *(word.format(source) for word in words)]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout == f"{packages}\n"


# --- What is cached --------------------------------------------------------------------------------------------------


def test_point_release_keeps_the_cache(source: Path) -> None:
    before = trees.own(source)
    makefile = source / "Makefile"
    makefile.write_text(makefile.read_text().replace("118", "119"))
    after = trees.own(source)
    assert before.cache == after.cache and after.name.startswith("6.12-") and after.version == "6.12.119"


APT = """
case "$*" in
*indextargets*) echo http://mirror/debian-security http://mirror/debian/ ;;
*pkgnames*) echo linux-source-6.19; echo linux-source-7.10; echo linux-source-7.9; echo linux-source-7.11-rc ;;
*--print-uris*) echo "'http://mirror/x.deb' linux-source-7.10_7.10.$(cat POINT)-1_all.deb 5 SHA" ;;
*download*) touch linux-source-7.10_all.deb ;;
*update*) echo >>asked-for-lists ;;
esac
"""


def test_latest_is_the_newest_and_follows_its_point_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apt = APT.replace("POINT", str(tmp_path / "point"))
    unpack = 'mkdir -p "$3/usr/src"; touch "$3/usr/src/linux-source-7.10.tar.xz"'
    for program, text in (("apt-get", apt), ("apt-cache", apt), ("dpkg-deb", unpack)):
        write(tmp_path, program, text)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(latest, "FOLDER", folder := tmp_path / "cache")
    for point in "441":
        (tmp_path / "point").write_text(point)
        version, packed = latest.newest()
        assert version == "7.10" and [*folder.glob("*.tar.xz")] == [packed] and f"7.10.{point}" in packed.name
    assert (folder / "sources.list").read_text().split()[2] == "http://mirror/debian/"
    assert len((folder / "asked-for-lists").read_text()) == 1, "Debian is asked once a day"
    monkeypatch.setattr(latest, "SUITE", "none")
    write(tmp_path, "apt-cache", "true")
    with pytest.raises(common.LabError, match=r"linux-source-X.Y in none"):
        latest.newest()


def test_clean_cache(source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    cache = source.parent / "cache"
    monkeypatch.setattr(prune, "CACHE", cache)
    name = trees.own(source).name
    packed = source.parent / "7 3.tar.xz"
    stamps = {name: source, "6.1-bbbbbb": source / "gone", "6.6-cccccc": source / "held", "ccache": None,
              "latest": None, "7.3": f"{packed} 4", "7.2": f"{source.parent}/7.2.tar.xz 4"}
    packed.touch()
    for folder, origin in stamps.items():
        (cache / folder).mkdir(parents=True)
        (cache / folder / "lock").touch() if folder != "ccache" else None
        if origin:
            (cache / folder / "stock.from").write_text(f"{origin} 123\n")
    with common.locked(cache / "6.6-cccccc/lock"):
        prune.main(prune.parser().parse_args([]))
    assert {path.name for path in cache.iterdir()} == {name, "6.6-cccccc", "ccache", "latest", "7.3"}
    said = capsys.readouterr().out
    assert "is gone: " in said and "7.2.tar.xz" in said and "linux/gone" in said
    assert "a run is using it" in said and "freed" in said
    os.utime(cache / name / "lock", (time.time() - 40 * 86400,) * 2)
    prune.main(prune.parser().parse_args(["--days", "50"]))
    assert (cache / name).exists()
    prune.main(prune.parser().parse_args([]))
    assert not (cache / name).exists() and "not used for 40 days" in capsys.readouterr().out
    prune.main(prune.parser().parse_args(["--all"]))
    assert not [*cache.iterdir()]
