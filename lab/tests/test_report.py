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
from lab.comparison import analysis, bench, pictures, report, runs, stats
from lab.comparison.analysis import Analysis
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
    return {claim: outcome for claim, outcome, _ in run.claims}


def test_claims_are_judged_by_the_numbers(run_dir: Path) -> None:
    found = outcomes(Analysis(run_dir))
    assert found["one: CPU off + on, ms, always / auto >= 1.2"] == Outcome.PASS  # played: 1.6
    assert found["one: stress-ng memhotplug, ops/s, always / auto <= 0.6"] != Outcome.PASS  # played: 0.625
    assert found["one: CPU off + on, ms, auto2 / auto equal, within the margin"] == Outcome.PASS


def test_on_5_15_stock_is_expected_to_pay_for_every_cpu_event(run_dir: Path) -> None:
    plan = runs.load_plan(run_dir)
    assert plan
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
    assert (always.events, always.rebuilds, always.outcome) == (cpu, cpu, Outcome.PASS)
    assert (auto.events, auto.rebuilds, auto.outcome) == (cpu, 0, Outcome.PASS)
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
    assert page.count("data:image/png") == len(pictures.PICTURES)
    data = gzip.decompress(base64.b64decode(re.findall(r"data:application/gzip;base64,([^\"]+)", page)[0]))
    assert data == (run_dir / runs.DATA).read_bytes()
    for text in ("&#34;seed&#34;: 5", "CONFIG_NUMA=y", "qemu-system-x86_64 -kernel", "loglevel=5", "too noisy", "pass"):
        assert text in page, text


def test_pictures_are_files_that_can_be_opened(run_dir: Path) -> None:
    for name in pictures.PICTURES:
        picture = matplotlib.image.imread(run_dir / "plots" / f"{name}.png")
        assert picture.shape[0] > 300 and picture.shape[1] > 600 and picture.std() > 0.01


def test_answer_comes_from_the_data(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(run_dir, 5, metric="ops_per_sec", arm="auto", block=1)
    run = Analysis(run_dir)
    said = analysis.answer(run)
    events = 2 * 2 * 4 * 2 * SMALL.cpu_cycles + 2 * 2 * 4 * (2 * SMALL.memory_cycles - 2) + 3 * 14  # auto, auto2; SMT
    assert said[0] == f"On 6.12.1 with one node no event rebuilt with auto (0 of {events})."
    cpu = run.compare(Key("one", "cpu", "cycle_ms"), "auto", "always")
    assert f"CPU off + on 1.6 times as long ({analysis.interval(cpu)})" in said[1]
    assert said[2].startswith("Against stock") and "this run can't tell: stress-ng memhotplug" in said[2]
    assert "Of 11 claims fixed beforehand" in said[-1] and not any("Emulated" in each for each in said)
    report.table(run_dir)
    assert " ".join(capsys.readouterr().out.split()).endswith(" ".join(said)), "the answer comes last"
    page = report.render(run, run_dir, {"ratios": run_dir / "plots" / "ratios.png"})
    order = (said[0], "rebuilds at each event", "Ratios of all", "<table>", "<h2>In", "<details>")
    places = [page.index(text) for text in order]
    assert places == sorted(places), "the answer, the legend and the ratios come first"


def test_emulated_times_are_no_times(run_dir: Path) -> None:
    plan = runs.load_plan(run_dir)
    assert plan
    plan["commands"]["one stock"] += ["-accel", "tcg,thread=multi"]
    runs.write_plan(run_dir, plan)
    assert analysis.answer(Analysis(run_dir))[-1] == "Emulated: ratios, no times."


def change(run_dir: Path, value: float, **wanted: object) -> None:
    data = run_dir / runs.DATA
    rows = stats.read_rows(data)
    data.unlink()
    changed = (row._replace(value=value) if wanted.items() <= row._asdict().items() else row for row in rows)
    stats.write_rows(data, changed)


def test_boot_that_did_nothing_is_told(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(run_dir, 0, metric="ops_per_sec", arm="auto", block=1)
    report.table(run_dir)
    for text in (report.render(Analysis(run_dir), run_dir, {}), " ".join(capsys.readouterr().out.split())):
        assert "1 boot of 0 left out" in text
        assert "as their figure is 0: one: stress-ng memhotplug, ops/s, auto: 1 of 4." in text
    outcome = outcomes(Analysis(run_dir))["one: stress-ng memhotplug, ops/s, auto / stock equal, within the margin"]
    assert outcome == Outcome.NOISY
    change(run_dir, 0, metric="ops_per_sec", arm="auto")
    run = Analysis(run_dir)
    assert "auto: 4 of 4." in analysis.answer(run)[-1]
    assert pictures.plot_boots(run), "a 0 has no place on a log scale"


def test_floor_stands_beside_the_p(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report.table(run_dir)
    page = (run_dir / "report.html").read_text()
    for text in (page, capsys.readouterr().out):
        assert "0.12 (floor)" in text and "4 blocks 0.12" in text
    far, near = (stats.compare(dict.fromkeys(range(4), 1.0), new) for new in (
        {0: 2.0, 1: 2.1, 2: 2.2, 3: 2.3}, {0: 2.0, 1: 0.9, 2: 0.8, 3: 1.3}))
    assert far and near and analysis.p_text(far) == "0.12 (floor)" and "floor" not in analysis.p_text(near)


def test_pictures_say_what_is_better_and_what_they_cut(run_dir: Path) -> None:
    run = Analysis(run_dir)
    figure = pictures.plot_ratios(run)
    assert figure
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert "one: stress-ng memhotplug, ops/s (better →)" in labels
    assert "one: CPU off + on, ms (← better)" in labels

    def cut(values: list[float]) -> list[str]:
        found = stats.compare(dict.fromkeys(range(4), 1.0), dict(enumerate(values)))
        assert found
        axes = pictures.plt.figure().add_subplot()
        pictures._ratio_axis(axes, [found], 0.1)
        pictures._bar(axes, "auto", found, 0)
        return [line.get_marker() for line in axes.lines if line.get_gid() == "cut"]

    assert cut([1.0, 1.1, 0.9, 1.0]) == [] and cut([0.1, 9.0, 0.2, 7.0]) == ["<", ">"]


def counted_table(run: Analysis) -> report.Table | None:
    return next((each for each in report.tables(run) if each.title.startswith("Counted")), None)


def test_tables_have_no_empty_column(run_dir: Path) -> None:
    run = Analysis(run_dir)
    before = counted_table(run)
    assert before and "failed" in before.head and run.counted
    run.rows = [row for row in run.rows if row.result == stats.OK and row.metric != "counted_events_count"]
    del run.counted
    after = counted_table(run)
    assert after and {"failed", "waits*", "own waits*"}.isdisjoint(after.head)
    assert all(len(row) == len(after.head) for row in after.rows)


def test_unfinished_run_says_so(run_dir: Path) -> None:
    data = run_dir / runs.DATA
    rows = [row for row in stats.read_rows(data) if row.boot < 3]
    data.unlink()
    stats.write_rows(data, rows)
    assert "Not finished: 3 of" in report.write(run_dir).read_text()
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
    assert plan
    assert runs.design_of(plan["design"]) == SMALL and plan["seed"] == 5


def test_claims_differ() -> None:
    for name in ("migrate", "later"):
        rows = [(*row,) for group in ("all", name, "same") for row in analysis.WORDS["claims"][group]]
        assert len(rows) == len(set(rows)) and all(row[1:3] in analysis.MEASURES for row in rows)
