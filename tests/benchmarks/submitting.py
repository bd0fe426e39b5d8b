"""How long `hpcddm submit` takes, and how often it calls Slurm: python -m tests.benchmarks.submitting

Needs the testbed and HPCDDM_TESTBED, its folder. All jobs are held and cancelled at the end, so nothing runs.
"""

import json
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hpcddm.runs.journal import Journal
from tests.benchmarks.tables import print_header, print_row
from tests.whole_runs import hpcddm

CLIENTS = ("sbatch", "squeue", "scontrol", "sinfo", "sacct", "sacctmgr", "scancel")
SITE = "{name: held, scheduler: slurm, extra_sbatch: ['--hold'], stages: {train: {nodes: 2}}}"
TARGETS = {"submit": 1.5, "no-op": 1.0}
"""Seconds from the command to the last sbatch that was accepted; seconds of the whole command."""
ROUNDS = 3


class Times(NamedTuple):
    """Seconds from the command to the last accepted sbatch, of the whole command, and of the processors."""

    accepted: float
    whole: float
    cpu: float


class Place:
    """A folder with a site whose jobs are held, and with clients of Slurm that count their calls."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "calls"
        (folder / "held.yaml").write_text(SITE)
        (folder / "bin").mkdir()
        for name in CLIENTS:
            real = shutil.which(name)
            wrapper = folder / "bin" / name
            wrapper.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.log}\nexec {real} "$@"\n')
            wrapper.chmod(0o755)

    def submit(self, run: str, experts: int, counted: bool = False) -> Times:
        """Submit the quickstart."""
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}" if counted else os.environ["PATH"]
        fine = f"cluster.clustering.fine_clusters={max(64, experts)}"
        used, started = cpu_seconds(), time.time()
        site, folder = self.folder / "held.yaml", self.folder / run
        settings = (f"cluster.experts={experts}", "experts.training.batch=256", fine)
        done = hpcddm("submit", "quickstart", "--site", site, "--run-dir", folder, *settings, PATH=path)
        ended = time.time()
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
        last = max(line["time"] for line in lines if line["event"] == "submitted")
        return Times(last - started, ended - started, cpu_seconds() - used)

    def calls(self, run: str, experts: int) -> Counter[str]:
        """The calls of one submit, by client."""
        self.log.write_text("")
        self.submit(run, experts, counted=True)
        return self.counted()

    def counted(self) -> Counter[str]:
        """The calls since the log was emptied, by client."""
        words = [line.split() for line in self.log.read_text().splitlines()]
        return Counter("sbatch --test-only" if "--test-only" in line else line[0] for line in words)

    def clean(self) -> None:
        """Cancel everything that was submitted here."""
        for journal in self.folder.glob("*/journal.jsonl"):
            jobs = [one.job for one in Journal(journal).submissions() if one.job]
            subprocess.run(["scancel", *jobs], check=True)


def measure(place: Place) -> Iterator[list[str]]:
    """The rows of the table."""
    for experts in (2, 8):
        times = [place.submit(f"k{experts}-{number}", experts) for number in range(ROUNDS)]
        yield _row(f"submit, K={experts}", times, [one.accepted for one in times], place.calls(f"k{experts}", experts))
    for experts in (2, 8):
        times = [place.submit(f"k{experts}", experts) for _ in range(ROUNDS)]
        yield _row(f"no-op, K={experts}", times, [one.whole for one in times], place.calls(f"k{experts}", experts))


def _row(case: str, times: list[Times], seconds: list[float], calls: Counter[str]) -> list[str]:
    listed = ", ".join(f"{count} {client}" for client, count in sorted(calls.items()))
    figures = (min(seconds), max(seconds), TARGETS[case.split(",")[0]], min(one.cpu for one in times))
    return [case, *(f"{figure:.2f}" for figure in figures), str(calls.total()), listed]


def cpu_seconds() -> float:
    """Seconds of the processors in all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def on_testbed() -> Iterator[Place]:
    """Make a place on the testbed and clean it up; say last how busy the machine is."""
    os.environ.setdefault("SLURM_CONF", f"{os.environ['HPCDDM_TESTBED']}/home/slurm.conf")
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        try:
            yield place
        finally:
            place.clean()
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def main() -> None:
    """Print a row for each case."""
    with on_testbed() as place:
        print_header("submit", "best s", "worst s", "target s", "CPU s", "calls", "of these")
        for row in measure(place):
            print_row(*row)


if __name__ == "__main__":
    main()
