# SPDX-License-Identifier: GPL-2.0
"""Turn series/ into ordinary patches for whatever kernel tree there is: `python3 -m lab.render series|tree`.

A commit is a folder of edits. Semantic patches are run by spatch, whose output is only believed token by token:
spatch re-prints what it touches, so every token of its result must be the source's own or stand in a `+` line of a
rule, every token that is missing must stand in a `-` line, and what is written are the rule's own lines.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from . import kernels
from .common import ROOT, LabError, run, say
from .kernels import SELFTESTS, Kernel

SPATCH_SECONDS = 300
LONGEST = 5000  # tokens that a metavariable or `...` stands for
MARK = "include/linux/demotion_gate.h"  # a tree that has it has the series


@dataclass
class Commit:
    """One commit of the series as it is for one tree; `files` are the new contents of what it changes or adds."""

    slug: str
    message: str
    files: dict[str, bytes]


@dataclass
class Rendering:
    commits: list[Commit] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # edits that this tree has no need of, with the reason
    origin: dict[str, Path] = field(default_factory=dict)  # of each added file: where it is in this repository

    def files(self, upto: int | None = None) -> dict[str, bytes]:
        """The contents of all files of the series after all commits, or after the first `upto`."""
        found: dict[str, bytes] = {}
        for commit in self.commits[:upto]:
            found |= commit.files
        return found


# ---------------------------------------------------------------------------------------------------------------------
# Reading series/


@dataclass
class Edit:
    """One edit file: which file it edits, its directives, its text."""

    where: str  # for messages
    target: str
    kind: str  # cocci or sed
    text: str

    @cached_property
    def directives(self) -> list[tuple[str, str]]:
        mark = "//" if self.kind == "cocci" else "#"
        found = []
        for line in self.text.splitlines():
            if line.strip() and not line.startswith(mark):
                break
            if match := re.match(rf"{mark} (where|unless|gone): (.*\S)", line):
                found.append((match[1], match[2]))
        return found


class Tree:
    """The files of a kernel tree as they are after the commits so far; the tree itself is only read."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.changed: dict[str, bytes] = {}
        self.ours: dict[str, list[bool]] = {}  # for each line of a changed file: did the series write it?

    def __str__(self) -> str:
        return f"{self.kernel.name} ({self.kernel.source})"

    def read(self, path: str) -> bytes | None:
        if path in self.changed:
            return self.changed[path]
        file = self.kernel.source / path
        return file.read_bytes() if file.is_file() else None

    def text(self, path: str) -> str | None:
        data = self.read(path)
        return None if data is None else data.decode(errors="surrogateescape")

    def write(self, path: str, new: str, written: set[str]) -> None:
        """Replace a file; of its changed lines, those in `written` count as ours."""
        old = self.text(path) or ""
        before = iter(self.ours.get(path) or [False] * len(old.splitlines()))
        lines = iter(new.splitlines())
        after = []
        for op in line_ops(old, new):
            if op == "+":
                after.append(next(lines) in written)
            else:
                was = next(before)
                if op == "=":
                    next(lines)
                    after.append(was)
        self.ours[path] = after
        self.changed[path] = new.encode(errors="surrogateescape")

    def localise(self, text: str) -> str:
        """Name the folder of the mm selftests as this tree has it."""
        here = SELFTESTS[0] + "/"
        return text.replace(here, self.kernel.selftests + "/") if here in text else text


def line_ops(old: str, new: str) -> str:
    """What happened to each line, as a string of `=`, `-` and `+`."""
    with tempfile.TemporaryDirectory(prefix="render-") as tmp:
        files = [Path(tmp) / name for name in ("old", "new")]
        for file, text in zip(files, (old, new), strict=True):
            file.write_bytes(text.encode(errors="surrogateescape"))
        formats = ["--old-line-format=-", "--new-line-format=+", "--unchanged-line-format=="]
        return run(["diff", "-a", *formats, *files], check=False).stdout


def read_commit(folder: Path, tree: Tree) -> tuple[str, list[tuple[str, Path]], list[Edit]]:
    """Message, (path in the tree, file here) of what it adds, and edits of one commit."""
    message = folder / "message"
    text = message.read_text() if message.exists() else ""
    if not re.match(r"\S[^\n]*\n\n\S", text):
        raise LabError(str(message), expected="a subject line, a blank line, a body", found=repr(text[:60]),
                       do="write the commit message, without a sign-off")
    adds = []
    listing = folder / "adds"
    for path in listing.read_text().split("\n") if listing.exists() else []:
        if path and not path.startswith("#"):
            if not (ROOT / path).is_file():
                raise LabError(str(listing), expected=f"a file {path} in {ROOT}", found="none", do="correct the path")
            adds.append((tree.localise(path), ROOT / path))
    edits = []
    for file in sorted(file for file in folder.rglob("*") if file.is_file() and file not in (message, listing)):
        path = file.relative_to(folder)
        if file.suffix not in (".cocci", ".sed"):
            raise LabError(str(file), expected="message, adds, *.cocci or *.sed", found=path.name, do="remove it")
        target = path.with_name(path.name.removesuffix(file.suffix).split("@")[0])
        where = str(file.relative_to(ROOT))
        edits.append(Edit(where, tree.localise(str(target)), file.suffix[1:], tree.localise(file.read_text())))
    if not adds and not edits:
        raise LabError(str(folder), expected="edits or adds", found="neither", do="add them or remove the folder")
    return tree.localise(text), adds, edits


def folders() -> list[Path]:
    found = sorted(folder for folder in (ROOT / "series").glob("[0-9]*") if folder.is_dir())
    if not found:
        raise LabError(str(ROOT / "series"), expected="folders NNNN-slug", found="none",
                       do="check out the whole repository")
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Applying one edit


def condition(edit: Edit, value: str) -> tuple[str, re.Pattern[str]]:
    """`PATH: REGEX`, or a REGEX that is about the edited file."""
    path, colon, rest = value.partition(": ")
    named = colon and re.fullmatch(r"[\w.+/-]*/[\w.+/-]*|MAINTAINERS|Makefile|Kconfig", path)
    target, regex = (path, rest) if named else (edit.target, value)
    try:
        return target, re.compile(regex, re.M)
    except re.error as error:
        raise LabError(edit.where, expected="a regular expression", found=f"{regex}: {error}",
                       do="correct it") from None


def skip_reason(edit: Edit, tree: Tree) -> str | None:
    """Why the edit is not for this tree, or None if it is."""
    for word, value in edit.directives:
        if word == "gone":
            continue
        path, regex = condition(edit, value)
        text = tree.text(path)
        matched = text is not None and bool(regex.search(text))
        if matched != (word == "where"):
            return f"{word}: {value}"
    return None


def apply(edit: Edit, tree: Tree) -> None:
    old = tree.text(edit.target)
    if old is None:
        raise LabError(f"{edit.where}, on {tree}", expected=f"a file {edit.target}", found="none",
                       do="say `where:` if trees without it need no edit")
    edited, written = (run_spatch if edit.kind == "cocci" else run_sed)(edit, old, tree)
    tree.write(edit.target, edited, written)
    for word, value in edit.directives:
        if word == "gone":
            _, regex = condition(edit, value)
            for number, (line, own) in enumerate(zip(edited.splitlines(), tree.ours[edit.target], strict=True), 1):
                if not own and regex.search(line):
                    raise LabError(f"{edit.where}, on {tree}", expected=f"no line left that matches {value}",
                                   found=f"{edit.target}:{number}: {line.strip()}",
                                   do="extend the edit; spatch says nothing of functions it could not parse")


def nothing_changed(edit: Edit, tree: Tree, rules: str) -> LabError:
    return LabError(f"{edit.where}, {rules}, on {tree}", expected=f"a change in {edit.target}", found="no change",
                    do="correct the edit, or say with `where:`/`unless:` that this tree has no need of it")


# ---------------------------------------------------------------------------------------------------------------------
# sed


def include(edit: Edit) -> str:
    """The script with each `@include PATH` line replaced by that file's lines, as text of an i, a or c command."""
    def lines(match: re.Match[str]) -> str:
        file = ROOT / match[1]
        if not file.is_file():
            raise LabError(edit.where, expected=f"a file {match[1]} in {ROOT}", found="none", do="correct the @include")
        return "\\\n".join(line.replace("\\", "\\\\") for line in file.read_text().splitlines()) + match[2]

    return re.sub(r"^@include (\S+?)(\\?)$", lines, edit.text, flags=re.M)


ADDRESS = r"(?:\d+|\$|[+~]\d+|/(?:\\.|[^/\\])*/[IM]*|\\(?P<q{0}>[^\\\n])(?:\\.|(?!(?P=q{0})).)*(?P=q{0})[IM]*)"
SED_COMMAND = re.compile(
    rf"[\s;]*(?:{ADDRESS.format(1)}\s*(?:,\s*{ADDRESS.format(2)}\s*)?)?(?:!\s*)*(?P<verb>[a-zA-Z={{}}:#])"
)
SED_TEXT = re.compile(r"[ \t]*(?:\\[ \t]*\n)?((?:\\.|[^\n\\])*)", re.S)


def parse_sed(script: str, where: str) -> tuple[set[str], set[str]]:
    """The lines a script adds as they stand, and its commands."""
    added: set[str] = set()
    verbs = set()
    at = 0
    while script[at:].strip(" \t\n;"):
        command = SED_COMMAND.match(script, at)
        if not command:
            line = script[at:].strip().split("\n")[0]
            raise LabError(where, expected="a sed command", found=line, do="correct the script")
        verb, at = command["verb"], command.end()
        verbs.add(verb)
        if verb in "aic":
            text = SED_TEXT.match(script, at)
            assert text  # it matches the empty string
            plain = re.sub(r"\\(.)", lambda char: {"t": "\t"}.get(char[1], char[1]), text[1], flags=re.S)
            added.update(plain.split("\n"))
            at = text.end()
        elif verb in "sy":
            mark = re.escape(script[at])
            part = rf"(?:\\.|(?!{mark})[^\\])*{mark}"
            body = re.compile(rf"{mark}{part}{part}[\w ]*", re.S).match(script, at)
            at = body.end() if body else len(script)
        elif verb not in "{}":
            at += len(re.match(r"[^\n]*" if verb in "#:" else r"[^;}\n]*", script[at:])[0])  # type: ignore[index]
    return added, verbs


def run_sed(edit: Edit, old: str, tree: Tree) -> tuple[str, set[str]]:
    script = tree.localise(include(edit))
    written, verbs = parse_sed(script, edit.where)
    with tempfile.TemporaryDirectory(prefix="render-") as tmp:
        program, file = Path(tmp) / "script.sed", Path(tmp) / "file"
        program.write_text(script)
        file.write_bytes(old.encode(errors="surrogateescape"))
        done = run(["sed", "-i", "-f", program, file], check=False, timeout=SPATCH_SECONDS, env={"LC_ALL": "C"})
        if done.returncode:
            raise LabError(edit.where, expected="a sed script", found=done.stdout.strip(), do="correct the script")
        new = file.read_bytes().decode(errors="surrogateescape")
    if new == old:
        raise nothing_changed(edit, tree, "the script")
    check_sed(edit, tree, old, new, written, verbs)
    return new, written


def check_sed(edit: Edit, tree: Tree, old: str, new: str, written: set[str], verbs: set[str]) -> None:
    """Added lines stand in the script, or are lines it rewrites; lines go only where it has a command for that.

    And all that stands in it is added: of two commands one may have found its place and the other not.
    """
    gained = Counter(new.splitlines()) - Counter(old.splitlines())
    if lacking := sorted(line for line in written if line.strip() and line not in gained):
        raise LabError(f"{edit.where}, on {tree}", expected=f"a place in {edit.target} for each line of the script",
                       found=f"none for: {lacking[0].strip()}", do="correct the address of its command")
    before, after = iter(old.splitlines()), iter(new.splitlines())
    for hunk in re.finditer(r"=+|[-+]+", line_ops(old, new)):
        removed = [next(before) for op in hunk[0] if op in "=-"]
        added = [next(after) for op in hunk[0] if op in "=+"]
        if hunk[0].startswith("="):
            continue
        foreign = [line for line in added if line not in written]
        if removed and not verbs & set("sycdD"):
            found = f"- {removed[0]}"
        elif foreign and (not verbs & set("sy") or len(foreign) > len(removed)):
            found = f"+ {foreign[0]}"
        else:
            continue
        raise LabError(f"{edit.where}, on {tree}", expected="only changes that stand in the script", found=found,
                       do="write added lines as text of an i, a or c command")


# ---------------------------------------------------------------------------------------------------------------------
# Semantic patches: what stands in them


@dataclass(frozen=True)
class Token:
    key: str  # its text, with the space inside comments and directives made even
    start: int
    end: int

    @property
    def comment(self) -> bool:
        return self.key.startswith(("/*", "//"))


TOKEN = re.compile(
    r"""(?P<comment>/\*.*?\*/|//[^\n]*)
      | (?P<directive>^[ \t]*\#(?:\\\n|[^\n])*)
      | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
      | \w+ | [^\w\s]""",
    re.S | re.M | re.X,
)


def tokens(text: str) -> list[Token]:
    found = []
    for match in TOKEN.finditer(text):
        key = match[0]
        if match["comment"]:
            key = " ".join(re.sub(r"\n[ \t]*\*(?!/)", "\n", key).split())
        elif match["directive"]:
            key = re.sub(r"^# ", "#", " ".join(key.split()))
        found.append(Token(key, match.start(), match.end()))
    return found


@dataclass(frozen=True)
class Wild:
    """Stands for what a metavariable or `...` matched: one token, or several."""

    name: str
    single: bool = False


@dataclass
class Chunk:
    """Neighbouring `+` lines (or `-` lines) of a rule."""

    rule: str
    lines: list[str]
    metavariables: dict[str, bool]
    follows: Chunk | None = None  # the `-` lines right before these `+` lines
    after: bool = False  # it hangs on the line before it, else on the line behind it

    @cached_property
    def text(self) -> str:
        return "\n".join(self.lines)

    @cached_property
    def tokens(self) -> list[Token]:
        return tokens(self.text)

    @cached_property
    def pattern(self) -> list[str | Wild]:
        """Its tokens as spatch prints them; `const` is left out, for spatch doubles and moves it."""
        found: list[str | Wild] = []
        keys = [token.key for token in self.tokens if token.key != "const"]
        at = 0
        while at < len(keys):
            if keys[at : at + 3] == [".", ".", "."]:
                found.append(Wild(""))
                at += 3
            elif keys[at : at + 2] == ["\\", "("]:  # one of several, up to \)
                while keys[at : at + 2] != ["\\", ")"] and at < len(keys):
                    at += 1
                found.append(Wild(""))
                at += 2
            else:
                known = self.metavariables.get(keys[at])
                found.append(keys[at] if known is None else Wild(keys[at], known))
                at += 1
        return found

    @cached_property
    def defines(self) -> bool:
        """It brings a definition, so that a second copy of it is an error."""
        return any(line.startswith("}") for line in self.lines)


@dataclass
class Rule:
    name: str
    plus: list[Chunk] = field(default_factory=list)
    minus: list[Chunk] = field(default_factory=list)


RULE = re.compile(r"^@(?P<head>[^@]*)@(?P<declared>.*?)@@[ \t]*$", re.M | re.S)


def metavariables(declared: str) -> dict[str, bool]:
    """Name -> does it stand for one token? Of `symbol x`, `typedef x`, `iterator name x` the name is itself."""
    found = {}
    declared = re.sub(r"//[^\n]*|\{[^}]*\}", "", declared)
    for one in declared.split(";"):
        words = one.split()
        if not words or words[0] in ("symbol", "typedef") or "name" in words:
            continue
        for name in re.sub(r"(=~?|!~?=?|:|<=)[^,]*", "", one).split(","):
            if match := re.search(r"(\w+)\s*$", name):
                found[match[1]] = words[0] in ("identifier", "fresh", "idexpression", "local")
    return found


def parse_rules(edit: Edit) -> list[Rule]:
    heads = list(RULE.finditer(edit.text))
    rules = []
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        if ":" in head["head"]:
            continue  # a script
        name = head["head"].split()[0] if head["head"].split() else ""
        if not name:
            line = edit.text.count("\n", 0, head.start()) + 1
            raise LabError(f"{edit.where}:{line}", expected="a rule with a name", found="@@", do="name it")
        rule = Rule(name)
        known = metavariables(head["declared"])
        body = edit.text[head.end() : following.start() if following else None].split("\n")
        before = ""  # the line before, without its sign
        chunk, sign = None, " "
        for line in body:
            last, sign = sign, line[:1] or " "
            if sign in "+-":
                if sign != last or chunk is None:
                    previous = chunk if last == "-" else None
                    hangs = bool(before.strip(" \t(|")) and "..." not in before
                    chunk = Chunk(name, [], known, previous, hangs)
                    (rule.plus if sign == "+" else rule.minus).append(chunk)
                text = line.lstrip("+") if sign == "+" else re.sub(r"\bwhen\b.*", "", line[1:])
                chunk.lines.append(text.rstrip())
            else:
                chunk = None
            before = line[1:] if sign in "+-" else line
        rules.append(rule)
    if not any(rule.plus or rule.minus for rule in rules):
        raise LabError(edit.where, expected="rules with + or - lines", found="none", do="write one")
    return rules


# ---------------------------------------------------------------------------------------------------------------------
# Semantic patches: running them


def run_spatch(edit: Edit, old: str, tree: Tree) -> tuple[str, set[str]]:
    rules = parse_rules(edit)
    with tempfile.TemporaryDirectory(prefix="render-") as tmp:
        rule_file, source, result = Path(tmp) / "rules.cocci", Path(tmp) / Path(edit.target).name, Path(tmp) / "result"
        rule_file.write_text(edit.text)
        source.write_bytes(old.encode(errors="surrogateescape"))
        macros = ROOT / "series" / "macros.h"
        command = ["spatch", "--sp-file", rule_file, source, "-o", result, "--no-includes", "--show-dependencies",
                   *(["--macro-file", macros] if macros.exists() else [])]
        try:
            # Not run(): what spatch says of the rules comes on one stream, its complaints on the other.
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SPATCH_SECONDS)
        except FileNotFoundError:
            raise LabError("spatch", expected="Coccinelle", found="no such program", do="run `make setup`") from None
        except subprocess.TimeoutExpired:
            raise LabError(f"{edit.where}, on {tree}", expected=f"spatch to end within {SPATCH_SECONDS} s",
                           found="it did not", do="split the rule: long functions take long") from None
        if done.returncode and "-o can not be applied" not in done.stderr:
            raise LabError(f"{edit.where}, on {tree}", expected="spatch to run it",
                           found=f"exit status {done.returncode}\n{done.stderr.strip()}", do="correct the rule")
        new = result.read_bytes().decode(errors="surrogateescape") if result.exists() else old
    for rule in rules:
        if (rule.plus or rule.minus) and rule_state(rule.name, done.stdout) == "no match":
            raise LabError(f"{edit.where}, rule {rule.name}, on {tree}", expected=f"a match in {edit.target}",
                           found="none", do="correct the rule, or make it depend on a probe")
    if new == old:
        raise nothing_changed(edit, tree, "rules " + ", ".join(rule.name for rule in rules if rule.plus or rule.minus))
    return Restored(edit, tree, old, new, rules).result()


def rule_state(name: str, trace: str) -> str:
    """What --show-dependencies printed of a rule: match, no match, or that it was not run."""
    section = re.search(rf"^-{{9,}}\n{re.escape(name)} = \n-{{9,}}\n(.*?)(?=^-{{9,}}\n|\Z)", trace, re.M | re.S)
    if not section or "binding relevant in = " not in section[1]:
        return "not run"
    return "match" if re.search(r"^ +binding out = ", section[1], re.M) else "no match"


# ---------------------------------------------------------------------------------------------------------------------
# Semantic patches: believing the result


def match(pattern: list[str | Wild], keys: list[str], at: int) -> Iterator[tuple[int, dict[str, tuple[int, int]]]]:
    """Where the pattern, begun at `at`, can end, and what its wild cards took."""
    stack: list[tuple[int, int, dict[str, tuple[int, int]]]] = [(0, at, {})]
    while stack:
        step, at, taken = stack.pop()
        while step < len(pattern) and at <= len(keys):
            item = pattern[step]
            if isinstance(item, str):
                if at == len(keys) or keys[at] != item:
                    break
                at += 1
            else:
                behind = pattern[step + 1] if step + 1 < len(pattern) else None
                last = min(at + (1 if item.single else LONGEST), len(keys))
                for end in range(last, at - (item.name == ""), -1):  # `...` may stand for nothing
                    if isinstance(behind, str) and (end == len(keys) or keys[end] != behind):
                        continue
                    first, past = taken.get(item.name, (at, end)) if item.name else (at, end)
                    if keys[first:past] == keys[at:end]:
                        stack.append((step + 1, end, {**taken, item.name: (at, end)}))
                break
            step += 1
        else:
            if step == len(pattern):
                yield at, taken


class Stream:
    """The tokens of a text, and the same without those that spatch drops or doubles."""

    def __init__(self, text: str, without) -> None:
        self.text = text
        self.tokens = tokens(text)
        self.keys = [token.key for token in self.tokens]
        self.kept = [at for at, token in enumerate(self.tokens) if not without(token)]
        self.kept_keys = [self.keys[at] for at in self.kept]
        self.place = {at: number for number, at in enumerate(self.kept)}

    def matches(self, chunk: Chunk, at: int) -> Iterator[tuple[int, dict[str, str]]]:
        """(one past the last token, text of each wild card) for each way the chunk can stand at token `at`."""
        while at < len(self.keys) and at not in self.place:
            at += 1
        if at == len(self.keys):
            return
        for end, taken in match(chunk.pattern, self.kept_keys, self.place[at]):
            if end > self.place[at]:
                yield self.kept[end - 1] + 1, {
                    name: self.text[self.tokens[self.kept[first]].start : self.tokens[self.kept[last - 1]].end]
                    for name, (first, last) in taken.items() if last > first
                }

    def start(self, at: int) -> int:
        return self.tokens[at].start if at < len(self.tokens) else len(self.text)

    def line_of(self, at: int) -> str:
        if at >= len(self.tokens):
            return "(end of file)"
        start = self.tokens[at].start
        number = self.text.count("\n", 0, start) + 1
        return f"{number}: {self.text.split(chr(10))[number - 1].strip()}"


@dataclass
class Step:
    """How far one step goes in source and result: a token kept, a chunk's tokens gone or written."""

    kind: str  # keep, lost (a comment that spatch dropped and nobody removed), gone, written
    i: int
    j: int
    next_i: int
    next_j: int
    chunk: Chunk | None = None
    taken: dict[str, str] = field(default_factory=dict)


def columns(indent: str) -> int:
    return len(indent.expandtabs(8))


def indent_of(text: str, at: int) -> str | None:
    """The white space before `at`, if nothing else stands before it in its line."""
    before = text[text.rfind("\n", 0, at) + 1 : at]
    return before if not before.strip() else None


class Restored:
    """spatch's result told in terms of the source and of the rules' own lines."""

    def __init__(self, edit: Edit, tree: Tree, old: str, new: str, rules: list[Rule]) -> None:
        self.edit, self.tree, self.rules = edit, tree, rules
        self.old = Stream(old, lambda token: token.comment)
        self.new = Stream(new, lambda token: token.key == "const")
        self.written: set[str] = set()

    def moves(self, i: int, j: int) -> Iterator[Step]:
        for rule in self.rules:
            for chunk in rule.minus:
                for end, taken in self.old.matches(chunk, i) if i in self.old.place else ():
                    yield Step("gone", i, j, end, j, chunk, taken)
        for rule in self.rules:
            for chunk in rule.plus:
                for end, taken in self.new.matches(chunk, j):
                    yield Step("written", i, j, i, end, chunk, taken)
        if i < len(self.old.tokens) and self.old.tokens[i].comment:
            yield Step("lost", i, j, i + 1, j)

    def align(self) -> list[Step]:
        """A way from source to result. Tokens are kept while that works; the last choices are taken back first."""
        old, new = self.old.keys, self.new.keys
        path: list[tuple[Step, Iterator[Step] | None]] = []
        failed: set[tuple[int, int]] = set()
        i = j = 0
        furthest = (0, 0)
        budget = 100_000
        while (i, j) != (len(old), len(new)):
            step, others = None, None
            if (i, j) not in failed:
                if i < len(old) and j < len(new) and old[i] == new[j]:
                    step = Step("keep", i, j, i + 1, j + 1)
                else:
                    others = self.moves(i, j)
                    step = next(others, None)
            if i + j > sum(furthest):
                furthest = i, j
            while step is None:
                failed.add((i, j))
                budget -= 1
                if not path or not budget:
                    raise self.refuse(*furthest)
                last, others = path.pop()
                i, j = last.i, last.j
                others = others or self.moves(i, j)
                step = next(others, None)
            path.append((step, others))
            i, j = step.next_i, step.next_j
        return [step for step, _ in path]

    def refuse(self, i: int, j: int) -> LabError:
        return LabError(
            f"{self.edit.where}, on {self.tree}",
            expected="only changes that stand in the + and - lines of the rules",
            found=f"{self.edit.target}:{self.old.line_of(i)}\n"
                  f"            turned by spatch into line {self.new.line_of(j)}",
            do="write the rule so that spatch need not re-print that place",
        )

    def result(self) -> tuple[str, set[str]]:
        steps = self.align()
        self.check_counts(steps)
        out = []
        at = 0  # how much of the source is told
        number = 0
        while number < len(steps):
            if steps[number].kind in ("keep", "lost"):
                number += 1
                continue
            first = number
            while number < len(steps) and steps[number].kind in ("gone", "written"):
                number += 1
            group = steps[first:number]
            left = self.old.tokens[group[0].i - 1].end if group[0].i else 0
            right = self.old.start(group[-1].next_i)
            out += [self.old.text[at:left], self.told(group, left, right)]
            at = right
        text = "".join([*out, self.old.text[at:]])
        return text, self.written

    def check_counts(self, steps: list[Step]) -> None:
        count = Counter(step.chunk.text for step in steps if step.kind == "written" and step.chunk)
        for rule in self.rules:
            for chunk in rule.plus:
                if chunk.defines and count[chunk.text] > 1:
                    raise LabError(f"{self.edit.where}, rule {rule.name}, on {self.tree}",
                                   expected="one match, for it adds a definition",
                                   found=f"{count[chunk.text]} matches",
                                   do="name a statement that tells the places apart")

    def told(self, group: list[Step], left: int, right: int) -> str:
        """The text between two kept tokens, of which `left` is the end of one and `right` the start of the other."""
        text = self.old.text
        gone = [step for step in group if step.kind == "gone"]
        if gone:
            before = text[left : self.old.tokens[gone[0].i].start]
            behind = text[self.old.tokens[gone[-1].next_i - 1].end : right]
        else:
            before, behind = text[left:right], ""
        begins = not left or "\n" in before
        ends = right == len(text) or "\n" in (behind if gone else before)
        if begins and ends:
            return self.told_lines(group, left, right, before, behind)
        return self.told_within(group, before, behind)

    def told_lines(self, group: list[Step], left: int, right: int, before: str, behind: str) -> str:
        """Whole lines come and go between two lines of the source."""
        gone = [step for step in group if step.kind == "gone"]
        opened = not left or self.old.text[left - 1] == "{"
        closed = right == len(self.old.text) or self.old.text[right] == "}"
        blank = [""] * (before.count("\n") - bool(left))
        parts = [blank] if gone else []
        replaced = None  # what went right before
        hanging = True
        for step in group:
            if step.kind == "gone":
                replaced = step
            elif step.chunk:
                if not gone and hanging and not step.chunk.after:
                    hanging = False
                    parts.append(blank)
                replaces = replaced is not None and replaced.chunk is step.chunk.follows
                parts.append(self.own_lines(step, replaced if replaces else None))
        if gone:
            parts.append([""] * (behind.count("\n") - 1))
        elif hanging:
            parts.append(blank)
        lines = functools.reduce(join, parts)
        while lines and opened and not lines[0]:
            lines.pop(0)
        while lines and closed and not lines[-1]:
            lines.pop()
        last = behind if gone else before
        indent = last[last.rfind("\n") + 1 :] if right < len(self.old.text) else ""
        return ("\n" if left else "") + "".join(f"{line}\n" for line in lines) + indent

    def told_within(self, group: list[Step], before: str, behind: str) -> str:
        """Part of a line changes: the space is the source's where a line begins or ends, else spatch's."""
        new = self.new
        start = new.tokens[group[0].j - 1].end if group[0].j else 0
        end = new.start(group[-1].next_j)
        out = []
        at = start
        for step in group:
            if step.kind == "written" and step.chunk:
                out += [new.text[at : new.tokens[step.j].start], own_text(step).strip()]
                at = new.tokens[step.next_j - 1].end
        if not out:
            return before if "\n" in before else behind if "\n" in behind else new.text[start:end]
        out.append(new.text[at:end])
        if "\n" in before:
            out[0] = before
        if "\n" in behind:
            out[-1] = behind
        return "".join(out)

    def own_lines(self, step: Step, replaced: Step | None) -> list[str]:
        """The rule's lines, byte for byte, moved to where they stand now."""
        chunk = step.chunk
        assert chunk
        mine, there = "", None
        if replaced and replaced.chunk:  # the source's indent is surer than spatch's
            mine = indent_of(replaced.chunk.text, replaced.chunk.tokens[0].start)
            there = indent_of(self.old.text, self.old.tokens[replaced.i].start)
        else:
            for number, token in enumerate(chunk.tokens):
                if not token.key.startswith("#"):
                    mine = indent_of(chunk.text, token.start)
                    there = indent_of(self.new.text, self.new.tokens[min(step.j + number, step.next_j - 1)].start)
                    break
        shift = columns(there) - columns(mine or "") if there is not None else 0
        lines = [move(line, shift) for line in own_text(step).split("\n")]
        self.written.update(lines)
        return lines


def own_text(step: Step) -> str:
    """The rule's lines with its metavariables replaced by what they matched."""
    assert step.chunk
    out, at = [], 0
    for token in step.chunk.tokens:
        if token.key in step.taken and token.key in step.chunk.metavariables:
            out += [step.chunk.text[at : token.start], step.taken[token.key]]
            at = token.end
    return "".join([*out, step.chunk.text[at:]])


def move(line: str, shift: int) -> str:
    """Indent a line by so many columns more; what the preprocessor reads stays where it is."""
    if not line.strip() or line.startswith("#") or not shift:
        return line
    code = line.lstrip()
    width = max(columns(line[: len(line) - len(code)]) + shift, 0)
    return "\t" * (width // 8) + " " * (width % 8) + code


def join(before: list[str], behind: list[str]) -> list[str]:
    """One after the other, with one blank line where both bring some."""
    before, behind = list(before), list(behind)
    while before and behind and not before[-1] and not behind[0]:
        behind.pop(0)
    return before + behind


# ---------------------------------------------------------------------------------------------------------------------
# The series for one tree


def render(kernel: Kernel) -> Rendering:
    """What the series is for this tree. Reads the tree, writes nothing."""
    tree, rendering = Tree(kernel), Rendering()
    for folder in folders():
        message, adds, edits = read_commit(folder, tree)
        before = dict(tree.changed)
        for path, file in adds:
            if tree.read(path) is not None:
                raise LabError(f"{folder.name}, on {tree}", expected=f"no {path} yet", found="the tree has one",
                               do="name a tree without the series with KSRC=")
            rendering.origin[path] = file
            text = tree.localise(file.read_text())
            tree.write(path, text, set(text.splitlines()))
        for edit in edits:
            if reason := skip_reason(edit, tree):
                rendering.skipped.append(f"{edit.where}: {reason}")
            else:
                apply(edit, tree)
        files = {path: data for path, data in tree.changed.items() if before.get(path) != data}
        if files:
            rendering.commits.append(Commit(folder.name, message, files))
        else:
            rendering.skipped.append(f"{folder.name}: none of its edits is for this tree")
    return rendering


def commits(kernel: Kernel) -> list[Commit]:
    """The commits of the series for this tree, in order."""
    return render(kernel).commits


def is_git(kernel: Kernel) -> bool:
    return (kernel.source / ".git").exists()


def git_source(kernel: Kernel, *words: str) -> str:
    """Ask the user's repository, without even refreshing its index."""
    return run(["git", "-c", "safe.directory=*", "-C", kernel.source, *words], env={"GIT_OPTIONAL_LOCKS": "0"}).stdout


def check_tree(kernel: Kernel) -> None:
    """Refuse a tree that the series can't be meant for. Changes nothing in it."""
    if (kernel.source / MARK).exists():
        raise LabError(str(kernel.source), expected="a tree without the series", found=f"it already has {MARK}",
                       do="name a tree without the series with KSRC=")
    _ = kernel.keeper
    if is_git(kernel) and (dirty := git_source(kernel, "status", "--porcelain", "--untracked-files=no").splitlines()):
        raise LabError(str(kernel.source), expected="no uncommitted changes in tracked files",
                       found=f"{len(dirty)} of them, the first: {dirty[0].strip()}", do="commit or stash them")


@dataclass(frozen=True)
class Git:
    """A repository of the lab's own: the user's identity, nothing else of their settings, and a fixed date."""

    top: Path
    identity: tuple[str, str]
    date: str

    def __call__(self, *words: str | Path, log: Path | None = None) -> str:
        name, email = self.identity
        hidden = self.top / ".git"
        settings = {
            "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "LC_ALL": "C", "TZ": "UTC",
            "GIT_DIR": str(hidden), "GIT_WORK_TREE": str(self.top), "GIT_INDEX_FILE": str(hidden / "index"),
            "GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_AUTHOR_DATE": self.date,
            "GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": email, "GIT_COMMITTER_DATE": self.date,
        }
        speed = ["-c", "core.compression=0", "-c", "gc.auto=0", "-c", "core.safecrlf=false"]
        return run(["git", *speed, *words], cwd=self.top, env=settings, log=log).stdout


def identity() -> tuple[str, str]:
    """Who signs the patches off: as git would have it in this repository."""
    found = []
    for key, example in (("user.name", "Your Name"), ("user.email", "you@example.org")):
        value = run(["git", "config", key], cwd=ROOT, check=False).stdout.strip()
        if not value:
            raise LabError(f"git config {key}", expected="your own, for the sign-off of the patches", found="none",
                           do=f"git config --global {key} '{example}'")
        found.append(value)
    return found[0], found[1]


def date() -> str:
    """The date of the patches, the same for each run: SOURCE_DATE_EPOCH, or that of this repository's last commit."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if not epoch:
        done = run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=False)
        epoch = done.stdout.strip() if not done.returncode else ""
    if not epoch.isdigit():  # an unpacked archive
        epoch = str(int(max(file.stat().st_mtime for file in (ROOT / "series").rglob("*"))))
    return f"@{epoch} +0000"


def put(top: Path, path: str, data: bytes, like: Path) -> None:
    """Write a file of the series, executable if `like` is."""
    file = top / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    file.chmod(0o755 if like.stat().st_mode & 0o100 else 0o644)


def series(kernel: Kernel, out: Path | None = None, rendering: Rendering | None = None) -> list[Path]:
    """Write the patches for this tree to `out`; what was there stays if that fails."""
    check_tree(kernel)
    who, when = identity(), date()
    rendering = rendering or render(kernel)
    out = out or kernel.build / "series"
    with tempfile.TemporaryDirectory(prefix="render-") as tmp:
        git = Git(Path(tmp) / "repository", who, when)
        git.top.mkdir()
        git("init", "-q", "--template=", "-b", "series")
        for path in sorted({path for commit in rendering.commits for path in commit.files}):
            if (kernel.source / path).exists():
                put(git.top, path, (kernel.source / path).read_bytes(), kernel.source / path)
        git("add", "-A", "-f")
        git("commit", "-q", "--allow-empty", "-m", "base")
        git("tag", "base")
        for commit in rendering.commits:
            for path, data in commit.files.items():
                put(git.top, path, data, rendering.origin.get(path, kernel.source / path))
            git("add", "-A", "-f")
            message = Path(tmp) / "message"
            message.write_text(commit.message)
            git("commit", "-q", "-s", "--cleanup=whitespace", "-F", message)
        cover = ROOT / "series" / "cover"
        letter = []
        if cover.exists():
            git("config", "branch.series.description", Tree(kernel).localise(cover.read_text()))
            letter = ["--cover-letter", "--cover-from-description=subject"]
        patches = Path(tmp) / "patches"
        git("format-patch", "-q", "--zero-commit", "--no-signature", "--abbrev=12", "--numbered", "--no-renames",
            *letter, "-o", patches, "base..series")
        return replace(sorted(patches.iterdir()), out)


def replace(patches: list[Path], out: Path) -> list[Path]:
    """Put patches in place of those that are there; leave other files alone."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=out) as new:  # same disk, so that a full one fails here
        for patch in patches:
            shutil.copy(patch, new)
        for old in out.glob("[0-9][0-9][0-9][0-9]-*.patch"):
            old.unlink()
        return [(Path(new) / patch.name).rename(out / patch.name) for patch in patches]


def tree(kernel: Kernel) -> Path:
    """A git repository of the whole kernel with the series on top of its pristine source, in kernel.build."""
    patches = [patch for patch in series(kernel) if not patch.name.startswith("0000-")]
    who, when = identity(), date()
    place = kernel.build / "tree"
    log = kernel.build / "tree.log"
    log.unlink(missing_ok=True)
    stamp = source_stamp(kernel)
    git = Git(place, who, when)
    if place.exists():
        refuse_own_work(git)
    if stamp and place.exists() and git("config", "lab.source").strip() == stamp:
        git("reset", "-q", "--hard", "base", log=log)
    else:
        git = Git(kernel.build / "tree.new", who, when)
        import_source(kernel, git, log)
        git("config", "lab.source", stamp)
    say(f"applying {len(patches)} patches")
    try:
        git("am", "-q", "--committer-date-is-author-date", *patches, log=log)
    except LabError:
        if git.top == place:
            git("am", "--abort")
            git("reset", "-q", "--hard", "rendered")
        raise
    git("tag", "-f", "rendered")
    if git.top != place:
        shutil.rmtree(place, ignore_errors=True)
        git.top.rename(place)
    return place


def source_stamp(kernel: Kernel) -> str:
    """Tells one state of the source from another; empty if that can't be told."""
    if is_git(kernel):
        return git_source(kernel, "rev-parse", "HEAD").strip()
    stamp = kernel.cache / "stock.from"
    return stamp.read_text().strip() if kernel.source == kernel.cache / "stock" and stamp.exists() else ""


def refuse_own_work(git: Git) -> None:
    """The tree is ours to make anew, what the user did in it is not ours to delete."""
    if git("rev-parse", "HEAD") != git("rev-parse", "rendered") or git("status", "--porcelain"):
        raise LabError(str(git.top), expected="the series as it was last applied, and nothing else",
                       found="commits or changes of your own", do="move the folder away, then try again")


def import_source(kernel: Kernel, git: Git, log: Path) -> None:
    """The pristine source as the first commit, tagged `base`."""
    say(f"copying {kernel.source}")
    shutil.rmtree(git.top, ignore_errors=True)
    git.top.mkdir(parents=True)
    if is_git(kernel):
        archive = git.top / "archive.tar"
        git_source(kernel, "archive", "-o", str(archive), "HEAD")
        run(["tar", "xf", archive, "-C", git.top])
        archive.unlink()
    else:
        run(["cp", "-a", "--reflink=auto", f"{kernel.source}/.", git.top])
    say("adding it to git, which takes a minute or two")
    git("init", "-q", "--template=", "-b", "series")
    git("add", "-A", "-f", log=log)
    git("commit", "-q", "-m", f"Linux {kernel.version}", log=log)
    git("tag", "base")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m lab.render", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("series", "tree"))
    parser.add_argument("--kernel", help="one of Debian's: " + ", ".join(kernels.DEBIAN))
    parser.add_argument("--ksrc", help="your own kernel tree, which is only read")
    args = parser.parse_args(argv)
    try:
        kernel = kernels.get(args.kernel, args.ksrc)
        if args.what == "tree":
            say(f"{tree(kernel)}: the series on top of tag `base`")
        else:
            for patch in series(kernel):
                say(str(patch))
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
