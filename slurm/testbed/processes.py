"""Finding, starting and ending the testbed's processes.

We write no pid files: a pid file can be stale, and the kernel knows better. Every question
("is slurmd of h3 alive?", "what is left?") is answered from /proc at the time it is asked.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

# The Slurm that is first in the caller's PATH is the one that runs; some users' PATH lacks the folders of daemons.
PATH = ":".join((os.environ.get("PATH", ""), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"))
CGROUPS = Path("/sys/fs/cgroup")

# Programs that belong to a testbed when its folder is in their arguments or their SLURM_CONF.
# srun and salloc are here because they would wait for a controller that never comes back.
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "slurmstepd", "munged", "mariadbd", "srun", "salloc", "late_names")


class TestbedError(Exception):
    """Something that the user should read as one message, without a traceback."""


@dataclass(frozen=True)
class Daemon:
    name: str  # also its log's name
    argv: tuple[str, ...]
    conf: Path  # becomes SLURM_CONF
    port: int | None = None
    socket: Path | None = None
    mount: str | None = None  # answers when this is in its table of mounts
    alone: bool = False  # with a table of mounts of its own
    beside: Daemon | None = None  # with the table of mounts of that one


@dataclass(frozen=True)
class Process:
    pid: int
    argv: tuple[str, ...]
    program: str
    environment: dict[str, str]
    uid: int

    def belongs_to(self, folder: Path) -> bool:
        """True for the testbed's daemons and for its jobs' processes, never for a user's shell
        that merely has SLURM_CONF set."""
        inside = f"{folder}/"
        ours = self.environment.get("SLURM_CONF", "").startswith(inside)
        if self.program in PROGRAMS:
            return ours or any(inside in argument for argument in self.argv)
        return ours and "SLURMD_NODENAME" in self.environment  # set by slurmd, for jobs only


def listing() -> Iterator[Process]:
    """All processes that we may look into (root: all of them)."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            argv = _split((entry / "cmdline").read_bytes())
            program = os.path.basename(os.readlink(entry / "exe")).removesuffix("-wlm")  # Debian's suffix
            uid = entry.stat().st_uid
            pairs = (item.partition("=") for item in _split((entry / "environ").read_bytes()))
        except OSError:  # gone by now, a kernel thread, or somebody else's
            continue
        yield Process(int(entry.name), argv, program, {key: value for key, _, value in pairs}, uid)


def _split(raw: bytes) -> tuple[str, ...]:
    return tuple(part.decode(errors="replace") for part in raw.split(b"\0") if part)


def running(daemon: Daemon, folder: Path) -> list[int]:
    return [
        p.pid
        for p in listing()
        if p.argv == daemon.argv
        and p.belongs_to(folder)
        and p.environment.get("SLURM_CONF", str(daemon.conf)) == str(daemon.conf)
    ]


def start(daemon: Daemon, logs: Path, environment: dict[str, str], folder: Path) -> None:
    """Starts a daemon in a session of its own and waits until its port or socket answers."""
    log = logs / f"{daemon.name}.out"
    variables = {
        "PATH": PATH,
        "HOME": os.path.expanduser("~"),
        "LANG": "C.UTF-8",
        "SLURM_CONF": str(daemon.conf),
        **environment,
    }
    with log.open("wb") as output:
        child = subprocess.Popen(
            [*place_of(daemon, folder), *daemon.argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=variables,
            cwd="/",
            start_new_session=True,
        )

    def ready() -> bool:
        if child.poll() is not None:
            raise TestbedError(f"{daemon.name} ended at once (exit code {child.returncode}):\n{tail(log)}")
        return answers(daemon, child.pid)

    if not wait_until(ready, seconds=30):
        raise TestbedError(f"{daemon.name} does not answer after 30 s:\n{tail(log)}")


def place_of(daemon: Daemon, folder: Path) -> list[str]:
    """What puts a daemon among the mounts that it should see, before its command."""
    if daemon.alone:
        return ["unshare", "--mount", "--propagation", "private"]
    return ["nsenter", "--mount", f"--target={running(daemon.beside, folder)[0]}"] if daemon.beside else []


def answers(daemon: Daemon, pid: int) -> bool:
    if daemon.mount is not None:
        return f"\n{daemon.mount} " in Path(f"/proc/{pid}/mounts").read_text()
    if daemon.socket is not None:
        family, address = socket.AF_UNIX, str(daemon.socket)
    else:
        family, address = socket.AF_INET, ("127.0.0.1", daemon.port)
    with socket.socket(family) as probe:
        probe.settimeout(2)
        try:
            probe.connect(address)
        except OSError:
            return False
        return True


def owner_of_port(port: int) -> str | None:
    """Who listens on a port of ours: None if it is free, else as much as we may know."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            return None
        except OSError:
            pass
    if not shutil.which("ss", path=PATH):
        return "unknown"
    found = subprocess.run(["ss", "-Hltnp", f"sport = :{port}"], env={"PATH": PATH}, capture_output=True, text=True)
    return found.stdout.partition("users:")[2].strip() or "unknown"


def end(find: Callable[[], list[int]], seconds: float = 15) -> None:
    """Kills what 'find' finds until it finds nothing: a killed daemon's child may turn up late."""

    def gone() -> bool:
        return not _send(signal.SIGKILL, find())

    if not wait_until(gone, seconds):
        raise TestbedError(f"these processes do not end: {find()}")


def end_gently(find: Callable[[], list[int]], seconds: float = 15) -> None:
    """As 'end', with time to save first: a killed slurmctld forgets its last five seconds."""
    _send(signal.SIGTERM, find())
    wait_until(lambda: not find(), seconds)
    end(find)


def _send(what: signal.Signals, pids: list[int]) -> list[int]:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, what)
    return pids


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def tail(log: Path, lines: int = 12) -> str:
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(text.splitlines()[-lines:])


def cgroup_folders(nodes: list[str]) -> list[Path]:
    """The cgroups that slurmd made for these nodes; it removes them itself only when it ends well."""
    names = [
        pattern.format(node) for node in nodes for pattern in ("*/slurm_{}", "system.slice/{}_slurmstepd.scope")
    ]  # v1, v2
    return [path for name in names for path in CGROUPS.glob(name)]


def cgroup_pids(folders: list[Path]) -> list[int]:
    """Processes in these cgroups: a job cannot leave them, whatever it does to its environment."""
    return [int(pid) for top in folders for file in top.rglob("cgroup.procs") for pid in file.read_text().split()]


def remove_cgroups(folders: list[Path]) -> None:
    for top in folders:
        for path, _, _ in os.walk(top, topdown=False):
            try:
                os.rmdir(path)
            except OSError:  # the kernel needs a moment after the last process; the next 'down' gets it
                time.sleep(0.1)
