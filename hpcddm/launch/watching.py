"""What every unit is doing: manifests first, then the queue, then the unit's own files. Unknown is never success."""

import re
import time
from dataclasses import dataclass
from enum import StrEnum

from hpcddm.launch.base import Job
from hpcddm.rundir.journal import Submission
from hpcddm.runtime.outcome import COMES_BACK, Outcome
from hpcddm.unit_states import Activity, State, UnitStatus


class Work(StrEnum):
    """What is going on at a unit that its manifest does not settle."""

    RUNNING = "running"
    STARTING = "starting"
    STOPPING = "stopping"
    PENDING = "pending"
    REQUEUED = "requeued"
    HELD = "held"
    FAILED = "failed"
    GAVE_UP = "gave up"
    CANCELLED = "cancelled"
    STOPPED = "stopped"
    """It left early and does not come back by itself."""
    ELSEWHERE = "elsewhere"
    UNKNOWN = "unknown"


STARTING_SECONDS = 30
"""How long a job of this machine may take until its attempt is open."""
LEAVING_SECONDS = 20
"""How long a job is in the queue after its last word."""
BETWEEN_SECONDS = 300
"""After so long, a job that was to come back and is in no queue does not come back."""
SILENCE_SECONDS = 180
"""After so long without a sign of life, a job that the queue calls running is worth a remark."""

REASONS = {
    "BeginTime": "Slurm lets it wait a while after a requeue",
    "Dependency": "waits for the jobs before it",
    "Priority": "other jobs come first",
    "Resources": "waits for free nodes",
    "JobArrayTaskLimit": "as many elements as allowed run already",
    "BadConstraints": "asks for more than any node has; cancel it, then retry it with less",
    "DependencyNeverSatisfied": "waits for a job that will never end well; cancel it and submit again",
}
VERDICTS = {
    Outcome.FAILED: Work.FAILED,
    Outcome.GAVE_UP: Work.GAVE_UP,
    Outcome.CANCELLED: Work.CANCELLED,
    Outcome.STOPPED: Work.STOPPED,
    Outcome.BY_HAND: Work.STOPPED,
    Outcome.WAITING: Work.STOPPED,
}
ENDINGS = {Outcome.FAILED: Work.FAILED, Outcome.STOPPED: Work.STOPPED, Outcome.WAITING: Work.STOPPED}


@dataclass(frozen=True)
class UnitObservation:
    """Everything that the state of one unit follows from."""

    status: UnitStatus
    work: Activity
    submissions: list[Submission]
    """Those that hold this unit, oldest first."""
    job: Job | None
    """Its place in the queue."""
    is_silent: bool
    """Whether its scheduler was asked and did not answer."""
    is_told_to_stop: bool
    """Whether the run's STOP file is there."""
    is_foreign: bool
    """Whether it belongs to a site from which nothing was submitted here."""

    @property
    def newest(self) -> Submission | None:
        """The submission that counts."""
        return self.submissions[-1] if self.submissions else None

    @property
    def is_queued(self) -> bool:
        """Whether a queue, and not this program, starts it."""
        return self.newest is not None and self.newest.scheduler != "local"

    @property
    def has_begun(self) -> bool:
        """Whether the newest job of the unit came so far that it opened an attempt."""
        last, newest = self.work.last, self.newest
        if last is None or newest is None:
            return last is not None
        if last.token and self.is_queued:
            return last.token == newest.uuid
        # One on this machine, or two of which one was: the clock tells.
        return (last.started or 0.0) > newest.time


def state_of(observed: UnitObservation) -> tuple[str, str]:
    """The state of a unit, and why."""
    status = observed.status
    if status.state in (State.COMPLETE, State.STALE):
        return status.state, status.reason
    if observed.job is not None:
        return _in_queue(observed, observed.job)
    if observed.work.is_running:
        return _alive(observed, "by its heartbeat" if observed.is_queued else "")
    if observed.is_foreign:
        misfit = f"; it is here but does not fit: {status.reason}" if _is_misfit(status) else ""
        return Work.ELSEWHERE, f"belongs to site {status.unit.site}{misfit}"
    if observed.newest is None and observed.work.last is None:
        return status.state, status.reason
    return _by_files(observed)


def _is_misfit(status: UnitStatus) -> bool:
    return bool(status.reason) and status.state is not State.WAITING


def _in_queue(observed: UnitObservation, job: Job) -> tuple[str, str]:
    last = observed.work.last
    is_held = job.state == "pending" and re.search("held|hold", job.detail, re.IGNORECASE)
    if is_held or job.state in ("requeue_hold", "special_exit"):
        return Work.HELD, job.detail
    if job.state in ("pending", "requeued"):
        starts = f", may start {job.starts.replace('T', ' ')}" if job.starts else ""
        reason = REASONS.get(job.detail, job.detail) + starts
        return (Work.REQUEUED if observed.has_begun and last else Work.PENDING), reason
    if job.state in ("completing", "stage_out", "signaling"):
        return Work.STOPPING, last.reason if last and observed.has_begun else ""
    if job.state not in ("running", "configuring"):
        return job.state, ""
    if last and observed.has_begun and not last.is_open:
        if time.time() - (last.stopped or 0.0) < LEAVING_SECONDS:
            return Work.STOPPING, last.reason
        return Work.RUNNING, f"attempt {last.number + 1} is starting"
    if not observed.has_begun:
        return Work.RUNNING, "starting"
    return _alive(observed, "")


def _alive(observed: UnitObservation, reason: str) -> tuple[str, str]:
    if observed.is_told_to_stop:
        return Work.STOPPING, "STOP is there: it ends after its step"
    beat = observed.work.last.beat if observed.work.last else None
    if beat and time.time() - beat.time > SILENCE_SECONDS:
        return Work.RUNNING, f"no sign of life for {round((time.time() - beat.time) / 60)} minutes"
    return Work.RUNNING, reason


def _by_files(observed: UnitObservation) -> tuple[str, str]:
    """No manifest that counts, no place in the queue, no fresh heartbeat, and something was started once."""
    newest = observed.newest
    if newest and observed.status.key in newest.cancelled and not observed.has_begun:
        return Work.CANCELLED, "by hpcddm cancel"
    if newest and not observed.has_begun:
        return _before_python(observed, newest)
    last = observed.work.last
    if last.decision in VERDICTS:
        return VERDICTS[last.decision], last.reason
    if last.ended_well and observed.status.state is not State.MISSING:
        return observed.status.state, observed.status.reason
    if newest and observed.status.key in newest.cancelled:
        return Work.CANCELLED, "by hpcddm cancel"
    if observed.is_silent:
        return Work.UNKNOWN, f"the scheduler does not answer{_last_sign(observed)}"
    if last.decision in COMES_BACK:
        if time.time() - (last.stopped or 0.0) < BETWEEN_SECONDS:
            return Work.REQUEUED, f"between attempts {last.number} and {last.number + 1} ({last.reason})"
        return Work.UNKNOWN, f"it was to come back after {last.reason} and is not in the queue"
    if observed.status.state is not State.MISSING:
        return observed.status.state, observed.status.reason
    if last.outcome in ENDINGS:
        return ENDINGS[last.outcome], last.reason
    if last.ended_well:
        return Work.UNKNOWN, "it ended as complete, and its manifest is not here"
    if last.outcome:
        return Work.UNKNOWN, f"attempt {last.number} ended as '{last.outcome}' ({last.reason})"
    return Work.UNKNOWN, f"attempt {last.number} left no word{_last_sign(observed)}"


def has_vanished(observed: UnitObservation) -> bool:
    """Tell if the unit's newest job is in no queue and opened no attempt, so that only the scheduler knows its end."""
    is_over = observed.job is None and observed.is_queued and not observed.is_silent and not observed.has_begun
    return is_over and observed.status.state is State.MISSING


def _before_python(observed: UnitObservation, newest: Submission) -> tuple[str, str]:
    """The newest job opened no attempt: what an older one said is no news."""
    if observed.is_silent:
        return Work.UNKNOWN, "the scheduler does not answer"
    if time.time() - newest.time < STARTING_SECONDS:
        return Work.STARTING, ""
    if observed.status.state is not State.MISSING:
        return observed.status.state, observed.status.reason
    if newest.job is None:
        return Work.UNKNOWN, "its submission was never confirmed; the same submit looks for it"
    job = newest.job.element(newest.units.index(observed.status.key)) if observed.is_queued else newest.job
    older = f"; the last word of attempt {observed.work.attempts} is older" if observed.work.last else ""
    return Work.UNKNOWN, f"its job {job} left the queue before Python began{older}"


def _last_sign(observed: UnitObservation) -> str:
    beat = observed.work.last.beat if observed.work.last else None
    return f"; last sign of life {time.strftime('%d %b %H:%M', time.localtime(beat.time))}" if beat else ""
