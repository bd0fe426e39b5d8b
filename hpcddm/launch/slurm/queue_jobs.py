"""Jobs in Slurm's queue, with Slurm's terms translated into states and reasons."""

import re
from collections.abc import Iterator

from hpcddm.launch.base import Job
from hpcddm.launch.slurm.client import cluster_flag, query_slurm
from hpcddm.pipeline.state import QUEUED, State
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Submission

QUEUE_FORMAT = "%F|%K|%T|%r|%N|%S|%j"
STATES = {
    **dict.fromkeys(("PENDING", "REQUEUED", "REQUEUE_FED", "EXPEDITING"), State.PENDING),
    **dict.fromkeys(("REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"), State.HELD),
    **dict.fromkeys(("CONFIGURING", "POWER_UP_NODE"), State.STARTING),
    **dict.fromkeys(("RUNNING", "RESIZING"), State.RUNNING),
    **dict.fromkeys(("SUSPENDED", "STOPPED"), State.SUSPENDED),
    **dict.fromkeys(("COMPLETING", "STAGE_OUT", "SIGNALING", "COMPLETED", "CANCELLED", "FAILED"), State.STOPPING),
    **dict.fromkeys(("LAUNCH_FAILED", "RECONFIG_FAIL"), State.STOPPING),
    **dict.fromkeys(("TIMEOUT", "DEADLINE", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY"), State.STOPPING),
}
"""States by Slurm's job states, see JOB STATE CODES in squeue(1); an ended job soon leaves the queue."""
REASONS = {
    "BeginTime": "Slurm lets it wait a while after a requeue",
    "Dependency": "waits for the jobs before it",
    "Priority": "other jobs come first",
    "Resources": "waits for free nodes",
    "JobArrayTaskLimit": "as many elements as allowed run already",
    "BadConstraints": "asks for more than any node has; cancel it, then retry it with less",
    "DependencyNeverSatisfied": "waits for a job that will never end well; cancel it and submit again",
}


def jobs_in_queue(cluster: str | None, submissions: list[Submission]) -> Iterator[tuple[str, Job]]:
    """Query the jobs of submissions in their cluster's queue.

    Args:
        cluster: Name of the cluster; None for the default cluster.
        submissions: Submissions to this cluster.

    Yields:
        The name of the unit, and its job.

    Raises:
        SlurmUnavailable: If Slurm does not answer.
    """
    units = {submission.uuid: submission.units for submission in submissions}
    names = ",".join(submission.job_name for submission in submissions)
    # One word of a command line may be 128 KiB long.
    some = [f"--name={names}"] if len(names) < 100_000 else []
    flags = ("--all", "--noheader", "--array", *some, f"--format={QUEUE_FORMAT}")
    text = query_slurm("squeue", *cluster_flag(cluster), *flags)
    # Some clusters print a notice before the answer.
    for line in (line for line in text.splitlines() if line.count("|") >= QUEUE_FORMAT.count("|")):
        job, element, state, reason, nodes, start, name = line.split("|", QUEUE_FORMAT.count("|"))
        token = name.rsplit("-", 1)[-1]
        # A job that is not an array is its own element 0; Slurm uses its bare id.
        number, index = (job, "0") if element == "N/A" else (f"{job}_{element}", element)
        if token in units and index.isdecimal() and int(index) < len(units[token]):
            yield units[token][int(index)], make_job(JobId.on_cluster(number, cluster), state, reason, nodes, start)


def make_job(job: JobId, word: str, reason: str, nodes: str, start: str) -> Job:
    """Create a job from the fields that squeue prints; an unknown Slurm state counts as running.

    Args:
        job: Id of the job.
        word: Slurm's state, such as 'PENDING'.
        reason: Slurm's reason for the state.
        nodes: Nodes of the job, in Slurm's notation.
        start: Expected start as squeue prints it, or 'N/A'.
    """
    if (state := STATES.get(word)) is None:
        return Job(job, State.RUNNING, f"Slurm calls its job {word}", nodes)
    if state == State.PENDING and re.search(r"\bheld\b|JobHeld|JobHold", reason):
        state = State.HELD
    if state == State.PENDING:
        reason = REASONS.get(reason, reason)
        if word == "PENDING" and start != "N/A":
            reason += f", may start {start.replace('T', ' ')}"
    return Job(job, state, reason if state in QUEUED else "", nodes)
