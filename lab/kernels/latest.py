# SPDX-License-Identifier: GPL-2.0
"""KERNEL=latest: the newest kernel source that Debian has for its next release.

The machine's apt stays as it is: lists and files are in the lab's cache; only mirror and keys are the machine's.
"""

import re
import shutil
import tempfile
import time
from pathlib import Path

from lab.common import CACHE, LabError, locked, run, say

SUITE = "trixie-backports"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
FOLDER = CACHE / "latest"
FRESH = 86400  # s: how long the lists are good for


def _apt(program: str, *words: str, cwd: Path | None = None) -> str:
    settings = FOLDER / "apt.conf"
    settings.write_text(Path(__file__).with_suffix(".conf").read_text().replace("FOLDER", str(FOLDER)))
    return run([program, f"-c={settings}", *words], cwd=cwd or FOLDER).stdout


def newest() -> tuple[str, Path]:
    """Its X.Y, and its source as Debian packs it. Debian is asked once a day; what is older then goes."""
    if not shutil.which("apt-get"):
        raise LabError("KERNEL=latest", expected="a Debian system, whose mirror has it", found="no apt-get",
                       do="name a tree of your own with KSRC=")
    with locked(FOLDER / "lock"):
        asked = FOLDER / "asked"
        if not asked.exists() or time.time() - asked.stat().st_mtime > FRESH:
            sites = run(["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"]).stdout.split()
            mirrors = [site for site in sites if site.rstrip("/").endswith("/debian")]
            where = f"[signed-by={KEYS}] {[*mirrors, 'http://deb.debian.org/debian'][0]} {SUITE}"
            (FOLDER / "sources.list").write_text(f"deb {where} main\n")
            for folder in ("lists/partial", "cache/archives/partial"):
                (FOLDER / folder).mkdir(parents=True, exist_ok=True)
            _apt("apt-get", "update")
            asked.touch()
        names = re.findall(r"^linux-source-(\d+)\.(\d+)$", _apt("apt-cache", "pkgnames", "linux-source-"), re.M)
        if not names:
            raise LabError("KERNEL=latest", expected=f"linux-source-X.Y in {SUITE}", found="none",
                           do=f"look at {FOLDER / 'sources.list'}")
        version = ".".join(max(names, key=lambda name: [int(part) for part in name]))
        package = f"linux-source-{version}"
        found = re.search(rf"' ({package}_\S+)\.deb ", _apt("apt-get", "--print-uris", "download", package))
        assert found, f"apt-get does not say where {package} is"
        packed = FOLDER / f"{found[1]}.tar.xz"
        if not packed.exists():
            say(f"downloading {found[1]} from {SUITE}")
            with tempfile.TemporaryDirectory(dir=FOLDER) as name:
                scratch = Path(name)
                _apt("apt-get", "download", package, cwd=scratch)
                run(["dpkg-deb", "-x", *scratch.glob("*.deb"), scratch])
                for old in FOLDER.glob("*.tar.xz"):
                    old.unlink()
                (scratch / "usr/src" / f"{package}.tar.xz").rename(packed)
    return version, packed
