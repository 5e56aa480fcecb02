# SPDX-License-Identifier: GPL-2.0
"""Planted faults, as far as that goes without a kernel: that each still fits our code, and how they are judged."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from lab.checks import mutants
from lab.checks.mutants import CHECKS, GATE_FILE, Mutant, hunt, plant, table
from lab.common import ROOT, LabError
from lab.guests import gate, guest
from lab.kernels.trees import Kernel

FAULT = Mutant("m", "all", "old", "new", "debug one", r"kunit \w+_test")


def test_every_fault_fits_the_gate_as_it_is_now() -> None:
    text = (ROOT / GATE_FILE).read_bytes()
    for mutant in table():
        if mutant.file == GATE_FILE:
            assert plant(mutant, GATE_FILE, {GATE_FILE: text})[GATE_FILE] != text, mutant.name


def test_the_table_has_each_fault_once() -> None:
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in table()}) == len(table())


GOOD = "[good]\nbreaks = ''\nold = 'a'\nnew = 'b'\ncheck = 'plain one'\ntest = '.'\n"


@pytest.mark.parametrize(("text", "told"), [
    ("[bad]\nold a\n", "line 8"),
    ("[bad]\nold = 'a'\n", "[bad]"),
    ("[good]\n", "line 7"),
    (GOOD.replace("good", "bad") + "tires = true\n", "'tires'"),
    (GOOD.replace("good", "bad").replace("plain one", "plain won"), "[bad]\n"),
])  # fmt: skip
def test_a_table_with_a_mistake_is_refused_by_its_place(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "TABLE", tmp_path / "mutants.toml")
    mutants.TABLE.write_text(GOOD)
    assert table.__wrapped__() == (Mutant("good", "", "a", "b", "plain one", "."),)
    mutants.TABLE.write_text(GOOD + text)
    with pytest.raises(LabError, match="mutants.toml") as error:
        table.__wrapped__()
    assert told in str(error.value)


def test_the_tests_it_names_are_there() -> None:
    """A test that was renamed would make every mutant look caught by another."""
    kunit = [ROOT / "mm/tests/demotion_gate_kunit.c", *ROOT.glob("series/*/mm/tests/demotion_gate_kunit.c*.sed")]
    names = re.findall(r"KUNIT_CASE\((\w+)\)", "".join(path.read_text() for path in kunit))
    cases = [f"kunit {name}" for name in names]
    selftest = (ROOT / "tools/testing/selftests/mm/demotion_gate.c").read_text()
    for case in re.findall(r'^\t\{ "((?:policy|demotion_gate)\.[^"]+)"', selftest, re.M):
        cases += [case.replace("%s", policy) for policy in gate.POLICIES]
    checks = "".join((ROOT / f"lab/checks/{name}.py").read_text() for name in ("boots", "fixes", "lint"))
    cases += re.findall(r'f"\{(?:name|kernel\.name)\}[:,]? ([^"]+)"', checks)
    for mutant in table():
        assert any(re.search(mutant.test, case) for case in cases), f"{mutant.name}: {mutant.test}"


@pytest.mark.parametrize("text", ["", "old old", "other"])
def test_a_fault_that_does_not_fit_exactly_once_is_an_error_by_name(text: str) -> None:
    with pytest.raises(LabError, match="mutant m"):
        plant(FAULT, "f.c", {"f.c": text.encode()})


def test_planting_changes_the_one_file_and_leaves_the_original() -> None:
    rendered = {"f.c": b"an old one", "g.c": b"old"}
    assert plant(FAULT, "f.c", rendered) == {"f.c": b"an new one", "g.c": b"old"}
    assert rendered["f.c"] == b"an old one"


def test_a_file_that_is_not_rendered_is_an_error() -> None:
    with pytest.raises(LabError, match="0 times"):
        plant(FAULT, "f.c", {})


def empty_kernel(folder: Path) -> Kernel:
    (folder / "stock").mkdir(exist_ok=True)
    (folder / "stock.from").write_text("nothing")
    return Kernel("k", folder / "stock", folder)


def test_cpus_take_turns_but_where_races_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KCSAN sees nothing where they do, and all else may die of a key that flips where they do not."""
    turns: dict[str, set[bool]] = {name: set() for name in CHECKS}

    def boot(*_: object, at_once: bool = False, **__: object) -> None:
        turns[check].add(at_once)
        raise LabError("boot", expected="nothing", found="nothing", do="nothing")

    monkeypatch.setattr(guest, "boot", boot)
    monkeypatch.setattr(Kernel, "keeper", "mm/migrate.c")
    for name in ("image", "selftest", "source"):
        monkeypatch.setattr(mutants.build, name, lambda *_: tmp_path)
    for check in CHECKS:
        mutants.perform(check, empty_kernel(tmp_path), {}, tmp_path, 1)
    assert turns.pop("races") == {True}
    assert turns.pop("semantics") == set()
    turns = {name: seen for name, seen in turns.items() if not name.startswith("fix ")}  # no key flips there
    assert all(seen == {False} for seen in turns.values())


def test_each_kernel_that_is_tried_has_the_files_it_is_to_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run builds kernels with many different faults: none may get the files of the one before."""
    kernel = empty_kernel(tmp_path)
    built: list[bytes] = []

    def image(kernel: Kernel, which: str, variant: str) -> Path:
        built.append((mutants.build.source(kernel, which) / "f.c").read_bytes())
        return tmp_path

    monkeypatch.setattr(mutants.build, "image", image)
    nothing: mutants.Check = ("plain", lambda *_: None)
    monkeypatch.setitem(CHECKS, "dummy", nothing)
    for text in (b"sound", b"faulty", b"worse"):
        mutants.perform("dummy", kernel, {"f.c": text}, tmp_path, 1)
    assert built == [b"sound", b"faulty", b"worse"]


def tried(failing: dict[str, list[str]]) -> tuple[str, bool, list[str]]:
    """What catches it if these checks fail with these results, if that is as named, and the checks that were tried."""
    order: list[str] = []

    def attempt(check: str) -> list[str]:
        order.append(check)
        return failing.get(check, [])

    return *hunt(FAULT, attempt), order


def test_the_named_check_comes_first_and_is_enough() -> None:
    caught_by, as_named, order = tried({"debug one": ["x policy", "x kunit a_test"], "faults": ["y"]})
    assert order == ["debug one"]
    assert as_named and caught_by == "x kunit a_test"


def test_another_test_may_catch_it_and_is_named() -> None:
    caught_by, as_named, order = tried({"faults": ["y kunit a_test"]})
    assert order[0] == "debug one" and order[-1] == "faults"
    assert not as_named and caught_by == "y kunit a_test"


def test_a_survivor_has_been_through_every_check_once() -> None:
    caught_by, as_named, order = tried({})
    assert sorted(order) == sorted(CHECKS)
    assert not caught_by and not as_named


def test_the_checks_cover_every_topology_with_and_without_debugging() -> None:
    for topology in guest.TOPOLOGIES:
        assert {f"debug {topology}", f"plain {topology}"} <= set(CHECKS)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(LabError, match="mutant nonesuch"):
        mutants.chosen(Kernel("k", Path("/nowhere"), Path("/nowhere")), ["nonesuch"])


@pytest.mark.parametrize(
    ("keeper", "told", "missing"),
    [
        ("mm/memory-tiers.c", True, set()),
        ("mm/memory-tiers.c", False, {"tiers", "targets"}),
        ("mm/migrate.c", True, {"tiers"}),
    ],
)
def test_what_cannot_show_on_a_kernel_is_not_planted(
    keeper: str, told: bool, missing: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Kernel, "keeper", keeper)
    monkeypatch.setattr(mutants.boots, "tells_tiers", lambda kernel: told)
    left_out = set(table()) - set(mutants.chosen(Kernel("k", Path("/nowhere"), Path("/nowhere"))))
    assert left_out == {mutant for mutant in table() if any(getattr(mutant, needed) for needed in missing)}
    assert len(table()) - len(left_out) >= 12
