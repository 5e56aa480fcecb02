# SPDX-License-Identifier: GPL-2.0
"""What two arms of the comparison say about each other, and how sure that is.

The unit of replication is the boot. A boot's many events are reduced to their median, two medians of one block become
a log ratio, and only these log ratios, one a block, are treated as independent: events of one boot share its memory
layout, its host's mood and its warm-up, so counting them as replicates would make noise look like evidence.

The mean log ratio's interval is Student's t: right for as few as three blocks, if log ratios are roughly normal.
Equivalence is decided as in two one-sided tests: the 90 % interval, made in the same way, lies inside a margin that is
fixed before anything is measured. Noise can only make an interval wider, so it never earns an 'equivalent'.
"""

import contextlib
import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, get_type_hints

import numpy as np
from scipy import stats

MARGIN = 0.10  # declared before measuring: ratios from 1/1.10 to 1.10 count as no difference
CONFIDENCE = 0.95
EQUIVALENCE_CONFIDENCE = 0.90  # two one-sided tests of 5 % each
MIN_BLOCKS = 3  # with fewer, nothing is claimed
RESAMPLES = 9999  # with fewer sign flips every one is tried

OK = "ok"
DONE = "done"  # the metric of a boot's last row: rows of a boot without it are not used


class Key(NamedTuple):
    topology: str
    scenario: str
    metric: str


class Row(NamedTuple):
    """One number as it was measured: a line of data.csv. The defaults are those of a boot's last row."""

    block: int
    boot: int
    topology: str
    image: str
    arm: str
    slot: int = 0  # its arm's place in the boot's order
    scenario: str = "boot"
    metric: str = DONE  # the others end in their unit
    cycle: int = 0
    target: str = ""
    at: float = 0.0  # seconds since its slot began, where that matters
    result: str = OK  # or the error of an event that failed
    value: float = 1.0

    @property
    def key(self) -> Key:
        return Key(self.topology, self.scenario, self.metric)


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    with path.open("a", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        if not out.tell():
            writer.writerow(Row._fields)
        for row in rows:
            writer.writerow(row._replace(value=f"{row.value:.9g}", at=f"{row.at:.6g}"))  # type: ignore[arg-type]


def read_rows(path: Path) -> list[Row]:
    """The rows of all boots that were finished; a torn or unfinished end is left out."""
    if not path.exists():
        return []
    kinds = get_type_hints(Row).values()
    with path.open(newline="") as lines:
        table = csv.reader(lines)
        if (header := tuple(next(table, ()))) != Row._fields:
            raise ValueError(f"{path}: not a table of measurements (its first line is {header})")
        rows = []
        for fields in table:
            with contextlib.suppress(ValueError):  # torn by a kill; its boot has no DONE row either
                rows.append(Row(*(kind(field) for kind, field in zip(kinds, fields, strict=True))))
    done = {row.boot for row in rows if row.metric == DONE}
    return [row for row in rows if row.boot in done]


def add_cycles(rows: Sequence[Row]) -> list[Row]:
    """The rows, and for each off/on pair that succeeded one more: the time of both together."""
    halves: dict[tuple, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        if row.result == OK and row.metric in ("off_ms", "on_ms"):
            halves[row.boot, row.slot, row.scenario, row.cycle, row.target][row.metric] = row
    pairs = [(pair["off_ms"], pair["on_ms"]) for pair in halves.values() if len(pair) == 2]
    return [*rows, *(off._replace(metric="cycle_ms", value=off.value + on.value) for off, on in pairs)]


def medians(rows: Iterable[Row], key: Key, arm: str) -> dict[int, float]:
    """block -> the median of the arm's boot in it."""
    blocks: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        if row.key == key and row.arm == arm and row.result == OK:
            blocks[row.block].append(row.value)
    return {block: float(np.median(values)) for block, values in sorted(blocks.items())}


class Comparison(NamedTuple):
    """new against base. All ratios are new/base."""

    blocks: int
    left_out: int  # boots whose figure is 0, which no ratio can have: stress-ng that did nothing
    base: float  # median of the boots' medians
    new: float
    base_spread: float  # standard deviation of the boots' medians, in per cent
    new_spread: float
    ratio: float
    low: float  # the 95 % interval
    high: float
    p: float
    p_floor: float  # the smallest p that so many blocks can give
    margin: float
    equivalent: bool
    differs: bool

    @property
    def finding(self) -> str:
        if self.equivalent:
            return "differs, but by less than the margin" if self.differs else "equivalent"
        return "differs" if self.differs else "too noisy to tell"


def spread(values: np.ndarray) -> float:
    return 100 * float(np.std(values, ddof=1)) / float(np.mean(values)) if len(values) > 1 and any(values) else math.nan


def mean_interval(logs: np.ndarray, confidence: float) -> tuple[float, float]:
    if len(logs) < 2:
        return -math.inf, math.inf
    half = stats.t.ppf((1 + confidence) / 2, len(logs) - 1) * stats.sem(logs)
    return float(logs.mean() - half), float(logs.mean() + half)


def sign_flip(logs: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """Two-sided p of 'the arms could be swapped in any block', and its floor: the least p there could be."""
    floor = 2 / min(2 ** len(logs), RESAMPLES + 1)
    if len(logs) < 2:
        return 1.0, floor
    how = {"permutation_type": "samples", "vectorized": True, "n_resamples": RESAMPLES, "random_state": seed}
    tried = stats.permutation_test((logs,), np.sum, **how)
    return float(tried.pvalue), floor


def compare(base: Mapping[int, float], new: Mapping[int, float], *, margin: float = MARGIN,
            seed: int = 0) -> Comparison | None:
    """Pair two arms in the blocks that have both, and neither is 0; None if there is no such block."""
    both = sorted(base.keys() & new.keys())
    blocks = [block for block in both if base[block] and new[block]]
    if not blocks:
        return None
    olds, news = (np.array([arm[block] for block in blocks]) for arm in (base, new))
    logs = np.log(news / olds)
    outer, inner = mean_interval(logs, CONFIDENCE), mean_interval(logs, EQUIVALENCE_CONFIDENCE)
    p, p_floor = sign_flip(logs, seed)
    edge, enough = math.log1p(margin), len(blocks) >= MIN_BLOCKS
    return Comparison(
        blocks=len(blocks), left_out=sum(not arm[block] for block in both for arm in (base, new)),
        base=float(np.median(olds)), new=float(np.median(news)), base_spread=spread(olds), new_spread=spread(news),
        ratio=math.exp(logs.mean()), low=math.exp(outer[0]), high=math.exp(min(outer[1], 700.0)),
        p=p, p_floor=p_floor, margin=margin, equivalent=enough and -edge < inner[0] and inner[1] < edge,
        differs=enough and (outer[0] > 0 or outer[1] < 0),
    )


class Outcome(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    NOISY = "too noisy to tell"
    ABSENT = "not measured"


def judge(result: Comparison | None, relation: str, bound: float = 1.0) -> Outcome:
    """Does the ratio hold to `<=` or `>=` bound, or to `==`, which is the declared margin?

    The whole interval must be on one side of the bound; in between it is too noisy. So it is where a boot was left out.
    """
    if result is None:
        return Outcome.ABSENT
    if result.blocks < MIN_BLOCKS or result.left_out:
        return Outcome.NOISY
    edge = 1 + result.margin
    holds, breaks = {
        "<=": (result.high <= bound, result.low > bound),
        ">=": (result.low >= bound, result.high < bound),
        "==": (result.equivalent, result.low > edge or result.high < 1 / edge),
    }[relation]
    return Outcome.PASS if holds else Outcome.FAIL if breaks else Outcome.NOISY
