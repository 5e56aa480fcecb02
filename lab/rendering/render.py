# SPDX-License-Identifier: GPL-2.0
"""Turn series/ into ordinary patches for whatever kernel tree there is: `python3 -m lab.rendering.render series|tree`.

lab/README.md has the language of series/. spatch re-prints what it touches, and is only believed line by line: what is
written are the rule's own lines, every other line of the result must be the source's, and every line that is missing
must stand in a `-` line of a rule.
"""

import argparse
import functools
import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from lab.common import ROOT, LabError, launch, run, say
from lab.kernels import trees
from lab.kernels.trees import SELFTESTS, Kernel

SPATCH_SECONDS = 300
NOBODY = ("Ann Author", "ann@example.org")  # signs patches that are only looked at: git may know no name here
TEXTS = ("Documentation/", "tools/", "MAINTAINERS")  # does not run, so it never stops a tree


class NoPlaceError(LabError):
    """An edit does not fit a tree."""


@dataclass
class Commit:
    """One commit of the series as it is for one tree; `files` are the new contents of what it changes or adds."""

    slug: str
    message: str
    files: dict[str, bytes]


@dataclass
class Rendering:
    commits: list[Commit] = field(default_factory=list)
    origin: dict[str, Path] = field(default_factory=dict)  # of each added file: where it is in this repository
    left: dict[str, str] = field(default_factory=dict)  # the fixes and texts whose place was not found, and why
    unneeded: list[str] = field(default_factory=list)  # the fixes that the tree has, or has not the fault of

    def files(self, upto: int | None = None) -> dict[str, bytes]:
        """The contents of all files of the series after all commits, or after the first `upto`."""
        return {path: data for commit in self.commits[:upto] for path, data in commit.files.items()}


@dataclass
class Tree:
    """The files of a kernel tree as they are after the commits so far; the tree itself is only read."""

    kernel: Kernel
    changed: dict[str, bytes] = field(default_factory=dict)
    ours: dict[str, Counter[str]] = field(default_factory=dict)  # the lines of a changed file that the series wrote

    def __str__(self) -> str:
        return f"{self.kernel.name} ({self.kernel.source})"

    def text(self, path: str) -> str | None:
        data = self.changed.get(path)
        if data is None and (self.kernel.source / path).is_file():
            data = (self.kernel.source / path).read_bytes()
        return None if data is None else data.decode(errors="surrogateescape")

    def source(self, path: str) -> str:
        """A file as the user has it."""
        file = self.kernel.source / path
        return file.read_text(errors="surrogateescape") if file.is_file() else ""

    def place(self, path: str, line: str, new: str) -> str:
        """Where a line that is left in an edited file stands in the user's tree."""
        where, name = self.kernel.source / path, ""
        for number, theirs in enumerate(self.source(path).splitlines(), 1):
            header = re.match(r"\w.*\b(\w+)\([^;]*$", theirs)
            name = header[1] if header else name
            if theirs == line and re.search(rf"^\w.*\b{name}\([^;]*?$(?s:.(?!^\}}))*?^{re.escape(line)}$", new, re.M):
                return f"{where}:{number}, {name}()"
        return str(where)

    def write(self, path: str, new: str, written: Counter[str]) -> None:
        """Replace a file; `written` are the lines in it that are ours. Of like lines those go first that were ours."""
        lost = Counter((self.text(path) or "").splitlines()) - (Counter(new.splitlines()) - written)
        self.ours[path] = self.ours.get(path, Counter()) - lost + written
        self.changed[path] = new.encode(errors="surrogateescape")

    def localise(self, text: str) -> str:
        """Name the folder of the mm selftests as this tree has it."""
        here = SELFTESTS[0] + "/"
        return text.replace(here, self.kernel.selftests + "/") if here in text else text


@dataclass
class Edit:
    """One edit file: which file of the tree it edits, its directives, its text."""

    tree: Tree
    where: str  # for messages
    target: str
    kind: str  # cocci or sed
    text: str

    @functools.cached_property
    def directives(self) -> list[tuple[str, str, re.Pattern[str], str]]:
        """Of each: where, unless, gone or has; the file it is about; what is searched there; what to do about it."""
        mark = "//" if self.kind == "cocci" else "#"
        head = itertools.takewhile(lambda line: not line.strip() or line.startswith(mark), self.text.splitlines())
        file = r"(?:([\w.+/-]*/[\w.+/-]*|MAINTAINERS|Makefile|Kconfig): )?"
        found = re.findall(rf"^{mark} (where|unless|gone|has): {file}(.*?)(?: -- (.*))?$", "\n".join(head), re.M)
        try:
            return [(word, path or self.target, re.compile(regex, re.M), do) for word, path, regex, do in found]
        except re.error as error:
            raise LabError(self.where, expected="a regular expression", found=f"{error.pattern!s}: {error}",
                           do="correct it") from None

    def fits(self) -> bool:
        """Whether the edit is for this tree, as far as it is edited."""
        asked = [(word, bool(regex.search(self.tree.text(path) or ""))) for word, path, regex, _ in self.directives]
        return ("where", False) not in asked and ("unless", True) not in asked

    def error(self, *, expected: str, found: str, do: str, rule: str = "") -> NoPlaceError:
        """What does not fit, in the words of who has the tree: where in it, not only where in series/."""
        where, text = f"{self.tree.kernel.source}/{self.target}", self.tree.source(self.target)
        body = re.search(rf"^@{rule}\b[^@]*@.*?@@(.*?)(?=^@|\Z)", self.text, re.M | re.S) if rule else None
        name = re.search(r"(\w+)\(.*\)\s*\{", body[1]) if body else None
        if name and (there := re.search(rf"^\w.*\b{name[1]}\(", text, re.M)):
            where += f":{text.count(chr(10), 0, there.start()) + 1}, {name[1]}()"
        script = f"{self.where}, rule {rule}" if rule else self.where
        return NoPlaceError(where, expected=expected, found=found, do=f"{do}, in {script}; or make the series for the "
                            "kernel that this tree was made from, and merge the two")  # fmt: skip


def include(text: str, where: str) -> str:
    """A script with each `@include PATH` line replaced by that file's lines, as text of an i, a or c command."""

    def lines(match: re.Match[str]) -> str:
        file = ROOT / match[1]
        if not file.is_file():
            raise LabError(where, expected=f"a file {match[1]} in {ROOT}", found="none", do="correct the @include")
        return "\\\n".join(file.read_text().replace("\\", "\\\\").splitlines()) + match[2]

    return re.sub(r"^@include (\S+?)(\\?)$", lines, text, flags=re.M)


def read_commit(folder: Path, tree: Tree) -> tuple[str, list[tuple[str, Path]], list[Edit]]:
    """Message, (path in the tree, file here) of what it adds, and edits of one commit."""
    message, listing = folder / "message", folder / "adds"
    text = message.read_text() if message.exists() else ""
    if not re.match(r"\S[^\n]*\n\n\S", text):
        raise LabError(str(message), expected="a subject line, a blank line, a body", found=repr(text[:60]),
                       do="write the commit message, without a sign-off")
    listed = listing.read_text().split("\n") if listing.exists() else []
    added = [path for path in listed if path and not path.startswith("#")]
    if absent := [path for path in added if not (ROOT / path).is_file()]:
        raise LabError(str(listing), expected=f"a file {absent[0]} in {ROOT}", found="none", do="correct the path")
    edits = []
    for file in sorted(file for file in folder.rglob("*") if file.is_file() and file not in (message, listing)):
        if file.suffix not in (".cocci", ".sed"):
            raise LabError(str(file), expected="message, adds, *.cocci or *.sed", found=file.name, do="remove it")
        where, target = str(file.relative_to(ROOT)), str(file.with_name(file.stem.split("@")[0]).relative_to(folder))
        script = tree.localise(include(file.read_text(), where))
        edits.append(Edit(tree, where, tree.localise(target), file.suffix[1:], script))
    if not added and not edits:
        raise LabError(str(folder), expected="edits or adds", found="neither", do="add them or remove the folder")
    return fitting(text, message, tree), [(tree.localise(path), ROOT / path) for path in added], edits


def fitting(text: str, file: Path, tree: Tree) -> str:
    """What is true of this tree: a paragraph may begin with `# where:` and `# unless:` lines, as a sed script does."""
    edits = [Edit(tree, str(file), "", "sed", paragraph) for paragraph in text.strip("\n").split("\n\n")]
    kept = [re.sub(r"\A(# (where|unless): .*\n)+", "", edit.text) for edit in edits if edit.fits()]
    return tree.localise("\n\n".join(kept) + "\n")


def apply(edit: Edit) -> None:
    old = edit.tree.text(edit.target)
    if old is None:
        raise edit.error(expected="the file, which is to be edited", found="none", do="say `where:`")
    new, written = (run_spatch if edit.kind == "cocci" else run_sed)(edit, old)
    if new == old:
        raise edit.error(expected="a place for the edit", found="none", do="correct it, or say `where:` or `unless:`")
    edit.tree.write(edit.target, new, written)
    theirs = Counter(new.splitlines()) - edit.tree.ours[edit.target]
    for word, path, regex, do in edit.directives:
        if word == "has" and not regex.search(edit.tree.text(path) or ""):
            raise edit.error(expected=f"{regex.pattern} in {path}, by now", found="none", do=do or "extend the series")
        if word == "gone" and (left := [line for line in theirs if regex.search(line)]):
            raise NoPlaceError(edit.tree.place(edit.target, left[0], new), found=left[0].strip(),
                               expected=f"nothing that matches {regex.pattern} but what the series replaces",
                               do=do or f"extend {edit.where}: say what becomes of this line")  # fmt: skip


def run_on_copy(command: list[str], edit: Edit, old: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """What a command said, and made of the file, given the edit's script and the file. Not run(): of two streams."""
    with tempfile.TemporaryDirectory(prefix="render-") as tmp:
        script, file = Path(tmp) / Path(edit.where).name, Path(tmp) / Path(edit.target).name
        script.write_text(edit.text)
        file.write_bytes(old.encode(errors="surrogateescape"))
        # spatch wants a home, and no space in the file's path.
        environment = {"HOME": ".", **os.environ, "LC_ALL": "C"}
        done = subprocess.run([*command, script.name, file.name], cwd=tmp, env=environment, capture_output=True,
                              text=True, errors="replace", timeout=SPATCH_SECONDS)
        return done, file.read_bytes().decode(errors="surrogateescape")


def run_sed(edit: Edit, old: str) -> tuple[str, Counter[str]]:
    """Lines that come stand in the script, or are lines it rewrites; lines go only where it has a command for that."""
    done, new = run_on_copy(["sed", "-i", "-f"], edit, old)
    if done.returncode:
        raise LabError(edit.where, expected="a sed script", found=done.stderr.strip(), do="correct the script")
    listed, verbs = set(), set()
    for command in re.findall(r"(?:\\.|[^\\\n])+", edit.text, re.S):  # each with its lines of text
        verbs.update(re.findall(r"\A(?:\d+|\$|/(?:\\.|[^/\\])*/|[\s,!{}])*([a-zA-Z])", command))  # behind its address
        plain = re.sub(r"\\(.)", lambda char: "\t" if char[1] == "t" else char[1], command, flags=re.S)
        listed.update(plain.split("\n")[1:])
    before, after = Counter(old.splitlines()), Counter(new.splitlines())
    gained, lost = after - before, before - after
    # All that stands in it must come: of two commands one may have found its place and the other not.
    if lacking := sorted(line for line in listed if line.strip() and line not in gained):
        raise edit.error(expected="a place for each line of the script", found=f"none for: {lacking[0].strip()}",
                         do="correct the address of its command")
    foreign = [line for line in gained.elements() if line not in listed]
    if lost and not verbs & set("sycdD"):
        found = f"- {next(iter(lost))}"
    elif foreign and (not verbs & set("sy") or len(foreign) > lost.total()):
        found = f"+ {foreign[0]}"
    else:
        return new, gained - Counter(foreign)
    raise edit.error(expected="only changes that stand in the script", found=found,
                     do="write added lines as text of an i, a or c command")


class Chunk(NamedTuple):
    """Neighbouring `+` lines (or `-` lines) of a rule."""

    rule: str
    sign: str
    known: frozenset[str]  # the rule's metavariables
    lines: list[str]


def parse_rules(edit: Edit) -> list[Chunk]:
    """What the rules add and remove; a rule that does neither is a probe."""
    chunks = []
    rules = re.findall(r"^@([^@]*)@(.*?)@@[ \t]*$(.*?)(?=^@|\Z)", edit.text, re.M | re.S)
    for head, declared, body in rules:  # its name, metavariables and lines
        if not head.strip():
            raise LabError(edit.where, expected="a rule with a name", found=f"@@{declared}@@{body}", do="name it")
        known = set()
        for one in re.sub(r"//[^\n]*|\{[^}]*\}", "", declared).split(";"):
            if {"symbol", "typedef", "name"}.isdisjoint(one.split()):  # of `iterator name x` the name is itself
                known.update(re.findall(r"(\w+)\s*(?:,|\Z)", re.sub(r"(=~?|!~?=?|:|<=)[^,]*", "", one)))
        for sign, lines in itertools.groupby(body.split("\n"), lambda line: line[:1]):
            if sign in ("+", "-"):
                text = [line.lstrip("+") if sign == "+" else re.sub(r"\bwhen\b.*", "", line[1:]) for line in lines]
                chunks.append(Chunk(head.split()[0], sign, frozenset(known), [line.rstrip() for line in text]))
    if not chunks:
        raise LabError(edit.where, expected="rules with + or - lines", found="none", do="write one")
    return chunks


def run_spatch(edit: Edit, old: str) -> tuple[str, Counter[str]]:
    chunks = parse_rules(edit)
    command = ["spatch", "--in-place", "--no-includes", "--show-dependencies", "--smpl-spacing", "--sp-file"]
    try:
        done, new = run_on_copy(command, edit, old)
    except FileNotFoundError:
        raise LabError("spatch", expected="Coccinelle", found="no such program", do="run `make setup`") from None
    except subprocess.TimeoutExpired:
        raise LabError(edit.where, expected=f"spatch to end within {SPATCH_SECONDS} s", found="it did not",
                       do="try again when the machine has less to do, or split the rule") from None
    if done.returncode:
        raise LabError(edit.where, expected="spatch to run it", do="correct the rule",
                       found=f"exit status {done.returncode}\n{done.stderr.strip()}")
    for name in dict.fromkeys(chunk.rule for chunk in chunks):
        told = rf"^-{{9,}}\n{re.escape(name)} = \n-{{9,}}\n(.*?)(?=^-{{9,}}\n|\Z)"
        for trace in re.findall(told, done.stdout, re.M | re.S):
            if "binding relevant in = " in trace and not re.search(r"^ +binding out = ", trace, re.M):
                raise edit.error(rule=name, expected="a place for the rule", found="none",
                                 do="correct the rule, or make it depend on a probe")
    return restore(edit, old, new, chunks)


@functools.cache
def pattern(text: str, known: frozenset[str]) -> str:
    """A regular expression for text of a rule, however it is spaced; wild cards are its metavariables and `...`."""
    wild = {"...": ".*?", **dict.fromkeys(known, "([^;{}]*?)")}
    text = re.sub(r"\\\(.*?\\\)", " ... ", text, flags=re.S)  # one of several: anything
    words = re.findall(r"\.\.\.|\w+|[^\w\s]", text)
    return r"\s*".join(wild.get(word, rf"\b{word}\b" if re.match(r"\w", word) else re.escape(word)) for word in words)


def own_line(line: str, printed: str, known: frozenset[str]) -> str:
    """A rule's line with what spatch has put in for its metavariables; empty if that isn't how it prints this line."""
    const = r"\bconst\b" if known.isdisjoint(re.findall(r"\w+", line)) else "(?!)"  # it may double and move it
    match = re.fullmatch(pattern(re.sub(const, "", line), known), re.sub(const, "", printed).strip())
    taken = iter(match.groups() if match else ())
    return re.sub(r"\w+", lambda word: next(taken) if word[0] in known else word[0], line) if match else ""


def columns(line: str) -> int:
    """How far a line is indented."""
    return len(line[: len(line) - len(line.lstrip())].expandtabs(8))


def move(line: str, shift: int) -> str:
    """Indent a line by so many columns more; what the preprocessor reads stays where it is."""
    if line.startswith("#") or not shift:
        return line
    width = max(columns(line) + shift, 0)
    return "\t" * (width // 8) + " " * (width % 8) + line.lstrip()


def places(chunk: Chunk, lines: list[str]) -> Iterator[tuple[int, int, list[str]]]:
    """Each run of lines that are the chunk's but for white space: the first, one past the last, and what to write.

    That is the rule's text but for metavariables, moved to where spatch printed the first line of it.
    """
    ours = [line for line in chunk.lines if line]
    printed = [number for number, line in enumerate(lines) if line.strip()]
    at = 0
    while ours and at + len(ours) <= len(printed):
        numbers = printed[at : at + len(ours)]
        pairs = [(line, lines[number]) for line, number in zip(ours, numbers, strict=True)]
        told = list(itertools.takewhile(bool, (own_line(*pair, chunk.known) for pair in pairs)))
        if len(told) == len(ours):
            shift = next((columns(there) - columns(line) for line, there in pairs if not line.startswith("#")), 0)
            text = iter(told)
            yield numbers[0], numbers[-1] + 1, [move(next(text), shift) if line else "" for line in chunk.lines]
        at += len(ours) if len(told) == len(ours) else 1


def blank_runs(lines: list[str]) -> list[tuple[str, int, str]]:
    """(line, how many blank lines follow it, the next one that is not blank), from the first line to the last."""
    code = [(-1, ""), *((at, line) for at, line in enumerate(lines) if line.strip()), (len(lines), "")]
    return [(left, behind - at - 1, right) for (at, left), (behind, right) in itertools.pairwise(code)]


def tidy(lines: list[str], source: list[str]) -> list[str]:
    """Where lines went or came: one blank line at most, and none where a block begins or ends."""
    runs = blank_runs(source)
    ends = itertools.accumulate(run[1] + 1 for run in runs)
    known = {run: source[end - run[1] - 1 : end - 1] for run, end in zip(runs, ends, strict=True)}
    told: list[str] = []
    for left, count, right in blank_runs(lines):
        fewer = 0 if left.endswith("{") or right.startswith("}") else min(count, 1)
        told += [*known.get((left, count, right), [""] * fewer), right]
    return told[:-1]  # what follows the last line is no line


def restore(edit: Edit, old: str, new: str, chunks: list[Chunk]) -> tuple[str, Counter[str]]:
    """spatch's result with the rule's own lines in it, and these lines. Refuses what no rule wrote or removed."""
    source, lines = old.splitlines(), new.splitlines()
    bare = ["".join(line.split()) for line in lines]
    theirs = {"", *("".join(line.split()) for line in source)}
    put = [[line] for line in lines]  # what to write in place of each line
    taken: set[int] = set()
    written: Counter[str] = Counter()
    # The longest first, for the lines of a short one may stand in it.
    for chunk in sorted((chunk for chunk in chunks if chunk.sign == "+"), key=lambda chunk: -len(chunk.lines)):
        found = [(first, past, own) for first, past, own in places(chunk, lines)
                 if taken.isdisjoint(range(first, past)) and not theirs.issuperset(bare[first:past])]
        if len(found) > 1 and any(line.startswith("}") for line in chunk.lines):
            raise edit.error(rule=chunk.rule, expected="one match, for it adds a definition",
                             found=f"{len(found)} matches", do="name a statement that tells the places apart")
        for first, past, own in found:
            taken.update(range(first, past))
            put[first:past] = [own] + [[]] * (past - first - 1)
            written.update(own)
    known = set(source)
    lines = tidy([line if line in known else line.rstrip() for line in itertools.chain(*put)], source)
    if foreign := unexplained(source, lines, written, chunks):
        raise edit.error(expected="only changes that stand in the + and - lines of the rules",
                         found=f"{foreign}\n            by spatch in {edit.target}",
                         do="write the rule so that spatch need not re-print that place")
    return "\n".join(lines) + "\n", written


def unexplained(source: list[str], lines: list[str], written: Counter[str], chunks: list[Chunk]) -> str | None:
    """Without the rules' own lines, the result must be the source less what the rules remove: a line that isn't so."""
    kept = Counter(lines) - written
    missing = Counter(source) - kept
    foreign = [line for line in (kept - Counter(source)).elements() if line.strip()]
    for line in sorted(foreign, key=len, reverse=True):  # of those to refuse the longest tells most
        origin = rewritten(line, list(missing), chunks)
        if origin is None:
            return f"+ {line.strip()}"
        missing -= Counter([origin])
    left = missing - Counter(removable(source, chunks))
    return next((f"- {line.strip()}" for line in left if line.strip()), None)


def rewritten(line: str, missing: list[str], chunks: list[Chunk]) -> str | None:
    """The source's line of which this one is left, with text of a rule in it; empty if it is a rule's alone."""
    texts = [(text, chunk.known) for chunk in chunks if chunk.sign == "+" for text in chunk.lines if text]
    for match in filter(None, (re.search(pattern(*text), line) for text in texts)):
        left, right = line[: match.start()], line[match.end() :]
        if not (left + right).strip():
            return ""
        if origins := [one for one in missing if one.startswith(left) and one.endswith(right)]:
            return origins[0]
    return None


def removable(source: list[str], chunks: list[Chunk]) -> list[str]:
    """The lines that a rule's `-` lines stand for, with the comments within and right above them."""
    text = "\n".join(source)
    code = re.sub(r"/\*.*?\*/|//[^\n]*", lambda comment: re.sub(r"[^\n]", " ", comment[0]), text, flags=re.S)
    left = code  # with a NUL for each character that goes
    for chunk in (chunk for chunk in chunks if chunk.sign == "-"):
        rule = "\n".join(chunk.lines).rstrip()
        for match in re.finditer(pattern(rule, chunk.known), code, re.S):
            start, end = match.span()
            # It really ends with the statement that it ends in, or with the brace that closes what it opened.
            if re.split(r"\W", rule)[-1] in chunk.known and (rest := re.compile(r"[^;{]*[;{]").match(code, end)):
                end = rest.end()
            depth = code.count("{", start, end) - code.count("}", start, end)
            while depth > 0 and end < len(code):
                depth += {"{": 1, "}": -1}.get(code[end], 0)
                end += 1
            left = left[:start] + re.sub(r"\S", "\0", left[start:end]) + left[end:]
    found, below = [], "code"  # the code line at or below a line
    for line, was in zip(reversed(left.split("\n")), reversed(source), strict=True):
        below = line if line.strip() else below
        if not below.strip("\0\t "):
            found.append(was)
    return found


def render(kernel: Kernel) -> Rendering:
    """What the series is for this tree. Reads the tree, writes nothing."""
    tree, rendering = Tree(kernel), Rendering()
    folders = sorted(folder for folder in (ROOT / "series").glob("[0-9]*") if folder.is_dir())
    for folder in folders:
        message, adds, edits = read_commit(folder, tree)
        is_fix, subject = bool(re.search(r"^Fixes: ", message, re.M)), message.partition("\n")[0]
        before, ours = dict(tree.changed), dict(tree.ours)
        try:
            add(adds, tree, rendering)
            for edit in filter(Edit.fits, edits):
                try:
                    apply(edit)
                except NoPlaceError as error:
                    if not edit.target.startswith(TEXTS):
                        raise
                    rendering.left[edit.target] = str(error)
        except NoPlaceError as error:
            if not is_fix:
                raise
            tree.changed, tree.ours = before, ours
            rendering.left[subject] = str(error)
            continue
        files = {path: data for path, data in tree.changed.items() if before.get(path) != data}
        if files:
            rendering.commits.append(Commit(folder.name, message, files))
        elif is_fix:
            rendering.unneeded.append(subject)
    return rendering


def tell(rendering: Rendering) -> None:
    """Say what of the series has no place in a tree; of code also why."""
    for what, why in rendering.left.items():
        say(f"left out: {what}" + f"\n{why}" * (not what.startswith(TEXTS)))


def add(files: list[tuple[str, Path]], tree: Tree, rendering: Rendering) -> None:
    """Put new files into the tree; texts only where it has their folder."""
    for path, file in files:
        if tree.text(path) is not None:
            raise LabError(f"{path}, on {tree}", expected="no such file yet", found="the tree has one",
                           do="name a tree without the series with KSRC=")
        if path.startswith(TEXTS) and not (tree.kernel.source / path).parent.is_dir():
            rendering.left[path] = "the tree has no such folder"
            continue
        rendering.origin[path] = file
        text = tree.localise(file.read_text())
        tree.write(path, text, Counter(text.splitlines()))


def unpack(kernel: Kernel, to: Path) -> None:
    """The commit that the user's repository has checked out, as files. `git archive` leaves out what it is told to."""
    with tempfile.TemporaryDirectory(prefix="render-") as tmp:
        kernel.git("read-tree", "HEAD", index=Path(tmp) / "index")
        kernel.git("checkout-index", "-a", f"--prefix={to}/", index=Path(tmp) / "index")


def source_stamp(kernel: Kernel) -> str:
    """Tells one state of the source from another; empty if that can't be told without a look at every file."""
    if kernel.is_git:
        return kernel.git("rev-parse", "HEAD").strip()
    return (kernel.cache / "stock.from").read_text().strip() if kernel.source == kernel.cache / "stock" else ""


def identity(kernel: Kernel) -> tuple[str, str]:
    """Who signs the patches off: whom git has for the kernel's repository, or for this one."""
    place = kernel.source if kernel.is_git else ROOT
    command = ["git", "-c", "safe.directory=*", "-c", "user.useConfigOnly=true", "var"]
    for which in ("GIT_COMMITTER_IDENT", "GIT_AUTHOR_IDENT"):  # a hook has the commit's author in the second
        if who := re.match(r"(.+) <(.+)> \d+ ", run([*command, which], cwd=place, check=False, quiet=True).stdout):
            return who[1], who[2]
    raise LabError(f"git in {place}", expected="your name and address, for the sign-off", found="none",
                   do="git config --global user.name 'Your Name'; git config --global user.email you@example.org")


def date_of_patches() -> str:
    """The same for each run: SOURCE_DATE_EPOCH, or the date of this repository's last commit."""
    last = ["git", "log", "-1", "--format=%ct"]
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or run(last, cwd=ROOT, check=False).stdout.strip()
    if not epoch.isdigit():  # an unpacked archive
        epoch = str(int(max(file.stat().st_mtime for file in (ROOT / "series").rglob("*"))))
    return f"@{epoch} +0000"


def put(top: Path, path: str, data: bytes, like: Path) -> None:
    """Write a file of the series, executable if `like` is."""
    file = top / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    file.chmod(0o755 if like.stat().st_mode & 0o100 else 0o644)


@dataclass(frozen=True)
class Git:
    """A repository of the lab's own: the identity that is given, no other settings of the user, and a fixed date."""

    top: Path
    who: tuple[str, str]
    date: str = field(default_factory=date_of_patches)

    def __call__(self, *words: str | Path) -> str:
        name, email = self.who
        hidden = self.top / ".git"
        settings = {
            "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "LC_ALL": "C", "TZ": "UTC",
            "GIT_DIR": str(hidden), "GIT_WORK_TREE": str(self.top), "GIT_INDEX_FILE": str(hidden / "index"),
            "GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_AUTHOR_DATE": self.date,
            "GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": email, "GIT_COMMITTER_DATE": self.date,
        }
        speed = ["-c", "core.compression=0", "-c", "gc.auto=0", "-c", "core.safecrlf=false"]
        return run(["git", *speed, *words], cwd=self.top, env=settings).stdout

    def copy(self, kernel: Kernel, rendering: Rendering) -> None:
        """Begin with the tree's own files, as far as the series edits them."""
        self.top.mkdir(exist_ok=True)
        for path in rendering.files():
            if (kernel.source / path).exists():
                put(self.top, path, (kernel.source / path).read_bytes(), kernel.source / path)
        self.begin("base")

    def begin(self, message: str) -> None:
        """What is in the folder, as the first commit, tagged `base`."""
        self("init", "-q", "--template=", "-b", "series")
        self("add", "-A", "-f")
        self("commit", "-q", "--allow-empty", "-m", message)
        self("tag", "base")

    def add(self, kernel: Kernel, rendering: Rendering) -> None:
        """The commits of the series."""
        for commit in rendering.commits:
            for path, data in commit.files.items():
                put(self.top, path, data, rendering.origin.get(path, kernel.source / path))
            self("add", "-f", "--", *commit.files)
            self("commit", "-q", "-s", "--cleanup=whitespace", "-m", commit.message)


def series(kernel: Kernel, out: Path | None = None, rendering: Rendering | None = None,
           who: tuple[str, str] | None = None) -> list[Path]:
    """Write the patches for this tree to `out`; what was there stays if that fails. The user signs them, or `who`."""
    who = who or identity(kernel)
    rendering = rendering or render(kernel)
    out = (out or kernel.build / "series").absolute()
    out.mkdir(parents=True, exist_ok=True)
    with (tempfile.TemporaryDirectory(prefix="render-") as tmp,
          tempfile.TemporaryDirectory(prefix=".new-", dir=out) as new):  # same disk, so that a full one fails here
        git = Git(Path(tmp), who)
        git.copy(kernel, rendering)
        git.add(kernel, rendering)
        cover = ROOT / "series" / "cover"
        letter = ["--cover-letter", "--cover-from-description=subject"] if cover.exists() else []
        if letter:
            done = Tree(kernel, rendering.files())
            git("config", "branch.series.description", fitting(cover.read_text(), cover, done))
        git("format-patch", "-q", "--zero-commit", "--no-signature", "--abbrev=12", "--numbered", "--no-renames",
            *letter, "-o", new, "base..series")
        if letter and kernel.is_git:
            with Path(new, "0000-cover-letter.patch").open("a") as file:
                file.write(f"\nbase-commit: {kernel.git('rev-parse', 'HEAD').strip()}\n")
        for old in out.glob("[0-9][0-9][0-9][0-9]-*.patch"):
            old.unlink()
        patches = [patch.rename(out / patch.name) for patch in sorted(Path(new).iterdir())]
    recipients(kernel, patches)
    return patches


def recipients(kernel: Kernel, patches: list[Path]) -> None:
    """Whom to send the patches to, as settings: `git -c include.path=…/send-email.config send-email`."""
    command = ["perl", "scripts/get_maintainer.pl", "--no-git", "--no-git-fallback", *map(str, patches)]
    text = run(command, cwd=kernel.source, check=False).stdout  # it refuses trees that lack a README
    found = re.findall(r"^(.*\S) \((.*?)[:)]", text, re.M)
    lines = [f"\t{'to' if role in ('maintainer', 'supporter') else 'cc'} = {json.dumps(who)}\n" for who, role in found]
    if lines:
        (patches[0].parent / "send-email.config").write_text("[sendemail]\n" + "".join(sorted(lines, reverse=True)))


def tree(kernel: Kernel, rendering: Rendering | None = None) -> Path:
    """A git repository of the whole kernel with the series on top of its pristine source, in kernel.build."""
    rendering = rendering or render(kernel)
    series(kernel, rendering=rendering)
    place, stamp = kernel.build / "tree", source_stamp(kernel)
    git = Git(place, identity(kernel))
    same = bool(stamp) and place.exists() and git("config", "lab.source").strip() == stamp
    if place.exists() and (git("rev-parse", "HEAD") != git("rev-parse", "rendered")
                           or git("status", "--porcelain", *([] if same else ["--ignored"]))
                           or len(git("for-each-ref").splitlines()) != 3):  # the branch, and the tags of its two ends
        # The tree is ours to make anew, what the user did in it is not ours to delete.
        raise LabError(str(place), expected="the series as it was last applied, and nothing else",
                       found="commits, changes or files of your own", do="move the folder away, then try again")
    if same:
        git("reset", "-q", "--hard", "base")
    else:
        git = Git(kernel.build / "tree.new", git.who)
        say(f"copying {kernel.source}")
        shutil.rmtree(git.top, ignore_errors=True)
        git.top.mkdir(parents=True)
        if kernel.is_git:
            unpack(kernel, git.top)
        else:
            run(["cp", "-a", "--reflink=auto", f"{kernel.source}/.", git.top])
        say("adding it to git, which takes a minute or two")
        git.begin(f"Linux {kernel.version}")
        git("config", "lab.source", stamp)
    say(f"applying {len(rendering.commits)} patches")
    git.add(kernel, rendering)
    git("tag", "-f", "rendered")
    if git.top != place:
        shutil.rmtree(place, ignore_errors=True)
        git.top.rename(place)
    return place


def parser() -> argparse.ArgumentParser:
    words = trees.command("lab.rendering.render", __doc__)
    words.add_argument("what", choices=("series", "tree"), help="the patches, or the tree with the series applied")
    return words


def main(given: argparse.Namespace) -> None:
    kernel = trees.chosen(given)[0]
    rendering = render(kernel)
    if given.what == "tree":
        say(f"{tree(kernel, rendering)}: the series on top of tag `base`")
    else:
        for patch in series(kernel, rendering=rendering):
            say(str(patch))
    for subject in rendering.unneeded:
        say(f"not needed here: {subject}")
    tell(rendering)


if __name__ == "__main__":
    launch(main, parser())
