# SPDX-License-Identifier: GPL-2.0
"""Guests: boot a kernel in QEMU, run scripts in it, plug memory, and notice when it complains.

A guest has two serial lines: its console, which goes to a log that is searched for splats at the end, and the command
channel to `agent.c`. Outside a `boot()` block nothing of it remains but that log.
"""

import argparse
import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import tomllib
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import dropwhile, islice
from pathlib import Path
from typing import Any, NamedTuple

from lab.common import BUILD, CACHE, LabError, count, launch, run, say, tail
from lab.kernels import build, trees  # for the command alone: guests know of kernels only the image

QEMU = "qemu-system-x86_64"
KVM = "kvm"
GUEST = Path(__file__).resolve().parent
APPEND = "console=ttyS0 loglevel=5 panic=-1 panic_on_warn=1 oops=panic random.trust_cpu=on"
PROBE_SECONDS = 8  # a KVM guest that works is up in two
OFF_SECONDS = 20
BOOT_TRIES = 3
CHUNK = 8192  # bytes per message to the guest: what its serial driver buffers while the agent is busy
SPLAT_LINES = 150  # lockdep takes some hundred
_STAMP = re.compile(r"^(?:<\d+>)?(?:\[ *\d+\.\d+\])?(?:\[ *[TC]\d+\])? ?")
_SPLATS = re.compile("|".join(re.findall("^[^#\n].*", (GUEST / "splats.txt").read_text(), re.M)))
_accelerators: list[str] = []  # the one of this machine, once its first guest was to be booted


class Topology(NamedTuple):
    """A machine of `topologies.toml`."""

    name: str
    cpus: int
    words: str
    append: str = ""

    def args(self) -> list[str]:
        cpus, half = self.cpus, self.cpus // 2
        return self.words.format(cpus=cpus, last=cpus - 1, half=half, before=half - 1, slow=_TABLES["slow"]).split()


_TABLES = tomllib.loads((GUEST / "topologies.toml").read_text())
TOPOLOGIES = {name: Topology(name, **words) for name, words in _TABLES["topology"].items()}


def find_topology(name: str, cpus: int | None = None) -> Topology:
    if name not in TOPOLOGIES:
        raise LabError(f"topology {name}", expected=" or ".join(TOPOLOGIES), found=name, do="check the name")
    cpus = cpus or TOPOLOGIES[name].cpus
    if cpus < 2 or cpus % 2:
        raise LabError(f"topology {name}", expected="an even number of CPUs", found=f"{cpus}", do="check cpus=")
    return TOPOLOGIES[name]._replace(cpus=cpus)


def first_splat(console: str) -> str:
    """The first line that a sound kernel does not print, and what comes behind it."""
    lines = (_STAMP.sub("", line) for line in console.replace("\r", "").splitlines())
    return "\n".join(islice(dropwhile(lambda line: not _SPLATS.search(line), lines), SPLAT_LINES))


def _pack(files: dict[str, Path]) -> bytes:
    """A cpio archive of these files: names in the guest -> files here."""
    with tempfile.TemporaryDirectory(prefix="lab-") as folder:
        root = Path(folder)
        for name, file in files.items():
            there = root / name.lstrip("/")
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, there)
            there.chmod(0o755)
        names = "".join(f"{path.relative_to(root)}\n" for path in sorted(root.rglob("*")))
        run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0", "-O", "archive"], cwd=root, stdin=names)
        return (root / "archive").read_bytes()


def guest_programs() -> dict[str, Path]:
    """The lab's own programs for the guest, static, built when their source changed: name -> binary."""
    flags = ("-static", "-O2", "-Wall", "-Wextra", "-Werror")
    programs = {}
    for source in GUEST.glob("*.c"):
        key = hashlib.sha256(repr(flags).encode() + source.read_bytes()).hexdigest()[:16]
        binary = programs[source.stem] = CACHE / "guest" / f"{source.stem}-{key}"
        if not binary.exists():
            binary.parent.mkdir(parents=True, exist_ok=True)
            fresh = binary.with_name(f"{binary.name}.{os.getpid()}")
            run(["cc", *flags, source, "-o", fresh])
            fresh.rename(binary)
    return programs


@functools.cache
def _base() -> bytes:
    """What every guest has: busybox, stress-ng, our programs, /init."""
    busybox, stress = (Path(shutil.which(name) or name).resolve() for name in ("busybox", "stress-ng"))
    files = {"/init": GUEST / "init", "/bin/busybox": busybox, "/usr/bin/stress-ng": stress}
    files |= {f"/bin/{name}": binary for name, binary in guest_programs().items()}
    # Shared libraries go under the names the loader asks for; of a static program ldd names none.
    shared = re.findall(r"(/\S+) \(0x", run(["ldd", busybox, stress], check=False).stdout)
    files |= {library: Path(library) for library in shared}
    return _pack(files)


Output = NamedTuple("Output", [("status", int), ("text", str)])  # of a script: exit status, stdout and stderr


class _Line:
    """A pair of sockets: QEMU has one, we read the other, by lines and by length. Its end and a delay are OSErrors."""

    def __init__(self) -> None:
        self._buffer = b""
        self.ours, self.theirs = socket.socketpair()

    def send(self, data: bytes) -> None:
        self.ours.settimeout(30)
        self.ours.sendall(data)

    def _fill(self, deadline: float) -> None:
        self.ours.settimeout(max(0.001, deadline - time.monotonic()))
        if not (data := self.ours.recv(1 << 16)):
            raise ConnectionError("the machine stopped")
        self._buffer += data

    def line(self, deadline: float) -> bytes:
        while b"\n" not in self._buffer:
            self._fill(deadline)
        return self.take(self._buffer.index(b"\n") + 1, deadline)

    def take(self, count: int, deadline: float) -> bytes:
        while len(self._buffer) < count:
            self._fill(deadline)
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data


class Guest:
    """A running guest. Made by `boot()`."""

    def __init__(self, process: subprocess.Popen[bytes], agent: _Line, monitor: _Line, log: Path, name: str,
                 timeout: float) -> None:
        deadline = time.monotonic() + timeout
        self.process, self.log, self.name = process, log, name
        self._agent, self._monitor = agent, monitor
        self._id = self._dimms = 0
        self._messages: list[dict[str, Any]] = []
        try:
            self._monitor.line(deadline)  # the greeting
            self.qmp("qmp_capabilities")
            self._answer(deadline)  # "ready"
        except OSError as gone:
            expected = f"it to be up within {timeout:g} s (on a busy machine, give it more time)"
            raise self.error(expected, str(gone)) from None

    def _answer(self, deadline: float) -> Output:
        head = self._agent.line(deadline)
        try:
            number, status, length, crc = (int(word) for word in head.split())
        except ValueError:
            raise self.error("an answer on the command channel", repr(head)) from None
        data = self._agent.take(length, deadline)
        if number != self._id or zlib.crc32(data) != crc:
            raise self.error(f"answer {self._id}, whole", f"answer {number}, checksum {crc:#x}, {zlib.crc32(data):#x}")
        return Output(status, data.decode(errors="replace"))

    def _ask(self, verb: str, data: bytes, timeout: float = 60) -> Output:
        self._id += 1
        # The agent ends a script at the time limit, so that its output is not lost; it gets ten more seconds to say so.
        deadline = time.monotonic() + timeout + 10
        head = f"{verb} {self._id} {int(timeout * 1000)} {len(data)} {zlib.crc32(data)}\n".encode()
        try:
            self._agent.send(head + data)
            answer = self._answer(deadline)
        except OSError as gone:
            raise self.error("an answer on the command channel", str(gone)) from None
        if answer.status == -3:
            raise self.error(f"to {verb}", answer.text.strip(), False)
        return answer

    def error(self, expected: str, found: str, hangs: bool = True) -> LabError:
        seen = self.splat() or (tail(self.log) if hangs else "")
        do = f"read the console log {self.log}"
        return LabError(f"guest {self.name}", expected=expected, found=f"{found}\n{seen}".rstrip(), do=do)

    def sh(self, script: str, *, timeout: float = 60, check: bool = True) -> Output:
        """Run a busybox script as root. A time-out is always an error, a status other than 0 only with `check`."""
        data = script.encode()
        if len(data) > CHUNK:
            self.put("/run/long.script", data)
            data = b". /run/long.script"
        output = self._ask("run", data, timeout)
        said = f"{script.strip()}\n--\n{output.text}"
        if output.status < 0:
            how = "did not end" if output.status == -1 else "did not end, not even when killed"
            raise self.error(f"a script to end within {timeout:g} s", f"it {how}:\n{said}")
        if check and output.status:
            raise self.error("exit status 0", f"{output.status} from:\n{said}", False)
        return output

    def read(self, path: str) -> str:
        """A file of the guest, without the blank space around it."""
        return self._ask("get", path.encode()).text.strip()

    def put(self, path: str, data: bytes) -> None:
        """Make a file in the guest (mode 0755)."""
        for start in range(0, len(data) or 1, CHUNK):
            self._ask("add" if start else "put", path.encode() + b"\0" + data[start : start + CHUNK])

    def qmp(self, command: str, **arguments: Any) -> None:
        """Run a command of QEMU's monitor."""
        with contextlib.suppress(OSError):  # nor will it answer
            self._monitor.send(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        late = {"error": {"desc": "no answer in time"}}
        answer = self.message(lambda message: "event" not in message, 30) or late
        if "error" in answer:
            raise self.error(f"QEMU to do {command} {arguments}", answer["error"]["desc"], False)

    def message(self, wanted: Callable[[dict[str, Any]], bool], timeout: float) -> dict[str, Any] | None:
        """Wait for a message of QEMU's monitor that `wanted` takes; the others are kept for whoever wants them."""
        deadline = time.monotonic() + timeout
        try:
            while not (found := next(filter(wanted, self._messages), None)):
                self._messages.append(json.loads(self._monitor.line(deadline)))
        except OSError as gone:
            if self.process.poll() is None:
                return None
            raise self.error("a message from QEMU", str(gone)) from None
        self._messages.remove(found)
        return found

    def online_blocks(self) -> int:
        return int(self.sh("cat /sys/devices/system/memory/memory*/state | grep -cx online", check=False).text)

    def block_size(self) -> int:
        return int(self.read("/sys/devices/system/memory/block_size_bytes"), 16)

    def plug(self, size: int = 512 << 20, node: int = 1, *, timeout: float = 30) -> str:
        """Plug memory into a node (topology hot-add), wait till the kernel has it online, return what unplug takes."""
        wanted = self.online_blocks() + size // self.block_size()
        dimm = self.add_dimm(size, node)
        deadline = time.monotonic() + timeout
        while (now := self.online_blocks()) < wanted:
            if time.monotonic() > deadline:
                raise self.error(f"{wanted} memory blocks online after plugging {dimm}", f"{now}")
            time.sleep(0.1)
        return dimm

    def unplug(self, dimm: str, *, timeout: float = 30) -> None:
        if refusal := self.remove_dimm(dimm, timeout):
            raise self.error(f"the guest to give back {dimm}", f"{refusal} (memory in use that can't be moved?)")

    def add_dimm(self, size: int, node: int) -> str:
        """Plug memory into a node, and do not wait for the guest."""
        self._dimms += 1
        name = f"dimm{self._dimms}"
        self.qmp("object-add", **{"qom-type": "memory-backend-ram"}, id=f"{name}-ram", size=size)
        self.qmp("device_add", driver="pc-dimm", id=name, memdev=f"{name}-ram", node=node)
        return name

    def remove_dimm(self, name: str, timeout: float) -> str:
        """Ask for it back, and wait. The guest may refuse: then, why it is still there."""
        self.qmp("device_del", id=name)
        ends = ("DEVICE_DELETED", "DEVICE_UNPLUG_GUEST_ERROR", "MEM_UNPLUG_ERROR")
        event = self.message(lambda event: event.get("event") in ends and event["data"].get("device") == name, timeout)
        if not event:
            return "it did not within the time limit"
        if event["event"] != "DEVICE_DELETED":
            return "the guest refused"
        self.qmp("object-del", id=f"{name}-ram")
        return ""

    def splat(self) -> str:
        return first_splat(self.log.read_text(errors="replace"))

    def off(self) -> None:
        with contextlib.suppress(OSError):
            self._agent.send(b"off 0 0 0 0\n")
        try:
            self.process.wait(OFF_SECONDS)
        except subprocess.TimeoutExpired:
            raise self.error(f"power off within {OFF_SECONDS} s", "it hangs") from None


def _command(image: Path, machine: Topology, accel: str, append: str, programs: Sequence[Path], tmp: str) -> list[str]:
    """QEMU, but for where its serial lines go. What all guests have, and these programs, are in an archive in `tmp`."""
    initramfs = Path(tmp) / "initramfs"
    initramfs.write_bytes(_base() + _pack({f"/bin/{program.name}": program for program in programs}))
    return [
        QEMU, *machine.args(), "-accel", accel, "-cpu", "host" if accel == KVM else "max",
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-kernel", str(image), "-initrd", str(initramfs),
        "-append", " ".join(filter(None, (APPEND, machine.append, append))),
    ]  # fmt: skip


@contextlib.contextmanager
def _running(image: Path, machine: Topology, accel: str, append: str, programs: Sequence[Path], log: Path,
             timeout: float) -> Iterator[Guest]:
    """A guest that is up; it is killed at the end if it still runs."""
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    agent, monitor = _Line(), _Line()
    with tempfile.TemporaryDirectory(prefix="lab-") as folder, agent.ours, monitor.ours:
        command = _command(image, machine, accel, append, programs, folder)
        fds = agent.theirs.fileno(), monitor.theirs.fileno()
        command += [
            "-chardev", f"file,id=console,path={str(log).replace(',', ',,')},append=on", "-serial", "chardev:console",
            "-chardev", f"socket,id=agent,fd={fds[0]}", "-chardev", f"socket,id=qmp,fd={fds[1]}",
            "-serial", "chardev:agent", "-mon", "chardev=qmp,mode=control",
        ]  # fmt: skip
        with log.open("ab") as out, agent.theirs, monitor.theirs:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=fds)
        try:
            yield Guest(process, agent, monitor, log, f"{machine.name}, {accel}, of {image}", timeout)
        finally:
            process.kill()
            process.wait()


def _runs(image: Path, accel: str) -> bool:
    """Whether a guest really runs so here: a /dev/kvm that exists may still hang one."""
    with tempfile.TemporaryDirectory(prefix="lab-") as folder, contextlib.suppress(LabError):
        log = Path(folder) / "console"
        with _running(image, find_topology("one", 2), accel, "panic_on_warn=0", (), log, PROBE_SECONDS) as guest:
            guest.sh("true", timeout=5)
        return True
    return False


def accelerator(image: Path, at_once: bool = False) -> str:
    """KVM if it runs this guest, else TCG, with a thread for each CPU or one for all. LAB_ACCEL overrides."""
    chosen = os.environ.get("LAB_ACCEL", "")
    if chosen not in ("", KVM, "tcg"):
        raise LabError("LAB_ACCEL", expected="tcg or kvm", found=chosen, do="set one of them, or none")
    if not chosen and not _accelerators:
        works = os.access("/dev/kvm", os.R_OK | os.W_OK) and _runs(image, KVM)
        say("guests run under KVM" if works else "guests run under TCG: there is no KVM here that runs one")
        _accelerators.append(KVM if works else "tcg")
    name = chosen or _accelerators[0]
    return name if name == KVM else f"tcg,thread={'multi' if at_once else 'single'}"


def slipped(log: Path) -> bool:
    """Did the guest die on a breakpoint of its own? See `boot()`."""
    return log.exists() and bool(re.search(r"\bint3: 0000 \[#1\]", log.read_text(errors="replace")))


@contextlib.contextmanager
def boot(image: Path, topology: str, *, log: Path, append: str = "", cpus: int | None = None,
         programs: Sequence[Path] = (), at_once: bool = False, timeout: float = 60) -> Iterator[Guest]:
    """A guest for the time of the block. `programs` (static) are in its PATH. `timeout` is for booting.

    Leaving the block powers it off. A guest that died, hung or printed a splat is a LabError, also when the block
    itself failed: then the splat is the likelier cause.

    Without KVM, CPUs take turns, unless they are to run `at_once`. With a thread for each (seen in QEMU 7.2), a CPU may
    still run a breakpoint that text_poke() has taken out again: `Oops: int3`. Flipping a static key that other CPUs
    are using does it, such as that of the stock kernel's `numa_balancing`.
    """
    machine, accel = find_topology(topology, cpus), accelerator(image, at_once)
    with contextlib.ExitStack() as stack:
        for left in reversed(range(BOOT_TRIES)):
            try:
                guest = stack.enter_context(_running(image, machine, accel, append, programs, log, timeout))
                break
            except LabError:
                if not (left and slipped(log)):
                    raise
                log.replace(log.with_name(log.name + ".slip"))
                say(f"TCG slipped while the kernel patched its own code (console in {log}.slip); booting again")
        try:
            yield guest
        except Exception as error:
            if guest.splat():
                raise guest.error("a quiet console", "splats") from error
            raise
        if guest.process.poll() is not None:
            raise guest.error("a guest that runs until the end", "it stopped by itself")
        # A lockdep that has stopped looking is quiet, too.
        if re.search(r"debug_locks:\s*0", guest.sh("cat /proc/lockdep_stats 2>/dev/null", check=False).text):
            raise guest.error("debug_locks: 1 in /proc/lockdep_stats", "0: lockdep has switched itself off")
        guest.off()
        if guest.splat():
            raise guest.error("a quiet console", "splats")


def even(word: str) -> int:
    """For argparse: how many CPUs a topology can have."""
    return find_topology("one", count(word)).cpus


def parser() -> argparse.ArgumentParser:
    words, usual = trees.command("lab.guests.guest", __doc__), "(default: %(default)s)"
    words.add_argument("--which", choices=("series", "stock"), default="series", help=f"the kernel {usual}")
    words.add_argument("--variant", choices=build.VARIANTS, default="plain", help=f"how it is configured {usual}")
    words.add_argument("--topology", choices=TOPOLOGIES, default="one", help=f"the machine {usual}")
    words.add_argument("--cpus", type=even, help="how many (default: what the topology has)")
    words.add_argument("script", nargs="?", help="a line for the guest's sh; none: you get a shell")
    return words


def main(given: argparse.Namespace) -> int:
    kernel = trees.chosen(given)[0]
    image = build.image(kernel, given.which, given.variant)
    if not given.script:
        machine, accel = find_topology(given.topology, given.cpus), accelerator(image)
        say(f"{image}, topology {machine.name}. To leave: `poweroff`, or Ctrl-A X to stop the machine at once.")
        with tempfile.TemporaryDirectory(prefix="lab-") as folder:
            command = _command(image, machine, accel, "lab.shell panic_on_warn=0", (), folder)
            subprocess.run([*command, "-serial", "mon:stdio"])
        return 0
    log = BUILD / kernel.name / "logs" / f"run-{given.topology}.console"
    with boot(image, given.topology, cpus=given.cpus, log=log, append=build.BOOT_WORDS.get(given.variant, "")) as guest:
        output = guest.sh(given.script, timeout=600, check=False)
        print(output.text, end="")
    return output.status


if __name__ == "__main__":
    launch(main, parser())
