# SPDX-License-Identifier: GPL-2.0
"""The live comparison without a machine to touch: its table as a run, what it refuses. A guest tries the rest."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

import pytest

from lab.comparison import here, report, runs, stats
from lab.comparison.stats import Key

ARMS = ("auto", "always", "never", "auto2")


def table(rounds: int) -> list[str]:
    lines = ["round,arm,slot,scenario,cycle,target,action,ns,result"]
    for number in range(rounds):
        for slot, arm in enumerate(ARMS):
            for cycle in range(10):
                ns = int(5e6 * (2 if arm == "always" else 1) * (1 + 0.02 * ((cycle + number) % 3)))
                lines += [f"{number},{arm},{slot},cpu,{cycle},3,{action},{ns},ok" for action in ("off", "on")]
            rebuilt = 20 if arm == "always" else 0
            lines.append(f"{number},{arm},{slot},cpu,0,,rebuilds,{rebuilt},ok")
    return lines


def test_table_becomes_a_run_with_a_report(tmp_path: Path) -> None:
    rows = here.parse(table(5), ARMS, ("cpu",))
    options = argparse.Namespace(rounds=5, cycles=10, seed=1)
    runs.write_plan(tmp_path, here.make_plan(options, ARMS, ("cpu",)))
    stats.write_rows(tmp_path / runs.DATA, rows)
    page = report.write(tmp_path)
    report.table(tmp_path)
    run = report.Analysis(tmp_path)
    result = run.compare(Key("here", "cpu", "cycle_ms"), "auto", "always")
    assert result and result.finding == "differs" and result.ratio == pytest.approx(2, abs=0.05)
    counted = {each.arm: each for each in run.counted}
    assert (counted["always"].events, counted["always"].rebuilds, counted["auto"].rebuilds) == (100, 100, 0)
    assert "lab.comparison.here" in (tmp_path / "reproduce").read_text() and page.exists()


def test_round_that_was_cut_short_is_left_out() -> None:
    lines = table(2)
    rows = here.parse(lines[:-30], ARMS, ("cpu",))
    assert {row.block for row in rows} == {0}


def test_kernel_without_the_gate_is_refused(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "GATE": str(tmp_path / "gate"), "STATE": str(tmp_path / "state")}
    done = subprocess.run(["sh", here.SCRIPT, "--yes"], capture_output=True, text=True, env=env)
    assert done.returncode == 1 and not done.stdout
    assert "root" in done.stderr or "does not have it" in done.stderr


@pytest.mark.parametrize("words", ["--rounds x", "--arms sometimes", "--scenarios disk", "--nope", "--rounds"])
def test_bad_options_are_refused(words: str) -> None:
    done = subprocess.run(["sh", here.SCRIPT, *words.split()], capture_output=True, text=True)
    assert done.returncode and not done.stdout and done.stderr
