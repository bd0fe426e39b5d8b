"""The verb clean: lists and removes files that no unit of a run will read again."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import click

from hpcddm.commands.options import RUN
from hpcddm.commands.run_status import QueueAnswer, scan_run
from hpcddm.errors import SchedulerUnreachable, UserError
from hpcddm.errors.printing import echo
from hpcddm.files import guarded_writes
from hpcddm.jobs.attempt import list_attempts
from hpcddm.jobs.planned_unit import PlannedUnit
from hpcddm.launch.checks.disk_estimates import format_bytes
from hpcddm.pipeline.state import SETTLED, State
from hpcddm.pipeline.unit_graph import STAGE_NAMES, plan_units
from hpcddm.pipeline.unit_states import UnitStatus, survey_units
from hpcddm.runs import group_permissions, links, manifest, training_states
from hpcddm.runs.lease import PATIENCE_SECONDS, lease
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment


@click.command()
@RUN
@click.option("--yes", is_flag=True, help="Remove without asking; without it and without a terminal it only shows.")
def clean(run: RunDir, yes: bool) -> int:
    """Remove files that RUN no longer needs, after printing their kinds and sizes.

    \b
    These are superseded/ (outputs that --redo replaced), logs of all attempts but the last (their records stay, for
    the costs), and training states of other settings. Outputs of complete units, units in a queue or running, and
    the journal are never touched.
    Example: hpcddm clean runs/fashion_mnist
    Next:    hpcddm status runs/fashion_mnist
    """
    stored_experiment(run)
    group_permissions.prepare_writes(run.root)
    with lease(run.lock, "hpcddm clean", PATIENCE_SECONDS):
        shown = find_removable(run)
    for unit in plan_units(stored_experiment(run)):
        if fault := links.link_at(run, unit.key):
            echo(f"left alone: {unit.key}: {fault}")
    if not shown:
        echo(f"{run.root}: nothing to remove")
        return 0
    for kind, paths in shown.items():
        size, count = _size(paths)
        echo(f"{format_bytes(size):>10} in {count:>6,} files  {kind}: {_places(paths, run)}")
    size, count = _size([path for paths in shown.values() for path in paths])
    if not yes and not sys.stdin.isatty():
        echo(f"{format_bytes(size)} in {count:,} files could go; nothing was removed: repeat with --yes")
        return 0
    if not yes and not click.confirm(f"remove {format_bytes(size)} in {count:,} files for ever?"):
        echo("nothing was removed")
        return 0
    # Not locked while the user thinks: a submit in between may have made use of something, so look once more.
    with lease(run.lock, "hpcddm clean", PATIENCE_SECONDS):
        still = {path for paths in find_removable(run).values() for path in paths}
        removable = [path for paths in shown.values() for path in paths if path in still]
        size, count = _size(removable)
        for path in removable:
            _remove(path)
    echo(f"removed {format_bytes(size)} in {count:,} files")
    return 0


def find_removable(run: RunDir) -> dict[str, list[Path]]:
    """Find what can go, by its kind: nothing of a unit under way, no output of a complete unit, nothing in the journal.

    Raises `SchedulerUnreachable` when a job may be running and its scheduler does not answer.
    """
    queue = QueueAnswer.query(run)
    if queue.jobs is None:
        text = "the scheduler does not answer, so any unit may be running; try again later"
        raise SchedulerUnreachable(f"{run.root}: {text}")
    rows = {row.unit: row for row in scan_run(run, queue).rows}
    units = {unit.key: unit for unit in plan_units(stored_experiment(run))}
    states = survey_units(list(units.values()), run)
    settled = [key for key in units if rows[key].state in SETTLED and _is_own(run, key)]
    finished = [run.unit(key) / training_states.FOLDER for key in settled if states[key].state is State.COMPLETE]
    paths = {
        "outputs that --redo replaced": [path for path in [run.superseded] if path.is_dir() and not path.is_symlink()],
        # Records stay, because costs are counted by them.
        "logs of attempts before the last": [
            log for key in settled for _, folder in list_attempts(run.logs(key))[:-1] for log in folder.glob("*.log")
        ],
        "training states that nothing can continue": [
            *_states(run, settled, states),
            *_states_of_removed_units(run, units, queue),
        ],
        "last states of finished trainings, which more images would continue": [
            folder for folder in finished if folder.is_dir()
        ],
    }
    return {kind: places for kind, places in paths.items() if places}


def _size(places: list[Path]) -> tuple[int, int]:
    """Return the bytes and the number of files, folders not counted."""
    sizes = [path.lstat().st_size for place in places for path in _files(place)]
    return sum(sizes), len(sizes)


def _remove(path: Path) -> None:
    """Remove a file or a folder; raises `UserError` naming what could not be removed and whose it is."""
    try:
        guarded_writes.remove(path)
    except OSError as error:
        # Of what is inside a folder only the way from there is known.
        place = Path(path.parent, error.filename or path.name)
        advice = f"its folder belongs to {_owner(place.parent)}, who can run hpcddm clean"
        raise UserError(f"{place}: cannot be removed ({error.strerror}); {advice}") from error


def _owner(folder: Path) -> str:
    with suppress(KeyError, OSError):
        return folder.owner()
    return "somebody else"


def _is_own(run: RunDir, key: str) -> bool:
    """Tell if nothing of a unit is behind a link, as what a sweep shares: that is another run's."""
    folder, logs = run.unit(key), run.logs(key)
    ways = (folder, folder.parent, logs, logs.parent, logs.parent.parent)
    return links.link_at(run, key) is None and not any(path.is_symlink() for path in ways if path != run.root)


def _states(run: RunDir, keys: Iterable[str], states: dict[str, UnitStatus]) -> Iterator[Path]:
    """Yield training states of unfinished units that were made with other settings or other inputs."""
    for key in keys:
        folder = run.unit(key) / training_states.FOLDER
        if states[key].state is State.COMPLETE or not folder.is_dir():
            continue
        if all(states[need].state is State.COMPLETE for need in states[key].unit.inputs):
            unit = states[key].unit
            inputs = {need: made for need in unit.inputs if (made := manifest.read_if_usable(run.unit(need)))}
            continued = [path for path, _ in training_states.list_states(folder, unit.expected(inputs).trajectory)]
            # A state without a description is staged or incomplete.
            described = [path for path in sorted(folder.iterdir()) if (path / training_states.STATE).exists()]
            yield from (path for path in described if path not in continued)


def _states_of_removed_units(run: RunDir, units: dict[str, PlannedUnit], queue: QueueAnswer) -> Iterator[Path]:
    """Yield training states of units that the experiment has no longer."""
    for stage in STAGE_NAMES:
        own = {f"{stage}/{path.parent.name}": path for path in (run.root / stage).glob(f"*/{training_states.FOLDER}")}
        own[f"{stage}/all"] = run.root / stage / training_states.FOLDER
        for key, folder in sorted(own.items()):
            is_free = key not in units and key not in (queue.jobs or {})
            if is_free and folder.is_dir() and _is_own(run, key):
                yield folder


def _places(paths: list[Path], run: RunDir) -> str:
    names = [str(path.relative_to(run.root)) for path in paths]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _files(place: Path) -> Iterator[Path]:
    if not place.is_dir() or place.is_symlink():
        yield place
        return
    for folder, _, names in os.walk(place):
        yield from (Path(folder, name) for name in names)
