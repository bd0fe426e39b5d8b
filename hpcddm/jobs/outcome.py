"""Outcomes of an attempt at a unit; the files of a run hold their values as they stand here."""

from enum import StrEnum


class Outcome(StrEnum):
    """End of an attempt: as its ranks record it, or as the batch script decides afterwards."""

    COMPLETE = "complete"
    ALREADY_COMPLETE = "already complete"
    """Another attempt had made the unit."""
    FAILED = "failed"
    STOPPED = "stopped"
    """It left early, at a place where nothing is lost."""
    WAITING = "waiting"
    """An input is not there yet."""
    HELD = "held"
    """Another job is at work on the unit."""
    SUPERSEDED = "superseded"
    """A later execution of the same job owns the unit."""
    REQUEUE = "requeue"
    RESUBMIT = "resubmit"
    CANCELLED = "cancelled"
    GAVE_UP = "gave up"
    """Too many attempts in a row made no progress."""
    BY_HAND = "by hand"
    """The site lets no job come back: the user submits again."""


class HookEvent(StrEnum):
    """Event for which the user's hook is called."""

    COMPLETE = "complete"
    """The run or the sweep is complete."""
    STOPPED = "stopped"
    """A unit needs the user."""


COMES_BACK = (Outcome.REQUEUE, Outcome.RESUBMIT, Outcome.SUPERSEDED)
"""Decisions after which the unit comes back by itself."""
NEEDS_USER = (Outcome.FAILED, Outcome.GAVE_UP, Outcome.BY_HAND)
"""Decisions after which nothing happens by itself and the user's hook is called."""
SETTLED = (*NEEDS_USER, Outcome.CANCELLED, Outcome.STOPPED, Outcome.WAITING)
"""Ends after which nothing happens by itself."""


def outcome_of(value: object) -> Outcome | None:
    """Return the outcome with a value from a record; None where the value is none of them."""
    return next((outcome for outcome in Outcome if outcome == value), None)
