# SPDX-License-Identifier: GPL-2.0
"""`make demo`: render, build, boot, compare, toggle the gate, report."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from lab.common import LabError, console, launch, say
from lab.comparison import bench, report
from lab.guests import gate, guest
from lab.kernels import build, trees
from lab.kernels.trees import Kernel
from lab.rendering import render


def step(number: int, what: str) -> None:
    say(f"\n[{number}/5] {what}")


def toggle(kernel: Kernel, image: Path) -> Table:
    """The gate in every topology, under each policy, as sysfs has it."""
    table = Table(title=f"The gate in sysfs, {kernel.name}", title_justify="left")
    for column in ("topology", "nodes with memory", *gate.POLICIES, "targets of node 0 (auto)"):
        table.add_column(column)
    for name in guest.TOPOLOGIES:
        log = kernel.build / "demo" / f"{name}.console"
        with guest.boot(image, name, log=log) as machine:
            if name == "hot-add":
                before = gate.state(machine)[1]
                machine.plug()
            nodes = machine.read("/sys/devices/system/node/has_memory")
            found: dict[str, str] = {}
            for policy in (*gate.POLICIES[1:], "auto"):
                gate.set_policy(machine, policy)
                found[policy] = "open" if gate.state(machine)[1] else "closed"
            if name == "hot-add":
                found["auto"] = f"{'open' if before else 'closed'}, then a DIMM: {found['auto']}"
            states = (found[policy] for policy in gate.POLICIES)
            table.add_row(name, nodes, *states, gate.targets(machine)[0] or "none")
        say(f"  {name}: booted, toggled, powered off")
    return table


def parser() -> argparse.ArgumentParser:
    return trees.command("lab.comparison.demo", __doc__)


def main(given: argparse.Namespace) -> None:
    start = time.monotonic()
    step(1, "the source, and the series rendered for it")
    kernel = trees.chosen(given)[0]
    say(f"  {kernel.name}: {kernel.version}, keeps node_demotion[] in {kernel.keeper}")
    rendering = render.render(kernel)
    try:
        patches = render.series(kernel, rendering=rendering)
        say(f"  {len(patches)} patches in {patches[0].parent}")
    except LabError as error:  # git does not know who would send them, and the demo itself does not need them
        say(f"  no patches for `git am` written, the rest goes on:\n{error}")
    kernel = replace(kernel, files=rendering.files())  # rendering takes seconds: once is enough

    step(2, "the stock kernel and the series kernel (a first build takes minutes, later ones reuse it)")
    build.image(kernel, "stock")
    image = build.image(kernel, "series")

    step(3, "the gate, in all topologies")
    table = toggle(kernel, image)

    step(4, "stress-ng memhotplug, memory blocks and CPUs off and on: stock, auto, always")
    design = bench.DESIGNS["quick"]
    out = bench.run_folder(kernel, design, bench.SEED)
    bench.run(kernel, design, out)

    step(5, "the report")
    page = report.write(out)
    console.print(table)
    report.table(out)
    say(f"\nreport: {page}")
    say(f"took {(time.monotonic() - start) / 60:.1f} minutes; again, it builds nothing and measures anew")


if __name__ == "__main__":
    launch(main, parser())
