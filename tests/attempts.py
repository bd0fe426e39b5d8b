"""Attempts, submissions and queues as jobs leave them, without any job."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from hpcddm.launch.base import Job
from hpcddm.launch.slurm.client import SlurmUnavailable
from hpcddm.launch.slurm.launcher import SlurmLauncher
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir


def write_attempt(
    run: RunDir, key: str, number: int, token: str | None = None, job: str | None = None, **files: Any
) -> Path:
    """Write the record of an attempt; `files` are what its other files hold, and `started` when it began.

    With a token it is one of Slurm's array, two nodes with two CPUs each, else one of this machine.
    """
    folder = run.logs(key) / f"attempt-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    owner = {"owner": "local-abc-17", "host": "here", "pid": 1, "cpus": 1, "gpus": 0, "job": None}
    if token:
        nodes = {"nodes": 2, "node_list": "h[1-2]", "ranks": 2, "cpus": 4, "gpus": 2}
        owner |= {"owner": f"slurm-tiny-train-{token}-{job}.{number - 1}", "job": job, "host": "h1"} | nodes
    owner["started"] = files.pop("started", time.time() - 600)
    for name, content in {"owner": owner, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
        if "time" in content:
            os.utime(folder / f"{name}.json", (content["time"], content["time"]))
    (folder / "rank0.log").write_text(f"attempt {number} says this\n")
    return folder


def beat(done: int = 640, total: int = 1280, age: float = 3, saved: int | None = None, **more: Any) -> dict[str, Any]:
    """A heartbeat of some seconds ago."""
    now = time.time()
    values = {"time": now - age, "owner": "me", "attempt": 1, "host": "h1", "done": done, "total": total, "rate": 10.0}
    values |= {"figures": {"loss": 0.25}, "saved_images": saved, "saved_time": now - age - 30 if saved else None}
    return values | more


def submitted(run: RunDir, units: list[str], job: str | None = "17", scheduler: str = "slurm", age: float = 900) -> str:
    """Journal an array of some time ago and return its token."""
    token = Journal(run.journal).record_intent(scheduler, "north", units, "tiny-train")
    if job:
        Journal(run.journal).record_submitted(token, job)
    lines = [json.loads(line) for line in run.journal.read_text().splitlines()]
    aged = [line | {"time": time.time() - age} if line["uuid"] == token else line for line in lines]
    run.journal.write_text("".join(json.dumps(line) + "\n" for line in aged))
    return token


def answer(monkeypatch: pytest.MonkeyPatch, jobs: dict[str, Job] | None) -> list[int]:
    """Let squeue say this, or nothing; the list that is returned grows with every question.

    Nobody else answers: what left the queue is not known to have ended early.
    """
    asked: list[int] = []
    monkeypatch.setattr("hpcddm.launch.slurm.early_failures.query_slurm", _say_nothing)
    monkeypatch.setattr(SlurmLauncher, "states", lambda self, submissions: asked.append(1) or jobs)
    return asked


def _say_nothing(*command: str) -> str:
    raise SlurmUnavailable(f"{command[0]} is not asked here")
