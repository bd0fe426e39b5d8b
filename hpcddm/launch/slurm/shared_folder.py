"""Check that several clusters share a run's folder: a job on each cluster returns a token that `submit` writes."""

import shlex
import subprocess
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.errors.printing import echo
from hpcddm.files import atomic, checked_reads
from hpcddm.files.nfs_reads import exists
from hpcddm.launch.slurm.client import SlurmUnavailable, call_slurm, cluster_flag, error_text, query_slurm
from hpcddm.runs.run_dir import RunDir

TOKEN_FILE, JOB_NAME = "folder.token", "hpcddm-folder"
PROOF_SECONDS = 30
"""Maximum seconds that `submit` waits for the jobs; a full queue does not cause a refusal."""
LATE_ANSWER_SECONDS = 15
"""Seconds until a network file system shows the last files of an ended job."""
POLL_SECONDS = 1.0
DROPPED_FLAGS = ("array", "output", "open-mode", "signal", "mail", "requeue")
"""Flags of a unit's batch script that the folder job must not use."""


def check_all_clusters(run: RunDir, scripts: Mapping[str, str]) -> None:
    """Check once that every cluster can read and write the run's folder; prints a note if a queue is full.

    Args:
        run: The run.
        scripts: Batch script of a unit on each cluster, whose #SBATCH flags the folder job uses.

    Raises:
        UserError: If a cluster cannot read or write the folder.
    """
    token = _token(run)
    missing = {cluster: text for cluster, text in scripts.items() if not _is_proven(run, cluster, token)}
    sent: list[str] = []
    try:
        for cluster, text in missing.items():
            _send(run, cluster, text, token)
            sent.append(cluster)
        deadline = time.monotonic() + PROOF_SECONDS
        for cluster in sent:
            _wait_for(cluster, run, token, deadline)
    finally:
        for cluster in sent:
            call_slurm("scancel", *cluster_flag(cluster), _name_flag(token))


def _name_flag(token: str) -> str:
    """Return the option with which squeue and scancel find the jobs of a token."""
    return f"--name={JOB_NAME}-{token}"


def _queue_state(cluster: str, token: str) -> str:
    """Return state and reason of a cluster's job in the queue; '' if it has left the queue."""
    try:
        state = query_slurm("squeue", *cluster_flag(cluster), "--all", "-h", _name_flag(token), "--format=%T, %r")
    except SlurmUnavailable as error:
        return f"unknown, {error}"
    return state.strip()


def _token(run: RunDir) -> str:
    """Return the token in the folder; its file names the folder, so a copy of the file proves nothing."""
    path, place = run.jobs / TOKEN_FILE, str(run.root.resolve())
    stored = checked_reads.usable(checked_reads.read_mapping, path) or {}
    if stored.get("folder") != place or not isinstance(stored.get("token"), str):
        stored = {"folder": place, "token": uuid.uuid4().hex[:12]}
        atomic.write_json(path, stored)
    return stored["token"]


def _answer(run: RunDir, cluster: str) -> Path:
    return run.jobs / f"folder.seen@{cluster}"


def _is_proven(run: RunDir, cluster: str, token: str) -> bool:
    path = _answer(run, cluster)
    # A token of another user proves nothing if other users cannot read that user's files.
    with suppress(OSError):
        return exists(path) and path.read_text().strip() == token
    return False


def _send(run: RunDir, cluster: str, text: str, token: str) -> None:
    """Submit the job that returns the token from one cluster."""
    folder, proof_name = shlex.quote(str(run.jobs.resolve())), shlex.quote(_answer(run, cluster).name)
    lines = [line for line in text.splitlines() if line.startswith("#SBATCH --")]
    kept = [line for line in lines if not line.removeprefix("#SBATCH --").startswith(DROPPED_FLAGS)]
    body = f"cd {folder} && grep -q {token} {TOKEN_FILE} && rm -f {proof_name} && echo {token} > {proof_name}"
    flags = ("--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--time=1", "--output=/dev/null", "--no-requeue")
    script = "\n".join(["#!/bin/bash", *kept, body, ""])
    try:
        process = call_slurm("sbatch", *cluster_flag(cluster), *flags, f"--job-name={JOB_NAME}-{token}", script=script)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"cluster {cluster}: sbatch gave no answer ({error}); try again later") from None
    if process.returncode != 0:
        raise UserError(f"cluster {cluster}: sbatch refused a job that looks for {run.root}: {error_text(process)}")


def _wait_for(cluster: str, run: RunDir, token: str, deadline: float) -> None:
    """Wait for the token; raises `UserError` if the job ended without returning it."""
    gone_since = None
    while not _is_proven(run, cluster, token):
        now = time.monotonic()
        if not (place := _queue_state(cluster, token)):
            gone_since = gone_since or now
        elif now > deadline or "Held" in place:
            note = f"note: nobody could try yet whether cluster {cluster} sees {run.root} ({place})"
            echo(f"{note}; 'hpcddm selftest' of this site looks with more patience")
            return
        if gone_since is not None and now - gone_since > LATE_ANSWER_SECONDS:
            raise UserError(
                f"cluster {cluster} cannot read or write {run.root} as this node can: a job there did not"
                " return the token in the folder jobs/; put the run on a file system that all clusters of the site"
                " share"
            )
        time.sleep(POLL_SECONDS)
