"""States of units: from the manifest, then the queue, then the unit's files; an unknown state is not a success."""

import time
from dataclasses import dataclass

from hpcddm.files import nfs_reads
from hpcddm.jobs.activity import Activity
from hpcddm.jobs.outcome import COMES_BACK, Outcome
from hpcddm.launch.base import Job
from hpcddm.launch.checks.preflight import newest_state
from hpcddm.pipeline.state import FINISHED, STATE_AFTER, State
from hpcddm.pipeline.unit_states import UnitStatus
from hpcddm.runs import heartbeat
from hpcddm.runs.heartbeat import Heartbeat
from hpcddm.runs.journal import Submission
from hpcddm.runs.manifest import LENGTH
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.training_states import STATE

STARTING_SECONDS = 30
"""Seconds that a job on this machine may take to open its attempt."""
LEAVING_SECONDS = 20
"""Seconds that a job may stay in the queue after its attempt has ended."""
BETWEEN_SECONDS = 300
"""Seconds after which a requeued job that is not in a queue counts as lost."""
SILENCE_SECONDS = 180
"""Seconds without a heartbeat after which the state of a running job includes a warning."""


@dataclass(frozen=True)
class UnitObservation:
    """Observations that determine the state of one unit."""

    status: UnitStatus
    work: Activity
    submissions: list[Submission]
    """Submissions of this unit, oldest first."""
    job: Job | None
    """Its job in the queue; None if it has none."""
    is_scheduler_unreachable: bool
    """True if its scheduler did not answer."""
    is_stop_requested: bool
    """True if the run's STOP file exists."""
    is_of_other_site: bool
    """True if it belongs to another site, from which nothing was submitted in this run."""

    @property
    def newest(self) -> Submission | None:
        """Newest submission of the unit; None if it was never submitted."""
        return self.submissions[-1] if self.submissions else None

    @property
    def is_queued(self) -> bool:
        """True if the newest submission went to a queue, not to this machine."""
        return self.newest is not None and self.newest.scheduler != "local"

    @property
    def has_begun(self) -> bool:
        """True if the unit's newest job has opened an attempt."""
        last, newest = self.work, self.newest
        if not last.number or newest is None:
            return last.number > 0
        if last.token and self.is_queued:
            return last.token == newest.uuid
        # If one or both ran on this machine, compare their times.
        return (last.started or 0.0) > newest.time


def observed_state(observed: UnitObservation) -> tuple[State, str]:
    """Derive the state of a unit from its observation.

    Returns:
        The state, and the reason for it (may be empty).
    """
    status = observed.status
    if status.state in FINISHED:
        return status.state, status.reason
    if observed.job is not None:
        return _in_queue(observed, observed.job)
    if observed.work.is_running and observed.is_queued and not observed.is_scheduler_unreachable:
        return State.STOPPING, f"its job has left the queue{_last_sign(observed)}"
    if observed.work.is_running:
        return _alive(observed, "by its heartbeat" if observed.is_queued else "")
    if observed.is_of_other_site:
        is_misfit = bool(status.reason) and status.state is not State.WAITING
        misfit = f"; it is here but does not fit: {status.reason}" if is_misfit else ""
        return State.ELSEWHERE, f"belongs to site {status.unit.site}{misfit}"
    return _by_files(observed)


def _in_queue(observed: UnitObservation, job: Job) -> tuple[State, str]:
    last, newest = observed.work, observed.newest
    if newest and observed.status.key in newest.cancelled:
        return State.STOPPING, "by hpcddm cancel"
    if job.state == State.PENDING:
        return (State.REQUEUED if observed.has_begun else State.PENDING), job.reason
    if job.state == State.STOPPING and observed.has_begun:
        return State.STOPPING, last.reason
    if job.state != State.RUNNING or job.reason:
        return job.state, job.reason
    if observed.has_begun and not last.is_open:
        if time.time() - (last.stopped or 0.0) < LEAVING_SECONDS:
            return State.STOPPING, last.reason
        return State.STARTING, f"attempt {last.number + 1} has not begun"
    if not observed.has_begun:
        return State.STARTING, ""
    return _alive(observed, "")


def _alive(observed: UnitObservation, reason: str) -> tuple[State, str]:
    if observed.is_stop_requested:
        return State.STOPPING, "STOP exists: it ends after its current step"
    # The node's clock may be wrong; the file system has its own.
    written = nfs_reads.modified(observed.work.folder / heartbeat.FILE_NAME)
    silence = time.time() - (written or observed.work.beat.time) if observed.work.beat else 0.0
    if silence > SILENCE_SECONDS:
        return State.RUNNING, f"no sign of life for {round(silence / 60)} minutes"
    return State.RUNNING, reason


def _by_files(observed: UnitObservation) -> tuple[State, str]:
    """Derive the state of a unit that has no valid manifest, no job and no fresh heartbeat."""
    newest, last = observed.newest, observed.work
    if newest and observed.status.key in newest.cancelled and not observed.has_begun:
        return State.CANCELLED, "by hpcddm cancel"
    if newest and not observed.has_begun:
        return _before_python(observed, newest)
    if not last.number:
        return observed.status.state, observed.status.reason
    if last.decision in STATE_AFTER:
        return STATE_AFTER[last.decision], last.reason
    if last.ended_well and observed.status.state is not State.MISSING:
        return observed.status.state, observed.status.reason
    if newest and observed.status.key in newest.cancelled:
        return State.CANCELLED, "by hpcddm cancel"
    if observed.is_scheduler_unreachable:
        return State.UNKNOWN, f"the scheduler does not answer{_last_sign(observed)}"
    if last.decision in COMES_BACK:
        if time.time() - (last.stopped or 0.0) < BETWEEN_SECONDS:
            return State.REQUEUED, f"between attempts {last.number} and {last.number + 1} ({last.reason})"
        return State.UNKNOWN, f"it was to come back after {last.reason} and is not in the queue"
    if observed.status.state is not State.MISSING:
        return observed.status.state, observed.status.reason
    if last.outcome in STATE_AFTER:
        return STATE_AFTER[last.outcome], last.reason
    if last.ended_well and not observed.is_queued:
        # On this machine nothing comes late: it was set aside to be made again.
        return State.MISSING, ""
    if last.ended_well:
        return State.UNKNOWN, "it ended as complete, and its manifest is not here"
    if last.outcome:
        return State.UNKNOWN, f"attempt {last.number} ended as '{last.outcome}' ({last.reason})"
    return State.UNKNOWN, f"attempt {last.number} left no word{_last_sign(observed)}"


def observed_progress(observed: UnitObservation, run: RunDir) -> Heartbeat | None:
    """Return the progress of a unit as its last heartbeat tells it, else as the next job's training state does.

    The attempts of a unit that is to be made again tell of what was set aside; there only a state that the next job
    continues counts. None for no progress.
    """
    work, unit = observed.work, observed.status.unit
    if observed.status.state in FINISHED or (observed.has_begun and not work.ended_well):
        return work.progress
    if (state := newest_state(unit, run)) is None:
        return None
    images, written = state[1]["images"], (state[0] / STATE).stat().st_mtime
    ends = [value for key, value in unit.fingerprint_settings.items() if key.endswith(LENGTH)]
    return Heartbeat(written, "", 0, "", images, ends[0] if ends else 0, saved_images=images, saved_time=written)


def lacked_inputs(observed: UnitObservation) -> bool:
    """Return True if the last attempt at a unit ended because an input was incomplete."""
    return Outcome.WAITING in (observed.work.decision, observed.work.outcome)


def has_vanished(observed: UnitObservation) -> bool:
    """Return True if the newest job left the queue without opening an attempt; only the scheduler knows its end."""
    has_left = observed.is_queued and observed.job is None and not observed.is_scheduler_unreachable
    return has_left and not observed.has_begun and observed.status.state is State.MISSING


def _before_python(observed: UnitObservation, newest: Submission) -> tuple[State, str]:
    """Derive the state of a unit whose newest job has not opened an attempt; older attempts do not count."""
    if observed.is_scheduler_unreachable:
        return State.UNKNOWN, "the scheduler does not answer"
    if time.time() - newest.time < STARTING_SECONDS:
        return State.STARTING, ""
    if observed.status.state is not State.MISSING:
        return observed.status.state, observed.status.reason
    if newest.job is None:
        return State.UNKNOWN, "its submission was never confirmed; the same submit looks for it"
    job = newest.job.element(newest.units.index(observed.status.key)) if observed.is_queued else newest.job
    older = f"; the last word of attempt {observed.work.number} is older" if observed.work.number else ""
    return State.UNKNOWN, f"its job {job} left the queue before Python began{older}"


def _last_sign(observed: UnitObservation) -> str:
    beat = observed.work.beat
    return f"; last sign of life {time.strftime('%d %b %H:%M', time.localtime(beat.time))}" if beat else ""
