# SPDX-License-Identifier: GPL-2.0
"""`make clean-cache`: remove what is cached of kernels that nobody works on any more, and say how much that was."""

import argparse
import contextlib
import fcntl
import shutil
import time
from pathlib import Path

from lab.common import CACHE, count, launch, run, say


def reason(cache: Path, days: int) -> str:
    """Why the cache of a kernel can go; nothing if it is to stay, or is not one."""
    locks = [*cache.glob("*lock")]
    if not locks:
        return ""
    stamp = cache / "stock.from"
    # Where it came from, and one word or two of the state that this was in.
    text = stamp.read_text() if stamp.exists() else ""
    if text and not any(Path(text.rsplit(" ", words)[0]).exists() for words in (2, 1)):
        return f"what it came from is gone: {text.strip()}"
    idle = (time.time() - max(lock.stat().st_mtime for lock in locks)) / 86400
    return f"not used for {idle:.0f} days" if idle > days else ""


def is_used(cache: Path) -> bool:
    """Whether a run holds one of its locks."""
    for lock in (*cache.glob("*lock"), *cache.glob("*/lock")):
        with lock.open() as handle, contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            continue
        return True
    return False


def size(path: Path) -> int:
    """Megabytes on the disk."""
    return int(run(["du", "-sm", path]).stdout.split()[0]) if path.exists() else 0


def parser() -> argparse.ArgumentParser:
    words = argparse.ArgumentParser(prog="python3 -m lab.kernels.prune", description=__doc__)
    words.add_argument("--days", type=count, default=30, help="what was not used for so long (default %(default)s)")
    words.add_argument("--all", action="store_true", help="all goes, ccache's objects too; nothing is lost but time")
    return words


def main(given: argparse.Namespace) -> None:
    freed = 0
    for path in sorted(CACHE.iterdir()) if CACHE.is_dir() else ():
        if not (why := "all goes" if given.all else reason(path, given.days)):
            continue
        if is_used(path):
            say(f"{path}: stays, a run is using it")
            continue
        freed += (megabytes := size(path))
        say(f"{path}: {megabytes} MB, {why}")
        if path.is_dir():
            path.rename(gone := path.with_name(f"{path.name}.gone"))  # whoever begins now finds none, not a part
            shutil.rmtree(gone)
        else:
            path.unlink()
    say(f"freed {freed} MB; {size(CACHE)} MB are left in {CACHE}")


if __name__ == "__main__":
    launch(main, parser())
