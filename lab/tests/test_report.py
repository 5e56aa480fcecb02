# SPDX-License-Identifier: GPL-2.0
"""The report of a run on played guests: what a reader is told, and that the page needs nothing but itself."""

from __future__ import annotations

import base64
import gzip
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.image
import pytest
from test_bench import SMALL, played_kernel

from lab.common import LabError
from lab.comparison import bench, report, runs, stats
from lab.comparison.report import Analysis, Claim
from lab.comparison.stats import Key, Outcome


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its report, made once."""
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as monkeypatch:
        bench.run(played_kernel(monkeypatch, folder), SMALL, folder / "run", seed=5)
    report.write(folder / "run")
    return folder / "run"


@pytest.fixture
def run_dir(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, for tests that change it."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def outcomes(run: Analysis) -> dict[str, Outcome]:
    return {claim.text: outcome for claim, outcome, _ in run.claims}


def test_claims_are_judged_by_the_numbers(run_dir: Path) -> None:
    found = outcomes(Analysis(run_dir))
    assert found["one: CPU off + on, ms, always / auto >= 1.2"] == Outcome.PASS  # played: 1.6
    assert found["one: stress-ng memhotplug, ops/s, always / auto <= 0.6"] != Outcome.PASS  # played: 0.625
    assert found["one: CPU off + on, ms, auto2 / auto equal, within the margin"] == Outcome.PASS


def test_on_5_15_stock_is_expected_to_pay_for_every_cpu_event(run_dir: Path) -> None:
    plan = runs.load_plan(run_dir)
    plan["kernel"]["keeper"] = "mm/migrate.c"
    runs.write_plan(run_dir, plan)
    found = outcomes(Analysis(run_dir))
    assert found["one: CPU off + on, ms, auto / stock <= 0.8"] == Outcome.FAIL  # played: 1.0
    assert "one: CPU off + on, ms, auto / stock equal, within the margin" not in found


def test_claim_of_a_scenario_that_gave_no_numbers_is_not_measured(run_dir: Path) -> None:
    data = run_dir / runs.DATA
    rows = [row for row in stats.read_rows(data) if (row.scenario, row.arm) != ("cpu", "always")]
    data.unlink()
    stats.write_rows(data, rows)
    assert outcomes(Analysis(run_dir))["one: CPU off + on, ms, always / auto >= 1.2"] == Outcome.ABSENT


def test_counts_are_exact(run_dir: Path) -> None:
    counted = {(each.topology, each.scenario, each.arm): each for each in Analysis(run_dir).counted}
    cpu = 4 * 2 * 2 * SMALL.cpu_cycles  # blocks, rounds, off and on
    always, auto, stock = (counted["one", "cpu", arm] for arm in ("always", "auto", "stock"))
    assert (always.events, always.rebuilds, always.skipped, always.outcome) == (cpu, cpu, 0, Outcome.PASS)
    assert (auto.events, auto.rebuilds, auto.skipped, auto.outcome) == (cpu, 0, cpu, Outcome.PASS)
    assert (stock.rebuilds, stock.outcome) == (None, None)
    assert (auto.demotion_waits, always.demotion_waits) == (0, 1)
    assert counted["one", "memory", "auto"].failed == 4 * 2  # one a turn


def test_one_rebuild_too_many_is_told(run_dir: Path) -> None:
    data = run_dir / runs.DATA
    rows = stats.read_rows(data)
    wanted = ("auto", "cpu", "rebuilds_count")
    place = next(i for i, row in enumerate(rows) if (row.arm, row.scenario, row.metric) == wanted)
    rows[place] = rows[place]._replace(value=1)
    data.unlink()
    stats.write_rows(data, rows)
    counted = {(each.topology, each.scenario, each.arm): each for each in Analysis(run_dir).counted}
    assert counted["one", "cpu", "auto"].outcome == Outcome.FAIL


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_stands_alone_and_holds_everything(run_dir: Path) -> None:
    page = (run_dir / "report.html").read_text()
    parser = Links()
    parser.feed(page)
    assert not parser.open and parser.links and all(link.startswith("data:") for link in parser.links)
    assert page.count("data:image/png") == len(report.PLOTS)
    data = gzip.decompress(base64.b64decode(re.search(r"data:application/gzip;base64,([^\"]+)", page)[1]))
    assert data == (run_dir / runs.DATA).read_bytes()
    for text in ("seed: 5", "CONFIG_NUMA=y", "qemu-system-x86_64 -kernel", "loglevel=5", "QEMU", "too noisy", "pass"):
        assert text in page, text


def test_pictures_are_files_that_can_be_opened(run_dir: Path) -> None:
    for name in report.PLOTS:
        picture = matplotlib.image.imread(run_dir / "plots" / f"{name}.png")
        assert picture.shape[0] > 300 and picture.shape[1] > 600 and picture.std() > 0.01


def test_noise_is_what_was_played(run_dir: Path) -> None:
    found = {(key, arms): (within, between) for key, arms, within, between in report.noise(Analysis(run_dir))}
    within, between = found[Key("one", "cpu", "cycle_ms"), "stock, stock2"]
    assert 3 < within < 6 and 0.5 < between < 7  # played: 6 % an event, of which a cycle has two; 3 % a boot


def test_unfinished_run_says_so(run_dir: Path) -> None:
    data = run_dir / runs.DATA
    rows = [row for row in stats.read_rows(data) if row.boot < 3]
    data.unlink()
    stats.write_rows(data, rows)
    assert "not finished" in report.write(run_dir).read_text()
    report.table(run_dir)


def test_folder_without_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="plan.json"):
        report.write(tmp_path)


def test_robot_layout_has_the_robots_columns(run_dir: Path) -> None:
    text = report.robot(Analysis(run_dir), "auto", "always")
    line = next(line for line in text.splitlines() if "stress-ng.memhotplug.ops_per_sec" in line)
    value = r"([\d.]+)(?: ±\s*\d+%)?"
    found = re.fullmatch(rf"\s*{value}\s+([+-][\d.]+)%\s+{value}\s+stress-ng\.memhotplug\.ops_per_sec \[one\]", line)
    assert found, line
    assert float(found[2]) == pytest.approx(100 * (float(found[3]) / float(found[1]) - 1), abs=0.2)


def test_reproduce_repeats_the_plan(run_dir: Path) -> None:
    script = run_dir / "reproduce"
    subprocess.run(["sh", "-n", script], check=True)
    assert script.stat().st_mode & 0o111
    away = subprocess.run([script], cwd=run_dir, capture_output=True, text=True)
    assert away.returncode and "top of the repository" in away.stderr
    plan = runs.load_plan(run_dir)
    assert runs.design_of(plan) == SMALL and plan["seed"] == 5


def test_claim_texts_differ() -> None:
    for keeper in ("mm/migrate.c", "mm/memory-tiers.c"):
        texts = [claim.text for claim in report.claims(keeper)]
        assert len(texts) == len(set(texts))
    assert Claim(Key("one", "cpu", "cycle_ms"), "a", "b", "<=", 0.8).text.endswith("b / a <= 0.8")
