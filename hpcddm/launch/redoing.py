"""Stages that are made anew by --redo: which of their units, and what of these stays."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from hpcddm.launch.preflight import newest_state
from hpcddm.pipeline.plan import is_collective
from hpcddm.printing import echo
from hpcddm.rundir import training_states
from hpcddm.rundir.layout import RunDir, set_aside
from hpcddm.unit_states import State, UnitStatus

if TYPE_CHECKING:
    from hpcddm.launch.submission import Decision


def redone_units(own: list[UnitStatus], redo: set[str]) -> Iterator[str]:
    """Yield the units of these stages that are made anew: of trainings no complete one while others are to be made."""
    unfinished = {status.unit.stage for status in own if status.state is not State.COMPLETE}
    for status in own:
        unit = status.unit
        is_kept = status.state is State.COMPLETE and unit.stage in unfinished and is_collective(unit.key)
        if unit.stage in redo and not is_kept:
            yield unit.key


def set_redone_aside(run: RunDir, decision: "Decision", redo: Collection[str]) -> None:
    """Move the outputs of the stages that are redone to `superseded/`, and say which trainings go on.

    What is complete is made anew; a training that is not, or of which more images are wanted, goes on.
    """
    for unit in (unit for unit in decision.to_run if unit.stage in redo):
        is_complete = decision.states[unit.key].state is State.COMPLETE
        state = None if is_complete else newest_state(unit, run)
        if state:
            echo(f"{unit.key} goes on from its state at {state[1]['images']} images")
        set_aside(run, unit.key, training_states.CONTINUED if state else ())
