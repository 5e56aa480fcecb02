# SPDX-License-Identifier: GPL-2.0
"""The demotion gate of a guest: its files, and the grace periods that the demotion code waits for."""

import re
from pathlib import Path

from lab.common import LabError
from lab.guests.guest import Guest

SYSFS = "/sys/kernel/mm/numa/demotion_gate"
DEBUGFS = "/sys/kernel/debug/demotion_gate"
POLICIES = ("auto", "always", "never")
TRACING = "/sys/kernel/tracing"
TRACED = "ftrace=function ftrace_filter=synchronize_rcu trace_buf_size=8M"  # boot words: from before the first initcall
WAITS = Path(__file__).with_name("waits.awk").read_text()


def state(machine: Guest) -> tuple[str, int]:
    """The policy, and whether the gate is open."""
    policy = re.search(r"\[(\w+)\]", machine.read(f"{SYSFS}/policy"))
    return policy[1] if policy else "?", int(machine.read(f"{SYSFS}/open"))


def set_policy(machine: Guest, policy: str) -> None:
    text = machine.sh(f"echo {policy} >{SYSFS}/policy && cat {SYSFS}/policy", timeout=120).text
    if f"[{policy}]" not in text:
        raise LabError(f"{SYSFS}/policy", expected=f"[{policy}]", found=text.strip(), do="is this the series kernel?")


def rebuilds(machine: Guest) -> int:
    """How often the targets were built since boot."""
    return int(machine.read(f"{DEBUGFS}/rebuilds"))


def targets(machine: Guest) -> dict[int, str]:
    """Each node's demotion targets, as sysfs has them."""
    text = machine.sh("cd /sys/devices/system/node && grep -H '' node[0-9]*/demotion_targets").text
    return {int(node): found for node, found in re.findall(r"^node(\d+)/demotion_targets:(.*?)\s*$", text, re.M)}


def trace(machine: Guest) -> None:
    """Begin to trace grace periods, with stacks. It slows every event."""
    machine.sh(f"cd {TRACING} && echo synchronize_rcu >set_ftrace_filter && echo 1 >options/func_stack_trace && "
               "echo function >current_tracer && echo >trace")  # fmt: skip


def waits(machine: Guest) -> tuple[int, int]:
    """The grace periods waited for since tracing began: all, and those of the demotion code."""
    text = machine.sh(f"cd {TRACING} && echo 0 >tracing_on && awk '{WAITS}' trace; echo 1 >tracing_on").text
    if not (found := re.search(r"^waits (\d+) (\d+)$", text, re.M)):
        raise LabError(f"{TRACING} in the guest", expected="calls of synchronize_rcu()", found=text, do="read the log")
    return int(found[1]), int(found[2])
