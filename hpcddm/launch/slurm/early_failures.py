"""Jobs that ended because of a node: before Python started, or according to the batch script's verdict."""

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from hpcddm.files import nfs_reads
from hpcddm.jobs.attempt_records import read_records
from hpcddm.jobs.failure_cause import read_tails
from hpcddm.jobs.job_end import parse_job
from hpcddm.jobs.resource_requests import parse_seconds
from hpcddm.launch.array_items import ArrayItem
from hpcddm.launch.slurm.client import SlurmUnavailable, cluster_flag, query_slurm
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import NODE_LOSS_SECONDS, Journal, Submission
from hpcddm.runs.run_dir import RunDir, run_in_home
from hpcddm.runs.unit_keys import key_in_run, stage_of

EARLY_SECONDS = 60
"""Maximum duration of an early failure in seconds; jobs that failed later had started Python."""
NODE_FAILURES = ("NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED")
FAILURES = ("FAILED", *NODE_FAILURES)
NO_OUTPUT = "0:53"
"""Exit code of a job whose output file slurmd could not open, so that its script never started."""
PRINTED_VERDICT = re.compile(r"^\S+ \S+: exit code \d+; (?:failed|gave up): (.+)$", re.MULTILINE)
"""Pattern of the line in which a batch script prints that a unit ended for good."""
SACCT_FIELDS = "JobID,State,ExitCode,NodeList,ElapsedRaw"


@dataclass(frozen=True)
class EarlyFailure:
    """End of the newest job of a unit, and the node on which its batch script should start."""

    job: JobId
    node: str
    state: str
    exit_code: str
    seconds: int

    @property
    def text(self) -> str:
        """Description of the early failure for the user."""
        return (
            f"its job {self.job} ended on {self.node} after {self.seconds} s, before Python began ({self.state},"
            f" exit code {self.exit_code}); does {self.node} see the run's folder? Or setup, python or container may be"
            " wrong."
        )

    @property
    def is_before_the_script(self) -> bool:
        """True if the batch script did not start, so that the script cannot be the cause."""
        return self.state in NODE_FAILURES or self.exit_code == NO_OUTPUT


def find_early_failures(submissions: list[Submission], units: list[str]) -> dict[str, EarlyFailure]:
    """Find the failures within `EARLY_SECONDS` among the newest jobs of some units.

    It queries the controller once per array, then the accounting. Jobs that are unknown to both are omitted.

    Args:
        submissions: All submissions of the journal.
        units: Units whose newest jobs did not open an attempt.

    Returns:
        The failures, by unit.
    """
    newest = {unit: submission for submission in submissions for unit in submission.units}
    elements: dict[str, JobId] = {}
    for unit, submission in ((unit, newest[unit]) for unit in units if unit in newest):
        if submission.job is not None and submission.scheduler == "slurm" and unit not in submission.cancelled:
            elements[unit] = submission.job.element(submission.units.index(unit))
    ends: dict[JobId, EarlyFailure] = {}
    for array in dict.fromkeys(element.array for element in elements.values()):
        ends |= _from_controller(array) or _from_accounting(array)
    early = {}
    for unit, element in elements.items():
        if (end := ends.get(element)) and end.state in FAILURES and end.seconds <= EARLY_SECONDS and end.node:
            early[unit] = end
    return early


def printed_reason(early: EarlyFailure, home: RunDir) -> str:
    """Return the reason that the batch script printed for the end of a job that could leave no record; '' for none.

    Args:
        early: The early failure.
        home: The run, or the folder of a sweep.
    """
    said = read_tails([home.jobs / f"{early.job}.out"], 0.0)
    return next((match[1] for match in reversed(list(PRINTED_VERDICT.finditer(said)))), "")


def is_node_fault(early: EarlyFailure, unit: str, submissions: list[Submission], home: RunDir) -> bool:
    """Return True if a node caused an early failure.

    There are three indications: the batch script did not start; the job's output is missing in the run's folder, so the
    node does not see that folder; or the same stage has since started Python on another node. Otherwise a wrong
    `setup`, `python` or `container` could be the cause, on every node.

    Args:
        early: The early failure.
        unit: Name of the unit in the journal.
        submissions: All submissions of the journal.
        home: The run, or the folder of a sweep.
    """
    if printed_reason(early, home):
        return False
    # If the output's folder is missing on the node, some versions of Slurm create it there instead of refusing.
    if early.is_before_the_script or not nfs_reads.exists(home.jobs / f"{early.job}.out"):
        return True
    lost = next(submission for submission in reversed(submissions) if unit in submission.units)
    place, stage = (lost.site, lost.cluster), stage_of(key_in_run(unit))
    since = submissions[submissions.index(lost) :]
    peers = {submission.uuid: submission for submission in since if (submission.site, submission.cluster) == place}
    for name in dict.fromkeys(
        name for submission in peers.values() for name in submission.units if stage_of(key_in_run(name)) == stage
    ):
        for record in read_records(run_in_home(home, name).logs(key_in_run(name))):
            node = first_node(str(record.owner.get("node_list", "")))
            if record.token in peers and node and node != early.node:
                return True
    return False


def blame_nodes(items: Sequence[ArrayItem], home: RunDir, most: int) -> list[str]:
    """Record the nodes that ended the last jobs of some items, so that new jobs avoid these nodes.

    Args:
        items: The items.
        home: The run, or the folder of a sweep.
        most: The site key `max_excluded_nodes`.

    Returns:
        One line per early failure or node, for the user.
    """
    journal = Journal(home.journal)
    submissions = journal.submissions()
    newest = {unit: submission for submission in submissions for unit in submission.units}
    tried = {item.name: read_records(item.run.logs(item.unit.key)) for item in items if item.name in newest}
    vanished = [name for name in tried if newest[name].uuid not in {record.token for record in tried[name]}]
    remark = f"Jobs avoid it from now on, for a day (max_excluded_nodes: {most})"
    lines: dict[str, str] = {}
    for name, early in find_early_failures(submissions, vanished).items():
        lines[name] = f"{name}: {printed_reason(early, home) or early.text}"
        if is_node_fault(early, name, submissions, home):
            journal.record_node_loss(newest[name].uuid, name, early.node)
            lines[name] += f" {remark}"
    since = time.time() - NODE_LOSS_SECONDS
    for unit, record in ((unit, record) for unit, attempts in tried.items() for record in attempts):
        if record.token and (record.stopped or 0.0) > since:
            for node in record.faulty_nodes:
                journal.record_node_loss(record.token, unit, node)
                lines[node] = f"{unit}: {node} ended attempt {record.number} ({record.reason}). {remark}"
    return list(lines.values())


def first_node(nodes: str) -> str:
    """Return the first node of a Slurm list such as h[1-2,5], on which the batch script starts; '' for none.

    Examples:
        >>> first_node("h[1-2,5]")
        'h1'
    """
    first = re.match(r"([^\[,]+)(?:\[(\d+))?", nodes)
    return "".join(part or "" for part in first.groups()) if first else ""


def _from_controller(array: JobId) -> dict[JobId, EarlyFailure]:
    ends = {}
    with suppress(SlurmUnavailable):
        text = query_slurm("scontrol", *cluster_flag(array.cluster), "show", "job", "--oneliner", array.number)
        for job in map(parse_job, text.splitlines()):
            # A job that is not an array is its own element 0.
            index = job.get("ArrayTaskId", "") if "ArrayJobId" in job else "0"
            if index.isdecimal() and {"BatchHost", "JobState", "ExitCode"} <= job.keys():
                values = job["BatchHost"], job["JobState"], job["ExitCode"], parse_seconds(job.get("RunTime", ""))
                element = array.element(int(index))
                ends[element] = EarlyFailure(element, *values)
    return ends


def _from_accounting(array: JobId) -> dict[JobId, EarlyFailure]:
    flags = ("--allocations", "--noheader", "--parsable2", f"--jobs={array.number}", f"--format={SACCT_FIELDS}")
    ends = {}
    with suppress(SlurmUnavailable):
        text = query_slurm("sacct", *cluster_flag(array.cluster), *flags)
        # Some clusters print a notice before the answer.
        for line in (line for line in text.splitlines() if line.count("|") == SACCT_FIELDS.count(",")):
            job, state, exit_code, nodes, seconds = line.split("|")
            element = JobId.on_cluster(job if "_" in job else f"{job}_0", array.cluster)
            values = first_node(nodes), state.split(maxsplit=1)[0] if state else "", exit_code
            ends[element] = EarlyFailure(element, *values, int(seconds) if seconds.isdecimal() else 0)
    return ends
