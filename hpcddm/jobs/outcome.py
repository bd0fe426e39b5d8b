"""Outcomes of an attempt at a unit, which a run's files store, and verdicts on it."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """End of an attempt, recorded by its ranks or decided by the batch script afterwards."""

    COMPLETE = "complete"
    ALREADY_COMPLETE = "already complete"
    """The unit was already complete when the attempt started."""
    FAILED = "failed"
    STOPPED = "stopped"
    """The attempt stopped early without losing work."""
    WAITING = "waiting"
    """An input is not yet complete."""
    HELD = "held"
    """Another job works on the unit."""
    SUPERSEDED = "superseded"
    """A later execution of the same job owns the unit."""
    REQUEUE = "requeue"
    RESUBMIT = "resubmit"
    CANCELLED = "cancelled"
    GAVE_UP = "gave up"
    """Too many attempts in a row made no progress."""
    BY_HAND = "by hand"
    """The site does not requeue jobs: the user submits again."""


@dataclass(frozen=True)
class Verdict:
    """Decision for the batch script, and the reason for it."""

    decision: Outcome
    reason: str
    changes: str = ""
    """Changed requests of the next attempt, as arguments of scontrol or sbatch."""
    memory_gb: int | None = None
    """Memory in GB that the user should request; None without such advice."""


class HookEvent(StrEnum):
    """Event for which the user's hook is called."""

    COMPLETE = "complete"
    """The run or the sweep is complete."""
    STOPPED = "stopped"
    """A unit needs the user."""


COMES_BACK = (Outcome.REQUEUE, Outcome.RESUBMIT, Outcome.SUPERSEDED)
"""Decisions after which the unit continues automatically."""
NEEDS_USER = (Outcome.FAILED, Outcome.GAVE_UP, Outcome.BY_HAND)
"""Decisions that require action by the user, whose hook is called."""


def outcome_of(value: object) -> Outcome | None:
    """Return the outcome for a value from a record; None for any other value."""
    return next((outcome for outcome in Outcome if outcome == value), None)
