# SPDX-License-Identifier: GPL-2.0
"""Rendering: small series on small trees, then every edit of the real series on stand-in trees."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.common import ROOT, LabError
from lab.kernels import trees
from lab.kernels.trees import Kernel
from lab.rendering import render

MIGRATE = """\
#include <linux/a.h>

static int node_demotion[4];

/* Says where. */
int next(int node)
{
	int target;

	target = node_demotion[node];
	return target;
}

static void fill(void)
{
	int node;

	for (node = 0; node < 4; node++) {
		switch (node) {
		case 0:
			rebuild(node, 1);
			break;
		}
	}
	if (node)
		lone();
}

static inline void drop(void)
{
	/* inside */
	one();

	/* between */
	two();
}

static const int all[] = {
	1,
	2,
};
"""


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty series, an identity, a date, and a place to build."""
    root = tmp_path / "repo"
    (root / "series").mkdir(parents=True)
    config = tmp_path / "gitconfig"
    config.write_text("[user]\n\tname = Ann Author\n\temail = ann@example.org\n")
    monkeypatch.setattr(render, "ROOT", root)
    monkeypatch.setattr(trees, "BUILD", tmp_path / "build")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    return root


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    source = tmp_path / "linux"
    write(source, {
        "Makefile": "VERSION = 5\nPATCHLEVEL = 15\nSUBLEVEL = 7\n",
        "mm/migrate.c": MIGRATE,
        "mm/Makefile": "obj-y += migrate.o\nobj-y += vmscan.o\n",
        "tools/testing/selftests/vm/Makefile": "TEST_GEN_FILES = compaction_test\n",
    })
    return Kernel("small", source, tmp_path / "cache")


def write(top: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(text)


def commit(repo: Path, edits: dict[str, str], *, slug: str = "0001-one", adds: dict[str, str] | None = None) -> None:
    """One folder of a series; `adds` are new files with their contents."""
    write(repo / "series" / slug, {"message": f"mm: do {slug}\n\nBecause it is needed.\n", **edits})
    if adds:
        write(repo, adds)
        write(repo / "series" / slug, {"adds": "".join(f"{path}\n" for path in adds)})


def edited(repo: Path, kernel: Kernel, rules: str, path: str = "mm/migrate.c") -> str:
    """The file after a commit that has these rules only."""
    kind = "cocci" if path.endswith(".c") else "sed"
    commit(repo, {f"{path}.{kind}": rules})
    return render.render(kernel).files()[path].decode()


def state(top: Path) -> dict[str, str]:
    """All there is in a folder, so that a write anywhere shows."""
    return {
        str(file.relative_to(top)): f"{file.stat().st_mtime_ns} {hashlib.sha256(file.read_bytes()).hexdigest()}"
        for file in top.rglob("*") if file.is_file()
    }


def git(top: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", top, *words], check=True, capture_output=True, text=True).stdout


# ---------------------------------------------------------------------------------------------------------------------
# The rule's own lines, where they belong


def test_early_return_is_the_rules_own_text(repo: Path, kernel: Kernel) -> None:
    text = edited(repo, kernel, """\
@early@
declaration d;
statement S;
@@
next(...) {
... when any
d
+
+	/* Closed: nothing, and at once. */
+	if (!open_now())
+		return NUMA_NO_NODE;
+
S
... when any
}
""")
    assert text == MIGRATE.replace("""\
	int target;

""", """\
	int target;

	/* Closed: nothing, and at once. */
	if (!open_now())
		return NUMA_NO_NODE;

""")


def test_new_function_keeps_what_spatch_mangles(repo: Path, kernel: Kernel) -> None:
    text = edited(repo, kernel, """\
@after@
@@
 fill(...)
 {
 ...
 }
+
+static void name_all(const char * const names[],
+		     int count)
+{
+#ifdef CONFIG_NAMES
+	say("a  b",
+	    names[0]);
+#endif
+}
""")
    assert text == MIGRATE.replace("""\
		lone();
}
""", """\
		lone();
}

static void name_all(const char * const names[],
		     int count)
{
#ifdef CONFIG_NAMES
	say("a  b",
	    names[0]);
#endif
}
""")


def test_replaced_call_is_indented_to_its_place(repo: Path, kernel: Kernel) -> None:
    text = edited(repo, kernel, """\
@call@
expression E;
@@
-rebuild(E, 1);
+if (open_now())
+	rebuild_later(E,
+		      all);
""")
    assert text == MIGRATE.replace("			rebuild(node, 1);\n", """\
			if (open_now())
				rebuild_later(node,
					      all);
""")


def test_part_of_a_line(repo: Path, kernel: Kernel) -> None:
    text = edited(repo, kernel, """\
@read@
expression E;
@@
-node_demotion[E]
+READ_ONCE(node_demotion[E])

@visible@
@@
-static void fill(void)
+void fill_now(void)
 {
 ...
 }
""")
    assert text == MIGRATE.replace("target = node_demotion[node];", "target = READ_ONCE(node_demotion[node]);").replace(
        "static void fill(void)", "void fill_now(void)")


def test_blank_lines_are_those_of_the_place(repo: Path, kernel: Kernel) -> None:
    """Whatever spatch puts around what it adds: those of the source, on the side on which it does not hang."""
    source = MIGRATE.replace("	return target;\n", "\n	return target;\n")
    write(kernel.source, {"mm/migrate.c": source})
    text = edited(repo, kernel, """\
@before@
@@
 next(...) {
 ...
+	check();
 return target;
 }

@behind@
@@
 drop(...) {
 one();
+	also();
 ...
 }
""")
    assert text == source.replace("	return target;\n", "	check();\n	return target;\n").replace(
        "	one();\n\n", "	one();\n	also();\n\n")


def test_rules_with_a_line_in_common_keep_their_blank_lines(repo: Path, kernel: Kernel) -> None:
    text = edited(repo, kernel, """\
@both@
@@
 next(...) {
 ...
-target = node_demotion[node];
+target = ask(node);
+
+check();
 return target;
 }

@one_of_them@
@@
 fill(...) {
 ...
+check();
 if (...) lone();
 }
""")
    assert text == MIGRATE.replace("	target = node_demotion[node];\n", "	target = ask(node);\n\n	check();\n").replace(
        "	if (node)\n", "	check();\n	if (node)\n")


def test_array_entry_and_include(repo: Path, kernel: Kernel) -> None:
    text = edited(repo, kernel, """\
@header@
@@
 #include <linux/a.h>
+#include <linux/gate.h>

@entry@
@@
 const int all[] = {
 1,
+#ifdef CONFIG_GATE
+	3,
+#endif
 ...
 };
""")
    assert text == MIGRATE.replace("#include <linux/a.h>\n", "#include <linux/a.h>\n#include <linux/gate.h>\n").replace(
        "	1,\n", "	1,\n#ifdef CONFIG_GATE\n	3,\n#endif\n")


def test_removed_lines_take_their_comments_and_leave_one_blank_line(repo: Path, kernel: Kernel) -> None:
    text = edited(repo, kernel, """\
@gone@
@@
-one();

@function@
@@
-static void fill(void)
-{
-...
-}
""")
    assert "fill" not in text
    assert "	return target;\n}\n\nstatic inline void drop(void)\n{\n" in text
    assert "drop(void)\n{\n	/* between */\n	two();\n" in text


def test_long_function_can_go(repo: Path, kernel: Kernel) -> None:
    body = "".join(f"\tadd({number}, count);\n" for number in range(150))
    function = f"static int long_one(int count)\n{{\n{body}\treturn count;\n}}\n"
    write(kernel.source, {"mm/migrate.c": f"{MIGRATE}\n{function}"})
    assert edited(repo, kernel, "@leaves@\n@@\n-static int long_one(...) { ... }\n") == MIGRATE


def test_probe_decides(repo: Path, kernel: Kernel) -> None:
    rules = """\
@tiers@
@@
 establish(...) { ... }

@with depends on tiers@
@@
-one();
+tiered();

@without depends on !tiers@
@@
-one();
+flat();
"""
    assert edited(repo, kernel, rules) == MIGRATE.replace("one();", "flat();", 2).replace("lflat();", "lone();")


# ---------------------------------------------------------------------------------------------------------------------
# What is refused


RENAME = "@rename@\n@@\n-one();\n+uno();\n"
LONELY = "@lonely@\n@@\n lone();\n+second();\n"
REFUSED = {
    "rule matches nothing": ("mm/migrate.c.cocci", f"{RENAME}\n@absent@\n@@\n-nowhere();\n+here();\n",
                             "rule absent", "linux/mm/migrate.c\n"),
    "line nobody wrote": ("mm/migrate.c.cocci", LONELY, "only changes that stand in the", "if (node)"),
    "definition twice": ("mm/migrate.c.cocci",
                         "@twice@\nidentifier f;\n@@\n f(void)\n {\n ...\n }\n+int new(void)\n+{\n+}\n",
                         "rule twice", "2 matches"),
    "left behind": ("mm/migrate.c.cocci", "// gone: \\b(one|two)\\(\n" + RENAME,
                    "but what the series replaces", "two();"),
    "rule without a name": ("mm/migrate.c.cocci", "@@\n@@\n-one();\n", "a rule with a name", "name it"),
    "not a semantic patch": ("mm/migrate.c.cocci", "@broken@\n@@\n-one(\n", "spatch to run it", "rror"),
    "only probes": ("mm/migrate.c.cocci", "@probe@\n@@\n one();\n", "rules with + or - lines", "none"),
    "no such file": ("mm/absent.c.cocci", LONELY, "the file, which is to be edited", "where:"),
    "script changes nothing": ("mm/Makefile.sed", "/^nothing$/d\n", "a place for the edit", "linux/mm/Makefile"),
    "one place of two": ("mm/Makefile.sed", "/migrate/a\\\nobj-y += a.o\n/absent/a\\\nobj-y += b.o\n",
                         "a place for each line", "b.o"),
    "line from elsewhere": ("mm/Makefile.sed", "/migrate/r /proc/version\n", "only changes that stand in", "+ Linux"),
    "script is not sed": ("mm/Makefile.sed", "/migrate/s,a\n", "sed script", "unterminated"),
    "bad regex": ("mm/Makefile.sed", "# where: (\n/migrate/d\n", "a regular expression", "("),
    "include of nothing": ("mm/Makefile.sed", "/migrate/a\\\n@include absent\n", "a file absent", "@include"),
    "stray file": ("notes.txt", "", "*.cocci or *.sed", "notes.txt"),
}


@pytest.mark.parametrize(("file", "text", "expected", "found"), REFUSED.values(), ids=REFUSED)
def test_refused(repo: Path, kernel: Kernel, file: str, text: str, expected: str, found: str) -> None:
    commit(repo, {file: text})
    before = state(kernel.source)
    with pytest.raises(LabError) as error:
        render.render(kernel).commits
    assert file in str(error.value)
    assert expected in str(error.value)
    assert found in str(error.value)
    assert state(kernel.source) == before


def test_spatch_has_a_time_limit(repo: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "SPATCH_SECONDS", 0.001)
    with pytest.raises(LabError, match="within 0.001 s"):
        edited(repo, kernel, RENAME)


# What spatch might make of the rule RENAME, in the place of the first text, and the line to refuse.
MANGLED = {
    "a removed line that no rule removes": ("	two();\n", "", "- two();"),
    "a removed line of which there are more": ("			break;\n		}\n	}\n", "			break;\n		}\n", "- }"),
    "a changed line that no rule wrote": ("	return target;\n", "	return  target;\n", "+ return  target;"),
    "a changed line beside a rule's text": ("	two();\n", "	uno(); two();\n", "+ uno(); two();"),
    "a comment far from what a rule removes": ("/* Says where. */\n", "", "- /* Says where. */"),
}


@pytest.mark.parametrize(("text", "instead", "found"), MANGLED.values(), ids=MANGLED)
def test_what_no_rule_did_is_refused(repo: Path, kernel: Kernel, text: str, instead: str, found: str) -> None:
    edit = render.Edit(render.Tree(kernel), "rename", "mm/migrate.c", "cocci", RENAME)
    rules = render.parse_rules(edit)
    good = MIGRATE.replace("	one();", "	uno();")
    assert render.restore(edit, MIGRATE, good, rules) == (good, {"	uno();": 1})
    assert text in good
    with pytest.raises(LabError, match="only changes that stand in the") as error:
        render.restore(edit, MIGRATE, good.replace(text, instead, 1), rules)
    assert f"{found}\n" in str(error.value)


def test_removed_function_takes_no_other_line(repo: Path, kernel: Kernel) -> None:
    rule = "@leaves@\n@@\n-static void fill(void) { ... }\n"
    edit = render.Edit(render.Tree(kernel), "leaves", "mm/migrate.c", "cocci", rule)
    rules = render.parse_rules(edit)
    first, last = MIGRATE.index("static void fill"), MIGRATE.index("static inline void drop")
    good = MIGRATE[:first] + MIGRATE[last:]
    assert render.restore(edit, MIGRATE, good, rules) == (good, {})
    with pytest.raises(LabError, match=r"- static inline void drop\(void\)"):
        render.restore(edit, MIGRATE, good.replace("static inline void drop(void)\n", ""), rules)


@pytest.mark.parametrize("message", ["", "mm: only a subject\n", "mm: no blank line\nbody\n"])
def test_message_has_subject_and_body(repo: Path, kernel: Kernel, message: str) -> None:
    commit(repo, {"mm/Makefile.sed": "/migrate/d\n", "message": message})
    with pytest.raises(LabError, match="a subject line, a blank line, a body"):
        render.render(kernel).commits


def test_gone_does_not_count_lines_of_the_series(repo: Path, kernel: Kernel) -> None:
    commit(repo, {"mm/migrate.c.cocci": "@first@\n@@\n-one();\n+renamed_one();\n+old();\n"}, slug="0001-first")
    commit(repo, {"mm/migrate.c.cocci": "// gone: \\bold\\(\n@second@\n@@\n-two();\n+duo();\n"}, slug="0002-second")
    assert "	old();\n" in render.render(kernel).files()["mm/migrate.c"].decode()


# ---------------------------------------------------------------------------------------------------------------------
# Which edits are for this tree


@pytest.mark.parametrize(("directives", "applied"), [
    ("# where: migrate\\.o$", True),
    ("# where: absent", False),
    ("# where: mm/migrate.c: ^static int node_demotion", True),
    ("# where: mm/memory-tiers.c: .", False),
    ("# where: Makefile: ^VERSION = 5$", True),
    ("# unless: vmscan", False),
    ("# unless: absent", True),
    ("# unless: mm/memory-tiers.c: .", True),
    ("# SPDX-License-Identifier: GPL-2.0\n# where: migrate\n# unless: vmscan", False),
])
def test_directives(repo: Path, kernel: Kernel, directives: str, applied: bool) -> None:
    commit(repo, {"mm/Makefile.sed": f"{directives}\n/migrate/a\\\nobj-y += gate.o\n"})
    rendering = render.render(kernel)
    assert [path for one in rendering.commits for path in one.files] == (["mm/Makefile"] if applied else [])


def test_file_that_other_trees_have(repo: Path, kernel: Kernel) -> None:
    commit(repo, {"mm/memory-tiers.c.cocci": "// where: node_demotion\n" + LONELY})
    assert render.render(kernel).commits == []


def test_directives_see_earlier_commits_and_labels_order_edits(repo: Path, kernel: Kernel) -> None:
    commit(repo, {"mm/Makefile.sed": "/migrate/a\\\nobj-y += gate.o\n"}, slug="0001-first")
    commit(repo, {
        "mm/Makefile@b.sed": "# where: new\n/new/s/new/newest/\n",
        "mm/Makefile@a.sed": "# where: gate\n/gate/a\\\nobj-y += new.o\n",
        "mm/absent.sed": "# where: x\nd\n",
    }, slug="0002-second")
    assert [one.slug for one in render.render(kernel).commits] == ["0001-first", "0002-second"]
    made = render.render(kernel)
    objects = {upto: re.findall(r"(\w+)\.o", made.files(upto)["mm/Makefile"].decode()) for upto in (1, None)}
    assert objects == {1: ["migrate", "gate", "vmscan"], None: ["migrate", "gate", "newest", "vmscan"]}


def test_include_is_taken_as_it_stands(repo: Path, kernel: Kernel) -> None:
    text = "\tGATE \\\n\na\\tb & /c/\n"
    write(repo, {"SECTION": text})
    assert edited(repo, kernel, "/migrate/i\\\nbefore\\\n@include SECTION\\\nbehind\n", "mm/Makefile").startswith(
        f"before\n{text}behind\nobj-y += migrate.o\n")


def test_selftests_go_where_the_tree_keeps_them(repo: Path, kernel: Kernel) -> None:
    here = "tools/testing/selftests/mm"
    commit(repo, {
        "message": f"selftests/mm: add one\n\nSee {here}/gate.sh.\n",
        f"{here}/Makefile.sed": "$a\\\nTEST_PROGS += gate.sh\n",
        "mm/Makefile.sed": f"$a\\\n# {here}/gate.sh\n",
    }, adds={f"{here}/gate.sh": f"#!/bin/sh\ncd {here}/\n"})
    (repo / here / "gate.sh").chmod(0o755)
    there = "tools/testing/selftests/vm"
    one, = render.render(kernel).commits
    assert set(one.files) == {f"{there}/gate.sh", f"{there}/Makefile", "mm/Makefile"}
    assert f"{there}/gate.sh" in one.message
    assert one.files[f"{there}/gate.sh"].decode() == f"#!/bin/sh\ncd {there}/\n"
    assert f"# {there}/gate.sh" in one.files["mm/Makefile"].decode()
    patch, = render.series(kernel)
    assert "new file mode 100755\nindex 000000000000.." in patch.read_text()


# ---------------------------------------------------------------------------------------------------------------------
# Patches


@pytest.fixture
def two(repo: Path) -> Path:
    """A series of two commits with a cover letter."""
    commit(repo, {"mm/migrate.c.cocci": RENAME}, slug="0001-first")
    commit(repo, {"mm/Makefile.sed": "/migrate/a\\\nobj-y += gate.o\n"}, slug="0002-second",
           adds={"mm/gate.c": "int gate;\n"})
    write(repo, {"series/cover": "mm: a small series\n\nIt does two things.\n"})
    return repo


def test_patches_are_repeatable_and_signed(two: Path, kernel: Kernel, tmp_path: Path) -> None:
    before = state(kernel.source)
    first = {file.name: file.read_bytes() for file in render.series(kernel, tmp_path / "a")}
    again = {file.name: file.read_bytes() for file in render.series(kernel, tmp_path / "b")}
    assert first == again
    assert list(first) == ["0000-cover-letter.patch", "0001-mm-do-0001-first.patch", "0002-mm-do-0002-second.patch"]
    assert b"Subject: [PATCH 0/2] mm: a small series\n\nIt does two things.\n" in first["0000-cover-letter.patch"]
    patch = first["0001-mm-do-0001-first.patch"].decode()
    assert "From: Ann Author <ann@example.org>\nDate: Tue, 14 Nov 2023 22:13:20 +0000\n" in patch
    assert "Because it is needed.\n\nSigned-off-by: Ann Author <ann@example.org>\n---\n" in patch
    assert state(kernel.source) == before


def test_old_patches_stay_when_rendering_fails(two: Path, kernel: Kernel, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, {"0009-old.patch": "old", "notes.txt": "mine"})
    commit(two, {"mm/Makefile.sed": "/absent/d\n"}, slug="0003-third")
    before = state(out)
    with pytest.raises(LabError):
        render.series(kernel, out)
    assert state(out) == before
    shutil.rmtree(two / "series" / "0003-third")
    render.series(kernel, out)
    assert sorted(file.name[:4] for file in out.iterdir()) == ["0000", "0001", "0002", "note"]


def test_paragraphs_stand_where_they_are_true(two: Path, kernel: Kernel, tmp_path: Path) -> None:
    """A message is of the tree as the commits before it have left it, the cover of the tree after all."""
    text = "{}\n\n# where: mm/gate.c: gate\nIt has a gate.\n\n# unless: mm/gate.c: gate\nIt has none.\n"
    write(two, {"series/cover": text.format("mm: a small series"),
                "series/0002-second/message": text.format("mm: second").replace("gate.c: gate", "Makefile: gate"),
                "series/0003-third/message": text.format("mm: third"),
                "series/0003-third/mm/Makefile.sed": "/gate/a\\\nobj-y += third.o\n"})
    found = ["It has a gate." in file.read_text() for file in render.series(kernel, tmp_path / "a")]
    assert found == [True, False, False, True]
    for file in (tmp_path / "a").iterdir():
        assert "where:" not in file.read_text() and "unless:" not in file.read_text()


def test_missing_identity_says_what_to_do(two: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    with pytest.raises(LabError, match="git config --global user.name"):
        render.series(kernel)
    assert "From: Ann Author <ann@example.org>" in render.series(kernel, who=render.NOBODY)[-1].read_text()


def test_tree_has_the_series_as_commits(two: Path, kernel: Kernel) -> None:
    place = render.tree(kernel)
    assert git(place, "log", "--format=%s by %cn").splitlines() == [
        "mm: do 0002-second by Ann Author", "mm: do 0001-first by Ann Author", "Linux 5.15.7 by Ann Author"]
    files = render.render(kernel).files()
    assert {path: (place / path).read_bytes() for path in files} == files
    told = "".join(file.read_text() for file in (kernel.build / "series").iterdir())
    for path in files:  # the blob ids that the patches name are those of the whole tree
        assert f"..{git(place, 'rev-parse', f'HEAD:{path}')[:12]}" in told


def test_tree_is_made_again_but_own_work_is_kept(two: Path, kernel: Kernel) -> None:
    place = render.tree(kernel)
    head = git(place, "rev-parse", "HEAD")
    assert git(render.tree(kernel), "rev-parse", "HEAD") == head
    (place / "mm/Makefile").write_text("mine\n")
    with pytest.raises(LabError, match="move the folder away"):
        render.tree(kernel)
    assert (place / "mm/Makefile").read_text() == "mine\n"


@pytest.fixture
def checkout(kernel: Kernel) -> Kernel:
    """The tree as a git work tree, with a build product that git does not track."""
    write(kernel.source, {".gitignore": "*.o\n", "mm/migrate.o": "object"})
    git(kernel.source, "init", "-q")
    git(kernel.source, "add", "-A")
    git(kernel.source, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "-m", "kernel")
    return kernel


def test_git_tree_is_read_only(two: Path, checkout: Kernel) -> None:
    before = state(checkout.source)
    place = render.tree(checkout)
    assert "uno();" in (place / "mm/migrate.c").read_text()
    assert not (place / "mm/migrate.o").exists()
    assert git(render.tree(checkout), "rev-list", "--count", "HEAD") == "3\n"  # from the same base
    assert state(checkout.source) == before


def test_dirty_tree_is_refused(two: Path, checkout: Kernel) -> None:
    (checkout.source / "untracked").write_text("")
    trees.own(checkout.source)
    (checkout.source / "mm/Makefile").write_text("changed\n")
    before = state(checkout.source)
    with pytest.raises(LabError, match="mm/Makefile"):
        trees.own(checkout.source)
    assert state(checkout.source) == before


def test_git_has_the_files_whatever_its_settings(two: Path, checkout: Kernel) -> None:
    """Line ends converted on the way out, files that an archive is to leave out."""
    write(checkout.source, {".gitattributes": "mm/Makefile export-ignore\n"})
    git(checkout.source, "add", "-A")
    git(checkout.source, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "-m", "attributes")
    git(checkout.source, "config", "core.autocrlf", "true")
    place = render.tree(checkout)
    assert "obj-y += gate.o" in (place / "mm/Makefile").read_text()
    assert not [path for path in git(place, "ls-files").split() if b"\r" in (place / path).read_bytes()]


def test_crlf_is_refused(two: Path, checkout: Kernel) -> None:
    git(checkout.source, "config", "core.autocrlf", "true")
    (checkout.source / "mm/migrate.c").unlink()
    git(checkout.source, "checkout", "mm/migrate.c")
    with pytest.raises(LabError, match="CR LF"):
        trees.own(checkout.source)


def test_who_signs(two: Path, checkout: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for `git commit -s`: the environment first, then the kernel's repository; not whom a hook's commit is from."""
    git(checkout.source, "config", "user.name", "Kernel Hacker")
    assert "From: Kernel Hacker <ann@example.org>" in render.series(checkout)[-1].read_text()
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Hooked")
    monkeypatch.setenv("GIT_COMMITTER_NAME", "Other")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "other@example.org")
    assert "Signed-off-by: Other <other@example.org>" in render.series(checkout)[-1].read_text()


def test_tree_with_the_series_is_refused(two: Path, kernel: Kernel) -> None:
    write(kernel.source, {"include/linux/demotion_gate.h": ""})
    with pytest.raises(LabError, match="already has"):
        trees.own(kernel.source)


def test_added_file_must_be_new(two: Path, kernel: Kernel) -> None:
    write(kernel.source, {"mm/gate.c": "int other;\n"})
    with pytest.raises(LabError, match="mm/gate.c, on small"):
        render.series(kernel)


def test_tree_without_targets_is_too_old(two: Path, kernel: Kernel) -> None:
    write(kernel.source, {"mm/migrate.c": "int nothing;\n"})
    with pytest.raises(LabError, match="5.15 or later"):
        trees.own(kernel.source)


def test_command(two: Path, kernel: Kernel, capsys: pytest.CaptureFixture[str]) -> None:
    render.main(render.parser().parse_args(["series", "--ksrc", str(kernel.source)]))
    assert "0002-mm-do-0002-second.patch" in capsys.readouterr().out
    with pytest.raises(LabError, match="KSRC="):
        render.parser().parse_args(["series", "--ksrc", "/absent"])


# ---------------------------------------------------------------------------------------------------------------------
# The real series

# What a stand-in is made of, later folders over earlier ones. They hold functions and lines of the shapes that the
# edits name, written for this test: a rule that no longer matches shows without a kernel at hand.
STANDINS = {
    "5.15": ("common", "5.15"),
    "5.17": ("common", "5.15"),
    "6.0": ("common", "5.15", "6.0"),
    "6.1": ("common", "tiers", "6.1"),
    "6.4": ("common", "tiers", "mm-selftests", "6.12", "6.4"),
    "6.12": ("common", "tiers", "mm-selftests", "6.12"),
    "6.18": ("common", "tiers", "mm-selftests", "7.x", "6.18"),
    "7.x": ("common", "tiers", "mm-selftests", "7.x"),
}
INSTEAD: dict[str, tuple[str, dict[str, str]]] = {  # what a stand-in has in place of a text of its parts
    "5.17": ("mm/migrate.c", {
        "static int node_demotion[MAX_NUMNODES] __read_mostly;\n": """\
struct demotion_nodes {
	unsigned short nr;
	short nodes[4];
};

static struct demotion_nodes *node_demotion __read_mostly;
""",
        "	int target;\n\n	/* Readers": """\
	struct demotion_nodes *nd;
	int target;

	if (!node_demotion)
		return NUMA_NO_NODE;

	nd = &node_demotion[node];
	/* Readers""",
        "READ_ONCE(node_demotion[node])": "READ_ONCE(nd->nodes[0])",
        "node_demotion[node] = NUMA_NO_NODE;": "node_demotion[node].nr = 0;",
        "node_demotion[node] = node + 1;": "node_demotion[node].nodes[0] = node + 1;",
        "	int ret;\n\n	ret = cpuhp": """\
	int ret;

	node_demotion = kmalloc_array(nr_node_ids,
				      sizeof(struct demotion_nodes),
				      GFP_KERNEL);

	ret = cpuhp""",
    }),
    "6.18": ("mm/memory-tiers.c", {
        "next_demotion_node(int node, const nodemask_t *allowed_mask)": "next_demotion_node(int node)",
        "kswapd_clear_hopeless(pgdat, KSWAPD_CLEAR_HOPELESS_OTHER)": "atomic_set(&pgdat->kswapd_failures, 0)",
    }),
}


def stand_in(name: str, place: Path) -> Kernel:
    for part in STANDINS[name]:
        shutil.copytree(Path(__file__).parent / "standin" / part, place / name, dirs_exist_ok=True)
    path, changes = INSTEAD.get(name, ("Makefile", {}))
    text = (place / name / path).read_text()
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (place / name / path).write_text(text)
    return Kernel(name, place / name, place / f"{name}-cache")


@pytest.fixture(scope="module")
def applied() -> set[str]:
    """The edits that were applied to some stand-in."""
    return set()


@pytest.fixture(scope="module")
def renderings(
    tmp_path_factory: pytest.TempPathFactory, applied: set[str]
) -> Iterator[dict[str, tuple[Kernel, render.Rendering]]]:
    place, apply = tmp_path_factory.mktemp("standins"), render.apply

    def noted(edit: render.Edit) -> None:
        apply(edit)
        applied.add(edit.where)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(render, "apply", noted)
        render.render(altered(place / "vendor", "6.12", TIERS, OWN_TOP_TIER, OWN_CLEAR))
        yield {name: (kernel := stand_in(name, place), render.render(kernel)) for name in STANDINS}


@pytest.mark.parametrize("name", STANDINS)
def test_series_renders_on_stand_in(renderings, name: str) -> None:
    kernel, rendering = renderings[name]
    assert rendering.left == {}
    changed = {path: data.decode() for one in rendering.commits for path, data in one.files.items()}
    assert "demotion_gate_is_open()" in changed[kernel.keeper]
    assert f"{kernel.selftests}/demotion_gate.c" in changed
    assert kernel.selftests in changed["MAINTAINERS"]
    other = next(path for path in trees.SELFTESTS if path != kernel.selftests)
    assert not [path for path, text in changed.items() if f"{other}/" in path + text]
    for path, text in changed.items():
        assert not [line for line in text.splitlines() if line != line.rstrip()], f"{path}: space at the end of a line"
        assert "\n\n\n" not in text, f"{path}: two blank lines"
        if path.endswith((".c", ".h")):
            crooked = re.findall(r'^ +[^ *].*|^.*\w,["\w].*', re.sub(r'"[^"\n]*"', '""', text), re.M)
            assert not crooked, f"{path}: not laid out as written: {crooked}"


def test_each_edit_is_for_some_stand_in(renderings, applied: set[str]) -> None:
    edits = [file for file in (ROOT / "series").rglob("*") if file.suffix in (".cocci", ".sed")]
    assert applied == {str(file.relative_to(ROOT)) for file in edits}


# ---------------------------------------------------------------------------------------------------------------------
# A vendor's tree: a stand-in in which something is otherwise

TIERS = "mm/memory-tiers.c"


def altered(place: Path, name: str, path: str, *changes: tuple[str, str]) -> Kernel:
    kernel = stand_in(name, place)
    text = (kernel.source / path).read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (kernel.source / path).write_text(text)
    return kernel


def subjects(rendering: render.Rendering) -> list[str]:
    return [commit.message.partition("\n")[0] for commit in rendering.commits]


def body(text: str, name: str) -> str:
    found = re.search(rf"^\w[^;{{}}]*\b{name}\([^;{{]*\)\n\{{.*?^\}}", text, re.M | re.S)
    assert found, name
    return found[0]


OWN_TOP_TIER = ("""\
	list_for_each_entry_reverse(memtier, &memory_tiers, list) {
		if (has_cpu(memtier))
			top_tier_adistance = memtier->adistance_start + 1;
	}
""", "	top_tier_adistance = 7;\n")
OWN_CLEAR = ("static int __init memory_tier_late_init(void)", """\
void forget_node(int node)
{
	mutex_lock(&memory_tier_lock);
	clear_node_memory_tier(node);
	mutex_unlock(&memory_tier_lock);
}

static int __init memory_tier_late_init(void)""")


def test_fix_without_a_place_is_left_out_whole(tmp_path: Path) -> None:
    """And the gate does without it: who sets the top tier while the targets are built must be called once at least."""
    rendering = render.render(altered(tmp_path, "6.12", TIERS, OWN_TOP_TIER, OWN_CLEAR))
    first, second = rendering.left
    assert first == "mm/memory-tiers: unregister a tier without memory_tier_lock"
    assert second == "mm/memory-tiers: keep the top tier current when CPUs come and go"
    assert f"{TIERS}:" in rendering.left[first] and "forget_node()" in rendering.left[first]
    assert not {first, second} & {*subjects(rendering)}
    files = {path: data.decode() for path, data in rendering.files().items()}
    assert not [path for path, text in files.items() if "memtier_refresh_toptier" in text]
    assert "static bool clear_node_memory_tier" in files[TIERS]  # nothing of the fix is in another commit
    assert "establish_demotion_targets();" in body(files[TIERS], "memory_tier_late_init")
    assert "establish_demotion_targets();" not in body(files[TIERS], "memtier_hotplug_callback")
    assert body(files[TIERS], "memtier_hotplug_callback").count("demotion_gate_node_event();") == 2
    for name in ("vmstat_cpu_online", "vmstat_cpu_dead"):
        assert body(files["mm/vmstat.c"], name).count("demotion_gate_cpu_event();") == 1


@pytest.mark.parametrize(("name", "path", "call", "where"), [
    ("6.12", TIERS, "establish_demotion_targets();", "static int __init memory_tier_late_init"),
    ("6.12", TIERS, "establish_demotion_targets(); /* after the scan */", "static int __init memory_tier_late_init"),
    ("6.1", TIERS, "if (late) { establish_demotion_targets(); }", "static int __meminit memtier_hotplug_callback"),
    ("5.15", "mm/migrate.c", "set_migration_target_nodes();", "static int migration_online_cpu"),
])
def test_callers_of_a_vendor_are_named(tmp_path: Path, name: str, path: str, call: str, where: str) -> None:
    kernel = altered(tmp_path, name, path, (where, f"void vendor_refresh(void)\n{{\n\t{call}\n}}\n\n{where}"))
    line = (kernel.source / path).read_text().splitlines().index("void vendor_refresh(void)") + 3
    with pytest.raises(LabError) as error:
        render.render(kernel)
    assert f"{path}:{line}, vendor_refresh()\n" in str(error.value)
    assert "demotion_gate_node_event()" in str(error.value)


@pytest.mark.parametrize("name", ["5.15", "6.0", "6.12", "7.x"])
def test_gate_is_before_what_a_vendor_returns(tmp_path: Path, name: str) -> None:
    kernel = stand_in(name, tmp_path)
    path = kernel.keeper
    text = (kernel.source / path).read_text()
    start = re.search(r"^int next_demotion_node\(.*\)\n\{\n", text, re.M)
    assert start
    (kernel.source / path).write_text(text[: start.end()] + "	return 1;\n" + text[start.end() :])
    found = body(render.render(kernel).files()[path].decode(), "next_demotion_node")
    assert re.search(r"\{\s+if \(!demotion_gate_is_open\(\)\)\s+return NUMA_NO_NODE;\s+return 1;", found)


@pytest.mark.parametrize("name", ["5.15", "6.0", "6.12", "7.x"])
def test_tree_that_has_the_fixes(tmp_path: Path, name: str) -> None:
    """The gate is the same, the fixes are named as not needed, also in a tree that needs none to begin with."""
    kernel = stand_in(name, tmp_path)
    first = render.render(kernel)
    fixes = [commit for commit in first.commits if re.search("^Fixes: ", commit.message, re.M)]
    for commit in fixes:
        write(kernel.source, {path: data.decode() for path, data in commit.files.items()})
    again = render.render(kernel)
    assert again.left == {} and again.files() == {
        path: data for path, data in first.files().items() if path in again.files()}
    assert subjects(again) == subjects(first)[len(fixes) :]
    assert set(subjects(first)[: len(fixes)]) <= set(again.unneeded) and len(again.unneeded) == 5


def test_fix_of_somebody_else(tmp_path: Path) -> None:
    path = "kernel/sched/fair.c"
    kernel = stand_in("6.12", tmp_path)
    text = (kernel.source / path).read_text()
    migrate = body(text, "should_numa_migrate_memory")
    early = re.sub(r"\tif \([^;]*?cpupid_valid\(last_cpupid\)\)", "\tif (!node_is_toptier(src_nid))", migrate)
    assert early != migrate
    (kernel.source / path).write_text(text.replace(migrate, early))
    rendering = render.render(kernel)
    assert [what.partition(":")[0] for what in rendering.left] == ["sched/numa"] and path not in rendering.files()


def test_texts_never_stop_a_tree(tmp_path: Path) -> None:
    whole, kernel = render.render(stand_in("6.12", tmp_path / "whole")), stand_in("6.12", tmp_path)
    for folder in ("Documentation", "tools"):
        shutil.rmtree(kernel.source / folder)
    (kernel.source / "MAINTAINERS").unlink()
    rendering = render.render(kernel)
    texts, left = {path for path in whole.files() if path.startswith(render.TEXTS)}, {*rendering.left}
    assert rendering.files() == {path: data for path, data in whole.files().items() if path not in texts}
    assert {"MAINTAINERS", *whole.origin} & texts <= left <= texts


@pytest.mark.parametrize(("name", "path", "old", "new"), [
    ("6.12", TIERS, "bool numa_demotion_enabled = false;", "bool numa_demotion_enabled __read_mostly = true;"),
    ("5.15", "mm/mempolicy.c", "bool numa_demotion_enabled = false;", "bool __read_mostly numa_demotion_enabled;"),
])
def test_switch_may_be_declared_otherwise(tmp_path: Path, name: str, path: str, old: str, new: str) -> None:
    rendering = render.render(altered(tmp_path, name, path, (old, new)))
    assert rendering.left == {} and b"\nvoid demotion_retry_kswapd(void)\n" in rendering.files()[path]


def test_what_the_gate_calls_must_be_there(tmp_path: Path) -> None:
    """Somebody's own fix for kswapd, in a form that no rule knows: the gate would not link."""
    kernel = altered(tmp_path, "6.12", TIERS, ("	return count;\n", "	pgdat->kswapd_failures = 0;\n	return count;\n"))
    with pytest.raises(LabError, match="demotion_retry_kswapd"):
        render.render(kernel)


def test_stub_stays_while_it_is_called(tmp_path: Path) -> None:
    """Where the build is called at boot, whatever the gate says, it is also without MIGRATION."""
    stub = "static inline void establish_demotion_targets(void) {}\n"
    for name, changes in ("whole", ()), ("own", (OWN_TOP_TIER,)):
        files = render.render(altered(tmp_path / name, "6.12", TIERS, *changes)).files()
        assert (stub in files[TIERS].decode()) == (name == "own")


def test_trouble_with_spatch_leaves_no_fix_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "SPATCH_SECONDS", 0.001)
    with pytest.raises(LabError, match="within 0.001 s"):
        render.render(stand_in("6.12", tmp_path))


def test_error_names_the_owners_line(tmp_path: Path) -> None:
    kernel = altered(tmp_path, "6.12", TIERS, ("	/* A tier or none. */\n	rcu_read_lock();\n", ""), (
        "void node_get_allowed_targets(pg_data_t *pgdat, nodemask_t *targets)",
        "void node_get_allowed_targets(nodemask_t *targets, pg_data_t *pgdat)"))
    line = (kernel.source / TIERS).read_text().splitlines().index(
        "void node_get_allowed_targets(nodemask_t *targets, pg_data_t *pgdat)") + 1
    with pytest.raises(LabError, match=rf"{TIERS}:{line}, node_get_allowed_targets\(\)"):
        render.render(kernel)
