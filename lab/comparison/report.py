# SPDX-License-Identifier: GPL-2.0
"""What a run of the comparison found: on the terminal, as one HTML page, in the 0-day robot's layout."""

import argparse
import base64
import gzip
import itertools
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jinja2
import numpy as np

from lab.common import console, launch, say
from lab.comparison import analysis, pictures, runs, stats
from lab.comparison.analysis import Analysis, interval, title_of
from lab.comparison.stats import Outcome
from lab.kernels import trees

EMPTY = "–"
TEMPLATES = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), trim_blocks=True,
                               lstrip_blocks=True, autoescape=jinja2.select_autoescape(("html.j2",)))
TEMPLATES.filters["base64"] = lambda data: base64.b64encode(data).decode()
STYLES: dict[str, str] = {Outcome.PASS: "green", Outcome.FAIL: "bold red"}


class Table(NamedTuple):
    """For the terminal and for the page. Lines that begin with the same cell are a group."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def numeric(self, column: int) -> bool:
        return all(re.match(rf"[\d{EMPTY}]", row[column]) for row in self.rows)

    def show(self) -> None:
        """On the terminal, where the first cell is a line of its own: most terminals are narrow."""
        columns = enumerate(zip(self.head, *self.rows))
        aligned = [f"{'>' if self.numeric(column) else '<'}{max(map(len, cells))}" for column, cells in columns]

        def line(cells: Sequence[str]) -> str:
            return "  " + "  ".join(map(format, cells[1:], aligned[1:])).rstrip()

        console.print(f"\n{self.title}\n", style="bold", markup=False, end="")
        console.print(line(self.head), style="dim", markup=False)
        for group, rows in itertools.groupby(self.rows, lambda row: row[0]):
            console.print(group, style=STYLES.get(group, "bold"), markup=False)
            for row in rows:
                console.print(line(row), style=STYLES.get(row[-1], ""), markup=False)


def tables(run: Analysis) -> list[Table]:
    def shown(value: float | None, digits: int = 0) -> str:
        return EMPTY if value is None else f"{value:,.{digits}f}"

    def side(value: float, deviation: float) -> str:
        number = np.format_float_positional(value, 4, fractional=False, trim="-")
        return f"{number} ±{deviation:.0f}%" if np.isfinite(deviation) else number

    filled = [
        Table("Claims, fixed beforehand", ("outcome", "ratio", "95 % interval", "claim"), [
            (outcome, f"{result.ratio:.2f}" if result else EMPTY, interval(result), claim)
            for claim, outcome, result in sorted(run.claims, key=lambda each: (each[1] == Outcome.PASS, each[1]))
        ]),
        Table("Counted, exact on any machine",
               ("where", "arm", "events", "failed", "rebuilds", "waits*", "own waits*", "expected", ""), [
            (f"{each.topology}: {each.scenario}", each.arm, shown(each.events or None), shown(each.failed or None),
             shown(each.rebuilds), shown(each.waits, 1), shown(each.demotion_waits, 1),
             each.expected, each.outcome or "")
            for each in run.counted
        ]),
        Table("Timed: medians of boots, n blocks of them",
               ("what", "new / base", "base", "new", "ratio", "95 % interval", "p", "n", "finding"), [
            (title_of(key), f"{new} / {base}", side(found.base, found.base_spread),
             side(found.new, found.new_spread), f"{found.ratio:.2f}", interval(found), analysis.p_text(found),
             str(found.blocks), analysis.finding_text(base, new, found))
            for (key, base, new), found in run.results.items()
        ]),
    ]  # fmt: skip
    kept = []
    for title, names, rows in filled:
        if columns := [column for column in zip(names, *rows) if {*column[1:]} - {"", EMPTY}]:
            head, *lines = zip(*columns)  # those that are not empty
            kept.append(Table(title, head, lines))
    return kept


def table(run_dir: Path) -> None:
    """The findings on the terminal; the analysis.answer comes last, where it is seen."""
    run = Analysis(run_dir)
    console.print(f"\n{analysis.headline(run)}", markup=False)
    for each in tables(run):
        each.show()
    for text in analysis.notes(run):
        console.print(f"\n{text}", style="dim", markup=False, soft_wrap=False)
    console.print("\n" + "\n".join(analysis.answer(run)), markup=False, soft_wrap=False)


def robot(run: Analysis, base: str, new: str) -> str:
    """The 0-day robot's layout: averages over boots, their standard deviation, and the change."""

    def cell(values: Sequence[float]) -> str:
        mean, deviation = float(np.mean(values)), stats.spread(np.array(values))
        shown = f"{mean:.0f}" if mean >= 10000 else f"{mean:.2f}"
        return f"{shown:>10} ± {deviation:2.0f}%" if deviation >= 0.5 else f"{shown:>10}      "

    lines = []
    for key in run.keys:
        olds, news = ([*run.medians.get((key, arm), {}).values()] for arm in (base, new))
        if olds and news:
            suite = "stress-ng" if key.scenario == "memhotplug" else "lab"
            change = f"{100 * (np.mean(news) / np.mean(olds) - 1):+.1f}%" if any(olds) else ""
            name = f"{suite}.{key.scenario}.{key.metric} [{key.topology}]"
            lines.append(f"{cell(olds)}  {change:>9}  {cell(news)}  {name}\n")
    return analysis.NOTES["robot"].format(base=base, new=new) + "".join(lines) if lines else ""


def render(run: Analysis, run_dir: Path, drawn: dict[str, Path]) -> str:
    """The page; it needs nothing but itself."""
    configs = sorted(run_dir.glob("config-*"))
    planned = {name: part for name, part in run.plan.items() if name not in ("environment", "commands")}
    return TEMPLATES.get_template("report.html.j2").render(
        run=run, analysis=analysis, tables=tables(run),
        figures={name: (analysis.WORDS["pictures"][name], path.read_bytes()) for name, path in drawn.items()},
        robot=filter(None, (robot(run, *pair) for pair in analysis.PAIRS[:3])),
        appendix={
            "Design and order of the boots": json.dumps(planned, indent=1),
            **{f"QEMU command line, {name}": shlex.join(command) for name, command in run.plan["commands"].items()},
            **{f"Kernel configuration, {path.name.removeprefix('config-')}": path.read_text() for path in configs},
            "reproduce": (run_dir / "reproduce").read_text(),
        },
        data_name=f"{runs.DATA}.gz", data=gzip.compress((run_dir / runs.DATA).read_bytes(), mtime=0),
    )  # fmt: skip


def write(run_dir: Path) -> Path:
    """The page, the pictures and `reproduce`, a script that repeats the run, into the run's folder."""
    run = Analysis(run_dir)
    page, script = run_dir / "report.html", run_dir / "reproduce"
    repeat, kernel = shlex.join(run.plan.get("repeat", ())), trees.word(run.plan["kernel"]["name"])
    template = TEMPLATES.get_template("reproduce.sh.j2")
    script.write_text(template.render(plan=run.plan, name=runs.PLAN, repeat=repeat, kernel=kernel))
    script.chmod(0o755)
    page.write_text(render(run, run_dir, pictures.draw(run, run_dir / "plots")))
    return page


def show(run_dir: Path) -> None:
    page = write(run_dir)
    table(run_dir)
    say(f"report: {page}")


def parser() -> argparse.ArgumentParser:
    words = argparse.ArgumentParser("python3 -m lab.comparison.report", description=__doc__)
    words.add_argument("run", type=Path, help="the run's folder")
    return words


def main(given: argparse.Namespace) -> None:
    show(given.run)


if __name__ == "__main__":
    launch(main, parser())
