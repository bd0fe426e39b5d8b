"""README's two commands on machines that have nothing: python -m tests.isolation.bare_machine [NAME ...] [--commit C]

    debian-12    a root of Debian 12 by debootstrap with git, make and python3-venv; Python 3.11
    debian-13    the same of Debian 13; Python 3.13
    python3.12   this machine, with the python3.12 on the path; only the tests that share the cores

In each the commit is cloned, then `make submit` and `make test` run as they stand in the README. It ends with a table
of exit codes and minutes, and with code 1 unless all are 0. A root gets what pip is configured by here, nothing else.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slurm.testbed import roots
from tests.isolation import places

SUITES = {"debian-12": "bookworm", "debian-13": "trixie"}
BARE = ("git", "make", "python3", "python3-venv", "ca-certificates")
SHARED_CORES = "-n auto --dist loadfile -m 'not alone and not long and not gpu and not foreign'"
COMMANDS = ("make submit", "make test")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@contextmanager
def bare_root(suite: str) -> Iterator[Path]:
    """A copy of a suite's root, which is removed afterwards."""
    fresh = roots.root_of(f"bare-{suite}", suite, BARE)
    copy = Path(tempfile.mkdtemp(dir=roots.folder(), prefix=f"bare-{suite}-"))
    try:
        subprocess.run(["cp", "-a", f"{fresh}/.", str(copy)], check=True)
        yield copy
    finally:
        kill_processes_in(copy)
        shutil.rmtree(copy, ignore_errors=True)


def kill_processes_in(root: Path) -> None:
    """Kill what still runs in a root, such as a cluster when a run of the tests was interrupted."""
    top = os.stat(root)
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.path.samestat(os.stat(process / "root"), top):
                os.kill(int(process.name), signal.SIGKILL)


def pip_settings() -> dict[str, str]:
    """Return pip's settings here as variables of the environment, so that no file of them is needed."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    settings = {}
    for line in lines:
        key, _, value = line.partition("=")
        settings[f"PIP_{key.rpartition('.')[2].upper().replace('-', '_')}"] = value.strip("'\"")
    return settings


def run_timed(command: list[str], log: Path) -> tuple[int, float]:
    """Run a command with its output in a file; return its exit code and minutes."""
    started = time.monotonic()
    with log.open("a") as output:
        done = subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False)
    return done.returncode, (time.monotonic() - started) / 60


def tests_of(log: Path) -> str:
    """Return the closing lines of pytest in a log."""
    return "; ".join(re.findall(r"^(?:=+ )?(\d+ (?:passed|failed).*?)(?: =+)?$", log.read_text(errors="replace"), re.M))


def on_debian(name: str, repository: Path, logs: Path) -> Iterator[tuple[str, int, float, Path]]:
    """Clone and run both commands in a bare root, as root with an empty home."""
    of_pip = list(places.configured_for_pip())
    shared = [*map(Path, ("/proc", "/sys", "/dev")), *(place for place in of_pip if place.is_dir())]
    files = [*roots.FILES, *(str(place) for place in of_pip if place.is_file())]
    environment = {"PATH": SYSTEM_PATH, "HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb", "CI": "1", **pip_settings()}
    words = [f"{key}={value}" for key, value in environment.items()]
    with bare_root(SUITES[name]) as root:
        shutil.copytree(repository, root / "srv" / "hpcddm.git")
        for command in ("git clone -q /srv/hpcddm.git /root/hpcddm", *COMMANDS):
            here = "/root" if command.startswith("git") else "/root/hpcddm"
            line = ["env", "-i", *words, "bash", "-c", f"cd {here} && {command}"]
            log = logs / f"{name}-{command.split()[1]}.log"
            yield command, *run_timed(roots.enter(root, line, shared, files), log), log


def here_with(name: str, repository: Path, logs: Path) -> Iterator[tuple[str, int, float, Path]]:
    """Clone, and run the tests that share the cores, with another Python of this machine."""
    python = shutil.which(name)
    if not python or subprocess.run([python, "-c", ""], check=False).returncode:
        raise roots.RootError(f"{name} is not on the path, or does not start")
    with tempfile.TemporaryDirectory() as folder:
        clone, log = f"{folder}/hpcddm", logs / f"{name}.log"
        subprocess.run(["git", "clone", "-q", repository, clone], check=True)
        install = f"make -C {clone} PYTHON={python} .venv/installed-test"
        yield "make install", *run_timed(["bash", "-c", install], log), log
        tests = f"CI=1 bash {clone}/tests/run.sh {SHARED_CORES}"
        yield "make test, first phase", *run_timed(["bash", "-c", tests], log), log


def main() -> int:
    """Run what the arguments name, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=[*SUITES, "python3.12"])
    parser.add_argument("--commit", default="HEAD")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    logs = Path(tempfile.mkdtemp(prefix="hpcddm-bare-"))
    repository = logs / "hpcddm.git"
    subprocess.run(["git", "clone", "-q", "--bare", places.CHECKOUT, repository], check=True)
    subprocess.run(["git", "-C", repository, "update-ref", "--no-deref", "HEAD", commit_of(given.commit)], check=True)
    table, worst = [], 0
    for name in given.names:
        try:
            for command, code, minutes, log in (on_debian if name in SUITES else here_with)(name, repository, logs):
                worst = max(worst, abs(code))
                table.append(f"{name:12}{command:44}{code:4}{minutes:8.1f}  {tests_of(log)}")
                print(f"{table[-1]}\n    {log}", flush=True)
                if code and not command.endswith("submit"):
                    break
        except roots.RootError as error:
            worst = 1
            table.append(f"{name:12}{error}")
    print("\n".join([f"{'machine':12}{'command':44}{'code':>4}{'minutes':>8}", *table]))
    return int(worst > 0)


def commit_of(name: str) -> str:
    """Return the hash of a commit of the checkout."""
    command = ["git", "-C", str(places.CHECKOUT), "rev-parse", "--verify", f"{name}^{{commit}}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    os.chdir(places.CHECKOUT)
    sys.exit(main())
