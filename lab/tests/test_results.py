# SPDX-License-Identifier: GPL-2.0
"""Counting: a skip is never a pass, whatever the harness prints."""

from unittest import SkipTest

import pytest

from lab.checks.results import Results, ktap
from lab.common import LabError

NEW = """TAP version 13
1..3
#  RUN           f.one ...
#            OK  f.one
ok 1 f.one
#  RUN           f.two ...
#      SKIP      needs two nodes
#            OK  f.two
ok 2 f.two # SKIP needs two nodes
#  RUN           f.v.three ...
# x.c:1:three:Expected 1 == 2
not ok 3 f.v.three
"""
OLD = NEW.replace("ok 2 f.two # SKIP", "ok 2 # SKIP")
KUNIT = "    ok 1 first\n    ok 2 second # SKIP one node\n"


@pytest.mark.parametrize("text", [NEW, OLD])
def test_both_harnesses_read_the_same(text):
    found = list(ktap(text))
    assert [(name, state) for name, state, _ in found] == [("f.one", "ok"), ("f.two", "skip"), ("f.v.three", "fail")]
    assert found[1][2] == "needs two nodes"
    assert "Expected 1 == 2" in found[2][2]


def test_kunit_lines_indented_by_the_suite():
    assert [(name, state) for line in KUNIT.splitlines() for name, state, _ in ktap(line.strip())] == [
        ("first", "ok"), ("second", "skip"),
    ]  # fmt: skip


def test_counts_and_closing_line(capsys):
    results = Results()
    with results.case("good"):
        pass
    with results.case("bad"):
        raise LabError("there", expected="this", found="that", do="mend it")
    with results.case("elsewhere"):
        raise SkipTest("no tree")
    assert results.end() == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 passed, 1 failed"
    assert any("expected: this" in line for line in lines)


def test_nothing_tested_is_no_success():
    assert Results().end() == 1


def test_results_that_are_not_to_be_shown_are_kept(capsys):
    results = Results(show=lambda line: None)
    results.note("a", True)
    results.note("b", False, "why")
    with results.case("c"):
        raise AssertionError("not so")
    assert (results.passed, results.failures, results.reasons) == (1, ["b", "c"], ["why", "not so"])
    assert capsys.readouterr().out == ""
