# SPDX-License-Identifier: GPL-2.0
"""What the series fixes, in both directions: each fault is seen on the stock kernel and is gone with the series.

A fault that the stock kernel does not show has proved nothing about the series: that is a failure, or a declared skip.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab.checks.results import Results
from lab.common import LabError
from lab.guests import guest
from lab.guests.guest import Guest
from lab.kernels import build
from lab.kernels.trees import Kernel

TIERING = "/proc/sys/kernel/numa_balancing"
DEMOTION = "/sys/kernel/mm/numa/demotion_enabled"
CPU = "/sys/devices/system/cpu/cpu2/online"  # of the slow node
FULL_MIB = 445  # fills node 0 of `tiered` but for what it needs to go on


def vmstat(machine: Guest, name: str) -> int:
    return int(machine.sh(f"grep -w {name} /proc/vmstat").text.split()[1])


def stale_access_time(machine: Guest) -> str:
    """Access times are left on a slow node's pages, its CPU comes, and then the pages are used."""
    machine.sh(f"echo 2 >{TIERING}; (taskset 1 pages use 1 64 15 /run/go &); sleep 30", timeout=90)
    machine.sh(f"echo 1 >{CPU}")
    machine.plug(128 << 20, 2)  # on the stock kernel it takes a node event for the tiers to be looked at again
    machine.sh(">/run/go; sleep 12")
    return ""


def nodelist_deadlock(machine: Guest) -> str:
    """A tier's nodelist is read all the time while its last node goes."""
    dimm = machine.plug()
    files = "/sys/devices/virtual/memory_tiering/memory_tier*/nodelist"
    reader = f"while :; do for file in {files}; do cat $file >/dev/null 2>&1; done; done"
    machine.sh("".join(f"({reader}) & " for _ in range(4)) + "echo started")
    for _ in range(8):
        if refusal := machine.remove_dimm(dimm, 25):
            blocked = machine.sh("echo w >/proc/sysrq-trigger; sleep 1; dmesg | grep -c 'state:D'", check=False).text
            return f"{refusal}; blocked tasks: {blocked.strip()}"
        dimm = machine.plug()
    return ""


def wrong_promotion(machine: Guest) -> str:
    """A slow node has got a CPU: nothing is to be promoted from it any more."""
    machine.sh(f"echo 2 >{TIERING}; cd /sys/kernel/debug/sched/numa_balancing; "
               "echo 100 >scan_delay_ms; echo 100 >scan_period_min_ms")  # fmt: skip
    machine.sh("taskset 1 pages use 1 32 25", timeout=90)
    before = vmstat(machine, "pgpromote_success")
    if not before:
        raise machine.error("pages of the slow node to be promoted while it has no CPU", "none was", False)
    machine.sh(f"echo 1 >{CPU}; taskset 1 pages use 1 32 25", timeout=90)
    more = vmstat(machine, "pgpromote_success") - before
    return f"{more} pages promoted from a node with CPUs, after {before} before it had one" if more else ""


def never_demoted(machine: Guest) -> str:
    """Node 0 is full and its kswapd has given up, then demotion is switched on."""
    machine.sh(f"echo 0 >{DEMOTION}; pages keep 0 {FULL_MIB} 0", timeout=90)
    for _ in range(40):
        if re.search(r"DMA32.*?node_unreclaimable:\s+1", machine.read("/proc/zoneinfo").split("Node 1,")[0], re.S):
            break
        machine.sh("pages keep 0 1 100000")
    else:
        raise machine.error("kswapd of node 0 to give up on a full node", "it did not", False)
    time.sleep(1)
    machine.sh(f"echo 1 >{DEMOTION}; pages keep 0 40 50000", timeout=90)
    return "" if vmstat(machine, "pgdemote_kswapd") else "kswapd demoted nothing under pressure of 40 MiB"


@dataclass(frozen=True)
class Fault:
    """A fault of the stock kernel, and what a guest shows of it: "" if nothing."""

    name: str
    topology: str
    show: Callable[[Guest], str]
    file: str  # has the pattern in a tree that can have the fault
    pattern: str
    crash: str = ""  # where the guest dies of it


FAULTS = (
    Fault("a cpupid that is an access time", "slow-cpus", stale_access_time, "kernel/sched/fair.c", "cpupid_valid",
          "task_numa_fault|should_numa_migrate_memory"),
    Fault("a nodelist that is read while its tier goes", "hot-add", nodelist_deadlock,
          "mm/memory-tiers.c", "destroy_memory_tier"),
    Fault("promotion from a node that has got a CPU", "slow-cpus", wrong_promotion,
          "mm/memory-tiers.c", "mt_calc_adistance"),
    Fault("demotion switched on after kswapd gave up", "tiered", never_demoted,
          "mm/vmscan.c", "pgdat->kswapd_failures = 0"),
)  # fmt: skip


def seen(kernel: Kernel, which: str, fault: Fault, logs: Path) -> str:
    """What a guest shows. One that has crashed as it must ends with an error, and one that hangs does not power off."""
    found, log = "", logs / f"fix-{fault.name.replace(' ', '-')}-{which}.console"
    try:
        words = "panic_on_warn=0 oops=panic kunit.enable=0"
        with guest.boot(build.image(kernel, which), fault.topology, log=log, append=words, at_once=True) as machine:
            found = fault.show(machine)
    except LabError as error:
        if fault.crash and (crash := re.search(fault.crash, str(error))):
            found = found or f"the guest died in {crash[0]}"
        if not found:
            raise
    return found


def gone(results: Results, kernel: Kernel, logs: Path, fault: Fault) -> None:
    name = f"{kernel.name}: {fault.name}"
    with results.case(f"{name}, gone with the series"):
        if found := seen(kernel, "series", fault, logs):
            raise LabError(name, expected="no fault with the series", found=found, do="the fix has come undone")


def both(results: Results, kernel: Kernel, logs: Path) -> None:
    for fault in FAULTS:
        name, file = f"{kernel.name}: {fault.name}", kernel.source / fault.file
        if not (file.exists() and re.search(fault.pattern, file.read_text())):
            results.skip(name, f"nothing in {fault.file} of this kernel matches {fault.pattern}")
            continue
        with results.case(f"{name}, seen on the stock kernel"):
            if not seen(kernel, "stock", fault, logs):
                expected = "the fault on the stock kernel, or this test proves nothing"
                do = "repeat it; if the tree has a fix of its own, say so in lab/checks/fixes.py"
                raise LabError(name, expected=expected, found="none", do=do)
        gone(results, kernel, logs, fault)
