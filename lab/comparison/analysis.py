# SPDX-License-Identifier: GPL-2.0
"""What a run of the comparison says: numbers compared, claims judged, events counted, and the answer in words."""

import tomllib
from collections import defaultdict
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from lab.common import LabError
from lab.comparison import runs, stats
from lab.comparison.stats import OK, Comparison, Key, Outcome, Row

WORDS = tomllib.loads(Path(__file__).with_name("report.toml").read_text())
NOTES: dict[str, str] = WORDS["notes"]
ARMS: dict[str, list[str]] = WORDS["arms"]
MEASURES: dict[tuple[str, str], list[str]] = {
    (scenario, metric): said for scenario, metrics in WORDS["measures"].items() for metric, said in metrics.items()}
RATE, BLOCK, CPU = list(MEASURES)[:3]  # the answer is made of them
SAME = (("stock", "stock2"), ("auto", "auto2"))  # A/A: what differs here is noise
PAIRS = (("stock", "auto"), ("auto", "always"), ("stock", "always"), ("auto", "never"), *SAME)  # base, new


def title_of(key: Key) -> str:
    label, unit = MEASURES[key[1:]]
    return f"{key.topology}: {label}, {unit}"


def more_is_better(key: Key) -> bool:
    return key[1:] == RATE


class Counted(NamedTuple):
    """Events of one arm in one scenario, all boots together, and what they cost in counts."""

    topology: str
    scenario: str
    arm: str
    events: int  # that succeeded; 0: not known
    failed: int
    rebuilds: int | None  # None: a stock kernel, which does not count
    waits: float | None  # grace periods waited for per event, of anyone; None: not traced
    demotion_waits: float | None  # of these, the demotion code's
    expected: str  # of the rebuilds; empty if the design says nothing of them, or they were not counted
    outcome: Outcome | None


class Analysis:
    def __init__(self, run_dir: Path) -> None:
        plan = runs.load_plan(run_dir)
        self.rows = stats.add_cycles(stats.read_rows(run_dir / runs.DATA))
        self.boots = {row.boot for row in self.rows}
        if not plan or not self.boots:
            expected = f"the folder of a run, with a {runs.PLAN} and a {runs.DATA} of a finished boot"
            raise LabError(str(run_dir), expected=expected, found="none", do="run `make bench`")
        self.plan = plan
        self.design = runs.design_of(plan["design"])
        self.groups: dict[tuple[Key, str], list[Row]] = defaultdict(list)  # of the events that succeeded
        for row in self.rows:
            if row.result == OK:
                self.groups[row.key, row.arm].append(row)
        self.medians = {group: stats.medians(rows, *group) for group, rows in self.groups.items()}

    def compare(self, key: Key, base: str, new: str) -> Comparison | None:
        boots = (self.medians.get((key, arm), {}) for arm in (base, new))
        return stats.compare(*boots, margin=self.design.margin, seed=self.plan["seed"])

    def arms(self, key: Key) -> list[str]:
        return [arm for arm in ARMS if (key, arm) in self.medians]

    @cached_property
    def keys(self) -> list[Key]:
        """What was measured, in the order of MEASURES."""
        topologies = dict.fromkeys(part.name for part in self.design.parts)
        have = {key for key, _ in self.medians}
        return [key for what in MEASURES for topology in topologies if (key := Key(topology, *what)) in have]

    @cached_property
    def results(self) -> dict[tuple[Key, str, str], Comparison]:
        pairs = [(key, *pair) for key in self.keys for pair in PAIRS]
        return {each: found for each in pairs if (found := self.compare(*each))}

    @cached_property
    def claims(self) -> list[tuple[str, Outcome, Comparison | None]]:
        """What must hold, said before it was measured; whether it does; the numbers."""
        planned = {(part.name, arm) for part in self.design.parts for arm in part.arms}
        names = ("all", "migrate" if self.plan["kernel"]["keeper"] == "mm/migrate.c" else "later", "same")
        judged = []
        for *what, base, new, relation, bound in [row for name in names for row in WORDS["claims"][name]]:
            key = Key(*what)
            if key in self.keys and {(key.topology, base), (key.topology, new)} <= planned:
                result = self.compare(key, base, new)
                said = "equal, within the margin" if relation == "==" else f"{relation} {bound:g}"
                text = f"{title_of(key)}, {new} / {base} {said}"
                judged.append((text, stats.judge(result, relation, bound), result))
        return judged

    @cached_property
    def counted(self) -> list[Counted]:
        """Rebuilds and grace periods per event: they depend on no machine's speed."""
        sums: dict[tuple[str, str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for row in self.rows:
            group = sums[row.topology, row.scenario, row.arm]
            if row.metric in ("off_ms", "on_ms"):
                group["events" if row.result == OK else "failed"] += 1
            elif row.metric.endswith("_count"):
                group[row.metric.removesuffix("_count")] += row.value
        counted, order = [], list(ARMS)
        for topology, scenario, arm in sorted(sums, key=lambda group: (*group[:2], order.index(group[2]))):
            group = sums[topology, scenario, arm]
            tried = group["counted_events"]
            if not (tried or {"rebuilds", "events"} & group.keys()):
                continue
            waits, own = (group[name] / tried if tried else None for name in ("waits", "demotion_waits"))
            events = 0 if scenario == "node" else int(group["events"])  # not all of a node's events are timed
            rebuilds, failed = int(group["rebuilds"]) if "rebuilds" in group else None, int(group["failed"])
            machine, always = topology.partition("/")[0], runs.policy_of(arm) == "always"
            expected, outcome = "", None
            if rebuilds is not None and (machine == "one" or (machine, scenario) == ("two-socket", "cpu")):
                if not always:
                    expected, outcome = "none", Outcome.FAIL if rebuilds else Outcome.PASS
                elif events:  # one that failed is a rebuild too if the kernel cancelled it late enough to say so
                    holds = events <= rebuilds <= events + failed
                    expected, outcome = "one an event", Outcome.PASS if holds else Outcome.FAIL
            counted.append(Counted(topology, scenario, arm, events, failed, rebuilds, waits, own, expected, outcome))
        return counted


def interval(result: Comparison | None) -> str:
    return f"{result.low:.2f}–{result.high:.2f}" if result and result.high < 1000 else "–"


def p_text(result: Comparison) -> str:
    """With few blocks a p cannot be small, however far apart the arms are."""
    return f"{result.p:.2g}" + (" (floor)" if result.p <= 1.001 * result.p_floor else "")


def finding_text(base: str, new: str, found: Comparison) -> str:
    aside = f", {found.left_out} boot{'s' * (found.left_out != 1)} of 0 left out" if found.left_out else ""
    return ("A/A: " if (base, new) in SAME else "") + found.finding + aside


def headline(run: Analysis) -> str:
    plan, kernel = run.plan, run.plan["kernel"]
    return (f"Linux {kernel['version']} ({kernel['name']}), design {run.design.name}, seed {plan['seed']}, "
            f"{len(run.boots)} of {len(plan['boots'])} boots, started {plan['started']}")


def _rebuilt(run: Analysis) -> str:
    for machine, where in (("one", "with one node"), ("here", "on this machine")):
        here = [each for each in run.counted if each.topology.partition("/")[0] == machine and each.events]
        if auto := [each for each in here if runs.policy_of(each.arm) == "auto"]:
            events, rebuilds = sum(each.events for each in auto), sum(each.rebuilds or 0 for each in auto)
            what = f"{rebuilds:,} events" if rebuilds else "no event"
            return f"On {run.plan['kernel']['version']} {where} {what} rebuilt with auto ({rebuilds:,} of {events:,})."
    return ""


def _compared(run: Analysis, base: str, new: str, opening: str) -> str:
    told, untold = [], []
    for what in (RATE, BLOCK, CPU):
        mine = [key for key in run.keys if key[1:] == what and (key, base, new) in run.results]
        if not mine:
            continue
        key, found = mine[0], run.results[mine[0], base, new]
        label = MEASURES[what][0] + f" ({key.topology})" * (key.topology not in ("one", "here"))
        if found.equivalent:
            told.append(f"{label} the same within ±{run.design.margin:.0%} ({interval(found)})")
        elif found.differs:
            times = f"{found.ratio:.{'2g' if found.ratio < 10 else '0f'}} times"
            told.append(f"{label} {times} as {'fast' if more_is_better(key) else 'long'} ({interval(found)})")
        else:
            untold.append(f"{label} {interval(found)}")
    parts = [", ".join(told), "this run can't tell: " + ", ".join(untold) if untold else ""]
    return f"{opening} {'; '.join(filter(None, parts))}." if told or untold else ""


def answer(run: Analysis) -> list[str]:
    outcomes = [outcome for _, outcome, _ in run.claims]
    passed, failed = outcomes.count(Outcome.PASS), outcomes.count(Outcome.FAIL)
    broken = [f"{each.topology}: {each.scenario}, {each.arm}" for each in run.counted if each.outcome == Outcome.FAIL]
    zeros = [f"{title_of(key)}, {arm}: {none} of {len(medians)}" for key in run.keys for arm in run.arms(key)
             if (none := list((medians := run.medians[key, arm]).values()).count(0))]
    boots, planned = len(run.boots), len(run.plan["boots"])
    return [sentence for sentence in (
        f"Not finished: {boots} of {planned} boots." * (boots < planned),
        _rebuilt(run),
        _compared(run, "auto", "always", "Rebuilding at each (always / auto):"),
        _compared(run, "stock", "auto", "Against stock (auto / stock):"),
        f"Not rebuilt as often as expected: {'; '.join(broken)}." * bool(broken),
        f"Of {len(outcomes)} claims fixed beforehand {passed} hold, {failed or 'none'} failed." * bool(outcomes),
        f"Boots left out of the ratios, as their figure is 0: {'; '.join(zeros)}." * bool(zeros),
        "Emulated: ratios, no times." * ("tcg" in str(run.plan["commands"].values())),
    ) if sentence]  # fmt: skip


def notes(run: Analysis) -> list[str]:
    floors = sorted({(found.blocks, found.p_floor) for found in run.results.values()})
    floor = ", ".join(f"{blocks} blocks {least:.2g}" for blocks, least in floors)
    edge = 1 + run.design.margin
    traced = any(each.waits is not None for each in run.counted)
    return [NOTES["waits"]] * traced + [NOTES["method"].format(low=1 / edge, high=edge, floor=floor)]
