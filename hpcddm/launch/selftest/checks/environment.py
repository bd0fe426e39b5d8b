"""The environment: the setup lines run, Python finds hpcddm, and nothing binds the job to fewer cores than it has."""

import importlib
import os
import sys
import time
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from hpcddm import __version__
from hpcddm.files import atomic
from hpcddm.jobs.job_environment import node_name
from hpcddm.launch.selftest.check_results import CheckResult, CheckVerdict, fail
from hpcddm.launch.selftest.evidence import Element, Evidence, JobStart, TrialJob
from hpcddm.runs.provenance import package_version

PACKAGES = ("torch", "deepspeed", "submitit")
LEAKS = ("SBATCH_", "SRUN_", "SALLOC_", "SLURM_CPU_BIND", "SLURM_MEM_BIND", "SLURM_DISTRIBUTION", "PMI_")
"""Variables of another allocation: what srun reads from them changes where the ranks run."""


def observe(folder: Path, spec: dict[str, Any]) -> None:
    """Record a rank's Python, packages, cores, threads and GPUs inside the job."""
    # Every job starts with this module.
    importlib.import_module("hpcddm.jobs.entry")
    record = {
        "python": sys.executable,
        "version": ".".join(map(str, sys.version_info[:3])),
        "hpcddm": __version__,
        "missing": [name for name in PACKAGES if package_version(name) is None],
        "host": node_name(),
        "cores": sorted(os.sched_getaffinity(0)),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "time": time.time(),
        "gpus": _visible_gpus() if spec["gpus"] else 0,
    }
    atomic.write_json(folder / "environment.json", record, durable=False)


def _visible_gpus() -> int | str:
    """Return the number of GPUs that torch can use, or the reason why there is none."""
    try:
        devices = importlib.import_module("hpcddm.jobs.devices")
        return devices.visible_gpus() or f"none: {devices.missing_gpu_advice()}"
    except (ImportError, RuntimeError, OSError) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def _setup_failure(evidence: Evidence, start: JobStart) -> str:
    failed = start.text("setup.failed")
    output = (evidence.output(TrialJob.ARRAY, Element.ENVIRONMENT) or "").strip().splitlines()
    detail = f": {output[0]}" if output else ""
    if failed:
        code, _, line = failed.splitlines()[0].partition(" ")
        return f"setup: '{line}' ended with {code}{detail}"
    has_ended = TrialJob.ARRAY not in evidence.waiting
    return f"the setup lines ended the job{detail}" if has_ended and start.text("setup.done") is None else ""


def _find_problem(evidence: Evidence, record: dict[str, Any], start: JobStart) -> tuple[CheckVerdict, str, str]:
    resources = evidence.element_resources
    cpus = resources.cpus_per_rank
    if record["missing"]:
        finding = f"{record['python']} has no {', '.join(record['missing'])}"
        return CheckVerdict.FAIL, finding, "install hpcddm there with pip"
    if resources.gpus_per_node and record["gpus"] != resources.gpus_per_node:
        finding = f"{resources.gpus_per_node} GPU requested, torch sees {record['gpus']}"
        advice = "look at container (apptainer needs --nv), gpus_flag, gpu_type, and at torch's CUDA build"
        return CheckVerdict.FAIL, finding, advice
    if len(record["cores"]) < cpus:
        finding = f"bound to {len(record['cores'])} cores, {cpus} requested"
        advice = "does setup set SLURM_CPU_BIND or call taskset? else the node has fewer cores than Slurm believes"
        return CheckVerdict.FAIL, finding, advice
    if record["threads"] != str(cpus):
        return CheckVerdict.WARN, f"OMP_NUM_THREADS={record['threads']}, {cpus} requested", "does container change it?"
    leaks = [line.partition("=")[0] for line in (start.text("variables") or "").splitlines() if line.startswith(LEAKS)]
    if leaks:
        finding = f"{', '.join(leaks[:4])} set in the job before srun"
        return CheckVerdict.WARN, finding, "unset it in setup, or in the files that your shell reads"
    return CheckVerdict.OK, "", ""


def _ranges(numbers: list[int]) -> str:
    """Format sorted numbers as '0-3,8'."""
    # Consecutive numbers are equally far from their places.
    groups = groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ranges = [[number for _, number in group] for _, group in groups]
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in ranges)


def evaluate(evidence: Evidence) -> CheckResult:
    """Report the first thing that is wrong, else the version of Python and the cores on which it runs."""
    if (start := evidence.last(TrialJob.ARRAY, Element.ENVIRONMENT)) is None:
        return evidence.missing_result(TrialJob.ARRAY, Element.ENVIRONMENT, "environment")
    record = start.json("environment")
    if setup := _setup_failure(evidence, start):
        return fail(None, setup, "correct the site key setup; try the line on a node")
    if record is None:
        row = evidence.missing_result(TrialJob.ARRAY, Element.ENVIRONMENT, "environment")
        if row.verdict is CheckVerdict.FAIL:
            advice = f"Python must start on the node: install hpcddm there, look at setup and container; {row.advice}"
            return replace(row, advice=advice)
        return row
    verdict, finding, advice = _find_problem(evidence, record, start)
    cores = f"cores {_ranges(record['cores'])} on {record['host']}"
    good = f"Python {record['version']}, hpcddm {record['hpcddm']}; {cores}, OMP_NUM_THREADS={record['threads']}"
    seconds = record["time"] - start.time
    return CheckResult(verdict, seconds, f"{finding}; {cores}" if finding else good, advice)
