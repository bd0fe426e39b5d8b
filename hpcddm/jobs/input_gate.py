"""Check before the start of a job for inputs that jobs unknown to its dependency are still computing.

`python -m hpcddm.jobs.input_gate MAP` prints the job names to query, one line 'cluster|name,name' per queue, or
nothing. With the queues' answers on its standard input ('ARRAY_TASK|name' lines, '?|cluster' for a cluster without an
answer) and `start` after MAP, it prints the flag of sbatch with which the job waits, or nothing. '!|cancelled' means
that the unit was cancelled, '!|REASON' that it stops waiting.
"""

import os
import sys
import time
from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.files import atomic, guarded_writes
from hpcddm.files.checked_reads import RECORD_BYTES, read_json, usable
from hpcddm.jobs.job_environment import CLUSTER_VARIABLE, slurm_element
from hpcddm.jobs.spec import Spec, journal_name, read_element_map, read_spec
from hpcddm.jobs.unit_inputs import gather_inputs
from hpcddm.runs.journal import Journal, Submission
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import TABLE

UNANSWERED = "?"
"""Placeholder for the jobs of a cluster that did not answer; any of these jobs may compute an input."""
MAX_UNREACHABLE_SECONDS = 86_400
"""Seconds for which a job keeps querying a cluster that does not answer."""


def main() -> None:
    """Print the answer for the batch script."""
    map_path = Path(sys.argv[1])
    home = RunDir(map_path.resolve().parent.parent)
    guarded_writes.guard(home.root)
    spec, run = read_spec(read_element_map(map_path)[int(os.environ["SLURM_ARRAY_TASK_ID"])])
    token = os.environ["SLURM_JOB_NAME"].rpartition("-")[2]
    if Journal(home.journal).is_cancelled(token, journal_name(home, run, spec.key)):
        print("!|cancelled")
        return
    awaited = missing_units(spec, run, home)
    if len(sys.argv) > 2:
        queue = sys.stdin.read()
        reason = unreachable_cluster(queue, awaited, home)
        print(f"!{reason}" if reason else start_flag(queue, awaited, home, spec.recheck_seconds))
        return
    for cluster, job_names in awaited_job_names(awaited, home).items():
        print(f"{cluster or ''}|{','.join(job_names)}")


def unreachable_cluster(queue: str, awaited: set[str], home: RunDir) -> str:
    """Return the reason to stop waiting: a cluster with awaited jobs has not answered for too long; '' otherwise.

    The time of the first query without an answer is stored in a file until the cluster answers.

    Args:
        queue: Answers of the queues.
        awaited: Names of the awaited units in the journal.
        home: The run, or the folder of a sweep.
    """
    token, now = os.environ["SLURM_JOB_NAME"].rpartition("-")[2], time.time()
    silent = {line.partition("|")[2] for line in queue.splitlines() if line.partition("|")[0] == UNANSWERED}
    for cluster in filter(None, awaited_job_names(awaited, home)):
        path = home.jobs / f"{token}@{cluster}.silent"
        if cluster not in silent:
            guarded_writes.remove(path)
            continue
        since: float | None = usable(read_json, path, float, RECORD_BYTES)
        if since is None:
            atomic.write_json(path, now)
        elif now - since > MAX_UNREACHABLE_SECONDS:
            hours = round((now - since) / 3600)
            return f"cluster {cluster}, on which its inputs are made, has given no answer for {hours} h: submit again"
    return ""


def missing_units(spec: Spec, run: RunDir, home: RunDir) -> set[str]:
    """Return the inputs of a unit whose jobs may still run, by their names in the journal of its home."""
    if spec.key == TABLE:
        return {unit for submission in Journal(home.journal).submissions() for unit in submission.units} - {TABLE}
    try:
        keys = gather_inputs(spec, run).missing
    except UserError:
        # A job may be rewriting an existing input, so that job is queried as well.
        keys = [*spec.requires, *spec.optional, *spec.gates.values()]
    if (top := home.root.resolve()) == run.root.resolve():
        return set(keys)
    # A shared unit is a link to the unit of another run of the same home; the folder of 'cluster/all' is 'cluster'.
    places = {key: run.unit(key).resolve().relative_to(top) for key in keys}
    return {f"{place}/all" if key.endswith("/all") else str(place) for key, place in places.items()}


def awaited_job_names(awaited: set[str], home: RunDir) -> dict[str | None, list[str]]:
    """List the names of all jobs submitted for some units, by cluster."""
    job_names: dict[str | None, list[str]] = {}
    for submission in Journal(home.journal).submissions():
        if awaited.intersection(submission.units):
            job_names.setdefault(submission.cluster, []).append(submission.job_name)
    return job_names


def start_flag(queue: str, awaited: set[str], home: RunDir, longest: int) -> str:
    """Return the flag of sbatch with which this job waits for the jobs of some units; '' if there are none.

    Dependencies cannot cross clusters. For jobs on other clusters this job checks again later, after all awaited jobs
    on its own cluster have ended.

    Args:
        queue: Answers of the queues.
        awaited: Names of the awaited units in the journal.
        home: The run, or the folder of a sweep.
        longest: Maximum seconds until the next check of other clusters.
    """
    submissions = {submission.job_name: submission for submission in Journal(home.journal).submissions()}
    this_job, cluster = (os.environ["SLURM_JOB_NAME"], slurm_element()), os.environ.get(CLUSTER_VARIABLE)
    after, is_elsewhere = [], False
    for line in queue.splitlines():
        known_as, _, name = line.strip().partition("|")
        # A job without an array counts as its element 0; Slurm lists it by its bare id.
        known_as = known_as.removesuffix("_N/A")
        element = known_as if "_" in known_as else f"{known_as}_0"
        is_elsewhere |= known_as == UNANSWERED
        if name not in submissions or (name, element) == this_job or not _makes(submissions[name], element, awaited):
            continue
        if submissions[name].cluster in (cluster, None):
            after.append(known_as)
        else:
            is_elsewhere = True
    if after:
        return f"--dependency=afterany:{':'.join(after)}"
    age = time.time() - submissions[this_job[0]].time if this_job[0] in submissions else 0.0
    return f"--begin=now+{seconds_to_next_check(age, longest)}" if is_elsewhere else ""


def _makes(submission: Submission, element: str, awaited: set[str]) -> bool:
    number = element.rpartition("_")[2]
    is_element = number.isdecimal() and int(number) < len(submission.units)
    return is_element and submission.units[int(number)] in awaited


def seconds_to_next_check(age: float, longest: int) -> int:
    """Return the seconds until a job queries other clusters again.

    Each check costs a start of the job and a query of each cluster. Waiting a quarter of the job's age keeps both the
    number of checks and the delay small.

    Args:
        age: Seconds since the submission of the job.
        longest: Maximum seconds between two checks.

    Examples:
        >>> [seconds_to_next_check(age, 300) for age in (0, 600, 86400)]
        [60, 150, 300]
    """
    return round(min(max(age / 4, longest / 5, 1), longest))


if __name__ == "__main__":
    try:
        main()
    except UserError as fault:
        sys.exit(str(fault))
