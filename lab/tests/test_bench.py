# SPDX-License-Identifier: GPL-2.0
"""The comparison, run on guests that are played: what is planned, measured, kept, and gone on with."""

from __future__ import annotations

import contextlib
import math
import re
import subprocess
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.common import LabError
from lab.comparison import bench, runs, stats
from lab.comparison.runs import Design, Part
from lab.comparison.stats import OK, Key, Row
from lab.guests import gate
from lab.guests.guest import TOPOLOGIES

TIMES = {"stock": 1.0, "auto": 1.0, "always": 1.6, "never": 1.0}  # how long an event takes, against stock
FULL = ("stock", "stock2", "auto", "auto2", "always", "never")
THREE = ("stock", "auto", "always")
SMALL = Design(
    "small",
    (
        Part("one", ("memhotplug", "memory", "cpu"), FULL, blocks=4, rounds=2),
        Part("one", ("smt", "suspend"), THREE, blocks=3, cpus=8),
        Part("hot-add", ("node",), THREE, blocks=3),
        Part("one", ("memory", "cpu"), THREE, blocks=1, variant=bench.TRACE),
    ),
)


class PlayedGuest:
    """Answers the scripts of lab.comparison.bench as a guest would, with times that are drawn."""

    def __init__(self, image: Path, topology: str, cpus: int | None, seed: int) -> None:
        self.stock = image.name.startswith("stock")
        self.one = topology == "one"
        self.cpus = cpus or 4
        self.rng = np.random.default_rng(seed)
        self.level = self.rng.normal(0, 0.03)
        self.policy = "auto"
        self.rebuilds, self.waited = 1, 0
        self.uptime = 20.0
        self.process = types.SimpleNamespace(args=["qemu-system-x86_64", "-kernel", image, "-append", "loglevel=5"])
        self.scripts: list[str] = []

    def draw(self, middle: float) -> float:
        scale = TIMES["stock" if self.stock else self.policy]
        return middle * scale * math.exp(self.level + self.rng.normal(0, 0.06))

    def event(self) -> None:
        self.waited += self.stock or self.policy == "always"
        if self.policy == "always" or not (self.one or self.policy == "never"):
            self.rebuilds += 1

    def toggle(self, what: str, cycles: int, target: str) -> str:
        targets = [str(cpu) for cpu in range(self.cpus - 1, 0, -1)] if what == "smt" else [target]
        lines = ["scenario,cycle,target,action,ns,result"]
        for cycle in range(cycles):
            for action in ("off", "on"):
                for each in targets:
                    if what == "memory" and cycle == 3:
                        if action == "off":
                            lines.append(f"{what},{cycle},{each},off,{int(self.draw(9e6))},EBUSY")
                        continue
                    self.event()
                    ns = int(self.draw(9e6 if what == "memory" else 40e6))
                    lines.append(f"{what},{cycle},{each},{action},{ns},ok")
        return "\n".join(lines) + "\n"

    def sh(self, script: str, *, timeout: float = 60, check: bool = True) -> types.SimpleNamespace:
        self.scripts.append(script)
        return types.SimpleNamespace(status=0, text=self.answer(script))

    def read(self, path: str) -> str:
        assert path == f"{gate.DEBUGFS}/rebuilds" and not self.stock
        return f"{self.rebuilds}"

    def answer(self, script: str) -> str:
        toggle = re.search(r"toggle (\w+) --cycles (\d+)(?: --blocks (\d+))?", script)
        if "dmesg -n 1" in script:
            return self.toggle("cpu", 2, "3") + self.toggle("memory", 2, "15")
        if "function >current_tracer" in script:
            self.waited = 0
        if "print \"waits\"" in script:
            return f"waits {7 + self.waited} {self.waited}\n"
        if toggle:
            return self.toggle(toggle[1], int(toggle[2]), toggle[3] or "3")
        if f">{gate.SYSFS}/policy" in script:
            self.policy = script.split()[1]
            return " ".join(f"[{each}]" if each == self.policy else each for each in ("auto", "always", "never"))
        if "stress-ng" in script:
            rate = 3e3 / self.draw(50)
            return (
                "stress-ng: info:  [1] dispatching hogs: 1 memhotplug\n"
                "stress-ng: metrc: [1] stressor  bogo ops real time  usr time  sys time   bogo ops/s     bogo ops/s\n"
                f"stress-ng: metrc: [1] memhotplug {int(3 * rate)} 3.01 0.01 2.50 {rate:.2f} 90.10\n"
            )
        if "as init process" in script:
            return f"[    {self.draw(1.9):.6f}] Run /init as init process\n"
        if "processor" in script and "cpuinfo" in script:
            return f"{self.cpus}\n"
        if "mem >/sys/power/state" in script:
            return (
                "[   10.000000] PM: suspend entry (deep)\n[   10.100000] Disabling non-boot CPUs ...\n"
                f"[   {10.1 + self.draw(0.2):.6f}] smpboot: CPU 3 is now offline\n"
                "[   11.000000] Enabling non-boot CPUs ...\n[   11.200000] CPU3 is up\n"
                "[   11.500000] PM: suspend exit\n"
            )
        if "look()" in script:
            return "".join(self.look(nodes) for nodes in (("0", "0-1", "0") if "offline" in script else ("0",)))
        if "memory*" in script:
            return "memory32\n"
        return ""

    def look(self, nodes: str) -> str:
        self.uptime += 0.1
        gate = "," if self.stock else f"{int('-' in nodes)},{self.rebuilds}"
        return f"seen,{self.uptime:.2f},{nodes},{gate}\n"

    def block_size(self) -> int:
        return 128 << 20

    def plug(self, size: int) -> str:
        return "dimm1"

    def unplug(self, dimm: str) -> None:
        pass


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> types.SimpleNamespace:
    return played_kernel(monkeypatch, tmp_path)


def played_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> types.SimpleNamespace:
    """A kernel whose images are stand-ins and whose guests are played. `played` holds the guests, in order."""
    played: list[PlayedGuest] = []
    folder = tmp_path / "objects"
    folder.mkdir()
    (folder / ".config").write_text("CONFIG_NUMA=y\n")

    def image(_, kind: str, variant: str = "plain") -> Path:
        path = folder / f"{kind}-{variant}"
        if not path.exists():
            path.write_text(path.name)
        return path

    @contextlib.contextmanager
    def boot(image: Path, topology: str, *, log: Path, cpus: int | None = None, **_) -> Iterator[PlayedGuest]:
        played.append(PlayedGuest(image, topology, cpus, len(played)))
        yield played[-1]

    monkeypatch.setattr(bench.build, "image", image)
    monkeypatch.setattr(bench, "boot_guest", boot)
    monkeypatch.setattr(bench.time, "sleep", lambda _: None)
    return types.SimpleNamespace(
        name="6.12", version="6.12.1", keeper="mm/memory-tiers.c", build=tmp_path / "build", played=played,
        objects=folder,
    )


def test_blocks_are_complete_and_shuffled_by_the_seed() -> None:
    design = bench.DESIGNS["default"]
    boots = bench.plan_boots(design, 1)
    assert boots == bench.plan_boots(design, 1)
    assert [boot.index for boot in boots] == list(range(len(boots)))
    orders = set()
    for number, part in enumerate(design.parts):
        for block in range(part.blocks):
            here = [boot for boot in boots if (boot.part, boot.block) == (number, block)]
            assert sorted(arm for boot in here for arm in boot.arms) == sorted(part.arms)
            places = [boot.index for boot in here]
            assert max(places) - min(places) == len(places) - 1, "boots of one block are apart in time"
            orders.add(tuple(boot.arms[0] for boot in here))
    assert len(orders) > 2
    first = [[boot.arms for boot in bench.plan_boots(design, seed)] for seed in range(5)]
    assert any(each != first[0] for each in first[1:])


def test_policies_take_turns_in_one_boot_in_every_order() -> None:
    part = Part("one", ("cpu",), THREE, blocks=20, rounds=2)
    boots = bench.plan_boots(Design("d", (part,)), 3)
    orders = {tuple(arm for _, arm in bench.slots(boot, part)) for boot in boots if boot.image == "series"}
    both = {("auto", "always"), ("always", "auto")}
    assert {order[:2] for order in orders} == {order[2:] for order in orders} == both
    assert len(orders) == 4, "the order of the second round follows from that of the first"


@pytest.mark.parametrize("name", bench.DESIGNS)
def test_designs_have_enough_blocks_for_a_verdict(name: str) -> None:
    for part in bench.DESIGNS[name].parts:
        compared = len(part.arms) > 1 and part.variant != bench.TRACE
        assert part.blocks >= stats.MIN_BLOCKS or not compared
        assert set(part.scenarios) <= set(bench.SCENARIOS)
        assert part.variant in bench.build.VARIANTS and part.topology in TOPOLOGIES


def test_run_measures_every_arm_in_every_block(kernel, tmp_path: Path) -> None:
    data = bench.run(kernel, SMALL, tmp_path / "run", seed=5)
    rows = stats.add_cycles(stats.read_rows(data))
    for arm in FULL:
        for scenario, metric in (("memhotplug", "ops_per_sec"), ("memory", "cycle_ms"), ("cpu", "cycle_ms")):
            assert sorted(stats.medians(rows, Key("one", scenario, metric), arm)) == [0, 1, 2, 3], (arm, scenario)
    for key in (("one/8", "smt", "switch_off_ms"), ("one/8", "suspend", "suspend_ms"), ("hot-add", "node", "on_ms")):
        assert sorted(stats.medians(rows, Key(*key), "always")) == [0, 1, 2], key
    failed = [row for row in rows if row.result == "EBUSY"]
    assert failed and all(row.metric == "off_ms" for row in failed)
    result = stats.compare(*(stats.medians(rows, Key("one", "cpu", "cycle_ms"), arm) for arm in ("auto", "always")))
    assert result and result.low < 1.6 < result.high
    assert (tmp_path / "run" / "config-series").read_text() == "CONFIG_NUMA=y\n"


def test_traced_boots_count_and_do_not_time(kernel, tmp_path: Path) -> None:
    rows = stats.read_rows(bench.run(kernel, SMALL, tmp_path / "run"))
    plan = bench.plan_boots(SMALL, bench.SEED)
    traced = {boot.index for boot in plan if SMALL.parts[boot.part].variant == bench.TRACE}
    metrics = {row.metric for row in rows if row.boot in traced}
    assert metrics == {"counted_events_count", "waits_count", "demotion_waits_count", stats.DONE}


def test_nothing_prints_while_it_measures_and_the_block_is_the_same_for_all(kernel, tmp_path: Path) -> None:
    bench.run(kernel, SMALL, tmp_path / "run")
    for guest in kernel.played:
        assert guest.scripts[0].startswith("dmesg -n 1")
        toggles = [script for script in guest.scripts[1:] if re.match(r"toggle memory", script)]
        assert len({each for script in toggles for each in re.findall(r"--blocks (\d+)", script)}) <= 1


def test_node_is_looked_at_only_between_single_writes(kernel, tmp_path: Path) -> None:
    design = Design("d", (Part("hot-add", ("node",), THREE, blocks=1),))
    rows = stats.read_rows(bench.run(kernel, design, tmp_path / "run"))
    writes = [script for guest in kernel.played for script in guest.scripts if "echo offline" in script]
    assert len(writes) == len(THREE)
    for script in writes:
        subprocess.run(["sh", "-n"], input=script, text=True, check=True)
        assert re.search(r"echo offline >\S+/memory32/state; look; echo online_movable >\S+/state; look; done", script)
    for arm, metrics in (("stock", {"nodes"}), ("auto", {"nodes", "open", "rebuilds"})):
        mine = [row for row in rows if row.arm == arm and row.metric.startswith("seen_")]
        seen = [(row.metric.split("_")[1], row.at, row.value) for row in mine]
        assert {metric for metric, _, _ in seen} == metrics
        nodes = [(at, value) for metric, at, value in seen if metric == "nodes"]
        assert [value for _, value in nodes] == [1, 1, 2, 1] and nodes[0][0] == 0 and nodes == sorted(nodes)


def test_policy_is_set_before_each_turn(kernel, tmp_path: Path) -> None:
    design = Design("d", (Part("one", ("cpu",), ("always", "never", "auto"), blocks=3),))
    rows = stats.read_rows(bench.run(kernel, design, tmp_path / "run"))
    rebuilds = {(row.arm, row.value) for row in rows if row.metric == "rebuilds_count"}
    assert rebuilds == {("auto", 0), ("never", 0), ("always", 2 * design.cpu_cycles)}


def unfinished(out: Path) -> bool:
    plan = runs.load_plan(out)
    return bool(plan) and len({row.boot for row in stats.read_rows(out / runs.DATA)}) < len(plan["boots"])


def test_stopped_run_keeps_what_is_done_and_goes_on(kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    real = bench.measure
    calls: list[int] = []

    def stopped(image, design, boot, log):
        calls.append(boot.index)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(image, design, boot, log)

    monkeypatch.setattr(bench, "measure", stopped)
    with pytest.raises(KeyboardInterrupt):
        bench.run(kernel, SMALL, out)
    first = stats.read_rows(out / bench.DATA)
    assert {row.boot for row in first} == {0, 1, 2} and unfinished(out)
    with (out / bench.DATA).open("a") as torn:
        torn.write("0,3,one,series,au")
    bench.run(kernel, SMALL, out)
    rows = stats.read_rows(out / bench.DATA)
    assert calls[4:] == list(range(3, len(bench.plan_boots(SMALL, bench.SEED))))
    assert rows[: len(first)] == first and not unfinished(out)
    bench.run(kernel, SMALL, out)
    assert stats.read_rows(out / bench.DATA) == rows, "a finished run was measured again"


def test_run_of_other_kernels_is_not_gone_on_with(kernel, tmp_path: Path) -> None:
    out = tmp_path / "run"
    bench.run(kernel, SMALL, out)
    before = (out / bench.DATA).read_bytes()
    (kernel.objects / "series-plain").write_text("built anew")
    with pytest.raises(LabError, match="another folder"):
        bench.run(kernel, SMALL, out)
    with pytest.raises(LabError):
        bench.run(kernel, replace(SMALL, cpu_cycles=5), out)
    assert (out / bench.DATA).read_bytes() == before


def test_folder_is_that_of_the_stopped_run(kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    out = bench.run_folder(kernel, SMALL, 1)
    monkeypatch.setattr(bench, "measure", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        bench.run(kernel, SMALL, out, seed=1)
    monkeypatch.setattr(bench.time, "strftime", lambda *_: "later")
    assert bench.run_folder(kernel, SMALL, 1) == out
    assert bench.run_folder(kernel, SMALL, 2) != out
    (kernel.objects / "series-plain").write_text("built anew")
    assert bench.run_folder(kernel, SMALL, 1) != out


def test_stress_ng_without_metrics_is_an_error() -> None:
    guest: Any = types.SimpleNamespace(sh=lambda *_, **__: types.SimpleNamespace(status=0, text="stress-ng: skipped\n"))
    with pytest.raises(LabError, match="memhotplug"):
        bench.memhotplug(bench.Slot(guest, SMALL, 4, Row(0, 0, "one", "series", "auto")))


def test_shape_of_the_original_report() -> None:
    design = bench.choose(bench.DESIGNS["default"], shape="lkp")
    assert {part.scenarios for part in design.parts} == {("memhotplug",)}
    command = bench.stress_command(design, 96)
    assert "--memhotplug 9 " in command and "--timeout 60 " in command
    assert "--memhotplug 1 " in bench.stress_command(design, 4)


def test_scenarios_and_topologies_are_arguments() -> None:
    default = bench.DESIGNS["default"]
    cut = bench.choose(default, scenarios=["cpu"], topologies=["one", "two-socket", "tiered"])
    assert {(part.name, part.scenarios) for part in cut.parts} == {
        ("one", ("cpu",)), ("two-socket", ("cpu",)), ("tiered", ("cpu",))
    }
    assert [part.name for part in bench.choose(default, topologies=["one/16"]).parts] == ["one/16"]
    added = bench.choose(bench.DESIGNS["quick"], scenarios=["suspend"])
    assert [(part.name, part.scenarios) for part in added.parts] == [("one/8", ("suspend",))]
    assert bench.choose(default) == default


def test_suspend_times_come_from_the_last_cycle_in_the_log() -> None:
    assert bench.suspend_times("[    1.0] something else") == {}
    times = bench.suspend_times(
        "[ 5.000000] PM: suspend entry (deep)\n[ 5.100000] Disabling non-boot CPUs ...\n"
        "[ 5.150000] smpboot: CPU 1 is now offline\n[ 5.300000] smpboot: CPU 3 is now offline\n"
        "[ 5.400000] Enabling non-boot CPUs ...\n[ 5.500000] CPU1 is up\n"
        "[ 5.700000] CPU3 is up\n[ 6.000000] PM: suspend exit\n"
    )
    assert times == pytest.approx({"suspend_ms": 1000, "cpus_off_ms": 200, "cpus_on_ms": 300})


def test_guest_that_dies_ends_the_run_and_keeps_the_rest(kernel, tmp_path: Path, monkeypatch) -> None:
    real = bench.measure

    def dies(image, design, boot, log):
        if boot.index == 2:
            raise LabError("guest", expected="a quiet console", found="BUG", do="read the log")
        return real(image, design, boot, log)

    monkeypatch.setattr(bench, "measure", dies)
    with pytest.raises(LabError, match="BUG"):
        bench.run(kernel, SMALL, tmp_path / "run")
    assert {row.boot for row in stats.read_rows(tmp_path / "run" / bench.DATA)} == {0, 1}
    assert OK in {row.result for row in stats.read_rows(tmp_path / "run" / bench.DATA)}
