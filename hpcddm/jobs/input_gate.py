"""Gate before the start of a job, whose inputs may still be made under job ids that its dependency does not know.

`python -m hpcddm.jobs.input_gate MAP` prints the job names to query, a line 'cluster|name,name' for each queue, or
nothing. With the queues' answers on its input ('A_T|name' lines, '?|cluster' for a silent cluster) and `start` after
MAP it prints the flag of sbatch with which the job waits, or nothing. '!|cancelled' stands for a unit that was
cancelled, '!' and a reason for a unit that waits no longer.
"""

import os
import sys
import time
from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.files import atomic, inside, reading
from hpcddm.files.reading import Unreadable
from hpcddm.jobs.environment import CLUSTER_VARIABLE, slurm_element
from hpcddm.jobs.inputs import gather
from hpcddm.jobs.spec import Spec, name_in, read_map, read_spec
from hpcddm.runs.journal import Journal, Submission
from hpcddm.runs.layout import RunDir
from hpcddm.runs.unit_keys import TABLE

UNANSWERED = "?"
"""Placeholder for the elements in the queue of a cluster that gave no answer, any of which may make an input."""
LONGEST_SILENCE = 86_400
"""Seconds for which a job queries a cluster again that does not answer."""


def main() -> None:
    """Print the answer for the batch script."""
    map_path = Path(sys.argv[1])
    home = RunDir(map_path.resolve().parent.parent)
    inside.guard(home.root)
    spec, run = read_spec(read_map(map_path)[int(os.environ["SLURM_ARRAY_TASK_ID"])])
    token = os.environ["SLURM_JOB_NAME"].rpartition("-")[2]
    if Journal(home.journal).is_cancelled(token, name_in(home, run, spec.key)):
        print("!|cancelled")
        return
    awaited = missing_units(spec, run, home)
    if len(sys.argv) > 2:
        queue = sys.stdin.read()
        reason = silence(queue, awaited, home)
        print(f"!{reason}" if reason else start_flag(queue, awaited, home, spec.recheck_seconds))
        return
    for cluster, job_names in names(awaited, home).items():
        print(f"{cluster or ''}|{','.join(job_names)}")


def silence(queue: str, awaited: set[str], home: RunDir) -> str:
    """Return the reason to wait no longer: a cluster that makes some of the units is silent for too long; '' if none.

    Stores the time of the first query without an answer, until the cluster answers.
    """
    token, now = os.environ["SLURM_JOB_NAME"].rpartition("-")[2], time.time()
    silent = {line.partition("|")[2] for line in queue.splitlines() if line.partition("|")[0] == UNANSWERED}
    for cluster in filter(None, names(awaited, home)):
        path = home.jobs / f"{token}@{cluster}.silent"
        if cluster not in silent:
            inside.remove(path)
            continue
        since = _stored_time(path)
        if since is None:
            atomic.write_json(path, now)
        elif now - since > LONGEST_SILENCE:
            hours = round((now - since) / 3600)
            return f"cluster {cluster}, on which its inputs are made, has given no answer for {hours} h: submit again"
    return ""


def _stored_time(path: Path) -> float | None:
    try:
        return reading.read_json(path, float, reading.RECORD_BYTES)
    except Unreadable:
        return None


def missing_units(spec: Spec, run: RunDir, home: RunDir) -> set[str]:
    """Return the inputs of a unit that may still be in the making, by their names in the journal of `home`."""
    if spec.key == TABLE:
        return {unit for submission in Journal(home.journal).submissions() for unit in submission.units} - {TABLE}
    try:
        keys = gather(spec, run).missing
    except UserError:
        # What is there may be made anew just now, so it is asked for, too.
        keys = [*spec.requires, *spec.optional]
    top = home.root.resolve()
    if top == run.root.resolve():
        return set(keys)
    # What is shared is a link to where another run of the same home makes it; the folder of 'cluster/all' is 'cluster'.
    places = {key: run.unit(key).resolve().relative_to(top) for key in keys}
    return {f"{place}/all" if key.endswith("/all") else str(place) for key, place in places.items()}


def names(awaited: set[str], home: RunDir) -> dict[str | None, list[str]]:
    """List the names of all jobs that were submitted for these units, by cluster."""
    job_names: dict[str | None, list[str]] = {}
    for submission in Journal(home.journal).submissions():
        if awaited.intersection(submission.units):
            job_names.setdefault(submission.cluster, []).append(submission.job_name)
    return job_names


def start_flag(queue: str, awaited: set[str], home: RunDir, longest: int) -> str:
    """Return the flag of sbatch with which a job waits for the elements that make these units; '' when none does.

    No dependency crosses clusters, so for jobs of another cluster this job checks again later, after `longest` seconds
    at most. Jobs of its own cluster come first: the others are checked when these have ended.
    """
    submissions = {submission.job_name: submission for submission in Journal(home.journal).submissions()}
    this_job, cluster = (os.environ["SLURM_JOB_NAME"], slurm_element()), os.environ.get(CLUSTER_VARIABLE)
    after, is_elsewhere = [], False
    for line in queue.splitlines():
        known_as, _, name = line.strip().partition("|")
        # A job that is no array is the element 0 of itself, and Slurm knows it by its bare id.
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
    """Return the seconds that a job, submitted `age` seconds ago, waits before it queries another cluster again.

    A check costs a start of the job and a query to each cluster. A quarter of the time waited so far keeps both their
    number and the delay small.
    """
    return round(min(max(age / 4, longest / 5, 1), longest))


if __name__ == "__main__":
    try:
        main()
    except UserError as fault:
        sys.exit(str(fault))
