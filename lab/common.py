# SPDX-License-Identifier: GPL-2.0
"""What every part of the lab needs: where things are, how to run a program, how to fail, how a command ends."""

import argparse
import contextlib
import fcntl
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
SEED = 20210806  # where random sequences start unless the user says otherwise: the day of the 0-day robot's report
CACHE = Path(os.environ.get("DEMOTION_GATE_CACHE") or "~/.cache/demotion-gate").expanduser()

console = Console(highlight=False, soft_wrap=True)


class LabError(Exception):
    """A failure the user can act on: where, what was expected, what was found, what to do."""

    def __init__(self, where: str, *, expected: str, found: str, do: str) -> None:
        super().__init__(f"{where}\n  expected: {expected}\n  found:    {found}\n  do:       {do}")


def say(message: str) -> None:
    """One line of progress."""
    console.print(message, markup=False)  # a message may hold brackets of its own
    sys.stdout.flush()


def tail(log: Path, lines: int = 30) -> str:
    """The last lines of a log, for an error message."""
    if not log.exists():
        return f"(no log at {log})"
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def run(command: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None,
        stdin: str | None = None, check: bool = True, quiet: bool = False,
        timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program; output is captured. A failure becomes a LabError with its end.

    `env` is added to the environment. stderr comes joined to stdout; `quiet`: for itself.
    """
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env={**os.environ, **(env or {})}, input=stdin, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE if quiet else subprocess.STDOUT,
                          timeout=timeout)
    if check and done.returncode:
        shown = "\n".join([*done.stdout.splitlines(), *(done.stderr or "").splitlines()][-30:])
        raise LabError(shlex.join(words), expected="exit status 0", found=f"exit status {done.returncode}\n{shown}",
                       do="run the command by hand")
    return done


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`, so that two checkouts can share one cache."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run that holds {path}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def count(word: str) -> int:
    """For argparse: how many of something, which is one at least."""
    if int(word) < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, found {word}")
    return int(word)


def launch(main: Callable[[argparse.Namespace], int | None], parser: argparse.ArgumentParser) -> NoReturn:
    """Run a command to its exit status. What the user or the machine can do to it is a message, not a traceback."""
    local = r"GIT_(\w*(DIR|TREE|FILE|PREFIX|OBJECT\w*)|CONFIG(_COUNT|_PARAMETERS|_KEY_\d+|_VALUE_\d+)?)"
    for name in [name for name in os.environ if re.fullmatch(local, name)]:
        del os.environ[name]  # from a hook or an alias: of a repository that is none of those that are asked here
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does, which the background ignores
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        try:
            sys.exit(main(parser.parse_args()))
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt as stop:
        with contextlib.suppress(OSError):
            print(str(stop) or "stopped; what is built and measured is kept", file=sys.stderr)
        sys.exit(130)
    except LabError as error:
        sys.exit(f"error: {error}")
    except BrokenPipeError:
        sys.exit("error: nobody reads the output any more")
    except OSError as error:  # a full disk, a file that one may not read
        sys.exit(f"error: {error.filename}: {error.strerror}" if error.filename else f"error: {error}")
