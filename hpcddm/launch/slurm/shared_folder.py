"""Proof that several clusters see the folder of a run: a token that submit writes there, sent back by a job of each."""

import shlex
import subprocess
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.errors.printing import echo
from hpcddm.files import atomic, reading
from hpcddm.files.fresh import exists
from hpcddm.files.reading import Unreadable
from hpcddm.launch.slurm.client import SlurmUnavailable, call, error_text, on, query
from hpcddm.runs.layout import RunDir

TOKEN_FILE = "folder.token"
PROOF_SECONDS = 30
"""Seconds that submit waits for the jobs; a full queue is no reason to wait longer, or to refuse."""
SEEN_SECONDS = 15
"""Seconds that a network file system may take to show here what a job wrote there before it left."""
POLL_SECONDS = 1.0
DROPPED_FLAGS = ("array", "output", "open-mode", "signal", "mail", "requeue")
"""Flags of a unit's script that a job of some seconds must not have."""


@dataclass(frozen=True)
class Messenger:
    """A job of one cluster that reads the token and sends it back."""

    cluster: str
    name: str

    def place(self) -> str:
        """Return its state and reason in the queue; '' when it has left the queue."""
        try:
            return query("squeue", *on(self.cluster), "--all", "-h", f"--name={self.name}", "--format=%T, %r").strip()
        except SlurmUnavailable as error:
            return f"unknown, {error}"


def prove(run: RunDir, scripts: Mapping[str, str]) -> None:
    """Let every cluster show once that it sees the run's folder and can write there.

    scripts: the batch script of a unit of each cluster, whose #SBATCH flags the job takes over.
    Raises `UserError` naming the cluster that does not see it. Prints a note when its queue is full.
    """
    token = _token(run)
    missing = {cluster: text for cluster, text in scripts.items() if not _is_proven(run, cluster, token)}
    sent: list[Messenger] = []
    try:
        for cluster, text in missing.items():
            sent.append(_send(run, cluster, text, token))
        deadline = time.monotonic() + PROOF_SECONDS
        for messenger in sent:
            _wait_for(messenger, run, token, deadline)
    finally:
        for messenger in sent:
            call("scancel", *on(messenger.cluster), f"--name={messenger.name}")


def _token(run: RunDir) -> str:
    """Return the token in the folder, for the jobs to read; its file names the folder, so a copy proves nothing."""
    path, place = run.jobs / TOKEN_FILE, str(run.root.resolve())
    try:
        stored = reading.read_mapping(path) or {}
    except Unreadable:
        stored = {}
    if stored.get("folder") != place or not isinstance(stored.get("token"), str):
        stored = {"folder": place, "token": uuid.uuid4().hex[:12]}
        atomic.write_json(path, stored)
    return stored["token"]


def _answer(run: RunDir, cluster: str) -> Path:
    return run.jobs / f"folder.seen@{cluster}"


def _is_proven(run: RunDir, cluster: str, token: str) -> bool:
    path = _answer(run, cluster)
    # An answer to somebody whose files nobody else may read proves nothing to this user.
    with suppress(OSError):
        return exists(path) and path.read_text().strip() == token
    return False


def _send(run: RunDir, cluster: str, text: str, token: str) -> Messenger:
    """Submit the job that sends the token back from one cluster."""
    messenger = Messenger(cluster, f"hpcddm-folder-{token}")
    folder, proof_name = shlex.quote(str(run.jobs.resolve())), shlex.quote(_answer(run, cluster).name)
    lines = [line for line in text.splitlines() if line.startswith("#SBATCH --")]
    kept = [line for line in lines if not line.removeprefix("#SBATCH --").startswith(DROPPED_FLAGS)]
    body = f"cd {folder} && grep -q {token} {TOKEN_FILE} && rm -f {proof_name} && echo {token} > {proof_name}"
    flags = ("--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--time=1", "--output=/dev/null", "--no-requeue")
    script = "\n".join(["#!/bin/bash", *kept, body, ""])
    try:
        process = call("sbatch", *on(cluster), *flags, f"--job-name={messenger.name}", script=script)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"cluster {cluster}: sbatch gave no answer ({error}); try again later") from None
    if process.returncode != 0:
        raise UserError(f"cluster {cluster}: sbatch refused a job that looks for {run.root}: {error_text(process)}")
    return messenger


def _wait_for(messenger: Messenger, run: RunDir, token: str, deadline: float) -> None:
    """Wait for the token; raises `UserError` when the job has ended without sending it back."""
    gone_since = None
    while not _is_proven(run, messenger.cluster, token):
        now = time.monotonic()
        place = messenger.place()
        if not place:
            gone_since = gone_since or now
        elif now > deadline or "Held" in place:
            echo(
                f"note: nobody could try yet whether cluster {messenger.cluster} sees {run.root} ({place});"
                " 'hpcddm selftest' of this site looks with more patience"
            )
            return
        if gone_since is not None and now - gone_since > SEEN_SECONDS:
            raise UserError(
                f"cluster {messenger.cluster} does not see {run.root} as this node does, or may not write there: a job"
                " there did not send back the token that lies in its folder jobs/; put the run on a file system that"
                " all clusters of the site share"
            )
        time.sleep(POLL_SECONDS)
