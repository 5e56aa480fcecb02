# SPDX-License-Identifier: GPL-2.0
"""The statistics on synthetic boots whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lab.comparison import bench, stats
from lab.comparison.stats import Comparison, Key, Outcome, Row

# The noise of a real run (6.12, CPU off + on, one node, stock against stock2: the ± of the report's rows), as
# standard deviations of log times. There, the medians of two boots differ as if each had 4.5 %; its 24 events explain
# 3.2 % of that.
BETWEEN = 0.032  # of a boot's level
WITHIN = 0.125  # of an event around it
EVENTS = 24  # an arm's off/on cycles in a boot: cycles and turns of the default design
KEY = Key("one", "cpu", "cycle_ms")


def boots(rng: np.random.Generator, blocks: int, ratio: float) -> Comparison:
    """Measure two arms, each in a boot of its own, whose true ratio is `ratio`."""
    rows = []
    for block in range(blocks):
        drift = rng.normal(0, 0.10)  # the host's mood, which a block's boots share
        for boot, (arm, truth) in enumerate([("stock", 1.0), ("auto", ratio)]):
            level = math.log(truth) + drift + rng.normal(0, BETWEEN)
            rows += [
                Row(block, 2 * block + boot, *KEY[:1], "series", arm, 0, *KEY[1:], cycle, "1", 0.0, stats.OK, value)
                for cycle, value in enumerate(1000 * np.exp(level + rng.normal(0, WITHIN, EVENTS)))
            ]
    result = stats.compare(stats.medians(rows, KEY, "stock"), stats.medians(rows, KEY, "auto"))
    assert result
    return result


def default_blocks() -> int:
    return next(part.blocks for part in bench.DESIGNS["default"].parts if part.name == "one")


@pytest.mark.parametrize("seed", range(5))
def test_same_kernel_twice_is_called_equivalent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert sum(boots(rng, default_blocks(), 1.0).equivalent for _ in range(20)) >= 18


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ratio", [0.90, 1.10])
def test_ten_per_cent_is_found(seed: int, ratio: float) -> None:
    rng = np.random.default_rng(seed)
    assert sum(boots(rng, default_blocks(), ratio).differs for _ in range(20)) >= 18


def test_difference_of_the_margin_is_rarely_called_equivalent() -> None:
    rng = np.random.default_rng(7)
    assert sum(boots(rng, default_blocks(), 1 + stats.MARGIN).equivalent for _ in range(300)) <= 0.08 * 300


@pytest.mark.parametrize("blocks", [3, 5, 8])
def test_interval_covers_the_truth(blocks: int) -> None:
    rng = np.random.default_rng(blocks)
    results = [boots(rng, blocks, 1.05) for _ in range(600)]
    assert sum(result.low <= 1.05 <= result.high for result in results) >= 0.93 * 600


def test_more_noise_never_earns_equivalent() -> None:
    quiet = stats.compare({b: 1.0 for b in range(6)}, {b: 1.0 + 0.01 * (-1) ** b for b in range(6)})
    noisy = stats.compare({b: 1.0 for b in range(6)}, {b: 1.0 + 0.30 * (-1) ** b for b in range(6)})
    assert quiet and quiet.finding == "equivalent"
    assert noisy and noisy.finding == Outcome.NOISY


def test_two_blocks_claim_nothing() -> None:
    result = stats.compare({0: 1.0, 1: 1.0}, {0: 3.0, 1: 3.0})
    assert result and result.finding == Outcome.NOISY
    assert stats.judge(result, ">=", 1.2) == Outcome.NOISY


def test_blocks_without_both_arms_are_left_out() -> None:
    result = stats.compare({0: 1.0, 1: 1.0, 2: 1.0}, {1: 2.0, 2: 2.0, 3: 50.0})
    assert result and result.blocks == 2 and result.ratio == pytest.approx(2.0)
    assert stats.compare({0: 1.0}, {1: 1.0}) is None


def test_many_events_of_one_boot_do_not_count_as_replicates() -> None:
    rows = [Row(0, boot, *KEY[:1], "series", arm, 0, *KEY[1:], cycle, "1", 0.0, stats.OK, value)
            for boot, (arm, value) in enumerate([("stock", 1.0), ("auto", 2.0)]) for cycle in range(1000)]
    result = stats.compare(stats.medians(rows, KEY, "stock"), stats.medians(rows, KEY, "auto"))
    assert result and result.blocks == 1 and result.finding == Outcome.NOISY


def test_sign_flip_is_exact() -> None:
    p, floor = stats.sign_flip(np.log([1.1, 1.2, 1.3]))
    assert (p, floor) == (0.25, 0.25)  # 2 of 8
    p, _ = stats.sign_flip(np.array([0.1, 0.2, -0.3]))
    assert p == 1.0
    p, floor = stats.sign_flip(np.full(20, 0.1))
    assert p == pytest.approx(2 / 10000) == floor  # 9,999 of 2^20, and what was observed
    p, floor = stats.sign_flip(np.array([0.1, 0.2, 0.3, 0.4]))
    assert p == floor == 0.125, "four blocks cannot say less, however far apart the arms are"


def test_boot_of_0_is_left_out_and_counted() -> None:
    rows = [Row(block, block, *KEY[:1], "series", arm, 0, *KEY[1:], 0, "1", 0.0, stats.OK, value)
            for arm, values in {"stock": [10, 10, 10, 10, 10], "auto": [10, 10, 10, 10, 0]}.items()
            for block, value in enumerate(values)]
    base, new = (stats.medians(rows, KEY, arm) for arm in ("stock", "auto"))
    assert new[4] == 0
    result = stats.compare(base, new)
    assert result and (result.blocks, result.left_out, result.ratio) == (4, 1, 1)
    assert stats.judge(result, "==") == Outcome.NOISY, "what did nothing is no equal"
    assert stats.compare(base, dict.fromkeys(base, 0.0)) is None


@pytest.mark.parametrize(
    ("values", "relation", "bound", "outcome"),
    [
        ([0.40, 0.41, 0.42, 0.43], "<=", 0.6, Outcome.PASS),
        ([0.70, 0.71, 0.72, 0.73], "<=", 0.6, Outcome.FAIL),
        ([0.40, 0.90, 0.50, 0.70], "<=", 0.6, Outcome.NOISY),
        ([1.40, 1.41, 1.42, 1.43], ">=", 1.2, Outcome.PASS),
        ([1.10, 1.11, 1.12, 1.13], ">=", 1.2, Outcome.FAIL),
        ([1.01, 1.00, 1.02, 0.99], "==", 1.0, Outcome.PASS),
        ([1.30, 1.31, 1.32, 1.33], "==", 1.0, Outcome.FAIL),
        ([1.10, 1.11, 1.05, 1.12], "==", 1.0, Outcome.NOISY),
    ],
)
def test_claims(values: list[float], relation: str, bound: float, outcome: Outcome) -> None:
    result = stats.compare(dict.fromkeys(range(4), 1.0), dict(enumerate(values)))
    assert stats.judge(result, relation, bound) == outcome


def test_unmeasured_claim_is_no_pass() -> None:
    assert stats.judge(None, "<=", 0.6) == Outcome.ABSENT


def row(boot: int, metric: str, value: float, *, result: str = stats.OK, cycle: int = 0) -> Row:
    return Row(0, boot, "one", "series", "auto", 0, "cpu", metric, cycle, "1", 0.0, result, value)


def test_failed_events_are_kept_but_not_timed() -> None:
    rows = [row(0, "off_ms", 10.0), row(0, "off_ms", 900.0, result="EBUSY", cycle=1), row(0, "off_ms", 12.0, cycle=2)]
    assert stats.medians(rows, Key("one", "cpu", "off_ms"), "auto") == {0: pytest.approx(11.0)}


def test_cycle_is_the_sum_of_a_pair_that_succeeded() -> None:
    rows = [row(0, "off_ms", 10.0), row(0, "on_ms", 5.0), row(0, "off_ms", 1.0, cycle=1),
            row(0, "on_ms", 2.0, cycle=1, result="EBUSY")]
    cycles = [each for each in stats.add_cycles(rows) if each.metric == "cycle_ms"]
    assert [each.value for each in cycles] == [15.0]


def test_unfinished_boot_is_not_used(tmp_path) -> None:
    path = tmp_path / "data.csv"
    stats.write_rows(path, [row(0, "off_ms", 10.0), row(0, stats.DONE, 0.0), row(1, "off_ms", 11.0)])
    with path.open("a") as out:
        out.write("0,1,one,ser")  # a kill in the middle of a line
    assert [each.value for each in stats.read_rows(path) if each.metric != stats.DONE] == [10.0]


def test_numbers_survive_the_file(tmp_path) -> None:
    path = tmp_path / "data.csv"
    rows = [row(0, "off_ms", 10.123456), row(0, stats.DONE, 0.0)]
    stats.write_rows(path, rows[:1])
    stats.write_rows(path, rows[1:])
    assert stats.read_rows(path) == rows
