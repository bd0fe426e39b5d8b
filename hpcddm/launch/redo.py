"""Units that are made again: units of the stages in --redo, and ranges whose images changed before the catalog.

Nothing depends on the samples until the catalog numbers them, so images may be removed, replaced and added before.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping

from hpcddm.config.experiment import Experiment
from hpcddm.errors.printing import echo
from hpcddm.jobs.activity import read_activity
from hpcddm.jobs.outcome import Outcome
from hpcddm.launch.checks.preflight import newest_state
from hpcddm.launch.decision import Decision
from hpcddm.pipeline.state import State
from hpcddm.pipeline.unit_graph import is_collective
from hpcddm.pipeline.unit_states import UnitStatus, are_samples_numbered
from hpcddm.runs import manifest, training_states
from hpcddm.runs.run_dir import RunDir, set_aside
from hpcddm.runs.unit_keys import CATALOG

FILLED_IN = frozenset({"data.content_hash", "data.table.content_hash"})
"""Hashes by which `submit` detects changed images and tables."""
COUNTED = frozenset({"data.shards", "data.heldout_shards"})
"""Numbers of tars, which `submit` counts if the tars are used in place."""


def changed_ranges(
    experiment: Experiment, run: RunDir, states: Mapping[str, UnitStatus], active: Container[str]
) -> set[str]:
    """Return the ranges to make again because their images changed before the catalog was complete.

    If the catalog failed, ranges with broken samples are included: a repaired picture may have the same size, and the
    hash of a folder covers only sizes.

    Args:
        experiment: The experiment.
        run: The run.
        states: States of all units, by key.
        active: Units with jobs in the queue.
    """
    if are_samples_numbered(states):
        return set()
    adopts = experiment.data.source.uses_existing_tars
    filled_in = FILLED_IN | COUNTED if adopts else FILLED_IN
    shards = [status for status in states.values() if status.unit.stage == "shard"]
    changed = {status.key for status in shards if status.changes and status.changes.keys() <= filled_in}
    if adopts or CATALOG in active or read_activity(run, CATALOG).outcome is not Outcome.FAILED:
        return changed
    complete = (status.key for status in shards if status.state is State.COMPLETE)
    return changed | {key for key in complete if _has_broken(run, key)}


def _has_broken(run: RunDir, key: str) -> bool:
    made = manifest.read_if_usable(run.unit(key))
    return made is not None and bool(made.results.get("broken", {}).get("samples"))


def set_ranges_aside(ranges: Iterable[tuple[RunDir, str]]) -> None:
    """Move ranges that are made again to `superseded/`, and print their number.

    Args:
        ranges: Run and key of each range.
    """
    places = list(ranges)
    for run, key in places:
        set_aside(run, key)
    if places:
        echo(f"the images may have changed: {len(places)} units of shard are made again")


def redone_units(own: list[UnitStatus], redo: set[str]) -> Iterator[str]:
    """Yield the units of some stages to make again.

    A complete training is made again only if all trainings of its stage are complete; otherwise only incomplete
    trainings continue.

    Args:
        own: States of the units of this site.
        redo: Names of the stages.
    """
    unfinished = {status.unit.stage for status in own if status.state is not State.COMPLETE}
    for status in own:
        unit = status.unit
        is_kept = status.state is State.COMPLETE and unit.stage in unfinished and is_collective(unit.key)
        if unit.stage in redo and not is_kept:
            yield unit.key


def set_redone_aside(run: RunDir, decision: Decision, redo: Collection[str]) -> None:
    """Move the outputs of the redone stages to `superseded/`, and print which trainings continue.

    Complete units start from the beginning. An incomplete training, or a training that now needs more images, continues
    from its last state.
    """
    for unit in (unit for unit in decision.to_run if unit.stage in redo):
        state = None if decision.states[unit.key].state is State.COMPLETE else newest_state(unit, run)
        if state:
            echo(f"{unit.key} goes on from its state at {state[1]['images']} images")
        set_aside(run, unit.key, training_states.CONTINUED if state else ())
