"""Jobs that ended within seconds, before Python began, as on a node that cannot see the run or start Python."""

import re
from dataclasses import dataclass

from hpcddm.launch.client import Silent, ask, on
from hpcddm.rundir.job import JobId
from hpcddm.rundir.journal import Submission
from hpcddm.runtime.requests import seconds_of
from hpcddm.runtime.verdict import parse_job

EARLY_SECONDS = 60
"""A job that failed after more than this had at least begun."""
FAILURES = ("FAILED", "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED")
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
        """For people."""
        return (
            f"its job {self.job} ended on {self.node} after {self.seconds} s, before Python began ({self.state},"
            f" exit code {self.exit_code}); does {self.node} see the run's folder?"
        )


def early_ends(submissions: list[Submission], units: list[str]) -> dict[str, EarlyEnd]:
    """Find the early ends of the newest jobs of these units, which opened no attempt: failures within `EARLY_SECONDS`.

    Asks the controller once per array, then the accounting; what neither remembers is left out.
    """
    newest = {unit: one for one in submissions for unit in one.units}
    wanted = {unit: newest[unit] for unit in units if unit in newest and newest[unit].job is not None}
    wanted = {unit: one for unit, one in wanted.items() if one.scheduler == "slurm" and unit not in one.cancelled}
    known: dict[JobId, EarlyEnd] = {}
    for array in dict.fromkeys(one.job for one in wanted.values()):
        known |= _from_controller(array) or _from_accounting(array)
    found = {}
    for unit, one in wanted.items():
        end = known.get(one.job.element(one.units.index(unit)))
        if end and end.state in FAILURES and end.seconds <= EARLY_SECONDS and end.node:
            found[unit] = end
    return found


def _from_controller(array: JobId) -> dict[JobId, EarlyEnd]:
    try:
        text = ask("scontrol", *on(array.cluster), "show", "job", "--oneliner", array.number)
    except Silent:
        return {}
    found = {}
    for job in map(parse_job, text.splitlines()):
        if job.get("ArrayTaskId", "").isdigit() and job.get("BatchHost"):
            values = job["BatchHost"], job["JobState"], job["ExitCode"], seconds_of(job.get("RunTime", ""))
            element = JobId.of(f"{job['ArrayJobId']}_{job['ArrayTaskId']}", array.cluster)
            found[element] = EarlyEnd(element, *values)
    return found


def _from_accounting(array: JobId) -> dict[JobId, EarlyEnd]:
    flags = ("--allocations", "--noheader", "--parsable2", f"--jobs={array.number}", f"--format={SACCT_FIELDS}")
    try:
        text = ask("sacct", *on(array.cluster), *flags)
    except Silent:
        return {}
    found = {}
    for line in text.splitlines():
        job, state, exit_code, nodes, seconds = line.split("|")
        element = JobId.of(job, array.cluster)
        # The script starts on the first node of h[1-2,5].
        first = re.match(r"([^\[,]+)(?:\[(\d+))?", nodes)
        node = "".join(part or "" for part in first.groups()) if first else ""
        found[element] = EarlyEnd(element, node, state.split()[0], exit_code, int(seconds or 0))
    return found
