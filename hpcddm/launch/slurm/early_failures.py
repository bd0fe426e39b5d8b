"""Jobs that nodes ended: within seconds, before Python began, or by the word of a verdict."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from hpcddm.files import fresh
from hpcddm.jobs.ending import parse_job
from hpcddm.jobs.records import records
from hpcddm.jobs.resource_requests import seconds_of
from hpcddm.launch.array_items import Item
from hpcddm.launch.slurm.client import SlurmUnavailable, on, query
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import LOST_SECONDS, Journal, Submission
from hpcddm.runs.layout import RunDir

EARLY_SECONDS = 60
"""A job that failed after more than this had at least begun."""
NODE_FAILURES = ("NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED")
FAILURES = ("FAILED", *NODE_FAILURES)
NO_OUTPUT = "0:53"
"""Exit code of a job whose output file slurmd could not open: its script never began."""
SACCT_FIELDS = "JobID,State,ExitCode,NodeList,ElapsedRaw"


@dataclass(frozen=True)
class EarlyEnd:
    """End of the newest job of a unit, and the node on which its script was to start."""

    job: JobId
    node: str
    state: str
    exit_code: str
    seconds: int

    @property
    def text(self) -> str:
        """Description of the early end, for the user."""
        return (
            f"its job {self.job} ended on {self.node} after {self.seconds} s, before Python began ({self.state},"
            f" exit code {self.exit_code}); does {self.node} see the run's folder? Or setup, python or container may be"
            " wrong."
        )

    @property
    def is_before_the_script(self) -> bool:
        """True where not even the batch script began, so that none of its lines can be wrong."""
        return self.state in NODE_FAILURES or self.exit_code == NO_OUTPUT


def early_ends(submissions: list[Submission], units: list[str]) -> dict[str, EarlyEnd]:
    """Find the early ends of the newest jobs of these units, which opened no attempt: failures within `EARLY_SECONDS`.

    Queries the controller once per array, then the accounting; jobs that neither remembers are left out.
    """
    newest = {unit: submission for submission in submissions for unit in submission.units}
    elements: dict[str, JobId] = {}
    for unit, submission in ((unit, newest[unit]) for unit in units if unit in newest):
        if submission.job is not None and submission.scheduler == "slurm" and unit not in submission.cancelled:
            elements[unit] = submission.job.element(submission.units.index(unit))
    ends: dict[JobId, EarlyEnd] = {}
    for array in dict.fromkeys(element.array for element in elements.values()):
        ends |= _from_controller(array) or _from_accounting(array)
    early = {}
    for unit, element in elements.items():
        end = ends.get(element)
        if end and end.state in FAILURES and end.seconds <= EARLY_SECONDS and end.node:
            early[unit] = end
    return early


def is_nodes_fault(early: EarlyEnd, unit: str, submissions: list[Submission], home: RunDir) -> bool:
    """Tell if the node of an early end is to blame.

    It is where not even the script began; where the job's output is not in the run's folder, which the node then does
    not see; and where the same stage began Python on another node since that submission. Without that evidence a wrong
    `setup`, `python` or `container` could be the cause, on every node.
    """
    # Some versions of Slurm do not refuse an output whose folder is missing on the node, but make the folder there.
    if early.is_before_the_script or not fresh.exists(home.jobs / f"{early.job}.out"):
        return True
    lost = next(submission for submission in reversed(submissions) if unit in submission.units)
    place, stage = (lost.site, lost.cluster), _stage_of(unit)
    since = submissions[submissions.index(lost) :]
    peers = {submission.uuid: submission for submission in since if (submission.site, submission.cluster) == place}
    units = dict.fromkeys(
        name for submission in peers.values() for name in submission.units if _stage_of(name) == stage
    )
    for name in units:
        *folder, _, _ = name.split("/")
        logs = RunDir(home.root.joinpath(*folder)).logs("/".join(name.split("/")[-2:]))
        for record in records(logs):
            node = first_node(str(record.owner.get("node_list", "")))
            if record.token in peers and node and node != early.node:
                return True
    return False


def blame_nodes(items: Sequence[Item], home: RunDir, most: int) -> list[str]:
    """Record the nodes that ended the last jobs of these items, which what follows avoids; return lines about them.

    most: the site key max_excluded_nodes.
    """
    journal = Journal(home.journal)
    submissions = journal.submissions()
    newest = {unit: submission for submission in submissions for unit in submission.units}
    tried = {item.name: records(item.run.logs(item.unit.key)) for item in items if item.name in newest}
    vanished = [name for name in tried if newest[name].uuid not in {record.token for record in tried[name]}]
    remark = f"Jobs avoid it from now on, for a day (max_excluded_nodes: {most})"
    lines: dict[str, str] = {}
    for name, early in early_ends(submissions, vanished).items():
        lines[name] = f"{name}: {early.text}"
        if is_nodes_fault(early, name, submissions, home):
            journal.lost(newest[name].uuid, name, early.node)
            lines[name] += f" {remark}"
    since = time.time() - LOST_SECONDS
    for unit, record in ((unit, record) for unit, attempts in tried.items() for record in attempts):
        if record.token and (record.stopped or 0.0) > since:
            for node in record.faulty:
                journal.lost(record.token, unit, node)
                lines[node] = f"{unit}: {node} ended attempt {record.number} ({record.reason}). {remark}"
    return list(lines.values())


def _stage_of(unit: str) -> str:
    """Return the stage of a unit, which may be one of a sweep's run; '' for a name without one, as of the table."""
    return unit.rpartition("/")[0].rpartition("/")[2]


def first_node(nodes: str) -> str:
    """Name of the first node of a list such as h[1-2,5], where the script starts; '' for none."""
    first = re.match(r"([^\[,]+)(?:\[(\d+))?", nodes)
    return "".join(part or "" for part in first.groups()) if first else ""


def _from_controller(array: JobId) -> dict[JobId, EarlyEnd]:
    try:
        text = query("scontrol", *on(array.cluster), "show", "job", "--oneliner", array.number)
    except SlurmUnavailable:
        return {}
    ends = {}
    for job in map(parse_job, text.splitlines()):
        # A job that is no array is the element 0 of itself.
        is_plain = "ArrayJobId" not in job
        index = "0" if is_plain else job.get("ArrayTaskId", "")
        if index.isdecimal() and {"BatchHost", "JobState", "ExitCode"} <= job.keys():
            values = job["BatchHost"], job["JobState"], job["ExitCode"], seconds_of(job.get("RunTime", ""))
            element = array.element(int(index))
            ends[element] = EarlyEnd(element, *values)
    return ends


def _from_accounting(array: JobId) -> dict[JobId, EarlyEnd]:
    flags = ("--allocations", "--noheader", "--parsable2", f"--jobs={array.number}", f"--format={SACCT_FIELDS}")
    try:
        text = query("sacct", *on(array.cluster), *flags)
    except SlurmUnavailable:
        return {}
    ends = {}
    # Some clusters print a notice of their own before the answer.
    for line in (line for line in text.splitlines() if line.count("|") == SACCT_FIELDS.count(",")):
        job, state, exit_code, nodes, seconds = line.split("|")
        element = JobId.of(job if "_" in job else f"{job}_0", array.cluster)
        values = first_node(nodes), state.split(maxsplit=1)[0] if state else "", exit_code
        ends[element] = EarlyEnd(element, *values, int(seconds) if seconds.isdecimal() else 0)
    return ends
