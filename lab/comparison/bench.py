# SPDX-License-Identifier: GPL-2.0
"""The comparison: randomised blocks of boots, in which stock and series kernels do the same work.

A block boots each kernel once, in random order. In a series boot the policies take turns on the running kernel, in
random order, so that they share the boot; stock has boots of its own. `stock2` and `auto2` are the same kernel and
policy a second time: what differs between them and `stock` and `auto` is noise, and the report says how much there is.

Each boot's numbers are kept when it ends. A run that was stopped goes on with the boots that are missing.
"""

import argparse
import hashlib
import json
import math
import os
import platform
import random
import re
import subprocess
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from lab.common import ROOT, SEED, LabError, console, count, launch, say
from lab.comparison import report, stats
from lab.comparison.runs import DATA, Design, Part, design_of, kind_of, load_plan, policy_of, write_plan
from lab.comparison.stats import OK, Row
from lab.guests import gate
from lab.guests.guest import TOPOLOGIES, Guest, boot as boot_guest, find_topology
from lab.kernels import build, trees
from lab.kernels.trees import Kernel

TRACE = "debug"  # the kernel variant that counts and does not time
_TABLE = tomllib.loads(Path(__file__).with_name("designs.toml").read_text())
DESIGNS = {name: design_of({"name": name, **words}) for name, words in _TABLE["designs"].items()}
SHAPES: dict[str, dict[str, Any]] = _TABLE["shapes"]
SUSPEND = {  # metric: from which message of the kernel's, to which
    "suspend_ms": ("PM: suspend entry", "PM: suspend exit"),
    "cpus_off_ms": ("Disabling non-boot CPUs", r"CPU \d+ is now offline"),
    "cpus_on_ms": ("Enabling non-boot CPUs", r"CPU\d+ is up"),
}


@dataclass
class Slot:
    """One arm's turn at one scenario in a boot, and what it measures."""

    guest: Guest
    design: Design
    cpus: int
    blank: Row  # whose slot it is
    memory_block: str = ""  # the block that is toggled; one for all arms of this boot
    rows: list[Row] = field(default_factory=list)

    def add(self, metric: str, value: float, **more: Any) -> None:
        self.rows.append(self.blank._replace(metric=metric, value=value, **more))


def toggle(slot: Slot, what: str, cycles: int, *, timeout: float = 120) -> None:
    """Run the guest's toggle program: one row an event."""
    # Named, as a block that toggle looks for itself would be tried by events that no row stands for.
    blocks = f" --blocks {slot.memory_block}" if what == "memory" and slot.memory_block else ""
    text = slot.guest.sh(f"toggle {what} --cycles {cycles}{blocks}", timeout=timeout).text
    for cycle, target, action, ns, result in re.findall(r"^\w+,(\d+),(\d+),(\w+),(\d+),(\w+)\s*$", text, re.M):
        slot.add(f"{action}_ms", int(ns) / 1e6, cycle=int(cycle), target=target, result=result)


def stress_command(design: Design, cpus: int) -> str:
    share, relative, _ = design.stress_workers.partition("%")
    workers = max(1, cpus * int(share) // 100) if relative else int(share)
    return f"stress-ng --memhotplug {workers} --timeout {design.stress_seconds} --metrics-brief --temp-path /tmp"


def memhotplug(slot: Slot) -> None:
    command = stress_command(slot.design, slot.cpus)
    text = slot.guest.sh(f"{command} 2>&1", timeout=slot.design.stress_seconds + 60).text
    if not (found := re.search(r"\bmemhotplug\s+(\d+)(?:\s+[\d.]+){3}\s+([\d.]+)\s", text)):
        raise LabError("stress-ng --memhotplug", expected="a line of metrics", found=text[-400:], do="read the log")
    slot.add("ops_count", int(found[1]))
    slot.add("ops_per_sec", float(found[2]))


def smt(slot: Slot) -> None:
    """All but one CPU offlined one after another, then onlined again; beside the single events, the whole switch."""
    toggle(slot, "smt", slot.design.smt_cycles, timeout=300)
    for cycle in range(slot.design.smt_cycles):
        for action in ("off", "on"):
            wanted = (f"{action}_ms", cycle, OK)
            if events := [row.value for row in slot.rows if (row.metric, row.cycle, row.result) == wanted]:
                slot.add(f"switch_{action}_ms", sum(events), cycle=cycle)


def suspend_times(log: str) -> dict[str, float]:
    """Milliseconds, from the kernel's own messages, of one pm_test=processors cycle."""
    times = {}
    for metric, marks in SUSPEND.items():
        starts, ends = (re.findall(rf"^(?:<\d+>)?\[\s*(\d+\.\d+)\].*{mark}", log, re.M) for mark in marks)
        if starts and ends:
            times[metric] = 1000 * (float(ends[-1]) - float(starts[-1]))
    return times


def suspend(slot: Slot) -> None:
    slot.guest.sh("echo 0 >/sys/module/suspend/parameters/pm_test_delay; echo processors >/sys/power/pm_test")
    for cycle in range(slot.design.suspend_cycles):
        times = suspend_times(slot.guest.sh("dmesg -c >/dev/null; echo mem >/sys/power/state; dmesg").text)
        if not times:
            raise LabError("suspend", expected="PM: messages in dmesg", found="none", do="read the guest's log")
        for metric, value in times.items():
            slot.add(metric, value, cycle=cycle)


def node(slot: Slot) -> None:
    """Node 1 has one block of memory, in a DIMM: when it goes, the node's last goes; when it comes, the first comes.

    First by single writes, each looked at when it is over, for the picture; then in cycles, for the times.
    """
    guest, look = slot.guest, Path(__file__).with_name("look.sh").read_text()
    text = guest.sh(look).text
    dimm = guest.plug(guest.block_size())
    block = guest.sh("cd /sys/devices/system/node/node1 && echo memory*").text.strip()
    write = f">/sys/devices/system/memory/{block}/state; look;"
    text += guest.sh(look + f"for _ in 1 2; do echo offline {write} echo online_movable {write} done").text
    slot.memory_block = block.removeprefix("memory")
    toggle(slot, "memory", slot.design.node_cycles)
    guest.unplug(dimm)
    seen = re.findall(r"^seen,([\d.]+),(\S*),(\d*),(\d*)\s*$", text, re.M)
    for up, nodes, *rest in seen:
        for metric, value in zip(("nodes", "open", "rebuilds"), ("2" if nodes == "0-1" else "1", *rest)):
            if value:
                slot.add(f"seen_{metric}_count", float(value), at=float(up) - float(seen[0][0]))


SCENARIOS: dict[str, Callable[[Slot], None]] = {
    "memory": lambda slot: toggle(slot, "memory", slot.design.memory_cycles),
    "cpu": lambda slot: toggle(slot, "cpu", slot.design.cpu_cycles),
    "memhotplug": memhotplug, "smt": smt, "suspend": suspend, "node": node}


def waits(slot: Slot) -> None:
    """Count the grace periods that a few events wait for, and those of the demotion code.

    The function tracer slows every event, so this is done in boots of their own, which are not timed.
    """
    gate.trace(slot.guest)
    toggle(slot, slot.blank.scenario, slot.design.traced_cycles, timeout=180)
    tried, slot.rows = slot.rows, []
    slot.add("counted_events_count", sum(row.result == OK for row in tried))
    everyone, own = gate.waits(slot.guest)
    slot.add("waits_count", everyone)
    slot.add("demotion_waits_count", own)


@dataclass(frozen=True)
class Boot:
    index: int
    block: int
    part: int
    image: str  # "stock" or "series"
    arms: tuple[str, ...]
    seed: int


def plan_boots(design: Design, seed: int) -> list[Boot]:
    """All boots in order: blocks one after another; in a block, the parts and their boots shuffled."""
    rng = random.Random(seed)
    boots: list[Boot] = []
    for block in range(max(part.blocks for part in design.parts)):
        here: list[tuple[int, tuple[str, ...]]] = []
        parts = [index for index, part in enumerate(design.parts) if block < part.blocks]
        rng.shuffle(parts)
        for index in parts:  # a block's boots of one part stay together: they share the host's mood
            arms = design.parts[index].arms
            group: list[tuple[str, ...]] = [(arm,) for arm in arms if kind_of(arm) == "stock"]
            if gated := tuple(arm for arm in arms if kind_of(arm) == "series"):
                group.append(gated)
            rng.shuffle(group)
            here += [(index, turn) for turn in group]
        for index, turn in here:
            boots.append(Boot(len(boots), block, index, kind_of(turn[0]), turn, rng.randrange(2**31)))
    return boots


def slots(boot: Boot, part: Part) -> list[tuple[str, str]]:
    """(scenario, arm) in the boot's order: in a round, arms of one scenario follow each other, both in random order."""
    rng = random.Random(boot.seed)
    order = []
    for _ in range(part.rounds):
        for scenario in rng.sample(part.scenarios, len(part.scenarios)):
            order += [(scenario, arm) for arm in rng.sample(boot.arms, len(boot.arms))]
    return order


def measure(image: Path, design: Design, boot: Boot, log: Path) -> tuple[list[Row], list[str]]:
    """One boot: its rows, and its QEMU command line."""
    part, series = design.parts[boot.part], boot.image == "series"
    last = Row(boot.block, boot.index, part.name, boot.image, boot.arms[0])
    rows: list[Row] = []
    with boot_guest(image, part.topology, cpus=part.cpus, log=log, at_once=True) as guest:
        # Silence on the console, and away with a boot's first events, which find cold caches.
        text = guest.sh("dmesg -n 1; toggle cpu --cycles 2; toggle memory --cycles 2", timeout=60, check=False).text
        block = ["", *re.findall(rf"^memory,\d+,(\d+),.*,{OK}\s*$", text, re.M)][-1]
        if part.variant != TRACE:  # when did the kernel start init, by its own clock?
            text = guest.sh("dmesg | grep 'Run .* as init process' | head -n 1", timeout=20, check=False).text
            if found := re.search(r"\[\s*(\d+\.\d+)\]", text):
                rows.append(last._replace(arm="auto" if series else last.arm, metric="init_s", value=float(found[1])))
        cpus = int(guest.sh("grep -c ^processor /proc/cpuinfo", timeout=20).text)
        for place, (scenario, arm) in enumerate(slots(boot, part)):
            slot = Slot(guest, design, cpus, last._replace(arm=arm, slot=place, scenario=scenario), block)
            if series:
                gate.set_policy(guest, policy_of(arm))
            if part.variant == TRACE:
                waits(slot)
            else:
                before = gate.rebuilds(guest) if series else 0
                SCENARIOS[scenario](slot)
                if series:
                    slot.add("rebuilds_count", gate.rebuilds(guest) - before)
            rows += slot.rows
        command = [str(word) for word in guest.process.args]  # type: ignore[union-attr]  # it is a list
    return [*rows, last], command


def digests(images: dict[str, Path]) -> dict[str, str]:
    return {kind: hashlib.sha256(image.read_bytes()).hexdigest() for kind, image in images.items()}


def make_plan(design: Design, seed: int, images: dict[str, Path], *, name: str, version: str, keeper: str) -> dict:
    """What is done, and what a reader needs to judge or repeat the numbers."""

    def first(command: str) -> str:
        said = subprocess.run(f"{command} || echo unknown", shell=True, cwd=ROOT, capture_output=True, text=True).stdout
        return said.partition("\n")[0]

    cpu_model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    return {
        "design": asdict(design), "seed": seed, "digests": digests(images),
        "kernel": {"name": name, "version": version, "keeper": keeper},
        "boots": [asdict(boot) for boot in plan_boots(design, seed)],
        "environment": {
            "kernel": f"{name} ({version})",
            "repository": first("git describe --always --dirty"),
            "host CPU": f"{cpu_model[1] if cpu_model else platform.machine()}, {os.cpu_count()} online",
            "host kernel": platform.release(),
            "QEMU": first("qemu-system-x86_64 --version"), "compiler": first("gcc --version"),
            "stress-ng": first("stress-ng --version"), "Python": platform.python_version(),
            **{library: metadata.version(library) for library in ("scipy", "numpy", "matplotlib")},
        },
        "commands": {}, "started": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }  # fmt: skip


def same_run(plan: dict, design: Design, seed: int, images: dict[str, Path]) -> bool:
    """May these go on where `plan` stopped?"""
    wanted = json.loads(json.dumps([asdict(design), seed, digests(images)]))
    return [plan["design"], plan["seed"], plan["digests"]] == wanted


def image_name(kind: str, variant: str) -> str:
    return f"{kind}-{variant}".removesuffix("-plain")


def images_of(kernel: Kernel, design: Design) -> dict[str, Path]:
    """The kernels the design boots, built if need be: stock first, as the series begins with its objects."""
    kinds = {(kind_of(arm), part.variant) for part in design.parts for arm in part.arms}
    return {image_name(*each): build.image(kernel, *each) for each in sorted(kinds, reverse=True)}


def begin(out: Path, kernel: Kernel, design: Design, seed: int, images: dict[str, Path]) -> tuple[dict, set[int]]:
    """The plan of the run in `out`, made if it is new, and the boots that are done."""
    out.mkdir(parents=True, exist_ok=True)
    plan = load_plan(out)
    if not plan:
        plan = make_plan(design, seed, images, name=kernel.name, version=kernel.version, keeper=kernel.keeper)
        write_plan(out, plan)
    elif not same_run(plan, design, seed, images):
        found = f"design {plan['design']['name']}, seed {plan['seed']}, or other kernels, from {plan['started']}"
        raise LabError(str(out), expected="a run of this design, seed and these kernels, or no run", found=found,
                       do="name another folder with --out, or remove this one")
    for kind, image in images.items():
        if config := next((file for folder in image.parents if (file := folder / ".config").exists()), None):
            (out / f"config-{kind}").write_bytes(config.read_bytes())
    kept = stats.read_rows(out / DATA)
    fresh = out / f"{DATA}.new"  # without what a stopped boot may have left
    fresh.unlink(missing_ok=True)
    stats.write_rows(fresh, kept)
    fresh.rename(out / DATA)
    return plan, {row.boot for row in kept}


def run(kernel: Kernel, design: Design, out: Path, *, seed: int = SEED) -> Path:
    """Measure what is missing of the run in `out`; returns its data.csv."""
    images = images_of(kernel, design)
    plan, done = begin(out, kernel, design, seed, images)
    boots = plan_boots(design, seed)
    missing = [boot for boot in boots if boot.index not in done]
    if done and missing:
        say(f"going on with {out}: {len(done)} of {len(boots)} boots are done")
    took: dict[tuple[int, str], float] = {}  # the seconds of the latest boot of a kind
    for boot in missing:
        part = design.parts[boot.part]
        kind = image_name(boot.image, part.variant)
        left = [took.get((each.part, each.image), 0) for each in missing if each.index >= boot.index]
        about = f", about {math.ceil(sum(left) / 60)} min left" if all(left) else ""
        what = (f"boot {boot.index + 1} of {len(boots)}: {part.name}, block {boot.block + 1} of {part.blocks}, {kind}"
                f" ({', '.join(part.scenarios)}; {', '.join(boot.arms)}){about}")
        log = out / "logs" / f"boot-{boot.index:03d}-{part.name.replace('/', '-')}-{kind}.log"
        log.parent.mkdir(exist_ok=True)
        began = time.monotonic()
        if not console.is_terminal:
            say(what)
        with console.status(what):  # nothing, if this is no terminal
            rows, command = measure(images[kind], design, boot, log)
        stats.write_rows(out / DATA, rows)
        took[boot.part, boot.image] = time.monotonic() - began
        if plan["commands"].setdefault(f"{part.name} {kind}", command) is command:
            write_plan(out, plan)
    return out / DATA


def choose(design: Design, scenarios: Sequence[str] = (), topologies: Sequence[str] = (), shape: str = "") -> Design:
    """The design, cut down to what was asked for, or with what it lacks taken from the default design."""
    if shape:
        design = design_of({**asdict(design), "name": f"{design.name}-{shape}", **SHAPES[shape]})
    cut = list(design.parts)
    if scenarios:
        have = {name for part in cut for name in part.scenarios}
        cut += [part for part in DESIGNS["default"].parts if not have & {*part.scenarios}]
        cut = [replace(part, scenarios=names) for part in cut
               if (names := tuple(name for name in part.scenarios if name in scenarios))]  # fmt: skip
    parts = [part for part in cut if not topologies or {part.topology, part.name} & {*topologies}]
    for wanted in topologies:  # one that no part has does the work of the first
        if not any(wanted in (part.topology, part.name) for part in parts):
            topology, _, cpus = wanted.partition("/")
            parts.append(replace(cut[0], topology=topology, cpus=int(cpus) if cpus else None))
    return replace(design, parts=tuple(parts))


def run_folder(kernel: Kernel, design: Design, seed: int) -> Path:
    """The folder of an unfinished run of the same design and seed, else a new one."""
    base = kernel.build / "bench"
    for old in sorted(base.glob(f"{design.name}-*"), reverse=True):
        plan, done = load_plan(old), {row.boot for row in stats.read_rows(old / DATA)}
        unfinished = plan and len(done) < len(plan["boots"])
        if unfinished and same_run(plan, design, seed, images_of(kernel, design)):
            return old
    return base / f"{design.name}-{time.strftime('%Y%m%d-%H%M%S')}"


def place(word: str) -> str:
    """For argparse: TOPOLOGY or TOPOLOGY/CPUS."""
    name, _, cpus = word.partition("/")
    find_topology(name, count(cpus) if cpus else None)
    return word


def parser() -> argparse.ArgumentParser:
    words = trees.command("lab.comparison.bench", __doc__)
    add = words.add_argument
    add("--design", choices=DESIGNS, default="default", help="how much is measured (default: %(default)s)")
    add("--shape", choices=SHAPES, default="", help="the shape of a known report instead of the design's own parts")
    add("--scenarios", nargs="+", choices=SCENARIOS, default=[], help="these alone")
    add("--topologies", nargs="+", type=place, default=[], metavar="TOPOLOGY[/CPUS]",
        help=f"these alone, of {', '.join(TOPOLOGIES)}, with so many CPUs")  # fmt: skip
    add("--blocks", type=count, help="as many blocks in every part")
    add("--seed", type=int, default=SEED, help="of the order of the boots (default %(default)s)")
    add("--plan", type=Path, help="repeat the run that has this plan.json: its design and seed")
    add("--out", type=Path, help="the run's folder (default: a new one, or one that was stopped)")
    return words


def main(given: argparse.Namespace) -> None:
    if given.plan:
        plan = json.loads(given.plan.read_text())
        design, seed = design_of(plan["design"]), plan["seed"]
    else:
        design = choose(DESIGNS[given.design], given.scenarios, given.topologies, given.shape)
        seed = given.seed
    if given.blocks:
        design = replace(design, parts=tuple(replace(part, blocks=given.blocks) for part in design.parts))
    kernel = trees.chosen(given)[0]
    out = given.out or run_folder(kernel, design, seed)
    try:
        run(kernel, design, out, seed=seed)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; the same command goes on from what is in {out}") from None
    finally:
        if stats.read_rows(out / DATA):
            report.show(out)


if __name__ == "__main__":
    launch(main, parser())
