# SPDX-License-Identifier: GPL-2.0
"""The pictures of a run. Each says at its axis which direction is better, and shows what it cuts off."""

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display is needed, nor looked for

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from lab.comparison.analysis import ARMS, MEASURES, WORDS, Analysis, more_is_better, title_of
from lab.comparison.stats import MIN_BLOCKS, Comparison


def _ratio_axis(axes: Axes, results: Sequence[Comparison], margin: float) -> None:
    """A log scale with room for every ratio; of an interval, for what lies between 0.2 and 5."""
    low = min([1 / 1.25, *(min(each.ratio / 1.2, max(each.low / 1.1, 0.2)) for each in results)])
    high = max([1.25, *(max(each.ratio * 1.2, min(each.high * 1.1, 5)) for each in results)])
    axes.axvspan(1 / (1 + margin), 1 + margin, color="#e4e4e4", zorder=0)
    axes.axvline(1, color="#555555", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    fits = [[tick for tick in steps if low <= tick <= high] for steps in WORDS["ratios"]["ticks"]]
    ticks = next((fit for fit in fits if len(fit) <= 4), fits[-1])
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.grid(axis="y", visible=False)


def _bar(axes: Axes, arm: str, found: Comparison, y: float) -> None:
    """A ratio with its interval; an arrowhead where the interval goes on beyond the axis."""
    _, colour, marker, _ = ARMS[arm]
    ends = (found.low, found.high)
    cut = np.clip(ends, *axes.get_xlim())
    axes.plot(cut, [y, y], color=colour, linewidth=2, solid_capstyle="butt")
    for end, shown, arrow in zip(ends, cut, "<>"):
        if end != shown:
            axes.plot(shown, y, arrow, color=colour, markersize=7, clip_on=False, gid="cut")
    axes.plot(found.ratio, y, marker, color=colour, markersize=7, markeredgecolor="white")


def plot_ratios(run: Analysis) -> Figure | None:
    """Ratios and intervals, with the margin: a row a quantity, a panel a question."""
    found = {each: result for each, result in run.results.items() if result.blocks >= MIN_BLOCKS}
    keys = list(dict.fromkeys(key for key, _, _ in found))
    panels = [(title, here) for title, pairs in WORDS["ratios"]["panels"].items()
              if (here := {each: found[each] for each in found if [*each[1:]] in pairs})]  # fmt: skip
    if not panels:
        return None
    figure, grid = plt.subplots(1, len(panels), figsize=(12, 1.2 + 0.22 * len(keys)), sharey=True, squeeze=False)
    for axes, (title, here) in zip(grid[0], panels):
        _ratio_axis(axes, [*here.values()], run.design.margin)
        for place, key in enumerate(keys):
            mine = [(new, result) for (one, _, new), result in here.items() if one == key]
            for step, (new, result) in enumerate(mine):
                _bar(axes, new, result, place + 0.3 * (step - (len(mine) - 1) / 2))
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
    figure = plt.figure(figsize=(4 * columns, 3.3 * rows))
    rng = np.random.default_rng(0)
    for number, key in enumerate(keys, 1):
        axes = figure.add_subplot(rows, columns, number)
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


def plot_timeline(run: Analysis) -> Figure | None:
    """hot-add, one boot an arm: the node's memory, the gate, the rebuilds, as they were seen between single writes."""
    lanes = WORDS["lanes"]
    rows = [row for row in run.rows if row.metric in lanes]
    first = {arm: min(row.boot for row in rows if row.arm == arm) for arm in ARMS if any(r.arm == arm for r in rows)}
    if not rows:
        return None
    figure, grid = plt.subplots(len(lanes), len(first), figsize=(12, 4.8), squeeze=False, sharex="col", sharey="row",
                                height_ratios=(1, 1, 1.6))
    for column, (arm, boot) in enumerate(first.items()):
        for axes, (metric, label) in zip(grid[:, column], lanes.items()):
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
    with plt.style.context(Path(__file__).with_name("report.mplstyle")):
        for name, plot in PICTURES.items():
            path = folder / f"{name}.png"
            path.unlink(missing_ok=True)
            if figure := plot(run):
                figure.savefig(path)
                plt.close(figure)
                made[name] = path
    return made
