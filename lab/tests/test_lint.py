# SPDX-License-Identifier: GPL-2.0
"""The static checks: each fault that one of them is there for is planted, and must be reported."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from test_render import STANDINS, stand_in

from lab.checks import lint, matrix
from lab.checks.lint import Scratch
from lab.checks.results import Results
from lab.common import ROOT, LabError
from lab.kernels.trees import Kernel
from lab.rendering import render
from lab.rendering.render import Commit, Rendering

RULE = lint.SEMANTIC
BYPASS = "built behind the back of the gate"
UNASKED = "without asking whether the gate is open"
FLIP = "flips a static key"


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The C files of the series in mm/ and drivers/, on each stand-in."""
    place = tmp_path_factory.mktemp("standins")
    return {
        name: {path: data.decode() for path, data in render.render(stand_in(name, place)).files().items()
               if path.endswith(".c") and path.startswith(("mm/", "drivers/"))}
        for name in STANDINS
    }  # fmt: skip


def reported(place: Path, files: Mapping[str, str]) -> list[str]:
    for path, text in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    return [line.removeprefix(f"{place}/") for line in lint.reports(RULE, [place / path for path in files])]


# ---------------------------------------------------------------------------------------------------------------------
# The semantic check that the series ships


@pytest.mark.parametrize("name", STANDINS)
def test_the_series_is_not_reported(rendered, tmp_path: Path, name: str) -> None:
    assert "mm/demotion_gate.c" in rendered[name]
    assert reported(tmp_path, rendered[name]) == []


GATE, TIERS, MIGRATE = "mm/demotion_gate.c", "mm/memory-tiers.c", "mm/migrate.c"
PLANTS = {  # a fault: on which tree, in which file, what becomes what, and what is said of the line marked with FAULT
    "rebuild in a CPU callback":
        ("6.12", GATE, "\t\tdemotion_gate_build();\n}\n\nstatic int demotion_gate_memory",
         "\t\tdemotion_targets_build(); /* FAULT */\n}\n\nstatic int demotion_gate_memory",
         BYPASS),
    "the kernel's function in the tier code's notifier":
        ("6.12", TIERS, "\t\tdemotion_gate_node_event();", "\t\testablish_demotion_targets(); /* FAULT */", BYPASS),
    "the gate's function in the tier code's notifier":
        ("6.1", TIERS, "\t\tdemotion_gate_node_event();", "\t\tdemotion_targets_build(); /* FAULT */", BYPASS),
    "the kernel's function under its old name":
        ("5.15", MIGRATE, "\t\tdemotion_gate_node_event();", "\t\t__set_migration_target_nodes(); /* FAULT */", BYPASS),
    "lookup that does not ask":
        ("6.12", TIERS, "\tif (!demotion_gate_is_open())\n\t\treturn NUMA_NO_NODE;\n", "", UNASKED),
    "lookup of all that does not ask":
        ("6.1", TIERS, "\tif (!demotion_gate_is_open()) {\n\t\t*targets = NODE_MASK_NONE;", "\tif (0) {", UNASKED),
    "lookup on 5.15 that does not ask":
        ("5.15", MIGRATE, "\tif (!demotion_gate_is_open())\n\t\treturn NUMA_NO_NODE;\n", "", UNASKED),
    "plain flip when the gate opens, in what the notifier's function calls":
        ("6.12", GATE, "static_branch_enable_cpuslocked(&demotion_gate_key);",
         "static_branch_enable(&demotion_gate_key); /* FAULT */", FLIP),
    "plain flip when the gate closes":
        ("7.x", GATE, "static_branch_disable_cpuslocked(&demotion_gate_key);",
         "static_branch_disable(&demotion_gate_key); /* FAULT */", FLIP),
    "flip in a CPU callback":
        ("5.15", MIGRATE, "\tdemotion_gate_cpu_event();", "\tstatic_branch_inc(&other); /* FAULT */", FLIP),
    "flip in a memory notifier":
        ("6.12", GATE, "\t\tdemotion_gate_build();\n\n\treturn NOTIFY_OK;",
         "\t\tstatic_key_slow_dec(&other.key); /* FAULT */\n\n\treturn NOTIFY_OK;", FLIP),
    "flip in the tier code's notifier":
        ("5.15", MIGRATE, "\t\tdemotion_gate_node_event();", "\t\tstatic_key_enable(&other.key); /* FAULT */", FLIP),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANTS)
def test_planted_fault_is_reported(rendered, tmp_path: Path, fault: str) -> None:
    name, path, old, new, message = PLANTS[fault]
    assert rendered[name][path].count(old), "the plant has no place left"
    text = rendered[name][path].replace(old, new)
    lines = reported(tmp_path, {path: text})
    assert lines, "not reported"
    assert all(line.startswith(f"{path}:") and message in line for line in lines), lines
    if marked := [number for number, line in enumerate(text.splitlines(), 1) if "FAULT" in line]:
        assert sorted(int(line.split(":")[1]) for line in lines) == marked


BLOCK = """\
static int callback(struct notifier_block *nb, unsigned long action, void *arg)
{
	first();
	return 0;
}

static struct notifier_block block = {
	.notifier_call = callback,
	.priority = 3,
};

static void second(void)
{
	static_branch_disable(&key);
}

static void first(void)
{
	second();
}

static void elsewhere(void)
{
	static_branch_enable(&key);
}

static int setup(void)
{
	static_branch_enable(&key);
	return REGISTER;
}
"""


@pytest.mark.parametrize("register", (
    "register_memory_notifier(&block)", "hotplug_memory_notifier(callback, 3)", "hotplug_node_notifier(callback, 3)",
    'cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "a", callback, NULL)',
    'cpuhp_setup_state_nocalls(CPUHP_X, "a", NULL, callback)',
    'cpuhp_setup_state_cpuslocked(CPUHP_X, "a", callback, callback)',
))  # fmt: skip
def test_each_way_to_register_a_callback_is_known(tmp_path: Path, register: str) -> None:
    """Calls are followed; functions that no callback calls may flip as they like."""
    (line,) = reported(tmp_path, {"a.c": BLOCK.replace("REGISTER", register)})
    assert line.startswith("a.c:14:") and FLIP in line


def test_flip_outside_callbacks_is_not_reported(tmp_path: Path) -> None:
    assert reported(tmp_path, {"a.c": BLOCK.replace("REGISTER", "0")}) == []


# ---------------------------------------------------------------------------------------------------------------------
# The kernel's rules


def test_reports_of_a_rule_and_rules_that_cannot_run(tmp_path: Path) -> None:
    rule, file = tmp_path / "rule.cocci", tmp_path / "a.c"
    file.write_text("int f(void)\n{\n\treturn bad();\n}\n")
    text = ("virtual report\n@r@\nposition p;\n@@\nbad@p()\n@script:python@\np << r.p;\n@@\n"
            "coccilib.report.print_report(p[0], 'bad')\n")  # fmt: skip
    rule.write_text(text)
    assert lint.reports(rule, [file]) == [f"{file}:3:8-11: bad"]
    assert lint.unfit(rule) is None
    for bad, told in ((text.replace("virtual report", "virtual context"), "report not supported"),
                      (text.replace("bad@p()", "bad@q("), "spatch can't run it")):  # fmt: skip
        rule.write_text(bad)
        assert told in (lint.unfit(rule) or "")
    with pytest.raises(LabError):
        lint.reports(rule, [file])


# ---------------------------------------------------------------------------------------------------------------------
# Compiling commit by commit, with a make that says what it is told to


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    source = tmp_path / "cache/stock"
    (source / "mm").mkdir(parents=True)
    (source / "mm/old.c").write_text("int old;\n")
    (source / "arch/x86").mkdir(parents=True)
    (source / "arch/x86/Kconfig").write_text("config HOTPLUG_CPU\n\tdef_bool y\n")
    return Kernel("small", source, tmp_path / "cache")


STOCK = "mm/old.c:3:1: warning: context imbalance in 'f'\nmm/old.c:9:1: warning: context imbalance in 'f'\n"


def compile_with(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, outputs: list[tuple[int, str]]) -> Results:
    """Two commits, the first of which touches mm/old.c and the second adds mm/new.c with a header."""
    answers = iter(outputs)
    monkeypatch.setattr(lint.build, "fragments", lambda kernel, variant: [])
    monkeypatch.setattr(Scratch, "lay", lambda self, files: self.tree)
    monkeypatch.setattr(Scratch, "configure", lambda self, objects, text, *words: {})
    asked: list[tuple[str, ...]] = []

    def make(self: Scratch, objects: str, *words: str) -> tuple[int, str]:
        asked.append(tuple(word for word in words if word.endswith(".o")))
        return next(answers)

    monkeypatch.setattr(Scratch, "make", make)
    commits = [
        Commit("0001-touch", "", {"mm/old.c": b"int old = 1;\n"}),
        Commit("0002-add", "", {"mm/new.c": b"#include <linux/new.h>\n", "include/linux/new.h": b"", "README": b""}),
    ]
    results = Results()
    lint.compile_commits(kernel, Rendering(commits), results)
    assert asked == [("mm/old.o",), ("mm/old.o",), ("mm/new.o",)][: len(outputs)]
    return results


def test_warnings_of_the_parent_do_not_count(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = STOCK.replace(":3:", ":13:")
    assert compile_with(kernel, monkeypatch, [(0, STOCK), (0, moved), (0, "")]).failures == []


@pytest.mark.parametrize("line", (
    "mm/old.c:20:1: warning: context imbalance in 'f'", "mm/old.c:4:2: warning: unused variable ‘i’ [-Wunused]",
    "include/linux/old.h:4:2: error: no such thing",
))  # fmt: skip
def test_new_warning_is_a_failure(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, line: str, capsys) -> None:
    """A third one that reads like two of the parent's is new as well."""
    results = compile_with(kernel, monkeypatch, [(0, STOCK), (0, STOCK + line), (0, "")])
    assert results.failures == ["small 0001-touch has no new warning from sparse or W=1"]
    assert "old." in capsys.readouterr().out


def test_commit_that_does_not_compile_is_named(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    results = compile_with(kernel, monkeypatch, [(0, ""), (2, "mm/old.c:1:1: error: expected ‘;’"), (0, "")])
    assert results.failures == ["small 0001-touch compiles by itself"]
    assert results.passed == 3  # the stock tree, and the other commit's two
    assert "expected ‘;’" in capsys.readouterr().out


def test_tree_that_does_not_compile_by_itself_is_the_one_failure(kernel: Kernel, monkeypatch, capsys) -> None:
    results = compile_with(kernel, monkeypatch, [(2, "scripts/cc-version.sh: Permission denied")])
    assert (results.failures, results.passed) == (["small what the series touches compiles without it"], 0)
    assert "Permission denied" in capsys.readouterr().out


def test_included_test_is_compiled_with_its_file() -> None:
    texts = {"mm/a.c": b'#include "tests/a_kunit.c"\n', "mm/tests/a_kunit.c": b"", "mm/b.c": b""}
    assert lint.objects_of(["mm/tests/a_kunit.c", "mm/b.c"], texts) == ["mm/a.o", "mm/b.o"]


def test_header_that_nothing_includes_is_an_error() -> None:
    with pytest.raises(LabError, match="include it"):
        lint.objects_of(["include/linux/a.h"], {"include/linux/a.h": b"", "mm/b.c": b"#include <linux/b.h>\n"})


# ---------------------------------------------------------------------------------------------------------------------
# The configurations


def matrix_with(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, symbols: dict[str, str], makefile: str, output: str = "",
    *, case: matrix.Case, source: str = "int x;\n",
) -> Results:  # fmt: skip
    """One case on a tree whose mm/Makefile is given, and where make compiles `source`."""
    here = Scratch(kernel, kernel.source)
    (here.tree / "mm").mkdir(parents=True)
    (here.tree / "mm/Makefile").write_text(makefile)
    (here.place / "matrix-gcc/mm").mkdir(parents=True)
    config = "".join(f"CONFIG_{name}={value}\n" for name, value in symbols.items())
    (here.place / "matrix-gcc/.config").write_text(config)
    monkeypatch.setattr(Kernel, "keeper", "mm/migrate.c")
    monkeypatch.setattr(lint.build, "fragments", lambda kernel, variant: [])
    monkeypatch.setattr(Scratch, "configure", lambda self, objects, text, *words: symbols)

    def make(self: Scratch, objects: str, *words: str) -> tuple[int, str]:
        for name in (word for word in words if word.endswith(".o")):
            (self.place / "a.c").write_text(source)
            lint.call(["gcc", "-c", self.place / "a.c", "-o", self.place / objects / name])
        return 0, output

    monkeypatch.setattr(Scratch, "make", make)
    results = Results()
    with results.case("case"):
        matrix.try_case(here, case, ["mm/demotion_gate.o", "mm/migrate.o"])
    return results


WITHOUT_NUMA = matrix.Case("without NUMA", without="NUMA")
MAKEFILE = "obj-$(CONFIG_MIGRATION) += migrate.o\nobj-$(CONFIG_DEMOTION_GATE) += demotion_gate.o\n"


def test_configuration_as_it_should_be(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not matrix_with(kernel, monkeypatch, {"MIGRATION": "y"}, MAKEFILE, case=WITHOUT_NUMA).failures


def test_symbol_that_stays_on_is_a_failure(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    assert matrix_with(kernel, monkeypatch, {"NUMA": "y", "MIGRATION": "y"}, MAKEFILE, case=WITHOUT_NUMA).failures
    assert "CONFIG_NUMA" in capsys.readouterr().out


def test_gate_that_is_built_without_numa_is_a_failure(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    makefile = MAKEFILE.replace("$(CONFIG_DEMOTION_GATE)", "y")
    assert matrix_with(kernel, monkeypatch, {"MIGRATION": "y"}, makefile, case=WITHOUT_NUMA).failures
    assert "mm/demotion_gate.o" in capsys.readouterr().out


def test_gate_that_is_not_built_is_a_failure(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    symbols = {"NUMA": "y", "MIGRATION": "y", "HOTPLUG_CPU": "y", "DEMOTION_GATE": "y"}
    makefile = MAKEFILE.replace("CONFIG_DEMOTION_GATE", "CONFIG_DEMOTION")
    assert matrix_with(kernel, monkeypatch, symbols, makefile, case=matrix.Case("plain")).failures
    assert "mm/demotion_gate.o" in capsys.readouterr().out


def test_rebuild_left_without_numa_is_a_failure(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    # The stock kernel has alloc_migration_target() in any case.
    source = "int __set_migration_target_nodes(void) { return 0; }\nint alloc_migration_target;\n"
    assert matrix_with(kernel, monkeypatch, {"MIGRATION": "y"}, MAKEFILE, case=WITHOUT_NUMA, source=source).failures
    out = capsys.readouterr().out
    assert "__set_migration_target_nodes" in out and "alloc_migration_target" not in out


def test_warning_in_a_configuration_is_a_failure(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    line = "mm/migrate.c:1:1: warning: ‘x’ defined but not used [-Wunused-variable]\n"
    assert matrix_with(kernel, monkeypatch, {"MIGRATION": "y"}, MAKEFILE, line, case=WITHOUT_NUMA).failures
    assert "defined but not used" in capsys.readouterr().out


def test_hotplug_cpu_is_tried_where_it_can_be_off(kernel: Kernel) -> None:
    def toolchain() -> str:
        return next(case.toolchain for case in matrix.cases(kernel) if case.without == "HOTPLUG_CPU")

    assert toolchain() == "arm64"
    (kernel.source / "arch/x86/Kconfig").write_text('config HOTPLUG_CPU\n\tbool "hotplug"\n')
    assert toolchain() == "gcc"


# ---------------------------------------------------------------------------------------------------------------------
# What is written


def test_repository_faults_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(lint, "ROOT", tmp_path)
    (tmp_path / "a.py").write_text(f"# {'long ' * 30}\nx = (\n# TO" "DO: the rest\n")
    (tmp_path / "b.rst").write_text("Misspelt: t" "eh word.\n")
    results = Results()
    lint.repository(results)
    assert len(results.failures) == 6 and not results.passed
    out = capsys.readouterr().out
    assert "b.rst:1" in out and "a.py:1" in out and "a.py:3" in out


@pytest.mark.skipif(not shutil.which("perl"), reason="no perl")
def test_checkpatch_message_fails_the_patch(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """A tree whose checkpatch finds fault with every second patch; git knows no name here."""
    script = kernel.source / "scripts/checkpatch.pl"
    script.parent.mkdir()
    script.write_text('print "a.patch:7: WARNING:X: odd\\n" if $ARGV[-1] =~ /0002/;\n')

    def series(kernel: Kernel, out: Path, who: tuple[str, str]) -> list[Path]:
        assert all(who)
        return [out / name for name in ("0000-cover.patch", "0001-a.patch", "0002-b.patch")]

    monkeypatch.setattr(render, "series", series)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    results = Results()
    lint.patches(kernel, results)
    assert results.failures == ["small checkpatch 0002-b"] and results.passed == 1
    assert "odd" in capsys.readouterr().out
