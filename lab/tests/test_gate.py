# SPDX-License-Identifier: GPL-2.0
"""The gate of a guest, read from a guest that is played: its scripts are run by a shell on files of the test."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.common import LabError
from lab.guests import gate

TRACE = """\
# tracer: function
 demotion_gate-77 [000] ..... 1.1: synchronize_rcu <-some_driver
 sh-77 [000] ..... 1.2: synchronize_rcu <-disable_all_demotion_targets
 sh-77 [000] ..... 1.3: synchronize_rcu <-a_helper
 sh-77 [000] ..... 1.3: <stack trace>
 => a_helper
 => establish_demotion_targets
 => demotion_gate_handle
 sh-77 [000] ..... 1.4: synchronize_rcu <-set_migration_target_nodes
 => set_migration_target_nodes
 sh-77 [000] ..... 1.5: synchronize_rcu <-disable_all_migrate_targets
 sh-77 [000] ..... 1.6: synchronize_rcu <-migration_entry_wait
"""


class Played:
    """Runs a script on the folder `top` in place of the guest's files."""

    def __init__(self, top: Path) -> None:
        self.top = top

    def sh(self, script: str, *, check: bool = True, **_: Any) -> SimpleNamespace:
        for mount in ("/sys/kernel/", "/sys/devices/"):
            script = script.replace(mount, f"{self.top}/")
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=check)
        return SimpleNamespace(status=done.returncode, text=done.stdout)

    def read(self, path: str) -> str:
        return self.sh(f"cat {path}").text.strip()


@pytest.fixture
def machine(tmp_path: Path) -> Any:
    for name, text in {
        "mm/numa/demotion_gate/policy": "[auto] always never\n", "debug/demotion_gate/rebuilds": "3\n",
        "system/node/node0/demotion_targets": "1-2\n",
        "system/node/node12/demotion_targets": "\n", "tracing/trace": TRACE,
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return Played(tmp_path)


def test_a_policy_that_does_not_take_is_an_error(machine: Any) -> None:
    with pytest.raises(LabError, match="always"):
        gate.set_policy(machine, "always")  # a plain file is then without brackets


def test_the_targets_of_every_node_even_of_only_one(machine: Any) -> None:
    assert gate.targets(machine) == {0: "1-2", 12: ""}
    (machine.top / "system/node/node0/demotion_targets").unlink()
    assert gate.targets(machine) == {12: ""}


def test_rebuilds_are_read_from_debugfs(machine: Any) -> None:
    assert gate.rebuilds(machine) == 3


def test_a_wait_is_counted_once_by_its_caller_or_its_stack(machine: Any) -> None:
    """With or without stacks it is the same, and a task's name is neither."""
    assert gate.waits(machine) == (6, 4)
    (machine.top / "tracing/trace").write_text("".join(TRACE.splitlines(True)[:3]))
    assert gate.waits(machine) == (2, 1)
    assert (machine.top / "tracing/tracing_on").read_text() == "1\n"


def test_without_a_trace_nothing_is_counted(machine: Any) -> None:
    (machine.top / "tracing/trace").unlink()
    with pytest.raises(LabError, match="synchronize_rcu"):
        gate.waits(machine)
