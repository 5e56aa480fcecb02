# SPDX-License-Identifier: GPL-2.0
"""A run of the comparison as a folder: what its plan.json says, for whoever measures and whoever reports."""

import json
from dataclasses import dataclass
from pathlib import Path

from lab.comparison import stats

PLAN = "plan.json"
DATA = "data.csv"


@dataclass(frozen=True)
class Part:
    """One topology: what is done in its boots, by which arms, in how many blocks."""

    topology: str
    scenarios: tuple[str, ...]
    arms: tuple[str, ...]
    blocks: int
    cpus: int | None = None  # None: as many as the topology has
    variant: str = "plain"
    rounds: int = 1  # turns of each arm at each scenario in a boot: many short ones share what the host does meanwhile

    @property
    def name(self) -> str:
        return f"{self.topology}/{self.cpus}" if self.cpus else self.topology


@dataclass(frozen=True)
class Design:
    """How much is measured. Everything here is fixed before the first boot and written into the report."""

    name: str
    parts: tuple[Part, ...]
    stress_seconds: int = 1  # from here on: of one turn
    stress_workers: str = "1"  # a number, or a share of the CPUs: "10%"
    memory_cycles: int = 8
    cpu_cycles: int = 8
    smt_cycles: int = 1
    suspend_cycles: int = 1
    node_cycles: int = 5
    traced_cycles: int = 5
    margin: float = stats.MARGIN


def policy_of(arm: str) -> str:
    return arm.rstrip("0123456789")


def kind_of(arm: str) -> str:
    return "stock" if policy_of(arm) == "stock" else "series"


def load_plan(out: Path) -> dict:
    path = out / PLAN
    return json.loads(path.read_text()) if path.exists() else {}


def design_of(words: dict) -> Design:
    """The design that a plan, or designs.toml, says in these words."""
    lists = ("scenarios", "arms")
    parts = (Part(**{**part, **{name: tuple(part[name]) for name in lists}}) for part in words["parts"])
    return Design(**{name: value for name, value in words.items() if name != "parts"}, parts=tuple(parts))


def write_plan(out: Path, plan: dict) -> None:
    new = out / f"{PLAN}.new"
    new.write_text(json.dumps(plan, indent=1) + "\n")
    new.rename(out / PLAN)
