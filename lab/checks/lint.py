# SPDX-License-Identifier: GPL-2.0
"""The static checks: what a maintainer runs on patches before reading them. `python3 -m lab.checks.lint`.

Everything that compiles does so in a tree and an object directory of its own, so that no kernel must be built anew.
"""

import argparse
import contextlib
import functools
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import SkipTest

from lab.checks.results import Results, expect
from lab.common import ROOT, LabError, launch, locked, run as call
from lab.kernels import build, trees
from lab.kernels.trees import Kernel
from lab.rendering import render
from lab.rendering.render import Commit, Rendering

SEMANTIC = Path(__file__).resolve().with_name("gate.cocci")  # the rules of the gate that no compiler checks
RULE_SECONDS = 120
LINE = 120  # in Python; the kernel's own limits are checkpatch's
# Also on the lab's configuration: what the series adds to the kernel and nothing turns on by itself.
EXTRA = "CONFIG_KUNIT=y\nCONFIG_DEMOTION_GATE_KUNIT_TEST=y\n"
# Unfinished work, and paths of one machine; the guest's own home is on none.
LEFT = re.compile(r"(?:#|//|\*)\s*(?:TO[D]O|FIX[M]E|X[X]X|HA[C]K)\b|/ho[m]e/|/ro[o]t/(?!\.shrc)")
SPELT_SO = "nd,ser,upto"  # of ours and the kernel's, which codespell takes for misspelt ones
NOT_FOR_TOOLS = ("api/string_choices.cocci", "misc/minmax.cocci")  # they ask for what only the kernel has
WARNING = re.compile(r"^\S+?:(?:\d+:)*\s*(?:fatal )?(?:warning|error): .*$", re.M)
LICENSED = (".c", ".h", ".py", ".sh", ".config", ".rst", ".cocci", ".toml")


def no_lines(what: str, lines: Iterable[str]) -> None:
    found = [line for line in lines if line.strip()]
    assert not found, "\n".join([f"{what}\n  expected: none\n  found:    {len(found)}", *found[:30]])


class Scratch:
    """The stock tree with any files laid over it, and object directories beside it."""

    def __init__(self, kernel: Kernel, stock: Path) -> None:
        self.kernel, self.stock = kernel, stock
        self.place = kernel.cache / "lint"
        self.tree = self.place / "source"

    def lay(self, files: Mapping[str, bytes]) -> Path:
        build.farm(self.stock, (self.kernel.cache / "stock.from").read_text(), self.tree, files)
        return self.tree

    def make(self, objects: str, *words: str) -> tuple[int, str]:
        """Run make for an object directory; exit status and output."""
        obj = self.place / objects
        obj.mkdir(parents=True, exist_ok=True)
        done = call(["make", "-C", self.tree, f"O={obj}", build.JOBS, *words], env=build.ENVIRONMENT, check=False)
        with (obj / "lab.log").open("a") as log:
            log.write(f"$ {' '.join(done.args)}\n{done.stdout}")
        return done.returncode, re.sub(rf"(?:{re.escape(str(self.tree))}|\.\./source)/", "", done.stdout)

    def configure(self, objects: str, text: str, *words: str) -> dict[str, str]:
        """Configure as a minimal kernel with these symbols; what it has then."""
        wanted = self.place / f"{objects}.fragments"
        wanted.write_text(text)
        status, output = self.make(objects, *words, "-s", f"KCONFIG_ALLCONFIG={wanted}", "allnoconfig")
        assert not status, f"make allnoconfig\n{output}"
        return build.symbols((self.place / objects / ".config").read_text())

    def compile(self, objects: str, names: Collection[str], *words: str) -> Counter[str]:
        """Compile these anew; the warnings."""
        if not names:
            return Counter()
        for name in names:
            (self.place / objects / name).unlink(missing_ok=True)
        status, output = self.make(objects, *words, *names)
        lines = output.splitlines()
        errors = [line for line in lines if re.search(r"\berror\b|\*\*\*", line)] or lines[-5:]
        assert not status, "\n".join([f"make {' '.join(names)}: exit status {status}", *errors[:20]])
        return warnings(output)


@contextlib.contextmanager
def scratch(kernel: Kernel) -> Iterator[Scratch]:
    # Debian's tree is the stock tree as it is: don't wait for a build that holds its lock.
    stock = kernel.source if kernel.source == kernel.cache / "stock" else build.source(kernel, "stock")
    with locked(kernel.cache / "lint" / "lock"):
        yield Scratch(kernel, stock)


def base_config(kernel: Kernel) -> str:
    return "".join(path.read_text() for path in build.fragments(kernel, "plain")) + EXTRA


def compiler(name: str = "gcc") -> str:
    return f"CC={build.CCACHE}{name}"


def patches(kernel: Kernel, results: Results) -> None:
    # The tree has no history in which to look for the commits that a message names.
    command = "perl scripts/checkpatch.pl --strict --terse --show-types --no-summary --ignore UNKNOWN_COMMIT_ID".split()
    command += [] if (kernel.source / "README").exists() else ["--no-tree"]  # or it does not take the folder for one
    path = {"PATH": f"/usr/bin:{os.environ['PATH']}"}  # the system's Python has what its spdxcheck.py needs
    with tempfile.TemporaryDirectory(prefix="lint-") as tmp:
        for patch in render.series(kernel, Path(tmp), who=render.NOBODY)[1:]:  # without the cover
            with results.case(f"{kernel.name} checkpatch {patch.stem}"):
                if not (kernel.source / "scripts/checkpatch.pl").exists():
                    raise SkipTest("this tree has none")
                done = call([*command, str(patch)], cwd=kernel.source, env=path, check=False)
                no_lines("messages of checkpatch", done.stdout.replace(f"{tmp}/", "").splitlines())


def in_kernel(path: str) -> bool:
    return path.endswith((".c", ".h")) and not path.startswith("tools/")


def objects_of(files: Iterable[str], texts: Mapping[str, bytes]) -> list[str]:
    """The objects that show whether C files and headers compile: their own, or those of files which include them."""
    paths, objects = sorted(filter(in_kernel, files)), set()
    for path in paths:
        header = path.removeprefix("include/") if path.startswith("include/") else path.rpartition("/")[2]
        included = re.compile(rf'^#include ["<](?:\S*/)?{re.escape(header)}[">]', re.M)
        users = (user for user in (*paths, *texts) if user.endswith(".c") and user != path)
        user = next((user for user in users if included.search(texts[user].decode(errors="replace"))), path)
        if user.endswith(".h"):
            raise LabError(path, expected="a C file of the series to include it", found="none", do="include it in one")
        objects.add(user.removesuffix(".c") + ".o")
    return sorted(objects)


def warnings(output: str) -> Counter[str]:
    """The lines that warn, without their line numbers. Counted, for two in one function may read the same."""
    return Counter(re.sub(r":\d+", "", line) for line in WARNING.findall(output))


def compile_commits(kernel: Kernel, rendering: Rendering, results: Results) -> None:
    """Each commit alone compiles what it touches, and brings no warning that its parent did not have."""
    sparse = (compiler(), "C=2", "CHECK=sparse", "W=1")
    with scratch(kernel) as here:
        texts = {path: (here.stock / path).read_bytes()
                 for path in filter(in_kernel, rendering.files()) if (here.stock / path).exists()}  # fmt: skip
        old = [path.removesuffix(".c") + ".o" for path in texts if path.endswith(".c")]
        known = None
        with results.case(f"{kernel.name} what the series touches compiles without it"):
            here.lay({})
            (here.place / "objects/lab.log").unlink(missing_ok=True)
            here.configure("objects", base_config(kernel))
            known = here.compile("objects", old, *sparse)
        if known is None:  # the tree's own trouble says nothing about the series
            return
        for upto, commit in enumerate(rendering.commits, 1):
            texts |= {path: data for path, data in commit.files.items() if in_kernel(path)}
            here.lay(rendering.files(upto))
            found = None
            with results.case(f"{kernel.name} {commit.slug} compiles by itself"):
                if any(Path(path).name.startswith("Kconfig") for path in commit.files):
                    here.configure("objects", base_config(kernel))
                found = here.compile("objects", objects_of(commit.files, texts), *sparse) + compile_rest(here, commit)
            if found is None:  # what did not compile, did not warn
                continue
            with results.case(f"{kernel.name} {commit.slug} has no new warning from sparse or W=1"):
                no_lines("warnings", (found - known).elements())
            known |= found


def compile_rest(here: Scratch, commit: Commit) -> Counter[str]:
    """What a commit has besides kernel code."""
    found: Counter[str] = Counter()
    for path in commit.files:
        file = here.tree / path
        if path.startswith("tools/") and path.endswith(".c"):
            flags = ["-O2", "-Wall", "-D_GNU_SOURCE=", f"-I{file.parent.parent}", f"-I{file.parent}"]
            done = call(["gcc", *flags, "-c", file, "-o", os.devnull], env=build.ENVIRONMENT)
            found += warnings(done.stdout.replace(f"{here.tree}/", ""))
        elif path.endswith(".sh"):
            call(["bash", "-n", file])
    return found


def reports(rule: Path, files: Sequence[Path], *words: str | Path) -> list[str]:
    """What a rule in the kernel's style reports of some files, as `make coccicheck` would."""
    options = " ".join(re.findall(r"^// Options:(.*)$", rule.read_text(), re.M)).split()
    command = ["spatch", "-D", "report", "--no-show-diff", "--very-quiet", "--cocci-file", str(rule), *options]
    done = call([*command, *words, *files], check=False, timeout=RULE_SECONDS)
    if done.returncode:
        raise LabError(str(rule), expected="exit status 0 of spatch", found=f"{done.returncode}\n{done.stdout.strip()}",
                       do="run `make coccicheck` with it")  # fmt: skip
    # What it says of the rule itself names no file.
    return [line for line in done.stdout.splitlines() if any(str(file) in line for file in files)]


def unfit(rule: Path) -> str | None:
    """Why spatch can't run a rule at all, whatever the file, or None."""
    with tempfile.NamedTemporaryFile(prefix="lint-", suffix=".c") as empty:
        try:
            reports(rule, [Path(empty.name)])
        except LabError as error:
            return f"spatch can't run it: {str(error).splitlines()[-2].strip()}"
    return None


def coccicheck(kernel: Kernel, tree: Path, rendering: Rendering, results: Results) -> None:
    """The kernel's own rules on the new files."""
    files = [tree / path for path in rendering.origin if path.endswith(".c")]
    rules = sorted((tree / "scripts/coccinelle").rglob("*.cocci"))

    def check(rule: Path) -> tuple[str | None, list[str]]:
        """Why it can't run, else what it reports."""
        kernel_only = str(rule).endswith(NOT_FOR_TOOLS)
        chosen = [file for file in files if not (kernel_only and file.is_relative_to(tree / "tools"))]
        why = None
        try:
            found = reports(rule, chosen, "-I", tree / "include")
        except subprocess.TimeoutExpired:
            found = [f"no end within {RULE_SECONDS} s"]
        except LabError as error:
            why, found = unfit(rule), [str(error)]
        return why, [f"{rule}: {line}".replace(f"{tree}/", "") for line in found]

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        outcomes = list(pool.map(check, rules))
    for rule, (why, _) in zip(rules, outcomes, strict=True):
        if why:
            results.skip(f"{kernel.name} coccicheck {rule.relative_to(tree)}", why)
    ran = [lines for why, lines in outcomes if not why]
    with results.case(f"{kernel.name} coccicheck, {len(ran)} rules on {len(files)} new files"):
        assert ran, f"no rules in {tree / 'scripts/coccinelle'}"
        no_lines("reports", (line for lines in ran for line in lines))


def semantic(kernel: Kernel, tree: Path, results: Results) -> None:
    """The lab's own rules: on all that the series touches or that could call into it."""
    with results.case(f"{kernel.name} {SEMANTIC.name} reports nothing on the series"):
        # Whoever could break one of its rules names one of these.
        names = r"\b(demotion_(gate|targets)_|establish_demotion_targets|__set_migration_target_nodes)"
        listed = call(["grep", "-rlE", "--include=*.c", names, "mm", "drivers", "kernel"], cwd=tree).stdout.split()
        expect("the gate itself is looked at", True, "mm/demotion_gate.c" in listed)
        no_lines("reports", reports(SEMANTIC, [tree / path for path in sorted(listed)]))


def documents(kernel: Kernel, tree: Path, rendering: Rendering, results: Results) -> None:
    """kernel-doc, the ABI files and MAINTAINERS, by the tree's own scripts."""
    new, needed = list(rendering.origin), ("Documentation", "MAINTAINERS", "scripts/kernel-doc")
    if lacking := [name for name in needed if not (tree / name).exists()]:
        return results.skip(f"{kernel.name} documents", f"this tree has no {', '.join(lacking)}")
    with results.case(f"{kernel.name} kernel-doc"):
        script = tree / "scripts/kernel-doc"
        strict = ["-Wall"] if "Wall" in script.resolve().read_text() else []
        # A file without any kernel-doc is worth a warning to it.
        files = [path for path in filter(in_kernel, new) if re.search(r"^/\*\*$", (tree / path).read_text(), re.M)]
        assert files, "no new file has kernel-doc"
        done = call([script, "-none", *strict, *files], cwd=tree, check=False)
        no_lines("messages of kernel-doc", done.stdout.splitlines())
        assert not done.returncode, f"kernel-doc: exit status {done.returncode}"
    with results.case(f"{kernel.name} ABI files"):
        ours = [path for path in new if path.startswith("Documentation/ABI/")]
        assert ours, "the series adds no file to Documentation/ABI"
        scripts = ("scripts/get_abi.pl", "scripts/get_abi.py", "tools/docs/get_abi.py")
        checker = next((name for name in scripts if (tree / name).exists()), None)
        if not checker:
            raise SkipTest(f"this tree has none of {', '.join(scripts)}")
        entries = [what for path in ours for what in re.findall(r"^What:\s*(\S+)", (tree / path).read_text(), re.M)]
        done = call([tree / checker, "validate"], cwd=tree, check=False)
        names = [*(Path(path).name for path in ours), *entries]
        messages = done.stdout.splitlines()
        no_lines("messages that name ours", (line for line in messages if any(name in line for name in names)))
        # It says nothing of files that it did not read.
        for what in entries:
            shown = call([tree / checker, "search", f"^{re.escape(what)}$"], cwd=tree, check=False).stdout
            assert what in shown, f"{checker} does not find {what}; it says:\n{shown}"
    with results.case(f"{kernel.name} htmldocs of the page"):
        page = next(path for path in new if path.endswith(".rst"))
        folder = Path(page).parent.relative_to("Documentation")
        with tempfile.TemporaryDirectory(dir=kernel.cache) as made:  # no space in its path
            done = call(["make", f"SPHINXDIRS={folder}", f"BUILDDIR={made}", "htmldocs"], cwd=tree, check=False)
            assert [*Path(made).rglob(f"{Path(page).stem}.html")], f"no page was made:\n{done.stdout[-2000:]}"
        no_lines("messages that name it", (line for line in done.stdout.splitlines() if page in line))
    with results.case(f"{kernel.name} get_maintainer finds the new files"):
        # Of the lists it names each address once, with a section that may be another each time it is run.
        asked = "perl scripts/get_maintainer.pl --no-git --no-git-fallback --no-email --no-l --subsystem".split()

        def sections(path: str) -> set[str]:
            return set(call([*asked, "-f", path], cwd=tree).stdout.splitlines()) - {"THE REST"}

        section = (ROOT / "MAINTAINERS").read_text().split("\n")[0]
        own = re.search(rf"^{re.escape(section)}$", (tree / "MAINTAINERS").read_text(), re.M)
        # Where the file that keeps the targets has a section, ours are in it.
        wanted = {section} if own else sections(kernel.keeper) - sections("mm/")
        assert wanted, f"no section for {kernel.keeper}"
        for path in new:
            expect(f"sections of {path} that are missing", set(), wanted - sections(path))


def written() -> list[Path]:
    """The files of this repository, also where it is no git checkout."""
    made = {"build", ".git", "__pycache__", ".mypy_cache", ".pytest_cache"}
    return sorted(file for file in ROOT.rglob("*") if file.is_file() and made.isdisjoint(file.relative_to(ROOT).parts))


@functools.cache
def repository(results: Results) -> None:
    """What holds for all kernels: checked once."""
    files = written()
    python = [file for file in files if file.suffix == ".py"]
    texts = {str(file.relative_to(ROOT)): file.read_text(errors="replace") for file in files}
    with results.case("codespell"):
        done = call(["codespell", "--quiet-level=3", f"--ignore-words-list={SPELT_SO}", *texts], cwd=ROOT, check=False)
        no_lines("misspellings", done.stdout.splitlines())
    with results.case("the lab's Python compiles"), tempfile.TemporaryDirectory(prefix="lint-") as tmp:
        env = {"PYTHONPYCACHEPREFIX": tmp, "PYTHONDONTWRITEBYTECODE": "", "PYTHONWARNINGS": "error"}
        done = call(["/usr/bin/python3", "-m", "compileall", "-q", *python], env=env, check=False)
        no_lines("messages of compileall", done.stdout.splitlines())
    with results.case("mypy"):
        done = call(["/usr/bin/python3", "-m", "mypy", "--no-error-summary", *python], cwd=ROOT, check=False)
        no_lines("complaints of mypy", done.stdout.splitlines())
        assert not done.returncode, f"mypy: exit status {done.returncode}"
    with results.case(f"no line of Python is longer than {LINE}"):
        no_lines("long lines", places(texts, rf"^.{{{LINE + 1},}}$", ".py"))
    with results.case("nothing left to do, no path of one machine"):
        no_lines("places", places(texts, LEFT.pattern))
    with results.case("every file says its licence in its first lines"):
        ours = {name: text for name, text in texts.items() if not name.startswith(("series/", "lab/tests/standin/"))}
        lacking = [name for name, text in ours.items() if name.endswith(LICENSED) and text
                   and "SPDX-License-Identifier: " not in "".join(text.splitlines()[:2])]  # fmt: skip
        no_lines("files without", lacking)


def places(texts: Mapping[str, str], pattern: str, suffix: str = "") -> Iterator[str]:
    for name, text in texts.items():
        for number, line in enumerate(text.splitlines() if name.endswith(suffix) else (), 1):
            if re.search(pattern, line):
                yield f"{name}:{number}: {line.strip()[:100]}"


def run(kernel: Kernel, results: Results) -> None:
    repository(results)
    rendering = render.render(kernel)
    patches(kernel, results)
    compile_commits(kernel, rendering, results)
    with scratch(kernel) as here:
        tree = here.lay(rendering.files())
        semantic(kernel, tree, results)
        documents(kernel, tree, rendering, results)
        coccicheck(kernel, tree, rendering, results)


def main(given: argparse.Namespace) -> int:
    results = Results()
    run(trees.chosen(given)[0], results)
    return results.end()


parser = functools.partial(trees.command, "lab.checks.lint", __doc__)

if __name__ == "__main__":
    launch(main, parser())
