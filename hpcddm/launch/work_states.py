"""States of units that are not complete: by manifest, then queue, then the unit's own files. Unknown is no success."""

import re
import time
from dataclasses import dataclass
from enum import StrEnum

from hpcddm.jobs.outcome import COMES_BACK, Outcome
from hpcddm.launch.base import Job
from hpcddm.launch.checks.preflight import newest_state
from hpcddm.pipeline.unit_states import Activity, State, UnitStatus
from hpcddm.runs.heartbeat import Heartbeat
from hpcddm.runs.journal import Submission
from hpcddm.runs.layout import RunDir
from hpcddm.runs.manifest import LENGTH
from hpcddm.runs.training_states import STATE


class WorkState(StrEnum):
    """State of the work at a unit whose manifest does not settle it."""

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
    """State of a unit that left early and does not come back by itself."""
    ELSEWHERE = "elsewhere"
    UNKNOWN = "unknown"


STARTING_SECONDS = 30
"""Seconds that a job of this machine may take until its attempt is open."""
LEAVING_SECONDS = 20
"""Seconds that a job may stay in the queue after its attempt has ended."""
BETWEEN_SECONDS = 300
"""Seconds after which a job that was to come back and is in no queue counts as lost."""
SILENCE_SECONDS = 180
"""Seconds without a heartbeat after which a job that the queue calls running gets a remark."""

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
    Outcome.FAILED: WorkState.FAILED,
    Outcome.GAVE_UP: WorkState.GAVE_UP,
    Outcome.CANCELLED: WorkState.CANCELLED,
    Outcome.STOPPED: WorkState.STOPPED,
    Outcome.BY_HAND: WorkState.STOPPED,
    Outcome.WAITING: WorkState.STOPPED,
}
ENDINGS = {Outcome.FAILED: WorkState.FAILED, Outcome.STOPPED: WorkState.STOPPED, Outcome.WAITING: WorkState.STOPPED}


@dataclass(frozen=True)
class UnitObservation:
    """Facts that determine the state of one unit."""

    status: UnitStatus
    work: Activity
    submissions: list[Submission]
    """Submissions of this unit, oldest first."""
    job: Job | None
    """Its job in the queue; None where it has none."""
    is_silent: bool
    """True where its scheduler did not answer."""
    is_stop_requested: bool
    """True where the run's STOP file exists."""
    is_foreign: bool
    """True where it belongs to a site from which nothing was submitted here."""

    @property
    def newest(self) -> Submission | None:
        """The newest submission of the unit, which is the one that counts."""
        return self.submissions[-1] if self.submissions else None

    @property
    def is_queued(self) -> bool:
        """True where a queue, and not this program, starts it."""
        return self.newest is not None and self.newest.scheduler != "local"

    @property
    def has_begun(self) -> bool:
        """True where the newest job of the unit opened an attempt."""
        last, newest = self.work.last, self.newest
        if last is None or newest is None:
            return last is not None
        if last.token and self.is_queued:
            return last.token == newest.uuid
        # One on this machine, or two of which one was: the clock tells.
        return (last.started or 0.0) > newest.time


def state_of(observed: UnitObservation) -> tuple[str, str]:
    """Return the state of a unit and the reason for it."""
    status = observed.status
    if status.state in (State.COMPLETE, State.STALE):
        return status.state, status.reason
    if observed.job is not None:
        return _in_queue(observed, observed.job)
    if observed.work.is_running:
        return _alive(observed, "by its heartbeat" if observed.is_queued else "")
    if observed.is_foreign:
        misfit = f"; it is here but does not fit: {status.reason}" if _is_misfit(status) else ""
        return WorkState.ELSEWHERE, f"belongs to site {status.unit.site}{misfit}"
    return _by_files(observed)


def _is_misfit(status: UnitStatus) -> bool:
    return bool(status.reason) and status.state is not State.WAITING


def _in_queue(observed: UnitObservation, job: Job) -> tuple[str, str]:
    last, newest = observed.work.last, observed.newest
    if newest and observed.status.key in newest.cancelled:
        return WorkState.STOPPING, "by hpcddm cancel"
    is_held = job.state == "pending" and re.search("held|hold", job.detail, re.IGNORECASE)
    if is_held or job.state in ("requeue_hold", "special_exit"):
        return WorkState.HELD, job.detail
    if job.state in ("pending", "requeued"):
        starts = f", may start {job.starts.replace('T', ' ')}" if job.starts else ""
        reason = REASONS.get(job.detail, job.detail) + starts
        return (WorkState.REQUEUED if observed.has_begun and last else WorkState.PENDING), reason
    if job.state in ("completing", "stage_out", "signaling"):
        return WorkState.STOPPING, last.reason if last and observed.has_begun else ""
    if job.state not in ("running", "configuring"):
        return job.state, ""
    if last and observed.has_begun and not last.is_open:
        if time.time() - (last.stopped or 0.0) < LEAVING_SECONDS:
            return WorkState.STOPPING, last.reason
        return WorkState.RUNNING, f"attempt {last.number + 1} is starting"
    if not observed.has_begun:
        return WorkState.RUNNING, "starting"
    return _alive(observed, "")


def _alive(observed: UnitObservation, reason: str) -> tuple[str, str]:
    if observed.is_stop_requested:
        return WorkState.STOPPING, "STOP is there: it ends after its step"
    beat = observed.work.last.beat if observed.work.last else None
    if beat and time.time() - beat.time > SILENCE_SECONDS:
        return WorkState.RUNNING, f"no sign of life for {round((time.time() - beat.time) / 60)} minutes"
    return WorkState.RUNNING, reason


def _by_files(observed: UnitObservation) -> tuple[str, str]:
    """Derive the state of a unit that has no valid manifest, no job and no fresh heartbeat."""
    newest, last = observed.newest, observed.work.last
    if newest and observed.status.key in newest.cancelled and not observed.has_begun:
        return WorkState.CANCELLED, "by hpcddm cancel"
    if newest and not observed.has_begun:
        return _before_python(observed, newest)
    if last is None:
        return observed.status.state, observed.status.reason
    if last.decision in VERDICTS:
        return VERDICTS[last.decision], last.reason
    if last.ended_well and observed.status.state is not State.MISSING:
        return observed.status.state, observed.status.reason
    if newest and observed.status.key in newest.cancelled:
        return WorkState.CANCELLED, "by hpcddm cancel"
    if observed.is_silent:
        return WorkState.UNKNOWN, f"the scheduler does not answer{_last_sign(observed)}"
    if last.decision in COMES_BACK:
        if time.time() - (last.stopped or 0.0) < BETWEEN_SECONDS:
            return WorkState.REQUEUED, f"between attempts {last.number} and {last.number + 1} ({last.reason})"
        return WorkState.UNKNOWN, f"it was to come back after {last.reason} and is not in the queue"
    if observed.status.state is not State.MISSING:
        return observed.status.state, observed.status.reason
    if last.outcome in ENDINGS:
        return ENDINGS[last.outcome], last.reason
    if last.ended_well and not observed.is_queued:
        # On this machine nothing comes late: it was set aside to be made again.
        return State.MISSING, ""
    if last.ended_well:
        return WorkState.UNKNOWN, "it ended as complete, and its manifest is not here"
    if last.outcome:
        return WorkState.UNKNOWN, f"attempt {last.number} ended as '{last.outcome}' ({last.reason})"
    return WorkState.UNKNOWN, f"attempt {last.number} left no word{_last_sign(observed)}"


@dataclass(frozen=True)
class Progress:
    """Progress of the work at a unit."""

    beat: Heartbeat | None = None
    done: int = 0
    """Images seen."""
    total: int = 0
    saved: tuple[int, float] | None = None
    """Images seen by the newest training state, and the time at which it was written."""


def progress_of(observed: UnitObservation, run: RunDir) -> Progress:
    """Return the progress of a unit by its last heartbeat; before its newest submission has an attempt, by its state.

    What earlier attempts did counts no more then, unless the training can go on from the state that they left.
    """
    work, unit = observed.work, observed.status.unit
    is_made = observed.status.state in (State.COMPLETE, State.STALE)
    if is_made or (observed.has_begun and work.last and not work.last.ended_well):
        beat = work.beat
        return Progress(beat, beat.done, beat.total, work.saved) if beat else Progress(saved=work.saved)
    state = newest_state(unit, run)
    if state is None:
        return Progress()
    images, written = state[1]["images"], (state[0] / STATE).stat().st_mtime
    ends = [value for key, value in unit.fingerprint_settings.items() if key.endswith(LENGTH)]
    return Progress(None, images, ends[0] if ends else 0, (images, written))


def lacked_inputs(observed: UnitObservation) -> bool:
    """Tell if the last attempt at a unit left because an input was not complete."""
    last = observed.work.last
    return last is not None and Outcome.WAITING in (last.decision, last.outcome)


def has_vanished(observed: UnitObservation) -> bool:
    """Tell if the unit's newest job is in no queue and opened no attempt, so that only the scheduler knows its end."""
    is_over = observed.job is None and observed.is_queued and not observed.is_silent and not observed.has_begun
    return is_over and observed.status.state is State.MISSING


def _before_python(observed: UnitObservation, newest: Submission) -> tuple[str, str]:
    """Derive the state of a unit whose newest job opened no attempt; older attempts do not count."""
    if observed.is_silent:
        return WorkState.UNKNOWN, "the scheduler does not answer"
    if time.time() - newest.time < STARTING_SECONDS:
        return WorkState.STARTING, ""
    if observed.status.state is not State.MISSING:
        return observed.status.state, observed.status.reason
    if newest.job is None:
        return WorkState.UNKNOWN, "its submission was never confirmed; the same submit looks for it"
    job = newest.job.element(newest.units.index(observed.status.key)) if observed.is_queued else newest.job
    older = f"; the last word of attempt {observed.work.attempts} is older" if observed.work.last else ""
    return WorkState.UNKNOWN, f"its job {job} left the queue before Python began{older}"


def _last_sign(observed: UnitObservation) -> str:
    beat = observed.work.last.beat if observed.work.last else None
    return f"; last sign of life {time.strftime('%d %b %H:%M', time.localtime(beat.time))}" if beat else ""
