"""Speed of an experiment's networks on this machine, from some real steps that `benchmark_process` runs."""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from types import TracebackType

from hpcddm.config import Experiment
from hpcddm.devices import current_device, device_name
from hpcddm.errors import UserError
from hpcddm.networks.workload import Work

SECONDS = 1.0
"""Seconds for which each kind of step is repeated."""


class Benchmark:
    """Seconds per image of one process, measured once for each network, kind of work, batch and number of threads."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._known: dict[str, float] = {}
        self._child: subprocess.Popen | None = None
        self._errors = tempfile.TemporaryFile("w+")

    def __enter__(self) -> "Benchmark":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child:
            self._child.stdin.close()
            self._child.wait()
        self._errors.close()

    def seconds(self, work: Work, ranks: int, threads: int, on_gpu: bool) -> float:
        """Return the seconds that a unit of so many ranks, of so many threads each, takes for one piece of its work.

        Raises `UserError` with the reason when it cannot be run here.
        """
        batch = max(work.batch // ranks, 1)
        question = {"network": work.network, "is_training": work.is_training, "batch": batch}
        line = json.dumps(question | {"threads": threads, "on_gpu": on_gpu, "at_least_seconds": SECONDS})
        if line not in self._known:
            self._known[line] = self._ask(line)
        return self._known[line] * work.images / ranks

    def _ask(self, line: str) -> float:
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "hpcddm.planning.benchmark_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
            self._say(self._experiment.model_dump_json())
        self._say(line)
        reply = self._child.stdout.readline()
        if reply:
            return float(reply)
        self._child, child = None, self._child
        self._errors.seek(0)
        errors = self._errors.read().splitlines()
        raise UserError(f"no measurement here, exit code {child.wait()}: {errors[-1] if errors else 'no reason given'}")

    def _say(self, line: str) -> None:
        # Of a child that died the missing answer tells.
        with suppress(BrokenPipeError):
            self._child.stdin.write(f"{line}\n")
            self._child.stdin.flush()


@cache
def machine(on_gpu: bool) -> str:
    """Name the device that is measured, with a remark where the machine is busy with something else."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    busy = f", busy (load {load:.0f} on {cores} cores): times may be too long" if load > 1.5 * cores else ""
    if on_gpu:
        return device_name(current_device()) + busy
    with suppress(OSError, StopIteration, IndexError), open("/proc/cpuinfo") as file:
        return next(line.split(":")[1].strip() for line in file if line.startswith("model name")) + busy
    return "this processor" + busy
