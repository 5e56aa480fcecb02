# SPDX-License-Identifier: GPL-2.0
"""Building and booting, as far as that goes without a kernel."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.checks import boots
from lab.common import LabError
from lab.guests import guest
from lab.guests.guest import Guest
from lab.kernels import build
from lab.kernels.trees import Kernel
from lab.rendering import render

# --- Machines


def numa(args: list[str]) -> list[str]:
    return [value for word, value in zip(args, args[1:]) if word == "-numa"]


@pytest.mark.parametrize("name", guest.TOPOLOGIES)
@pytest.mark.parametrize("cpus", [None, 8, 16])
def test_every_cpu_belongs_to_one_node(name: str, cpus: int | None) -> None:
    args = guest.find_topology(name, cpus).args()
    smp = int(args[args.index("-smp") + 1].partition(",")[0])
    assert smp == (cpus or guest.TOPOLOGIES[name].cpus)
    owned: list[int] = []
    for node in numa(args):
        if found := re.search(r"cpus=(\d+)-(\d+)", node):
            owned += range(int(found[1]), int(found[2]) + 1)
    assert not owned or sorted(owned) == list(range(smp))


def test_only_the_slow_nodes_have_no_cpus_and_are_told_to_be_slow() -> None:
    for name in ("tiered", "hot-add"):
        args = guest.TOPOLOGIES[name].args()
        words = " ".join(numa(args))
        assert "hmat=on" in args[args.index("-M") + 1]
        assert "node,nodeid=1" in words and "cpus=" not in words.split("node,nodeid=1")[1]
        latency = dict(re.findall(r"target=(\d),hierarchy=memory,data-type=access-latency,latency=(\d+)", words))
        assert int(latency["0"]) < int(latency["1"])
    assert "memdev=m1" not in " ".join(guest.TOPOLOGIES["hot-add"].args())  # that node starts empty
    assert "online_movable" in guest.TOPOLOGIES["hot-add"].append  # or its memory could not go again


def test_a_wrong_topology_or_cpu_count_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="two-socket"):
        guest.find_topology("twosocket")
    with pytest.raises(LabError, match="even number"):
        guest.find_topology("two-socket", 5)


# --- Splats

SPLATS = {
    "warn": "[    2.5] WARNING: CPU: 1 PID: 77 at mm/demotion_gate.c:101 demotion_gate_close+0x1/0x2",
    "warn, newer": "[    2.5] WARNING: mm/demotion_gate.c:101 at demotion_gate_close+0x1/0x2, CPU#1: sh/77",
    "warn, with the task's number": "[    2.500000][   T77] WARNING: CPU: 1 PID: 77 at mm/memory_hotplug.c:1 f+0x0/0x1",
    "bug": "[    3.123456] kernel BUG at mm/memory-tiers.c:33!",
    "oops": "[    3.123456] Oops: Oops: 0002 [#1] PREEMPT SMP PTI",
    "general protection": "[    3.1] general protection fault, probably for non-canonical address 0xdead: 0000 [#1]",
    "divide": "[    3.1] divide error: 0000 [#1] SMP NOPTI",
    "null": "[    3.123456] BUG: kernel NULL pointer dereference, address: 0000000000000010",
    "page fault": "[   12.123456] BUG: unable to handle page fault for address: ffffffffc0000000",
    "atomic sleep": "[    4.1] BUG: sleeping function called from invalid context at kernel/cpu.c:1",
    "scheduling": "[    4.1] BUG: scheduling while atomic: sh/77/0x00000002",
    "panic": "[    1.0] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100",
    "lockdep, circular": "[    5.1] WARNING: possible circular locking dependency detected",
    "lockdep, recursive": "[    5.1] WARNING: possible recursive locking detected",
    "lockdep, irq": "[    5.1] WARNING: inconsistent lock state",
    "lockdep, no key": "[    5.1] INFO: trying to register non-static key.",
    "rcu use": "[    5.1] WARNING: suspicious RCU usage",
    "rcu stall": "[   30.1] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:",
    "rcu stall, expedited": "[   30.1] rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 1-... }",
    "rcu stall, own": "[   30.1] rcu: INFO: rcu_preempt self-detected stall on CPU",
    "soft lockup": "[   40.1] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [sh:77]",
    "hard lockup": "[   40.1] NMI watchdog: Watchdog detected hard LOCKUP on cpu 1",
    "hung task": "[   60.1] INFO: task sh:77 blocked for more than 40 seconds.",
    "kasan": "[    6.1] BUG: KASAN: slab-use-after-free in demotion_targets_show+0x1/0x2",
    "kcsan": "[    6.1] BUG: KCSAN: data-race in demotion_gate_set_policy / policy_show",
    "kcsan, one side": "[    6.1] BUG: KCSAN: data-race in node_is_toptier",
    "kmemleak": "[    6.1] kmemleak: 2 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
    "ubsan": "[    6.1] UBSAN: array-index-out-of-bounds in mm/migrate.c:1:2",
    "debug objects": "[    6.1] ODEBUG: free active (active state 0) object: 00 object type: work_struct",
    "refcount": "[    6.1] refcount_t: underflow; use-after-free.",
    "list": "[    6.1] list_del corruption. prev->next should be ffff, but was 0",
    "sysfs": "[    6.1] sysfs: cannot create duplicate filename '/devices/system/node/node1'",
    "any trace": "[    6.1] Call Trace:",
    "no stamp": "Kernel panic - not syncing: VFS: Unable to mount root fs",
    "carriage return": "[    1.0] Kernel panic - not syncing: x\r",
}

CLEAN = """\
SeaBIOS (version 1.16.2-debian-1.16.2-1)\r
[    0.000000] Linux version 6.12.117 (lab@lab) (gcc (Debian 12.2.0) 12.2.0) #1 SMP PREEMPT_DYNAMIC
[    0.000000] Command line: console=ttyS0 loglevel=5 panic=-1 panic_on_warn=1 oops=panic
[    0.031414] Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on, data leaks possible
[    0.100000] rcu: Hierarchical RCU implementation.
[    0.100000] rcu: \tRCU restricting CPUs from NR_CPUS=16 to nr_cpu_ids=4.
[    0.100000] rcu: \tRCU lockdep checking is enabled.
[    0.200000] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar
[    0.300000] kasan: KernelAddressSanitizer initialized
[    0.400000] kcsan: enabled early
[    0.400000] kmemleak: Kernel memory leak detector initialized (mem pool available: 15000)
[    0.500000] Demotion targets for Node 0: preferred: 1, fallback: 1
[    1.000000] pci 0000:00:1f.2: BAR 4 [io  0xc080-0xc09f]: debug
[    1.100000] watchdog: Delayed init of the lockup detector failed
[    1.200000] demotion_gate: bad value 'maybe' on the command line, using 'auto'
[    1.300000] Fallback order for Node 0: 0 1
[    1.300000] stress-ng: info: debugging: warnings: 0 bugs: 0
[    2.000000] reboot: Power down
"""


@pytest.mark.parametrize("kind", SPLATS)
def test_a_splat_is_found(kind: str) -> None:
    message = re.sub(r"^\[[^]]*\](\[[^]]*\])? ", "", SPLATS[kind].strip())
    assert guest.first_splat(f"{CLEAN}{SPLATS[kind]}\n{CLEAN}").splitlines()[0] == message


def test_a_race_of_the_kernels_own_is_not_of_the_series() -> None:
    console = "[ 6.1] BUG: KCSAN: data-race in hrtimer_active / task_tick_fair\n"
    assert guest.first_splat(console) == ""


WATCHING = "enabled: 1\nused_watchpoints: 0\nsetup_watchpoints: 2152\ndata_races: 0\n\nblacklisted functions: none\n"


def test_kcsan_that_did_not_look_is_an_error() -> None:
    boots.have_watched(WATCHING)
    for off in (WATCHING.replace("enabled: 1", "enabled: 0"), WATCHING.replace("2152", "12"), ""):
        with pytest.raises(LabError, match="KCSAN to be on"):
            boots.have_watched(off)


def test_a_sound_kernels_console_has_no_splats() -> None:
    assert guest.first_splat(CLEAN) == ""


def test_the_first_splat_is_shown_with_what_follows_it() -> None:
    console = "[ 1.0] before\n[ 2.0] WARNING: possible circular locking dependency detected\n" + "".join(
        f"[ 3.0][    T1] reason {number}\n" for number in range(2 * guest.SPLAT_LINES)
    )
    lines = guest.first_splat(console).splitlines()
    assert lines[:3] == ["WARNING: possible circular locking dependency detected", "reason 0", "reason 1"]
    assert len(lines) == guest.SPLAT_LINES


# --- A guest, with a QEMU that is played

PLAYED = """#!/usr/bin/python3
import json, os, re, socket, subprocess, sys, threading, zlib
words = " ".join(sys.argv)
if "refuse.me" in words:
    sys.exit("qemu: no such thing")
console = open(re.search("id=console,path=(.*?),append", words)[1].replace(",,", ","), "a")
agent, qmp = (socket.socket(fileno=int(re.search(f"id={name},fd=(\\d+)", words)[1])) for name in ("agent", "qmp"))

def monitor():
    lines = qmp.makefile("rw")
    print('{"QMP": {}}', file=lines, flush=True)
    for line in lines:
        asked = json.loads(line)
        if asked["execute"] == "device_del":
            gone = {"event": "DEVICE_DELETED", "data": {"device": asked["arguments"]["id"]}}
            print(json.dumps({"event": "OTHER", "data": {}}) + "\\n" + json.dumps(gone), file=lines, flush=True)
        bad = asked["execute"] == "nonesuch"
        print(json.dumps({"error": {"desc": "no such command"}} if bad else {"return": {}}), file=lines, flush=True)

threading.Thread(target=monitor, daemon=True).start()
lines = agent.makefile("rwb")

def answer(number, status, data, spoilt=0):
    lines.write(b"%d %d %d %d\\n" % (number, status, len(data), zlib.crc32(data) + spoilt) + data)
    lines.flush()

answer(0, 0, b"ready")
while head := lines.readline():
    verb, number, milliseconds, length, crc = head.decode().split()
    body = lines.read(int(length))
    if verb == "off":
        break
    done = subprocess.run(["sh", "-c", body.decode()], stdout=subprocess.PIPE)
    if b"WARNING" in done.stdout:
        print("[ 1.0] WARNING: something", file=console, flush=True)
    answer(int(number), done.returncode, done.stdout, b"spoil" in body)
"""


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., contextlib.AbstractContextManager[Guest]]:
    qemu = tmp_path / "qemu"
    qemu.write_text(PLAYED)
    qemu.chmod(0o755)
    monkeypatch.setattr(guest, "QEMU", str(qemu))
    monkeypatch.setattr(guest, "_base", bytes)
    monkeypatch.setenv("LAB_ACCEL", "tcg")
    return lambda **words: guest.boot(tmp_path / "image", "one", log=tmp_path / "a,log", timeout=5, **words)


def test_a_guest_is_asked_and_answers(played) -> None:
    with played() as machine:
        assert machine.sh("echo one; exit 3", check=False) == guest.Output(3, "one\n")
        with pytest.raises(LabError, match="exit status 0"):
            machine.sh("exit 3")
        assert machine.remove_dimm("dimm1", 5) == ""
        assert machine.message(lambda event: event["event"] == "OTHER", 0)
        assert not machine.message(lambda event: True, 0.01)
        with pytest.raises(LabError, match="no such command"):
            machine.qmp("nonesuch")
    assert machine.process.returncode == 0


@pytest.mark.parametrize(
    ("script", "why"),
    [("echo WARNING", "quiet console"), ("echo spoil", "checksum"), ("kill -9 $PPID", "the machine stopped")],
)
def test_a_guest_that_complains_lies_or_dies_is_an_error(played, script: str, why: str) -> None:
    with pytest.raises(LabError, match=why), played() as machine:
        machine.sh(script, timeout=5)
    assert machine.process.poll() is not None


def test_a_guest_that_does_not_begin_is_an_error_with_what_qemu_says(played) -> None:
    with pytest.raises(LabError, match="no such thing"), played(append="refuse.me"):
        pass


@pytest.mark.parametrize(("accel", "at_once", "words"), [
    ("tcg", True, "tcg,thread=multi"), ("tcg", False, "tcg,thread=single"), ("kvm", True, "kvm"),
])  # fmt: skip
def test_cpus_take_turns_unless_asked_not_to(played, monkeypatch, accel: str, at_once: bool, words: str) -> None:
    monkeypatch.setenv("LAB_ACCEL", accel)
    with played(at_once=at_once) as machine:
        command = machine.process.args
    assert command[command.index("-accel") + 1] == words


def test_kvm_that_hangs_is_found_out_once_and_not_used(played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    monkeypatch.delenv("LAB_ACCEL")
    monkeypatch.setattr(guest, "_accelerators", [])
    monkeypatch.setattr(guest.os, "access", lambda *_: True)
    monkeypatch.setattr(guest, "_runs", lambda image, accel: tried.append(accel))
    assert {guest.accelerator(tmp_path / name) for name in ("one", "two")} == {"tcg,thread=single"}
    assert tried == ["kvm"] and "LAB_ACCEL" not in os.environ


# --- What goes into a guest


def test_the_archive_holds_the_files_executable(tmp_path: Path) -> None:
    for name in ("one", "two words"):
        (tmp_path / name).write_text(name * 1000)
    archive = guest._pack({"/bin/one": tmp_path / "one", "/usr/bin/two words": tmp_path / "two words"})
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run(["cpio", "--quiet", "-id"], cwd=out, input=archive, check=True)
    assert (out / "usr/bin/two words").read_text() == "two words" * 1000
    assert os.access(out / "bin/one", os.X_OK)


@pytest.fixture(scope="module")
def toggle() -> Path:
    return guest.guest_programs()["toggle"]


@pytest.mark.parametrize(
    "words",
    [[], ["disk"], ["cpu", "memory"], ["cpu", "--blocks", "1"], ["memory", "--cpus", "1"], ["cpu", "--cycles", "-1"]],
)
def test_toggle_refuses_what_it_does_not_understand(toggle: Path, words: list[str]) -> None:
    done = subprocess.run([toggle, *words, "--list"], capture_output=True, text=True)
    assert done.returncode == 2 and "usage" in done.stderr and not done.stdout


def test_toggle_never_takes_cpu_0(toggle: Path) -> None:
    done = subprocess.run([toggle, "cpu", "--cpus", "0", "--list"], capture_output=True, text=True)
    assert done.returncode == 2 and "CPU 0" in done.stderr
    listed = subprocess.run([toggle, "smt", "--list"], capture_output=True, text=True).stdout
    assert "/cpu0/" not in listed


# --- The link farm


def tree_of(top: Path) -> dict[str, str]:
    return {
        name: f"-> {os.readlink(top / name)}" if (top / name).is_symlink() else (top / name).read_text()
        for name in build._files(top)
    }


@pytest.fixture
def stock(tmp_path: Path) -> Path:
    stock = tmp_path / "stock"
    for name in ("Makefile", "mm/migrate.c", "mm/vmstat.c", "include/linux/mm.h", "tools/run.sh"):
        (stock / name).parent.mkdir(parents=True, exist_ok=True)
        (stock / name).write_text(f"stock {name}\n")
    (stock / "tools/run.sh").chmod(0o755)
    (stock / "tools/link").symlink_to("../mm")
    return stock


FIRST = {"mm/migrate.c": b"ours\n", "mm/demotion_gate.c": b"new\n", "tools/run.sh": b"our script\n", "a/b/new": b"x\n"}


def test_a_rendering_never_writes_through_a_link(stock: Path, tmp_path: Path) -> None:
    series = tmp_path / "series"
    before = tree_of(stock)
    for state, rendered in (
        ("1", FIRST), ("1", FIRST | {"mm/migrate.c": b"ours again\n"}), ("1", {"mm/vmstat.c": b"x\n"}), ("2", FIRST),
    ):  # fmt: skip
        build.farm(stock, state, series, rendered)
        assert tree_of(stock) == before
        assert tree_of(series) == before | {name: data.decode() for name, data in rendered.items()}
    assert os.path.samefile(stock / "mm/vmstat.c", series / "mm/vmstat.c")
    assert (series / "tools/link").is_symlink()
    assert os.access(series / "tools/run.sh", os.X_OK) and not os.access(series / "mm/migrate.c", os.X_OK)


def test_what_did_not_change_keeps_its_time(stock: Path, tmp_path: Path) -> None:
    series = tmp_path / "series"
    build.farm(stock, "1", series, FIRST)
    os.utime(series / "mm/migrate.c", (1, 1))
    os.utime(series / "mm/demotion_gate.c", (1, 1))
    build.farm(stock, "1", series, FIRST | {"mm/demotion_gate.c": b"newer\n"})
    assert (series / "mm/migrate.c").stat().st_mtime == 1
    assert (series / "mm/demotion_gate.c").stat().st_mtime > 1
    build.farm(stock, "2", series, FIRST)  # another stock: every file is looked at again
    assert (series / "mm/migrate.c").stat().st_mtime == 1


def test_the_farm_follows_the_stock_tree(stock: Path, tmp_path: Path) -> None:
    series = tmp_path / "series"
    build.farm(stock, "1", series, FIRST)
    (stock / "Makefile").unlink()
    (stock / "Makefile").write_text("a point release\n")
    (stock / "mm/vmstat.c").unlink()
    (stock / "mm/new.c").write_text("upstream\n")
    build.farm(stock, "2", series, FIRST)
    assert tree_of(series) == tree_of(stock) | {name: data.decode() for name, data in FIRST.items()}


def test_what_the_series_no_longer_changes_is_compiled_again(stock: Path, tmp_path: Path) -> None:
    series = tmp_path / "series"
    for name in build._files(stock):
        os.utime(stock / name, (1, 1), follow_symlinks=False)
    build.farm(stock, "1", series, FIRST)
    assert (series / "mm/vmstat.c").stat().st_mtime == 1
    built = time.time() - 60
    build.farm(stock, "1", series, {})
    assert (series / "mm/migrate.c").stat().st_mtime > built  # the stock file is older than what was compiled from ours
    assert (series / "mm/vmstat.c").stat().st_mtime == 1


def test_a_tree_that_goes_back_in_time_is_compiled_again(stock: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    build.sync(stock, copy)
    os.utime(copy / "Makefile", (1, 1))
    (stock / "mm/vmstat.c").write_text("as it was last year\n")
    os.utime(stock / "mm/vmstat.c", (2, 2))
    built = time.time() - 60
    build.sync(stock, copy)
    assert tree_of(copy) == tree_of(stock)
    assert (copy / "mm/vmstat.c").stat().st_mtime > built
    assert (copy / "Makefile").stat().st_mtime == 1  # the same: stays


def test_the_series_begins_with_the_stock_kernels_objects(tmp_path: Path) -> None:
    stock, series = tmp_path / "stock", tmp_path / "series"
    for name, text in (("a.c", "a\n"), ("b.c", "b\n"), ("c.h", "c\n")):
        (stock / name).parent.mkdir(exist_ok=True)
        (stock / name).write_text(text)
    (stock / "Makefile").write_text(
        # A small kbuild: an object is built when what it was made from is newer, or its command is another.
        "all: a.o b.o\n"
        "%.o: $(srctree)/%.c FORCE\n"
        "\t@c='cat $(srctree)/$*.c $(DEPS_$*)'; f=.$@.cmd; t=;"
        " for p in $(srctree)/$*.c $(DEPS_$*); do [ $$p -nt $@ ] && t=1; done;"
        ' if [ -n "$$t" ] || [ "$$(cat $$f 2>/dev/null)" != "$$c" ]; then'
        ' $$c >$@; echo "$$c" >$$f; echo $@ >>built; fi\n'
        "DEPS_a := $(srctree)/c.h\n"
        "FORCE:\n"
    )
    build.farm(stock, "1", series, {"c.h": b"ours\n"})
    os.utime(series / "c.h", (1, 1))  # rendered before the stock kernel was built

    def make(obj: Path, tree: Path) -> str:
        (obj / "src").unlink(missing_ok=True)
        (obj / "src").symlink_to(tree)
        (obj / "built").unlink(missing_ok=True)
        command = ["make", "-s", "-C", str(obj), "-f", f"{tree}/Makefile", f"srctree={obj}/src"]
        subprocess.run(command, check=True, capture_output=True)
        return (obj / "built").read_text() if (obj / "built").exists() else ""

    one, two = tmp_path / "obj-stock", tmp_path / "obj-series"
    one.mkdir()
    build._begin(one, two, series, ["c.h"])
    assert not two.exists()  # nothing was built yet: nothing to begin with
    assert make(one, stock) == "a.o\nb.o\n"
    (one / "lab.built").write_text("stock")
    build._begin(one, two, series, ["c.h"])
    assert not (two / "lab.built").exists()
    assert make(two, series) == "a.o\n" and (two / "a.o").read_text() == "a\nours\n"
    assert make(one, stock) == ""


def test_the_compiler_cache_never_gives_another_kernel(tmp_path: Path) -> None:
    """What .incbin brings in is in no header and no command, and the compressed kernel is brought in so."""
    (tmp_path / "piggy.S").write_text('.incbin "kernel"\n')
    (tmp_path / "c.c").write_text("int c;\n")
    (tmp_path / "Makefile").write_text(
        "all: piggy.o c.o\n%.o: %.S\n\t$(CC) -MMD -c -o $@ $<\n%.o: %.c\n\t$(CC) -MMD -c -o $@ $<\n"
    )
    env = os.environ | build.ENVIRONMENT | {"CCACHE_DIR": str(tmp_path / "ccache")}
    for kernel in (b"one", b"two"):
        (tmp_path / "kernel").write_bytes(kernel)
        for name in ("piggy.o", "c.o"):
            (tmp_path / name).unlink(missing_ok=True)
        done = subprocess.run(["make", "-C", tmp_path, *build.QUICK], env=env, capture_output=True, text=True)
        assert not done.returncode, done.stderr
        assert kernel in (tmp_path / "piggy.o").read_bytes()
    stats = subprocess.run(["ccache", "--print-stats"], env=env, capture_output=True, text=True, check=True).stdout
    assert re.search(r"^direct_cache_hit\t1$", stats, re.M), stats  # the second c.o, without a preprocessor


def test_an_interrupted_farm_is_looked_at_whole(stock: Path, tmp_path: Path) -> None:
    series = tmp_path / "series"
    build.farm(stock, "1", series, FIRST)
    with pytest.raises(TypeError):  # stands for a full disk or Ctrl-C in the middle
        build.farm(stock, "1", series, {"mm/vmstat.c": b"half\n", "mm/x.c": None})  # type: ignore[dict-item]
    build.farm(stock, "1", series, FIRST)
    assert tree_of(series) == tree_of(stock) | {name: data.decode() for name, data in FIRST.items()}


def test_the_users_own_tree_is_never_written_and_its_build_products_stay_behind(
    stock: Path, tmp_path: Path, monkeypatch
) -> None:
    own = stock.rename(tmp_path / "own")
    for product in (".config", "mm/migrate.o", "mm/.migrate.o.cmd", "include/generated/autoconf.h", "vmlinux"):
        (own / product).parent.mkdir(parents=True, exist_ok=True)
        (own / product).write_text("product\n")
    kernel = Kernel("own", own, tmp_path / "cache")
    monkeypatch.setattr(render, "render", lambda kernel: render.Rendering([render.Commit("0001-x", "x", FIRST)]))
    before = {path: path.lstat().st_mtime_ns for path in own.rglob("*")}
    series = build.source(kernel, "series")
    stock = build.source(kernel, "stock")
    assert sorted(tree_of(stock)) == sorted(tree_of(own)) and not (stock / "vmlinux").exists()
    assert (series / "mm/migrate.c").read_text() == "ours\n"
    assert not os.path.samefile(stock / "mm/migrate.c", own / "mm/migrate.c")  # a link would be a way to write it

    (own / "mm/migrate.o").write_text("built again\n")
    copied = (stock / "mm/migrate.c").stat().st_ino
    (own / "mm/vmstat.c").write_text("the user's change\n")
    assert (build.source(kernel, "series") / "mm/vmstat.c").read_text() == "the user's change\n"
    assert (stock / "mm/migrate.c").stat().st_ino == copied  # what is the same was not copied again
    changed = {path for path in own.rglob("*") if before.get(path) != path.lstat().st_mtime_ns}
    assert changed == {own / "mm/migrate.o", own / "mm/vmstat.c"}

    # A tree may have come without its executable bits, and have been mended.
    (own / "mm/vmstat.c").chmod(0o755)
    build.source(kernel, "series")
    assert (stock / "mm/vmstat.c").stat().st_mode & 0o777 == 0o755


def test_of_a_git_tree_the_commit_is_built(stock: Path, tmp_path: Path, monkeypatch) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", stock, *who, *words], check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    (stock / "untracked.c").write_text("not yet\n")
    kernel = Kernel("own", stock, tmp_path / "cache")
    monkeypatch.setattr(render, "render", lambda kernel: render.Rendering([render.Commit("0001-x", "x", FIRST)]))
    copy = build.source(kernel, "stock")
    assert not (copy / "untracked.c").exists() and (copy / "mm/migrate.c").exists()
    os.utime(copy / "mm/migrate.c", (1, 1))
    git("add", "untracked.c")
    git("commit", "-q", "-m", "two")
    build.source(kernel, "stock")
    assert (copy / "untracked.c").exists()
    assert (copy / "mm/migrate.c").stat().st_mtime == 1  # or all would be compiled again


# --- Configurations


def test_a_symbol_the_kernel_knows_but_did_not_take_is_named(tmp_path: Path) -> None:
    (tmp_path / "mm").mkdir()
    (tmp_path / "mm/Kconfig").write_text("menuconfig A\n\tbool\n\nif A\n\tconfig B\n\tbool\nendif\nconfig C\n")
    (tmp_path / "mm/Kconfig.debug").write_text("config D_KUNIT_TEST\n\ttristate\nconfig F\n")
    (tmp_path / "mm/notes").write_text("config E\n")
    wanted = build.symbols("CONFIG_A=y\nCONFIG_B=y\n# CONFIG_C is not set\nCONFIG_D_KUNIT_TEST=16\nCONFIG_E=y\n")
    wanted |= build.symbols("# CONFIG_F is not set\n")
    taken = build.symbols("CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=y\nCONFIG_D_KUNIT_TEST=8\n")
    assert build.not_taken(wanted, taken, tmp_path) == ["B=y (is n)", "C=n (is y)", "D_KUNIT_TEST=16 (is 8)"]


@pytest.fixture(params=["mm/migrate.c", "mm/memory-tiers.c"])
def kernel(request: pytest.FixtureRequest, tmp_path: Path) -> Kernel:
    """A tree as far as telling where it keeps the targets needs one."""
    keeper = tmp_path / "tree" / request.param
    keeper.parent.mkdir(parents=True)
    keeper.write_text("static struct demotion_nodes *node_demotion __read_mostly;\n")
    return Kernel("some", tmp_path / "tree", tmp_path / "cache")


def test_a_fragment_sets_each_symbol_once(kernel: Kernel) -> None:
    for variant in build.VARIANTS:
        for fragment in (*build.fragments(kernel, variant), build.CONFIG / "deb.config"):
            names = re.findall(r"CONFIG_(\w+)(?:=| is not set)", fragment.read_text())
            assert names and len(names) == len(set(names)), fragment


def test_only_where_the_tree_needs_it_is_the_network_built(kernel: Kernel) -> None:
    text = "".join(fragment.read_text() for fragment in build.fragments(kernel, "plain"))
    assert (build.symbols(text).get("NET") == "y") == (kernel.keeper == "mm/migrate.c")


def test_a_missing_deb_config_is_said_before_anything_is_done(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no file"):
        build.deb_config(str(tmp_path / "none"))


def test_only_a_breakpoint_of_the_kernel_s_own_is_a_slip(tmp_path):
    log = tmp_path / "console"
    assert not guest.slipped(log)
    log.write_text("[    1.2] Oops: int3: 0000 [#1] SMP\n")
    assert guest.slipped(log)
    log.write_text("[    1.2] Oops: general protection fault: 0000 [#1] SMP\n")
    assert not guest.slipped(log)
