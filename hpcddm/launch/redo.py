"""Units that are made again: those of stages that --redo names, and ranges whose images changed before a catalog.

Until a catalog has numbered the samples, nothing is made of them, so that images may be removed, replaced and added.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from hpcddm.config.experiment import Experiment
from hpcddm.errors.printing import echo
from hpcddm.jobs.outcome import Outcome
from hpcddm.launch.checks.preflight import newest_state
from hpcddm.pipeline.plan import is_collective
from hpcddm.pipeline.unit_states import State, UnitStatus, activity, are_numbered
from hpcddm.runs import manifest, training_states
from hpcddm.runs.layout import RunDir, set_aside
from hpcddm.runs.unit_keys import CATALOG

if TYPE_CHECKING:
    from hpcddm.launch.submission import Decision

FILLED_IN = frozenset({"data.content", "data.table.content"})
"""Keys with which submit tells the images, and what is known of them, from others."""
COUNTED = frozenset({"data.shards", "data.heldout_shards"})
"""Numbers of adopted tars, which submit counts."""


def changed_ranges(
    experiment: Experiment, run: RunDir, states: Mapping[str, UnitStatus], active: Container[str]
) -> set[str]:
    """Return the ranges of images that are made again before there is a catalog: those of other images than now.

    Where the catalog refused the samples, also those with broken ones: a picture that is mended may have kept its size,
    by which the hash of a folder knows it.
    """
    if are_numbered(states):
        return set()
    adopts = experiment.data.source.adopts_tars
    filled_in = FILLED_IN | COUNTED if adopts else FILLED_IN
    shards = [status for status in states.values() if status.unit.stage == "shard"]
    changed = {status.key for status in shards if status.changes and status.changes.keys() <= filled_in}
    if adopts or CATALOG in active or activity(run, CATALOG).outcome is not Outcome.FAILED:
        return changed
    complete = (status.key for status in shards if status.state is State.COMPLETE)
    return changed | {key for key in complete if _has_broken(run, key)}


def _has_broken(run: RunDir, key: str) -> bool:
    made = manifest.read_if_usable(run.unit(key))
    return made is not None and bool(made.results.get("broken", {}).get("samples"))


def set_ranges_aside(ranges: Iterable[tuple[RunDir, str]]) -> None:
    """Move ranges that are made again, each with its run, to `superseded/`, and say how many."""
    places = list(ranges)
    for run, key in places:
        set_aside(run, key)
    if places:
        echo(f"the images may have changed: {len(places)} units of shard are made again")


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
