# SPDX-License-Identifier: GPL-2.0
"""What a run of the comparison found: on the terminal, as one HTML page, in the 0-day robot's layout."""

from __future__ import annotations

import argparse
import base64
import gzip
import itertools
import json
import re
import shlex
from collections.abc import Iterable, Sequence
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
TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=jinja2.select_autoescape(("html.j2",)),
    trim_blocks=True, lstrip_blocks=True,
)
STYLES: dict[str, str] = {Outcome.PASS: "green", Outcome.FAIL: "bold red"}


class Table(NamedTuple):
    """For the terminal and for the page. Lines that begin with the same cell are a group."""

    title: str
    head: list[str]
    rows: list[list[str]]

    def numeric(self, column: int) -> bool:
        return all(re.match(rf"[\d{EMPTY}]", row[column]) for row in self.rows)

    def show(self) -> None:
        """On the terminal, where the first cell is a line of its own: most terminals are narrow."""
        widths = [max(len(row[column]) for row in (self.head, *self.rows)) for column in range(1, len(self.head))]

        def line(cells: Sequence[str]) -> str:
            aligned = (f"{cell:{'>' if self.numeric(column) else '<'}{widths[column - 1]}}"
                       for column, cell in enumerate(cells) if column)  # fmt: skip
            return "  " + "  ".join(aligned).rstrip()

        console.print(f"\n{self.title}\n", style="bold", markup=False, end="")
        console.print(line(self.head), style="dim", markup=False)
        for group, rows in itertools.groupby(self.rows, lambda row: row[0]):
            console.print(group, style=STYLES.get(group, "bold"), markup=False)
            for row in rows:
                console.print(line(row), style=STYLES.get(row[-1], ""), markup=False)


def tabled(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> Table | None:
    """Without columns that are empty; None if all are."""
    columns = [(name, cells) for name, cells in zip(head, zip(*rows)) if {*cells} - {"", EMPTY}]
    if not columns:
        return None
    return Table(title, [name for name, _ in columns], [[*row] for row in zip(*(cells for _, cells in columns))])


def side(value: float, deviation: float) -> str:
    number = np.format_float_positional(value, 4, fractional=False, trim="-")
    return f"{number} ±{deviation:.0f}%" if np.isfinite(deviation) else number


def tables(run: Analysis) -> list[Table]:
    def shown(value: float | None, digits: int = 0) -> str:
        return EMPTY if value is None else f"{value:,.{digits}f}"

    made = [
        tabled("Claims, fixed beforehand", ("outcome", "ratio", "95 % interval", "claim"), [
            (outcome, f"{result.ratio:.2f}" if result else EMPTY, interval(result), claim.text)
            for claim, outcome, result in sorted(run.claims, key=lambda each: (each[1] == Outcome.PASS, each[1]))
        ]),
        tabled("Counted, exact on any machine",
               ("where", "arm", "events", "failed", "rebuilds", "waits*", "own waits*", "expected", ""), [
            (f"{each.topology}: {each.scenario}", each.arm, shown(each.events or None), shown(each.failed or None),
             shown(each.rebuilds), shown(each.waits, 1), shown(each.demotion_waits, 1),
             each.expected, each.outcome or "")
            for each in run.counted
        ]),
        tabled("Timed: medians of boots, n blocks of them",
               ("what", "new / base", "base", "new", "ratio", "95 % interval", "p", "n", "finding"), [
            (title_of(each.key), f"{each.new} / {each.base}", side(found.base, found.base_spread),
             side(found.new, found.new_spread), f"{found.ratio:.2f}", interval(found), analysis.p_text(found),
             str(found.blocks), analysis.finding_text(each))
            for each in run.results if (found := each.found)
        ]),
    ]  # fmt: skip
    return [each for each in made if each]


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
        mean, deviation = float(np.mean(values)), stats.spread(values)
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


def reproduce(run: Analysis) -> str:
    """A script that repeats the run: same design, seed and order."""
    repeat, kernel = shlex.join(run.plan.get("repeat", ())), trees.word(run.plan["kernel"]["name"])
    return TEMPLATES.get_template("reproduce.sh.j2").render(plan=run.plan, name=runs.PLAN, repeat=repeat, kernel=kernel)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def render(run: Analysis, run_dir: Path, drawn: dict[str, Path]) -> str:
    """The page; it needs nothing but itself."""
    configs = {path.name.removeprefix("config-"): path.read_text() for path in sorted(run_dir.glob("config-*"))}
    planned = {name: part for name, part in run.plan.items() if name not in ("environment", "commands")}
    return TEMPLATES.get_template("report.html.j2").render(
        run=run, analysis=analysis, tables=tables(run),
        figures={name: (analysis.WORDS["pictures"][name], encoded(path.read_bytes())) for name, path in drawn.items()},
        robot=filter(None, (robot(run, *pair) for pair in analysis.PAIRS[:3])),
        appendix={
            "Design and order of the boots": json.dumps(planned, indent=1),
            **{f"QEMU command line, {name}": shlex.join(command) for name, command in run.plan["commands"].items()},
            **{f"Kernel configuration, {name}": text for name, text in configs.items()},
            "reproduce": reproduce(run),
        },
        data_name=f"{runs.DATA}.gz", data=encoded(gzip.compress((run_dir / runs.DATA).read_bytes(), mtime=0)),
    )  # fmt: skip


def write(run_dir: Path) -> Path:
    """The page, the pictures and the `reproduce` script, into the run's folder."""
    run = Analysis(run_dir)
    drawn = pictures.draw(run, run_dir / "plots")
    page, script = run_dir / "report.html", run_dir / "reproduce"
    script.write_text(reproduce(run))
    script.chmod(0o755)
    page.write_text(render(run, run_dir, drawn))
    return page


def parser() -> argparse.ArgumentParser:
    words = argparse.ArgumentParser("python3 -m lab.comparison.report", description=__doc__)
    words.add_argument("run", type=Path, help="the run's folder")
    words.add_argument("--robot", action="store_true", help="print the 0-day robot's layout instead of the table")
    return words


def main(given: argparse.Namespace) -> None:
    page = write(given.run)
    if given.robot:
        run = Analysis(given.run)
        for base, new in (("stock", "auto"), ("auto", "always")):
            console.print(robot(run, base, new), markup=False)
    else:
        table(given.run)
    say(f"report: {page}")


if __name__ == "__main__":
    launch(main, parser())
