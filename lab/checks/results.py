# SPDX-License-Identifier: GPL-2.0
"""Counting what passed, failed and was skipped, for every command that ends with `N passed, N failed`."""

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from textwrap import indent
from unittest import SkipTest

from lab.common import LabError, say


class Results:
    """What has run so far. A result that is neither passed nor a declared skip is failed."""

    def __init__(self, show: Callable[[str], None] = say) -> None:
        self.show = show
        self.passed = 0
        self.failures: list[str] = []
        self.reasons: list[str] = []  # of each failure
        self.skipped: list[str] = []

    def note(self, name: str, ok: bool, why: str = "", seconds: float = 0) -> None:
        """One result; `why` is shown for a failure."""
        took = f" ({seconds:.0f} s)" if seconds >= 1 else ""
        if ok:
            self.passed += 1
            self.show(f"ok    {name}{took}")
        else:
            self.failures.append(name)
            self.reasons.append(why)
            self.show(f"FAIL  {name}{took}\n{indent(why.rstrip(), ' ' * 6)}")

    def skip(self, name: str, why: str) -> None:
        self.skipped.append(name)
        self.show(f"skip  {name}: {why}")

    @contextlib.contextmanager
    def case(self, name: str) -> Iterator[None]:
        """One result from a block: an exception is a failure, SkipTest with a reason a declared skip."""
        start = time.monotonic()
        try:
            yield
        except SkipTest as reason:
            self.skip(name, str(reason))
        except (LabError, AssertionError, OSError, ValueError, LookupError) as error:
            self.note(name, False, str(error) or repr(error), time.monotonic() - start)
        else:
            self.note(name, True, seconds=time.monotonic() - start)

    def end(self) -> int:
        """Print the closing line and return the exit status. No test at all is a failure."""
        for name in self.failures:
            self.show(f"failed: {name}")
        if self.skipped:
            self.show(f"declared skips: {len(self.skipped)}")
        self.show(f"{self.passed} passed, {len(self.failures)} failed")
        return 0 if self.passed and not self.failures else 1


def expect(what: str, expected: object, found: object) -> None:
    """Fail with both sides unless they are equal."""
    assert expected == found, f"{what}\n  expected: {expected}\n  found:    {found}"


KTAP = re.compile(r"^(?P<bad>not )?ok \d+(?: -)?(?P<name>[^#]*)(?:# (?P<word>SKIP|TODO|XFAIL)\b(?P<why>.*))?")
RUNS = re.compile(r"^#\s+RUN\s+(\S+) \.\.\.$")  # before 6.2 the name of a case that is skipped stands nowhere else


def ktap(text: str) -> Iterator[tuple[str, str, str]]:
    """The results in KTAP text, outermost level: name, 'ok' | 'fail' | 'skip', and the reason or the lines before."""
    before: list[str] = []
    running = ""
    for line in text.splitlines():
        if starts := RUNS.match(line):
            running = starts[1]
        if found := KTAP.match(line):
            state = "skip" if found["word"] in ("SKIP", "XFAIL") else "fail" if found["bad"] else "ok"
            yield found["name"].strip() or running, state, (found["why"] or "").strip() or "\n".join(before[-20:])
            before = []
        else:
            before.append(line)
