"""Speed of an experiment's networks on this machine, from some real steps that `benchmark_process` runs."""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager, suppress
from functools import cache

from hpcddm.config.experiment import Experiment
from hpcddm.errors import UserError
from hpcddm.errors.printing import echo
from hpcddm.jobs.devices import current_device, device_name
from hpcddm.stages.workload import Work

MIN_SECONDS = 1.0
"""Seconds for which each kind of step is repeated."""


class Benchmark(AbstractContextManager["Benchmark"]):
    """Seconds per image of one process, measured once for each network, kind of work, batch and number of threads."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._known: dict[str, float | str] = {}
        self._child: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._child:
            if error is not None:
                self._child.kill()
            # Closes the pipes: a process without further questions ends.
            self._child.communicate()
        self._errors.close()

    def seconds(self, work: Work, ranks: int, threads: int, on_gpu: bool) -> float:
        """Return the seconds that a unit of so many ranks, of so many threads each, takes for one piece of its work.

        Raises `UserError` with the reason when it cannot be run here.
        """
        question = {"network": work.network, "is_training": work.is_training, "batch": max(work.batch // ranks, 1)}
        line = json.dumps(question | {"threads": threads, "on_gpu": on_gpu, "at_least_seconds": MIN_SECONDS})
        if line not in self._known:
            echo(f"measuring here: {work.network}{', training' * work.is_training} ...", err=True)
            self._known[line] = self._measure(line)
        known = self._known[line]
        if isinstance(known, str):
            raise UserError(known)
        return known * work.images / ranks

    def _measure(self, line: str) -> float | str:
        """Return the seconds per image, or the reason why they cannot be measured here."""
        child = self._child = self._child or self._started()
        assert child.stdout is not None, "a pipe"
        _send(child, line)
        if reply := child.stdout.readline():
            answer: dict[str, float | str] = json.loads(reply)
            return answer.get("error") or answer["seconds"]
        self._child = None
        child.communicate()
        self._errors.seek(0)
        errors = self._errors.read().splitlines()
        reason = errors[-1] if errors else "no reason given"
        return f"no measurement here, exit code {child.returncode}: {reason}"

    def _started(self) -> "subprocess.Popen[str]":
        """Start the process that measures, with a line per request and per reply; it reads the experiment first."""
        # Nothing is imported from the working directory, which may be a run's, with a file json.py.
        command = [sys.executable, "-P", "-m", "hpcddm.commands.planning.benchmark_process"]
        pipe = subprocess.PIPE
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._errors, text=True)
        _send(child, self._experiment.model_dump_json())
        return child


def _send(child: "subprocess.Popen[str]", line: str) -> None:
    assert child.stdin is not None, "a pipe"
    # A missing reply means that the child died.
    with suppress(BrokenPipeError):
        child.stdin.write(f"{line}\n")
        child.stdin.flush()


@cache
def describe_machine(on_gpu: bool) -> str:
    """Name the device that is measured, with a remark where the machine is busy with something else."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    busy = f", busy (load {load:.0f} on {cores} cores): times may be too long" if load > 1.5 * cores else ""
    if on_gpu:
        return device_name(current_device()) + busy
    with suppress(OSError, StopIteration, IndexError), open("/proc/cpuinfo") as file:
        return next(line.split(":")[1].strip() for line in file if line.startswith("model name")) + busy
    return "this processor" + busy
