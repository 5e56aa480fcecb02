# SPDX-License-Identifier: GPL-2.0
"""`make bench HERE=1`: the comparison on the machine it runs on, by switching the gate's policy.

What touches the machine is here.sh and toggle.c, which need no Python; this module builds the one, runs the other, and
writes the same kind of report as for guests. The machine is not booted between turns, so its rounds are the blocks:
what is found holds for this machine as it was booted, and `auto2`, which is `auto` again, says how much of it is noise.
"""

import argparse
import os
import platform
import re
import subprocess
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from lab.checks.results import Results, expect
from lab.common import BUILD, count, launch, say
from lab.comparison import bench, report, runs, stats
from lab.comparison.runs import Design, Part
from lab.comparison.stats import Row
from lab.guests import gate
from lab.guests.guest import Guest, boot, guest_programs
from lab.kernels import build, trees
from lab.kernels.trees import Kernel

SCRIPT = Path(__file__).with_suffix(".sh")
TOPOLOGY = "here"
ARMS = "auto always never auto2 always2 never2"
USUAL = "auto always never auto2"
SCENARIOS = "cpu memory"
CHOICES = ("rounds", "cycles", "arms", "scenarios", "cpus", "blocks", "count", "seed")
YES = "sh /bin/here.sh --yes"  # in the guest that proves it
UNTOUCHED = "policy, CPUs, blocks, console and notes as they were"
TABLE = tomllib.loads(SCRIPT.with_suffix(".toml").read_text())
SNAPSHOT = TABLE["look"].format(gate=gate.SYSFS)


def parse(lines: Iterable[str], arms: Sequence[str], scenarios: Sequence[str]) -> list[Row]:
    """The script's table as rows of a run: a round is a block and, in place of a boot, the unit that is counted.

    Only of rounds in which every policy had its turn, each with the mark of a finished one.
    """
    rounds: dict[int, list[Row]] = defaultdict(list)
    for line in lines:
        fields = line.strip().split(",")
        if len(fields) == 9 and fields[0].isdigit():
            block, arm, slot, scenario, cycle, target, action, value, result = fields
            timed = action in ("off", "on")
            metric, number = (f"{action}_ms", int(value) / 1e6) if timed else (f"{action}_count", float(value))
            place = (int(block), int(block), TOPOLOGY, "series", arm, int(slot), scenario)
            rounds[int(block)].append(Row(*place, metric, int(cycle), target, 0.0, result, number))
    turns = {(arm, scenario) for arm in arms for scenario in scenarios}
    whole = [rows for _, rows in sorted(rounds.items()) if {(row.arm, row.scenario) for row in rows} == turns]
    return [row for rows in whole for row in (*rows, Row(*rows[-1][:6]))]


def choices(options: argparse.Namespace) -> list[str]:
    """What was chosen, as the script takes it and this command does."""
    given = ((name, getattr(options, name, None)) for name in CHOICES)
    return [word for name, value in given if value is not None for word in (f"--{name}", str(value))]


def make_plan(options: argparse.Namespace, arms: tuple[str, ...], scenarios: tuple[str, ...]) -> dict:
    part = Part(TOPOLOGY, scenarios, arms, options.rounds)
    design = Design(TOPOLOGY, (part,), cpu_cycles=options.cycles, memory_cycles=options.cycles)
    plan = bench.make_plan(design, options.seed, {}, name=TOPOLOGY, version=platform.release(), keeper="")
    nodes = Path("/sys/devices/system/node/has_memory")
    plan["environment"] |= {"kernel": f"{platform.release()}, the one that runs",
                            "nodes with memory": nodes.read_text().strip() if nodes.exists() else "unknown"}
    return {**plan, "repeat": ["-m", "lab.comparison.here", *choices(options)]}


def _killed(machine: Guest, before: str) -> None:
    """A kill -9 leaves a CPU off, the next run says what to do, and that puts it back."""
    kill = (f"{YES} --rounds 500 --scenarios cpu >/dev/null 2>&1 & sleep 2.{{}}; kill -9 $!; killall -9 toggle;"
            " cat /sys/devices/system/cpu/online")
    for attempt in range(20):  # until one is killed while its CPU is off
        left = machine.sh(kill.format(attempt), check=False).text.split()[-1]
        again = machine.sh(YES, check=False, timeout=120).text
        assert "--restore" in again, again
        machine.sh("sh /bin/here.sh --restore 2>&1", timeout=120)
        expect(UNTOUCHED, before, machine.sh(SNAPSHOT).text)
        if left != "0-3":
            return
    raise AssertionError("20 kills, and never one while a CPU was off")


def prove(results: Results, kernel: Kernel) -> None:
    """That the live comparison leaves a machine as it found it, however it ends: tried in a guest."""
    logs = kernel.build / "check"
    with boot(build.image(kernel, "series"), "one", log=logs / "here-series.console") as machine:
        machine.put("/bin/here.sh", SCRIPT.read_bytes())
        gate.set_policy(machine, "always")
        machine.sh("dmesg -n 4")
        before = machine.sh(SNAPSHOT).text
        with results.case(f"{kernel.name} here: a whole run"):
            said = machine.sh(f"{YES} --rounds 2 --cycles 3", check=False, timeout=120).text
            rows = parse(said.splitlines(), USUAL.split(), SCENARIOS.split())
            assert len({row.block for row in rows}) == 2, said
            expect(UNTOUCHED, before, machine.sh(SNAPSHOT).text)
        for what, end in TABLE["ends"].items():
            with results.case(f"{kernel.name} here: {what}"):
                script = end["script"].format(yes=YES, endless=f"{YES} --rounds 500; echo status $?")
                said = machine.sh(script, check=False, timeout=120).text
                assert re.search(end["said"], said), said
                expect(UNTOUCHED, before, machine.sh(SNAPSHOT).text)
        with results.case(f"{kernel.name} here: kill -9, then --restore"):
            _killed(machine, before)
    with boot(build.image(kernel, "stock"), "one", log=logs / "here-stock.console") as machine:
        machine.put("/bin/here.sh", SCRIPT.read_bytes())
        with results.case(f"{kernel.name} here: a kernel without the gate is refused"):
            said = machine.sh(YES, check=False, timeout=120).text
            assert "does not have it" in said, said


def some_of(allowed: str, word: str) -> str:
    """For argparse: some of these words, in one."""
    if not word.split() or set(word.split()) - set(allowed.split()):
        raise argparse.ArgumentTypeError(f"expected some of '{allowed}', found '{word}'")
    return word


def parser() -> argparse.ArgumentParser:
    words = trees.command("lab.comparison.here", __doc__)
    add, usual = words.add_argument, "(default: %(default)s)"
    add("--rounds", type=count, default=8, help=f"how often every policy takes its turn {usual}")
    add("--cycles", type=count, default=20, help=f"off/on cycles in a turn {usual}")
    add("--arms", type=partial(some_of, ARMS), default=USUAL, help=f"policies; the 2 is the same again {usual}")
    add("--scenarios", type=partial(some_of, SCENARIOS), default=SCENARIOS, help=f"what goes off and on {usual}")
    add("--cpus", help="these CPUs: 2,3 (default: the last one)")
    add("--blocks", help="these memory blocks: 30,31 (default: the last that goes off and on in a trial)")
    add("--count", type=count, default=1, help=f"of the CPUs and blocks found by default, take so many {usual}")
    add("--seed", type=int, default=1, help=f"of the order of the turns {usual}")
    add("--yes", action="store_true", help="do not ask")
    add("--list", action="store_true", help="say what would be touched, and end")
    add("--restore", action="store_true", help="put back what a killed run left behind, and end")
    add("--out", type=Path, help="the run's folder")
    words.set_defaults(kernel=())  # on this machine there is a choice of none
    return words


def main(given: argparse.Namespace) -> int:
    command = ["sh", str(SCRIPT), *choices(given)]
    command += [f"--{name}" for name in ("yes", "list", "restore") if getattr(given, name)]
    link = BUILD / "here" / "bin" / "toggle"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(guest_programs()["toggle"])
    environment = {**os.environ, "PATH": f"{link.parent}:{os.environ['PATH']}"}
    if given.list or given.restore:
        return subprocess.run(command, env=environment).returncode

    out: Path = given.out or BUILD / "here" / "bench" / time.strftime("%Y%m%d-%H%M%S")
    out.mkdir(parents=True, exist_ok=True)
    raw = out / "raw.csv"  # as it is measured: what is done is not lost, whatever happens to this process
    stopped = False
    with raw.open("w") as table, subprocess.Popen(command, env=environment, stdout=table) as script:
        while script.returncode is None:
            try:
                script.wait()
            except KeyboardInterrupt:  # wait for the script, which puts the machine back
                stopped = True
                script.terminate()  # Ctrl-C has told it already, a signal to this process alone has not
    arms, scenarios = tuple(given.arms.split()), tuple(given.scenarios.split())
    if rows := parse(raw.read_text().splitlines(), arms, scenarios):
        runs.write_plan(out, make_plan(given, arms, scenarios))
        (out / runs.DATA).unlink(missing_ok=True)
        stats.write_rows(out / runs.DATA, rows)
        report.show(out)
        say("rounds stand in for boots: this machine was not booted between them")
    elif not raw.stat().st_size:
        raw.unlink()
        if not any(out.iterdir()):
            out.rmdir()
    return 130 if stopped else script.returncode


if __name__ == "__main__":
    launch(main, parser())
