# SPDX-License-Identifier: GPL-2.0
"""The configurations that the series must compile in; only what it touches is compiled."""

import re
import shutil
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.checks import lint
from lab.checks.lint import Scratch
from lab.checks.results import Results, expect
from lab.common import LabError, run as call
from lab.kernels.trees import Kernel
from lab.rendering import render

TABLE = tomllib.loads(Path(__file__).with_name("matrix.toml").read_text())
GATE_OBJECT = "mm/demotion_gate.o"
# What of the rebuild a kernel without it may not have.
REBUILD = (
    r"demotion_(?:gate|targets|top_tier)|node_demotion|establish_"
    r"|set_migration_target_nodes|migrate_targets|migrate_on_reclaim|migration_(?:on|off)line_cpu"
)


@dataclass(frozen=True)
class Case:
    """A configuration; the table says what each word means."""

    name: str
    toolchain: str = "gcc"
    without: str = ""
    along: Sequence[str] = ()
    minimal: bool = False


def cases(kernel: Kernel) -> list[Case]:
    """x86 may have no choice about HOTPLUG_CPU other than to have one CPU; arm64 has it."""
    x86 = (kernel.source / "arch/x86/Kconfig").read_text()
    forced = re.search(r"^config HOTPLUG_CPU\n\s+def_bool y", x86, re.M)
    able = "arm64" if forced else "gcc"
    found = [Case(name, **words) for name, words in TABLE["case"].items()]
    return [case for case in found if case.without != "HOTPLUG_CPU" or case.toolchain == able]


def built(here: Scratch, objects: str, folders: Iterable[str]) -> set[str]:
    """The objects that a configuration has the folders build, asked of their makefiles."""
    obj = here.place / objects
    found: set[str] = set()
    for folder in folders:
        probe = f"include .config\ninclude {here.tree}/{folder}/Makefile\n$(info $(obj-y))\nall: ;\n"
        answer = call(["make", "-s", "-f", "-", f"srctree={here.tree}", f"src={folder}"], cwd=obj, stdin=probe).stdout
        found |= {f"{folder}/{name}" for name in answer.split() if name.endswith(".o")}
    return found


def try_case(here: Scratch, case: Case, touched: Iterable[str]) -> None:
    """Compile what a configuration has of the touched objects, and check that it has what it should."""
    kernel = here.kernel
    program, *words = TABLE["toolchain"][case.toolchain]
    words.append(lint.compiler(program))
    if not shutil.which(program):
        raise LabError(case.name, expected=program, found="no such program", do="run `make setup`")
    # Each has an object directory of its own, for its host programs take longest.
    objects = f"matrix-{case.toolchain}"
    off = "".join(f"# CONFIG_{name} is not set\n" for name in (case.without, *case.along) if name)
    text = lint.base_config(kernel) + off  # the last one counts
    symbols = here.configure(objects, "" if case.minimal else text, *words)
    if case.without:
        what = f"CONFIG_{case.without} of a configuration without it (turn off what selects it, see matrix.toml)"
        expect(what, "n", symbols.get(case.without, "n"))
    elif not case.minimal:
        expect("CONFIG_DEMOTION_GATE", "y", symbols.get("DEMOTION_GATE", "n"))
    wanted = sorted(set(touched) & built(here, objects, {str(Path(name).parent) for name in touched}))
    needed = ("NUMA", "MIGRATION", *(["HOTPLUG_CPU"] if kernel.keeper == "mm/migrate.c" else []))
    gate = all(symbols.get(name) == "y" for name in needed)
    expect(f"{GATE_OBJECT} is built", gate, GATE_OBJECT in wanted)
    lint.no_lines("warnings", here.compile(objects, wanted, *words).elements())
    for name in wanted if not gate else ():
        listed = call(["nm", here.place / objects / name]).stdout.splitlines()
        lint.no_lines(f"symbols of the rebuild in {name}", (line for line in listed if re.search(REBUILD, line)))


def run(kernel: Kernel, results: Results) -> None:
    rendering = render.render(kernel)
    texts = {path: data for path, data in rendering.files().items() if lint.in_kernel(path)}
    touched = lint.objects_of(texts, texts)
    with lint.scratch(kernel) as here:
        here.lay(rendering.files())
        for case in cases(kernel):
            with results.case(f"{kernel.name} {case.name}"):
                try_case(here, case, touched)
