# SPDX-License-Identifier: GPL-2.0
"""The table of `make reach`, on stand-ins, with the compiler left out."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest import SkipTest

import pytest

from lab.checks import lint, reach
from lab.kernels import trees
from lab.tests.test_render import OWN_TOP_TIER, TIERS, altered, stand_in


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A whole tree, one with a fix left out, one that can't have the gate, and what is no tree."""
    stand_in("6.12", tmp_path)
    altered(tmp_path / "other", "6.12", TIERS, OWN_TOP_TIER)
    (tmp_path / "other/6.12").rename(tmp_path / "own tier")
    altered(tmp_path / "other", "6.1", TIERS, ("int next_demotion_node(int node)", "int somewhere(int node)"))
    (tmp_path / "other/6.1").rename(tmp_path / "refused")
    shutil.rmtree(tmp_path / "other")
    for name in ("6.12", "own tier", "refused"):
        (tmp_path / name / "Kbuild").touch()
    (tmp_path / "no tree").mkdir()
    for module in (trees, reach):
        monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(lint, "scratch", lambda kernel: contextlib.nullcontext(SimpleNamespace(kernel=kernel)))
    return tmp_path


def test_table(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def compiled(here: SimpleNamespace, files: object, off: str) -> None:
        if here.kernel.name == "own-tier":
            raise (SkipTest("nor without") if off else AssertionError("error: no"))

    monkeypatch.setattr(reach, "compile_touched", compiled)
    assert reach.main(reach.parser().parse_args(["--trees", str(folder)])) == 1
    said = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[1:-2]] for line in said.splitlines() if line.startswith("| 6")]
    assert rows == [
        ["6.12.1", "6.12", "yes", "yes", "-", "yes", "yes", "-"],
        ["6.12.1", "own tier", "yes", "yes", "-", "no", "-",
         "mm/memory-tiers: keep the top tier current when CPUs come and go"],
        ["6.1.1", "refused", "-", "-", "-", "-", "-", "-"],
    ]
    assert "mm/memory-tiers.c" in said and "failed: refused: one for the series" in said
