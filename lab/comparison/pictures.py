# SPDX-License-Identifier: GPL-2.0
"""The pictures of a run. Each says at its axis which direction is better, and shows what it cuts off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display is needed, nor looked for

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator

from lab.comparison import stats
from lab.comparison.analysis import ARMS, MEASURES, SAME, Analysis, Result, more_is_better, title_of

STYLE = Path(__file__).with_name("report.mplstyle")
RATIO_TICKS = (  # the finest that leaves room is taken
    (0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3), (0.5, 0.6, 0.8, 1, 1.25, 1.5, 2), (0.25, 0.5, 0.7, 1, 1.4, 2, 4),
    (0.1, 0.2, 0.5, 1, 2, 5, 10),
)
PANELS = {
    "auto / stock": (("stock", "auto"),),
    "always / auto": (("auto", "always"),),
    "never / auto": (("auto", "never"),),
    "the same twice (A/A)": SAME,
}


def _ratio_axis(axes: Axes, results: Sequence[Result], margin: float) -> tuple[float, float]:
    """A log scale with room for every ratio; of an interval, for what lies between 0.2 and 5."""
    low = min([1 / 1.25, *(min(each.found.ratio / 1.2, max(each.found.low / 1.1, 0.2)) for each in results)])
    high = max([1.25, *(max(each.found.ratio * 1.2, min(each.found.high * 1.1, 5)) for each in results)])
    axes.axvspan(1 / (1 + margin), 1 + margin, color="#e4e4e4", zorder=0)
    axes.axvline(1, color="#555555", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    fits = [[tick for tick in steps if low <= tick <= high] for steps in RATIO_TICKS]
    axes.xaxis.set_major_locator(FixedLocator(next((fit for fit in fits if len(fit) <= 4), fits[-1])))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="y", visible=False)
    return low, high


def _bar(axes: Axes, result: Result, y: float, limits: tuple[float, float]) -> None:
    """A ratio with its interval; an arrowhead where the interval goes on beyond the axis."""
    _, colour, marker, _ = ARMS[result.new]
    ends = [min(max(end, limits[0]), limits[1]) for end in (result.found.low, result.found.high)]
    axes.plot(ends, [y, y], color=colour, linewidth=2, solid_capstyle="butt")
    for end, shown, arrow in zip((result.found.low, result.found.high), ends, "<>"):
        if end != shown:
            axes.plot(shown, y, arrow, color=colour, markersize=7, clip_on=False, gid="cut")
    axes.plot(result.found.ratio, y, marker, color=colour, markersize=7, markeredgecolor="white")


def plot_ratios(run: Analysis) -> Figure | None:
    """Ratios and intervals, with the margin: a row a quantity, a panel a question."""
    found = {(each.key, (each.base, each.new)): each for each in run.results if each.found.blocks >= stats.MIN_BLOCKS}
    keys = list(dict.fromkeys(key for key, _ in found))
    shown = {title: pairs for title, pairs in PANELS.items() if {pair for _, pair in found} & {*pairs}}
    if not shown:
        return None
    figure, grid = plt.subplots(1, len(shown), figsize=(12, 1.2 + 0.22 * len(keys)), sharey=True, squeeze=False)
    for axes, (title, pairs) in zip(grid[0], shown.items()):
        limits = _ratio_axis(axes, [each for (_, pair), each in found.items() if pair in pairs], run.design.margin)
        for place, key in enumerate(keys):
            here = [found[key, pair] for pair in pairs if (key, pair) in found]
            for step, result in enumerate(here):
                _bar(axes, result, place + 0.3 * (step - (len(here) - 1) / 2), limits)
        axes.set_title(title, loc="left")
    labels = [f"{title_of(key)} ({'better →' if more_is_better(key) else '← better'})" for key in keys]
    grid[0][0].set_yticks(range(len(keys)), labels, fontsize=9)
    grid[0][0].set_ylim(len(keys) - 0.5, -0.5)
    said = "ratio of medians, log scale; bars: 95 % intervals, an arrowhead where one is cut; grey: ±"
    figure.supxlabel(f"{said}{run.design.margin:.0%}", fontsize=10)
    return figure


def plot_boots(run: Analysis) -> Figure | None:
    """Each boot's median over the events it is made from; lines join the boots of a block."""
    keys = [key for key in run.keys if len(run.arms(key)) > 1]
    if not keys:
        return None
    columns = min(3, len(keys))
    rows = math.ceil(len(keys) / columns)
    figure, grid = plt.subplots(rows, columns, figsize=(4 * columns, 3.3 * rows), squeeze=False)
    rng = np.random.default_rng(0)
    for axes in grid.flat[len(keys):]:
        axes.set_visible(False)
    for axes, key in zip(grid.flat, keys):
        (label, unit), arms = MEASURES[key[1:]], run.arms(key)
        every: list[float] = []
        for place, arm in enumerate(arms):
            _, colour, marker, _ = ARMS[arm]
            if key.metric == "cycle_ms":
                every += (events := [row.value for row in run.groups[key, arm]])
                axes.plot(place + rng.uniform(-0.3, 0.3, len(events)), events, ".", color=colour, alpha=0.25,
                          markersize=4, markeredgewidth=0)
            every += (medians := list(run.medians[key, arm].values()))
            axes.plot([place] * len(medians), medians, marker, color=colour, markeredgecolor="white", zorder=3)
        boots = [run.medians[key, arm] for arm in arms]
        for block in sorted(set().union(*boots)):
            points = [(place, each[block]) for place, each in enumerate(boots) if block in each]
            axes.plot(*zip(*points), color="#999999", linewidth=0.8, zorder=2)
        wide = min(every) and max(every) > 4 * min(every)  # a 0 has no place on a log scale
        if wide:  # where numbers differ less, the ticks of a linear scale are better
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylabel(f"{unit}, {'more' if more_is_better(key) else 'less'} is better" + ", log scale" * bool(wide))
        axes.set_xticks(range(len(arms)), arms)
        axes.set_xlim(-0.5, len(arms) - 0.5)
        axes.grid(axis="x", visible=False)
        axes.set_title(f"{key.topology}: {label}", loc="left")
    return figure


LANES = {"seen_nodes_count": "nodes with\nmemory", "seen_open_count": "gate open", "seen_rebuilds_count": "rebuilds"}


def plot_timeline(run: Analysis) -> Figure | None:
    """hot-add, one boot an arm: the node's memory, the gate, the rebuilds, as they were seen between single writes."""
    rows = [row for row in run.rows if row.metric in LANES]
    first = {arm: min(row.boot for row in rows if row.arm == arm) for arm in ARMS if any(r.arm == arm for r in rows)}
    if not rows:
        return None
    figure, grid = plt.subplots(
        len(LANES), len(first), figsize=(12, 4.8), squeeze=False, sharex="col", sharey="row", height_ratios=(1, 1, 1.6)
    )
    for column, (arm, boot) in enumerate(first.items()):
        for axes, (metric, label) in zip(grid[:, column], LANES.items()):
            seen = sorted((row.at, row.value) for row in rows if (row.boot, row.arm, row.metric) == (boot, arm, metric))
            if seen:
                times, values = zip(*seen)
                since = values[0] if metric == "seen_rebuilds_count" else 0
                axes.step(times, [value - since for value in values], ".-", where="post", color=ARMS[arm][1])
            else:
                axes.text(0.5, 0.5, "not in a stock kernel", transform=axes.transAxes, ha="center", color="#666666")
            axes.yaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
            axes.margins(y=0.2)
            if column == 0:
                axes.set_ylabel(label)
        grid[0][column].set_title(arm, loc="left", color=ARMS[arm][1])
        grid[-1][column].set_xlabel("seconds")
    figure.align_ylabels()
    return figure


PICTURES = {"ratios": plot_ratios, "boots": plot_boots, "timeline": plot_timeline}


def draw(run: Analysis, folder: Path) -> dict[str, Path]:
    folder.mkdir(exist_ok=True)
    made = {}
    with plt.style.context(STYLE):
        for name, plot in PICTURES.items():
            path = folder / f"{name}.png"
            path.unlink(missing_ok=True)
            if figure := plot(run):
                figure.savefig(path)
                plt.close(figure)
                made[name] = path
    return made
