"""States of a unit, derived from its manifest, the queue and the records of its attempts."""

from enum import StrEnum

from hpcddm.jobs.outcome import Outcome


class State(StrEnum):
    """State of a unit and the next step; only `COMPLETE` counts as success. docs/commands.md has the same list."""

    COMPLETE = "complete"
    """The unit is made. Nothing is to be done."""
    STALE = "stale"
    """It was made with other settings. Take another run directory, or submit with --redo."""
    OUTDATED = "outdated"
    """Its inputs have changed since. Submit again."""
    WAITING = "waiting"
    """It exists and can be checked only when the units that it reads are complete. Complete those first."""
    DAMAGED = "damaged"
    """Its files are not those of its manifest. Submit again."""
    MISSING = "missing"
    """It is not made, and no job was submitted for it. Submit."""
    PENDING = "pending"
    """Its job waits in the queue. Wait."""
    REQUEUED = "requeued"
    """Its job comes back after an attempt and goes on from the last saved state. Wait."""
    HELD = "held"
    """Its job stays in the queue until somebody releases it: scontrol release."""
    STARTING = "starting"
    """Its job has nodes, or a process here, and no attempt is open yet. Wait."""
    RUNNING = "running"
    """An attempt is at work. Wait, or follow its log."""
    SUSPENDED = "suspended"
    """Slurm has stopped the processes and keeps the job. Wait until it, or an operator, resumes them."""
    STOPPING = "stopping"
    """Its job is ending. Wait."""
    FAILED = "failed"
    """An attempt failed in a way that repetition does not mend. Read its log, mend the cause, retry."""
    GAVE_UP = "gave up"
    """Too many attempts in a row made no progress. Read its log, mend the cause, retry."""
    CANCELLED = "cancelled"
    """Somebody cancelled its job. Retry when you want it."""
    STOPPED = "stopped"
    """It left early, nothing is lost, and it does not come back by itself. Retry."""
    ELSEWHERE = "elsewhere"
    """Another site makes it. Copy it here."""
    UNKNOWN = "unknown"
    """Neither the queue nor the records tell its end. Ask again if the scheduler is silent, else its log, and retry."""


FINISHED = frozenset({State.COMPLETE, State.STALE})
"""States that follow from the manifest alone."""
QUEUED = frozenset({State.PENDING, State.REQUEUED, State.HELD})
"""States with a job that waits in the queue; cancelling it loses no work."""
ON_NODES = frozenset({State.STARTING, State.RUNNING, State.SUSPENDED, State.STOPPING})
"""States with a job that has nodes."""
ALIVE = (QUEUED | ON_NODES) - {State.HELD}
"""States in which the work continues automatically."""
SETTLED = frozenset(State) - QUEUED - ON_NODES
"""States without a queued or running job."""
TO_SUBMIT = frozenset({State.MISSING, State.OUTDATED})
"""States of units that can be submitted, or that wait for the jobs of their inputs."""
NOT_BEGUN = TO_SUBMIT | {State.WAITING, State.CANCELLED, State.ELSEWHERE}
"""States of units that have not started; they do not count after the last requested stage."""
BROKEN = frozenset({State.FAILED, State.GAVE_UP, State.UNKNOWN})
"""States in which the user should read the log before a retry."""
TO_RETRY = BROKEN | {State.CANCELLED, State.STOPPED}
"""States of units whose job ended too early and that the user retries."""

STATE_AFTER = {
    Outcome.FAILED: State.FAILED,
    Outcome.GAVE_UP: State.GAVE_UP,
    Outcome.CANCELLED: State.CANCELLED,
    **dict.fromkeys((Outcome.STOPPED, Outcome.BY_HAND, Outcome.WAITING), State.STOPPED),
}
"""States after outcomes that do not restart the job automatically."""
