# SPDX-License-Identifier: GPL-2.0
"""What a run of the comparison found: on the terminal, as one HTML page, as pictures, in the 0-day robot's layout."""

from __future__ import annotations

import argparse
import base64
import gzip
import html
import math
import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display is needed, nor looked for

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator
from rich.markup import escape

from lab.common import LabError, console, launch, say
from lab.comparison import runs, stats
from lab.comparison.stats import OK, Comparison, Key, Outcome, Row
from lab.kernels import trees

# Okabe and Ito's colours, and a marker each, so that nothing is told by colour alone.
LOOKS = {
    "stock": ("#000000", "o"), "stock2": ("#7f7f7f", "v"), "auto": ("#0072B2", "s"), "auto2": ("#56B4E9", "D"),
    "always": ("#D55E00", "^"), "never": ("#009E73", "P"),
}
PAIRS = (  # base, new
    ("stock", "auto"), ("auto", "always"), ("stock", "always"), ("auto", "never"),
    ("stock", "stock2"), ("auto", "auto2"),
)
SAME = (("stock", "stock2"), ("auto", "auto2"))  # A/A: what differs here is noise


@dataclass(frozen=True)
class Measure:
    """A timed quantity, as people and as the robot name it."""

    label: str
    unit: str
    robot: str
    main: bool = True  # on the terminal, not only in the page's long table
    plot: bool = True
    events: bool = False  # one value an event, so that a distribution says something


MEASURES = {
    ("memhotplug", "ops_per_sec"): Measure("stress-ng memhotplug", "ops/s", "stress-ng.memhotplug.ops_per_sec"),
    ("memhotplug", "ops_count"): Measure("stress-ng in all", "ops", "stress-ng.memhotplug.ops", main=False, plot=False),
    ("memory", "cycle_ms"): Measure("memory block off + on", "ms", "toggle.memory.cycle_ms", events=True),
    ("memory", "off_ms"): Measure("memory block off", "ms", "toggle.memory.offline_ms", main=False, plot=False),
    ("memory", "on_ms"): Measure("memory block on", "ms", "toggle.memory.online_ms", main=False, plot=False),
    ("cpu", "cycle_ms"): Measure("CPU off + on", "ms", "toggle.cpu.cycle_ms", events=True),
    ("cpu", "off_ms"): Measure("CPU off", "ms", "toggle.cpu.offline_ms", main=False, plot=False),
    ("cpu", "on_ms"): Measure("CPU on", "ms", "toggle.cpu.online_ms", main=False, plot=False),
    ("smt", "switch_off_ms"): Measure("SMT switch off", "ms", "toggle.smt.off_ms"),
    ("smt", "switch_on_ms"): Measure("SMT switch on", "ms", "toggle.smt.on_ms"),
    ("suspend", "suspend_ms"): Measure("suspend and resume", "ms", "suspend.total_ms"),
    ("suspend", "cpus_off_ms"): Measure("suspend, CPUs off", "ms", "suspend.cpus_off_ms", main=False, plot=False),
    ("suspend", "cpus_on_ms"): Measure("suspend, CPUs on", "ms", "suspend.cpus_on_ms", main=False, plot=False),
    ("node", "on_ms"): Measure("a node's first memory comes", "ms", "toggle.node.online_ms"),
    ("node", "off_ms"): Measure("a node's last memory goes", "ms", "toggle.node.offline_ms"),
    ("boot", "init_s"): Measure("boot to init", "s", "boot.init_s", plot=False),
}


def title_of(key: Key) -> str:
    measure = MEASURES[key[1:]]
    return f"{key.topology}: {measure.label}, {measure.unit}"


@dataclass(frozen=True)
class Claim:
    """Something that must hold, said before it is measured."""

    key: Key
    base: str
    new: str
    relation: str  # as stats.judge() has it
    bound: float | None = None

    @property
    def text(self) -> str:
        bound = "equal, within the margin" if self.bound is None else f"{self.relation} {self.bound:g}"
        return f"{title_of(self.key)}, {self.new} / {self.base} {bound}"


def claims(keeper: str) -> list[Claim]:
    """What is claimed for a kernel that keeps its demotion targets in `keeper`."""
    rate, block, cycle = ("memhotplug", "ops_per_sec"), ("memory", "cycle_ms"), ("cpu", "cycle_ms")
    made = [
        Claim(Key("one", *rate), "auto", "always", "<=", 0.6),
        Claim(Key("one", *cycle), "auto", "always", ">=", 1.2),
        Claim(Key("one", *rate), "stock", "auto", "=="),
        Claim(Key("one", *block), "stock", "auto", "=="),
    ]
    if keeper == "mm/migrate.c":  # 5.15: stock pays for every CPU event
        for topology in ("one", "two-socket"):
            made.append(Claim(Key(topology, *cycle), "stock", "auto", "<=", 0.8))
            made.append(Claim(Key(topology, *cycle), "stock", "always", "=="))
    else:
        made.append(Claim(Key("one", *cycle), "stock", "auto", "=="))
    return made + [Claim(Key("one", *what), *pair, "==") for pair in SAME for what in (rate, block, cycle)]


@dataclass(frozen=True)
class Counted:
    """Events of one arm in one scenario, all boots together, and what they cost in counts."""

    topology: str
    scenario: str
    arm: str
    boots: int
    events: int
    failed: int
    rebuilds: int | None  # None: a stock kernel, which does not count
    skipped: int | None
    waits: float | None  # grace periods waited for per event, of anyone; None: the kernel has no kprobe events
    demotion_waits: float | None  # of these, the demotion code's

    @property
    def expected(self) -> str:
        """What the design says of `rebuilds` on one node; empty if it says nothing."""
        machine = self.topology.partition("/")[0]
        if self.rebuilds is None or not (machine == "one" or (machine, self.scenario) == ("two-socket", "cpu")):
            return ""
        return "one an event" if runs.policy_of(self.arm) == "always" else "none"

    @property
    def outcome(self) -> Outcome | None:
        """An event that failed is a rebuild too if the kernel cancelled it late enough to say so."""
        if not self.expected or not self.events:
            return None
        low, high = (self.events, self.events + self.failed) if self.expected == "one an event" else (0, 0)
        return Outcome.PASS if low <= (self.rebuilds or 0) <= high else Outcome.FAIL


class Analysis:
    """A run's numbers, compared."""

    def __init__(self, run_dir: Path) -> None:
        plan = runs.load_plan(run_dir)
        if not plan:
            raise LabError(
                str(run_dir), expected=f"the folder of a run, with a {runs.PLAN}", found="none", do="run `make bench`"
            )
        self.plan = plan
        self.margin: float = plan["design"]["margin"]
        self.seed: int = plan["seed"]
        self.rows = stats.add_cycles(stats.read_rows(run_dir / runs.DATA))
        self.boots = {row.boot for row in self.rows}
        if not self.boots:
            raise LabError(
                str(run_dir / runs.DATA), expected="at least one finished boot", found="none", do="run `make bench`"
            )
        self._medians: dict[tuple[Key, str], dict[int, float]] = {}
        groups: dict[tuple[Key, str], list[Row]] = defaultdict(list)
        for row in self.rows:
            groups[(Key(row.topology, row.scenario, row.metric), row.arm)].append(row)
        self._groups = groups

    def values(self, key: Key, arm: str) -> dict[tuple[int, int], list[float]]:
        return stats.by_boot(self._groups.get((key, arm), []), key, arm)

    def medians(self, key: Key, arm: str) -> dict[int, float]:
        if (key, arm) not in self._medians:
            self._medians[(key, arm)] = stats.medians(self._groups.get((key, arm), []), key, arm)
        return self._medians[(key, arm)]

    def compare(self, key: Key, base: str, new: str) -> Comparison | None:
        return stats.compare(self.medians(key, base), self.medians(key, new), margin=self.margin, seed=self.seed)

    def arms(self, key: Key) -> list[str]:
        return [arm for arm in LOOKS if (key, arm) in self._groups]

    @cached_property
    def keys(self) -> list[Key]:
        """What was measured, in the order of MEASURES."""
        topologies = dict.fromkeys(part.name for part in runs.design_of(self.plan).parts)
        have = {key for key, _ in self._groups}
        return [key for what in MEASURES for topology in topologies if (key := Key(topology, *what)) in have]

    @cached_property
    def results(self) -> list[tuple[Key, str, str, Comparison]]:
        return [
            (key, base, new, result)
            for key in self.keys for base, new in PAIRS if (result := self.compare(key, base, new))
        ]

    @cached_property
    def claims(self) -> list[tuple[Claim, Outcome, Comparison | None]]:
        judged = []
        measured = set(self.keys)
        for claim in claims(self.plan["kernel"]["keeper"]):
            planned = claim.key in measured and {claim.base, claim.new} <= self.planned_arms(claim.key.topology)
            result = self.compare(claim.key, claim.base, claim.new)
            if planned:
                judged.append((claim, stats.judge(result, claim.relation, claim.bound), result))
        return judged

    def planned_arms(self, topology: str) -> set[str]:
        parts = runs.design_of(self.plan).parts
        return {arm for part in parts if part.name == topology for arm in part.arms}

    @cached_property
    def counted(self) -> list[Counted]:
        """Rebuilds and grace periods per event: they depend on no machine's speed."""
        sums: dict[tuple[str, str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
        boots: dict[tuple[str, str, str], set[int]] = defaultdict(set)
        for row in self.rows:
            group = (row.topology, row.scenario, row.arm)
            boots[group].add(row.boot)
            if row.metric in ("off_ms", "on_ms"):
                sums[group]["events" if row.result == OK else "failed"] += 1
            elif row.metric.endswith("_count") and not row.metric.startswith("seen_"):
                sums[group][row.metric.removesuffix("_count")] += row.value
        counted = []
        order = list(LOOKS)
        for topology, scenario, arm in sorted(sums, key=lambda group: (*group[:2], order.index(group[2]))):
            sum_of = sums[topology, scenario, arm]
            gated = "rebuilds" in sum_of
            tried = sum_of.get("counted_events", 0)
            if not gated and not tried and "events" not in sum_of:
                continue
            if gated and ("events" not in sum_of or scenario == "node"):  # there are more than those that were toggled
                sum_of["events"] = sum_of["rebuilds"] + sum_of["skipped"]
            counted.append(
                Counted(
                    topology, scenario, arm, len(boots[(topology, scenario, arm)]),
                    int(sum_of.get("events", 0)), int(sum_of.get("failed", 0)),
                    int(sum_of["rebuilds"]) if gated else None, int(sum_of["skipped"]) if gated else None,
                    sum_of["waits"] / tried if tried else None, sum_of["demotion_waits"] / tried if tried else None,
                )
            )
        return counted


def noise(run: Analysis) -> list[tuple[Key, str, float, float]]:
    """How much the same kernel and policy differ from themselves, in per cent: key, arms, in a boot, between turns."""
    found = []
    for key in run.keys:
        for base, new in SAME:
            pairs = [run.medians(key, arm) for arm in (base, new)]
            blocks = sorted(pairs[0].keys() & pairs[1].keys())
            if len(blocks) < stats.MIN_BLOCKS:
                continue
            logs = [math.log(pairs[1][block] / pairs[0][block]) for block in blocks]
            between = float(np.std(logs, ddof=1)) / math.sqrt(2)  # a difference has the noise of both
            inside = [
                float(np.var(np.log(values), ddof=1))
                for arm in (base, new) for values in run.values(key, arm).values() if len(values) > 1
            ]
            within = math.sqrt(np.mean(inside)) if inside else math.nan
            found.append((key, f"{base}, {new}", 100 * within, 100 * between))
    return found


def number(value: float) -> str:
    """Three or four digits that matter."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    digits = max(0, 3 - max(0, math.floor(math.log10(abs(value)))))
    return f"{value:.{min(digits, 3)}f}"


def interval(result: Comparison) -> str:
    if not math.isfinite(result.high) or result.high > 999:
        return "–"
    return f"{result.low:.2f} – {result.high:.2f}" if result.high < 99.5 else f"{result.low:.2f} – {result.high:.0f}"


OUTCOME_STYLE = {Outcome.PASS: "green", Outcome.FAIL: "bold red", Outcome.NOISY: "yellow", Outcome.ABSENT: "yellow"}


def headline(run: Analysis) -> str:
    plan = run.plan
    return (
        f"Linux {plan['kernel']['version']} ({plan['kernel']['name']}), design {plan['design']['name']}, "
        f"seed {plan['seed']}, {len(run.boots)} of {len(plan['boots'])} boots"
    )


def method(run: Analysis) -> str:
    return (
        "Ratios are of the boots' medians, paired in randomised blocks, as geometric means. The interval is 95 %, "
        f"Student's t of the log ratios. 'equivalent': the 90 % interval lies inside {1 / (1 + run.margin):.3f} – "
        f"{1 + run.margin:.3f}, a margin fixed before measuring. p: all sign flips of the blocks' log ratios. No p is "
        "corrected for the number of rows: the claims were fixed beforehand, the other rows describe."
    )


def table(run_dir: Path) -> None:
    """The findings on the terminal, in lines that fit most terminals."""
    run = Analysis(run_dir)
    show = console.print
    show(f"\n[bold]{escape(headline(run))}[/]\n")
    show(f"{'new / base':<16}{'base':>12}{'new':>12}  {'ratio':<6}{'95 % interval':<15}{'p':<8}verdict", style="dim")
    last = None
    for key, base, new, result in run.results:
        if not MEASURES[key[1:]].main:
            continue
        if key != last:
            show(f"[bold]{escape(title_of(key))}[/]")
        sides = f"{spread(result.base, result.base_spread):>12}{spread(result.new, result.new_spread):>12}"
        verdict = ("A/A: " if (base, new) in SAME else "") + result.verdict
        show(f"  {f'{new} / {base}':<14}{sides}  {result.ratio:<6.2f}{interval(result):<15}{result.p:<8.2g}{verdict}")
        last = key
    if run.counted:
        show("\n[bold]Counted, exact on any machine[/]")
        heads = ("events", "failed", "rebuilds", "skipped", "rebuilds/event", "    waits*")
        show(f"{'':<10}" + "".join(f"{head:>{len(head) + 3}}" for head in heads), style="dim")
        where = None
        for each in run.counted:
            if (each.topology, each.scenario) != where:
                where = (each.topology, each.scenario)
                show(f"[bold]{escape(each.topology)}: {each.scenario}[/]")
            cells = "".join(f"{cell:>{len(head) + 3}}" for head, cell in zip(heads, counted_cells(each)))
            show(f"  {each.arm:<8}{cells}  " + (f"{each.expected}: {paint(each.outcome)}" if each.outcome else ""))
        show("* grace periods waited for in an event, and those of the demotion code alone; by tracing", style="dim")
    if run.claims:
        show("\n[bold]Claims, fixed beforehand[/]")
        for claim, outcome, result in run.claims:
            figures = f"{result.ratio:.2f} ({interval(result)})" if result else "–"
            show(f"{paint(outcome)}{'':<{max(1, 18 - len(outcome))}}{figures:<20} {escape(claim.text)}")
    show(f"\n{escape(method(run))}", style="dim", soft_wrap=False)


def paint(outcome: Outcome) -> str:
    return f"[{OUTCOME_STYLE[outcome]}]{outcome}[/]"


def spread(value: float, deviation: float) -> str:
    return f"{number(value)} ±{deviation:.0f}%" if math.isfinite(deviation) else number(value)


def counted_cells(each: Counted) -> list[str]:
    def shown(value: int | None) -> str:
        return "–" if value is None else str(value)

    return [
        str(each.events), str(each.failed), shown(each.rebuilds), shown(each.skipped),
        f"{each.rebuilds / each.events:.2f}" if each.rebuilds is not None and each.events else "–",
        "–" if each.waits is None else f"{each.waits:.1f}, {each.demotion_waits:.1f}",
    ]


def robot(run: Analysis, base: str, new: str) -> str:
    """The 0-day robot's layout: averages over boots, their standard deviation, and the change."""
    lines = []
    for key in run.keys:
        olds, news = (list(run.medians(key, arm).values()) for arm in (base, new))
        if not olds or not news:
            continue
        old, fresh = float(np.mean(olds)), float(np.mean(news))

        def cell(mean: float, values: Sequence[float]) -> str:
            deviation = stats.spread(values)
            shown = f"{mean:.0f}" if mean >= 10000 else f"{mean:.2f}"
            return f"{shown:>10} ± {deviation:2.0f}%" if deviation >= 0.5 else f"{shown:>10}      "

        change = f"{100 * (fresh / old - 1):+.1f}%"
        lines.append(f"{cell(old, olds)}  {change:>9}  {cell(fresh, news)}  {MEASURES[key[1:]].robot} [{key.topology}]")
    if not lines:
        return ""
    head = [
        f"{base:>16} {new:<27}",
        "---------------- ---------------------------",
        "         %stddev     %change         %stddev",
        "             \\          |                \\",
    ]
    return "\n".join([*head, *lines]) + "\n"


# Pictures


def _style() -> None:
    plt.rcParams.update(
        {
            "figure.dpi": 110, "savefig.dpi": 110, "font.size": 12, "axes.titlesize": 12, "axes.spines.top": False,
            "axes.spines.right": False, "axes.grid": True, "grid.color": "#dddddd", "axes.axisbelow": True,
            "figure.facecolor": "white", "legend.frameon": False, "figure.constrained_layout.use": True,
        }
    )


def _value_axis(axes, values: Iterable[float], unit: str) -> None:
    """Plain numbers: on a log scale where arms differ much, else on a linear one, whose ticks are better."""
    every = [value for value in values if value > 0]
    low, high = min(every) / 1.1, max(every) * 1.1
    if high < 2.2 * low:
        axes.set_ylim(low, high)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.set_ylabel(unit)
        return
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    for steps in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
        ticks = [step * 10.0**power for power in range(-4, 8) for step in steps if low <= step * 10.0**power <= high]
        if len(ticks) > 2:
            break
    _plain_ticks(axes.yaxis, ticks)
    axes.set_ylabel(f"{unit} (log scale)")


def _plain_ticks(axis, ticks: Sequence[float]) -> None:
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


RATIO_TICKS = (  # the finest that leaves room is taken
    (0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3), (0.5, 0.6, 0.8, 1, 1.25, 1.5, 2), (0.25, 0.5, 0.7, 1, 1.4, 2, 4),
    (0.1, 0.2, 0.5, 1, 2, 5, 10),
)


def plot_ratios(run: Analysis):
    """Ratios and intervals, with the margin: a row a quantity, a panel a question."""
    panels = {
        "auto / stock": (("stock", "auto"),),
        "always / auto": (("auto", "always"),),
        "never / auto": (("auto", "never"),),
        "the same twice (A/A)": SAME,
    }
    found = {
        (key, base, new): result for key, base, new, result in run.results
        if MEASURES[key[1:]].plot and result.blocks >= stats.MIN_BLOCKS
    }
    keys = [key for key in run.keys if any(each[0] == key for each in found)][::-1]
    compared = {(base, new) for _, base, new in found}
    shown = {title: pairs for title, pairs in panels.items() if compared & {*pairs}}
    if not shown:
        return None
    size = (3.4 + 2.9 * len(shown), 1.7 + 0.5 * len(keys))
    figure, grid = plt.subplots(1, len(shown), figsize=size, sharey=True, squeeze=False)
    edge = 1 + run.margin
    for axes, (title, pairs) in zip(grid[0], shown.items()):
        axes.axvspan(1 / edge, edge, color="#e4e4e4", zorder=0)
        axes.axvline(1, color="#555555", linewidth=1)
        low, high = 1 / 1.25, 1.25
        for place, key in enumerate(keys):
            here = [(new, found[key, base, new]) for base, new in pairs if (key, base, new) in found]
            for step, (new, result) in enumerate(here):
                colour, marker = LOOKS[new]
                y = place - 0.28 * (step - (len(here) - 1) / 2)
                axes.plot([max(result.low, 1e-3), min(result.high, 1e3)], [y, y], color=colour, linewidth=2.4,
                          solid_capstyle="butt")
                axes.plot(result.ratio, y, marker=marker, color=colour, markersize=9, markeredgecolor="white",
                          label=new if len(pairs) > 1 else None)
                low, high = min(low, result.ratio / 1.2, max(result.low / 1.1, 0.2)), max(
                    high, result.ratio * 1.2, min(result.high * 1.1, 5))
        axes.set_xscale("log")
        axes.set_xlim(low, high)
        for steps in RATIO_TICKS:
            ticks = [tick for tick in steps if low <= tick <= high]
            if len(ticks) <= 5:
                break
        _plain_ticks(axes.xaxis, ticks)
        axes.grid(axis="y", visible=False)
        axes.set_title(title, loc="left")
        axes.set_xlabel("ratio (log scale)")
        if len(pairs) > 1:
            handles = dict(zip(*axes.get_legend_handles_labels()[::-1]))
            axes.legend(handles.values(), handles, loc="best", fontsize=11)
    grid[0][0].set_yticks(range(len(keys)), [title_of(key) for key in keys])
    grid[0][0].set_ylim(-0.6, len(keys) - 0.4)
    margin = f"{100 * run.margin:.0f} %"
    figure.suptitle(f"Ratios of medians; bars: 95 % intervals; grey: margin ±{margin}", x=0.01, ha="left")
    return figure


def _panels(count: int, *, width: float = 4.6, height: float = 4.0, columns: int = 3):
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(width * columns, height * rows + 0.4), squeeze=False)
    flat = list(axes.flat)
    for spare in flat[count:]:
        spare.set_visible(False)
    return figure, flat


def plot_paired(run: Analysis):
    """Each boot's median; lines join the boots of a block."""
    keys = [key for key in run.keys if MEASURES[key[1:]].plot and len(run.arms(key)) > 1]
    if not keys:
        return None
    figure, panels = _panels(len(keys))
    for axes, key in zip(panels, keys):
        arms = run.arms(key)
        by_arm = {arm: run.medians(key, arm) for arm in arms}
        for block in sorted({block for each in by_arm.values() for block in each}):
            points = [(place, by_arm[arm][block]) for place, arm in enumerate(arms) if block in by_arm[arm]]
            axes.plot(*zip(*points), color="#bbbbbb", linewidth=1, zorder=1)
        for place, arm in enumerate(arms):
            values = list(by_arm[arm].values())
            colour, marker = LOOKS[arm]
            axes.plot([place] * len(values), values, marker, color=colour, markersize=7, markeredgecolor="white")
            axes.plot([place - 0.3, place + 0.3], [np.median(values)] * 2, color=colour, linewidth=2)
        _value_axis(axes, [value for each in by_arm.values() for value in each.values()], MEASURES[key[1:]].unit)
        axes.set_xticks(range(len(arms)), arms)
        axes.set_xlim(-0.5, len(arms) - 0.5)
        axes.grid(axis="x", visible=False)
        axes.set_title(f"{key.topology}: {MEASURES[key[1:]].label}", loc="left")
    figure.suptitle("Median of each boot (grey lines: a block; bars: median of the boots)", x=0.01, ha="left")
    return figure


def plot_events(run: Analysis):
    """Every single event that succeeded."""
    keys = [key for key in run.keys if MEASURES[key[1:]].events]
    if not keys:
        return None
    figure, panels = _panels(len(keys), width=5.4, height=4.4, columns=2)
    rng = np.random.default_rng(run.seed)
    for axes, key in zip(panels, keys):
        arms = run.arms(key)
        everything: list[float] = []
        for place, arm in enumerate(arms):
            values = [value for each in run.values(key, arm).values() for value in each]
            everything += values
            colour, _ = LOOKS[arm]
            spots = place + rng.uniform(-0.28, 0.28, len(values))
            axes.plot(spots, values, ".", color=colour, alpha=0.45, markersize=5, markeredgewidth=0)
            quarter, middle, three = np.percentile(values, [25, 50, 75])
            axes.plot([place] * 2, [quarter, three], color="white", linewidth=7, solid_capstyle="butt")
            axes.plot([place] * 2, [quarter, three], color=colour, linewidth=4, solid_capstyle="butt")
            axes.plot(place, middle, "o", color="white", markeredgecolor=colour, markersize=7, markeredgewidth=1.8)
        _value_axis(axes, everything, MEASURES[key[1:]].unit)
        axes.set_xticks(range(len(arms)), [f"{arm}\nn={sum(map(len, run.values(key, arm).values()))}" for arm in arms])
        axes.set_xlim(-0.5, len(arms) - 0.5)
        axes.grid(axis="x", visible=False)
        axes.set_title(f"{key.topology}: {MEASURES[key[1:]].label}", loc="left")
    figure.suptitle("Every event (ring: median; bar: middle half)", x=0.01, ha="left")
    return figure


def plot_timeline(run: Analysis):
    """hot-add, one boot an arm: the node's memory, the gate, the rebuilds."""
    rows = [row for row in run.rows if row.scenario == "node" and row.metric.startswith("seen_")]
    if not rows:
        return None
    first = {arm: min(row.boot for row in rows if row.arm == arm) for arm in LOOKS if any(r.arm == arm for r in rows)}
    lanes = (
        ("seen_nodes_count", "nodes with\nmemory"),
        ("seen_open_count", "gate open"),
        ("seen_rebuilds_count", "rebuilds"),
    )
    figure, grid = plt.subplots(
        len(lanes), len(first), figsize=(max(4.4 * len(first), 7.5), 5.6), squeeze=False, sharex="col", sharey="row",
        height_ratios=(1, 1, 1.6),
    )
    for column, (arm, boot) in enumerate(first.items()):
        colour, _ = LOOKS[arm]
        for line, (metric, label) in enumerate(lanes):
            axes = grid[line][column]
            seen = [row for row in rows if (row.boot, row.arm, row.metric) == (boot, arm, metric)]
            points = sorted((row.at, row.value) for row in seen)
            if points:
                times, values = zip(*points)
                if metric == "seen_rebuilds_count":
                    values = [value - values[0] for value in values]
                axes.step(times, values, where="post", color=colour, linewidth=2)
            else:
                axes.text(0.5, 0.5, "not in a stock kernel", transform=axes.transAxes, ha="center", color="#666666")
            if metric != "seen_rebuilds_count":
                low = 1 if metric == "seen_nodes_count" else 0
                axes.set_ylim(low - 0.2, low + 1.2)
                axes.set_yticks([low, low + 1])
            else:
                axes.yaxis.get_major_locator().set_params(integer=True)
            if column == 0:
                axes.set_ylabel(label)
        grid[0][column].set_title(arm, loc="left", color=colour)
        grid[-1][column].set_xlabel("seconds")
    figure.suptitle("hot-add: a DIMM is plugged, its block goes off and on, it is unplugged", x=0.01, ha="left")
    figure.align_ylabels()
    return figure


PLOTS = {
    "ratios": (plot_ratios, "Ratios of all comparisons with their intervals."),
    "boots": (plot_paired, "The median of every boot; the boots of a block are joined."),
    "events": (plot_events, "Every event of every boot."),
    "timeline": (plot_timeline, "Node, gate and rebuilds while memory comes and goes."),
}


def draw(run: Analysis, folder: Path) -> dict[str, Path]:
    """The pictures, as PNG files."""
    folder.mkdir(exist_ok=True)
    _style()
    made = {}
    for name, (plot, _) in PLOTS.items():
        figure = plot(run)
        path = folder / f"{name}.png"
        path.unlink(missing_ok=True)
        if figure:
            figure.savefig(path)
            plt.close(figure)
            made[name] = path
    return made


# The page

CSS = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 75rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.25rem; margin-top: 2.5rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem }
table { display: block; overflow-x: auto }
th, td { padding: .25rem .7rem; text-align: left; border-bottom: 1px solid #ddd; white-space: nowrap }
td.n, th.n { text-align: right } img { max-width: 100%; height: auto }
pre { background: #f5f5f5; padding: .8rem; overflow-x: auto; font-size: .85rem }
.pass { color: #005a3c; font-weight: 600 } .fail { color: #a33f00; font-weight: 600 } .noisy { color: #6b5900 }
"""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numeric: Sequence[int] = ()) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        made = []
        for place, cell in enumerate(cells):
            kind = ' class="n"' if place in numeric else ""
            made.append(f"<{tag}{kind}>{cell}</{tag}>")
        return "<tr>" + "".join(made) + "</tr>"

    body = "\n".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"


def _outcome(outcome: Outcome) -> str:
    kind = {Outcome.PASS: "pass", Outcome.FAIL: "fail"}.get(outcome, "noisy")
    return f'<span class="{kind}">{outcome}</span>'


def _details(title: str, text: str) -> str:
    return f"<details><summary>{html.escape(title)}</summary><pre>{html.escape(text)}</pre></details>"


def reproduce(run: Analysis) -> str:
    """A script that repeats the run: same design, seed and order."""
    kernel = run.plan["kernel"]["name"]
    if "repeat" in run.plan:  # how the run was started, where there is more to it than a plan
        command = shlex.join(run.plan["repeat"])
    else:
        own = kernel not in trees.DEBIAN
        source = '--ksrc "${KSRC:?set it to the tree that was measured}"' if own else f"--kernel {kernel}"
        command = f'-m lab.comparison.bench {source} --plan "$plan"'
    return f"""#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Repeats this run: the same design, seed and order. Run it from the top of the repository, at revision
# {run.plan["environment"].get("repository", "unknown")}; the new run gets a folder of its own.
# Linux {run.plan["kernel"]["version"]}, {run.plan["environment"].get("compiler", "")}
set -eu
plan=$(realpath "$(dirname "$0")")/{runs.PLAN}
test -e "$plan" -a -e lab/comparison/bench.py || {{ echo "$0: run me from the top of the repository" >&2; exit 1; }}
exec /usr/bin/python3 {command} "$@"
"""


def write(run_dir: Path) -> Path:
    """The page, the pictures and the `reproduce` script, into the run's folder."""
    run = Analysis(run_dir)
    pictures = draw(run, run_dir / "plots")
    script = run_dir / "reproduce"
    script.write_text(reproduce(run))
    script.chmod(0o755)
    page = run_dir / "report.html"
    page.write_text(render(run, run_dir, pictures))
    return page


def render(run: Analysis, run_dir: Path, pictures: dict[str, Path]) -> str:
    plan = run.plan
    escape_all = [html.escape(part) for part in (headline(run), method(run))]
    parts = [
        "<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<title>Demotion gate: the comparison</title>", f"<style>{CSS}</style></head><body>",
        "<h1>Demotion gate: the comparison</h1>", f"<p>{escape_all[0]}. Started {html.escape(plan['started'])}.</p>",
    ]
    if len(run.boots) < len(plan["boots"]):
        parts.append("<p><strong>The run is not finished: this is what there is so far.</strong></p>")
    if run.claims:
        rows = [
            (html.escape(claim.text), f"{result.ratio:.3f}" if result else "–", interval(result) if result else "–",
             _outcome(outcome))
            for claim, outcome, result in run.claims
        ]
        head = ("claim", "ratio", "95 % interval", "outcome")
        parts += ["<h2>Claims, fixed beforehand</h2>", _table(head, rows, (1, 2))]
    parts += ["<h2>Counted, exact on any machine</h2>"]
    rows = []
    for each in run.counted:
        cells = [html.escape(f"{each.topology}: {each.scenario}"), each.arm, *counted_cells(each)]
        rows.append([*cells, f"expected {each.expected}: {_outcome(each.outcome)}" if each.outcome else ""])
    head = ("where", "arm", "events", "failed", "rebuilds", "skipped", "rebuilds per event",
            "grace periods waited for per event, by demotion code", "")
    parts += [
        _table(head, rows, (2, 3, 4, 5, 6, 7)),
        "<p>A stock kernel has no counters. Waits are counted with the function tracer, in boots of their own that are "
        "not timed, and told apart by their stacks; where there are none, a rebuild stands for one grace period.</p>",
        "<h2>Timed</h2>", f"<p>{escape_all[1]}</p>",
    ]
    rows = []
    for key, base, new, result in run.results:
        rows.append(
            (
                html.escape(title_of(key)), base,
                spread(result.base, result.base_spread), new,
                spread(result.new, result.new_spread), f"{result.ratio:.3f}", interval(result),
                f"{result.p:.2g} (≥ {result.p_floor:.2g})",
                str(result.blocks), html.escape(str(result.verdict)) + (" (A/A)" if (base, new) in SAME else ""),
            )
        )
    head = ("what", "base", "median ± sd of boots", "new", "median ± sd of boots", "ratio", "95 % interval",
            "p (smallest possible)", "blocks", "verdict")
    parts.append(_table(head, rows, (2, 4, 5, 6, 7, 8)))
    if found := noise(run):
        rows = [
            (html.escape(title_of(key)), arms, number(within), number(between)) for key, arms, within, between in found
        ]
        head = ("what", "arms", "events of a boot, %", "medians of its turns, %")
        parts += [
            "<h2>Noise</h2>",
            "<p>Standard deviations of the same kernel under the same policy: of single events in one boot, and of the "
            "medians of two turns in one block (stock: two boots; auto: twice in one boot).</p>",
            _table(head, rows, (2, 3)),
        ]
    for name, path in pictures.items():
        encoded = base64.b64encode(path.read_bytes()).decode()
        caption = html.escape(PLOTS[name][1])
        parts.append(f'<figure><img alt="{caption}" src="data:image/png;base64,{encoded}"><figcaption>{caption}'
                     "</figcaption></figure>")
    parts.append("<h2>In the 0-day robot's layout</h2>")
    for base, new in (("stock", "auto"), ("auto", "always"), ("stock", "always")):
        if text := robot(run, base, new):
            parts.append(f"<pre>{html.escape(text)}</pre>")
    parts.append("<h2>How it was made</h2>")
    parts.append(_table(("", ""), [(html.escape(k), html.escape(v)) for k, v in plan["environment"].items()]))
    if any("tcg" in word for command in plan["commands"].values() for word in command):
        parts.append("<p>The guests ran under TCG, an emulator: look at ratios and counts, not at bare times.</p>")
    design = "\n".join(
        f"{part.name}: {', '.join(part.scenarios)}; arms {', '.join(part.arms)}; {part.blocks} blocks; "
        f"{part.rounds} turns in a boot"
        for part in runs.design_of(plan).parts
    )
    amounts = "\n".join(f"{name}: {value}" for name, value in plan["design"].items() if name != "parts")
    parts.append(_details("Design", f"{design}\n\n{amounts}\nseed: {plan['seed']}"))
    order = "\n".join(
        f"{boot['index']:3} block {boot['block']} part {boot['part']} {boot['image']}: {', '.join(boot['arms'])}"
        for boot in plan["boots"]
    )
    parts.append(_details("Order of the boots", order))
    for name, command in plan["commands"].items():
        parts.append(_details(f"QEMU command line, {name}", shlex.join(command)))
    for config in sorted(run_dir.glob("config-*")):
        parts.append(_details(f"Kernel configuration, {config.name.removeprefix('config-')}", config.read_text()))
    parts.append(_details("reproduce", reproduce(run)))
    data = base64.b64encode(gzip.compress((run_dir / runs.DATA).read_bytes(), mtime=0)).decode()
    parts.append(
        f'<p><a download="{runs.DATA}.gz" href="data:application/gzip;base64,{data}">All measured numbers '
        f"({runs.DATA}.gz)</a></p></body></html>\n"
    )
    return "\n".join(parts)


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
