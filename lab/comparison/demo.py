# SPDX-License-Identifier: GPL-2.0
"""`make demo`: render, build, boot, compare, toggle the gate, report."""

import argparse
import functools
import time
from dataclasses import replace
from pathlib import Path

from lab.common import LabError, launch, say
from lab.comparison import bench, report
from lab.guests import gate, guest
from lab.kernels import build, trees
from lab.kernels.trees import Kernel
from lab.rendering import render

STATES = ("closed", "open")


def toggle(kernel: Kernel, image: Path) -> report.Table:
    """The gate in every topology, under each policy, as sysfs has it."""
    rows = []
    for name in guest.TOPOLOGIES:
        log = kernel.build / "demo" / f"{name}.console"
        with guest.boot(image, name, log=log) as machine:
            before = ""
            if name == "hot-add":
                before = f"{STATES[gate.state(machine)[1]]}, then a DIMM: "
                machine.plug()
            nodes = machine.read("/sys/devices/system/node/has_memory")
            found = {}
            for policy in (*gate.POLICIES[1:], "auto"):
                gate.set_policy(machine, policy)
                found[policy] = STATES[gate.state(machine)[1]]
            found["auto"] = before + found["auto"]
            rows.append((name, nodes, *(found[policy] for policy in gate.POLICIES), gate.targets(machine)[0] or "none"))
        say(f"  {name}: booted, toggled, powered off")
    head = ("topology", "nodes with memory", *gate.POLICIES, "targets of node 0 (auto)")
    return report.Table(f"The gate in sysfs, {kernel.name}", head, rows)


parser = functools.partial(trees.command, "lab.comparison.demo", __doc__)


def main(given: argparse.Namespace) -> None:
    start = time.monotonic()
    say("\n[1/5] the source, and the series rendered for it")
    kernel = trees.chosen(given)[0]
    say(f"  {kernel.name}: {kernel.version}, keeps node_demotion[] in {kernel.keeper}")
    rendering = render.render(kernel)
    try:
        patches = render.series(kernel, rendering=rendering)
        say(f"  {len(patches)} patches in {patches[0].parent}")
    except LabError as error:  # git does not know who would send them, and the demo itself does not need them
        say(f"  no patches for `git am` written, the rest goes on:\n{error}")
    kernel = replace(kernel, files=rendering.files())  # rendering takes seconds: once is enough

    say("\n[2/5] the stock kernel and the series kernel (a first build takes minutes, later ones reuse it)")
    build.image(kernel, "stock")
    image = build.image(kernel, "series")

    say("\n[3/5] the gate, in all topologies")
    table = toggle(kernel, image)

    say("\n[4/5] stress-ng memhotplug, memory blocks and CPUs off and on: stock, auto, always")
    design = bench.DESIGNS["quick"]
    out = bench.run_folder(kernel, design, bench.SEED)
    bench.run(kernel, design, out)

    say("\n[5/5] the report")
    table.show()
    report.show(out)
    say(f"took {(time.monotonic() - start) / 60:.1f} minutes; again, it builds nothing and measures anew")


if __name__ == "__main__":
    launch(main, parser())
