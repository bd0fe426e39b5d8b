"""Specification of a unit: the JSON file that tells a job what to compute."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from hpcddm.errors import UserError, require
from hpcddm.files import atomic, checked_reads
from hpcddm.files.checked_reads import Unreadable
from hpcddm.jobs.planned_unit import PlannedUnit
from hpcddm.runs.run_dir import RunDir

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Spec(PlannedUnit):
    """Specification of one unit for its job: the unit as it is planned, its experiment, and the site's keys for it."""

    experiment: dict[str, Any]
    """The experiment, with paths relative to the run."""
    resources: dict[str, int | bool | str | None]
    """Entries of the site's `Resources`, by name."""
    is_collective: bool = False
    """True for a training: all ranks work, and a later attempt continues it."""
    network_interface: str | None = None
    signal_lead_seconds: int = 120
    watchdog_minutes: int = 20
    requeue: str = "none"
    """Way in which a job restarts: 'scontrol', 'resubmit' or 'none'."""
    max_excluded_nodes: int = 4
    """Maximum number of faulty nodes that the next attempt excludes."""
    recheck_seconds: int = 300
    """Maximum seconds between two checks of inputs from another cluster."""
    raise_on_retry: dict[str, float] = field(default_factory=dict)
    """Factors by which the next attempt raises `memory_gb` or `minutes` after the job ran out of them."""
    keep_states: bool = True
    """True to keep the last state of a finished training, from which a longer training could continue."""

    @property
    def threads(self) -> int:
        """Number of threads per rank."""
        return int(self.resources.get("cpus_per_rank") or 1)

    def write(self, run: RunDir) -> Path:
        """Store the spec in the run and return its path."""
        path = run.spec(self.key)
        # On one line and without a deep copy of the experiment: a sweep writes thousands of specs.
        atomic.write_text(path, json.dumps(vars(self), allow_nan=False) + "\n", durable=False)
        return path


@dataclass(frozen=True)
class ElementMap:
    """Paths of the specs of an array's elements, relative to the map's folder."""

    specs: list[str]


def journal_name(home: RunDir, run: RunDir, key: str) -> str:
    """Return the name of a unit in the journal of its home.

    Args:
        home: The run, or the folder of a sweep.
        run: Run of the unit.
        key: The unit, as `stage/unit`.

    Returns:
        The key; in a sweep, the key after the name of the run.
    """
    return key if home.root.resolve() == run.root.resolve() else f"{run.root.name}/{key}"


def read_element_map(path: Path) -> list[Path]:
    """Read the paths of the specs of an array's elements from `<run>/jobs/<token>.json`.

    Raises:
        UserError: If the file is missing or damaged.
    """
    return [path.parent / spec for spec in _read(path, ElementMap).specs]


def read_spec(path: Path) -> tuple[Spec, RunDir]:
    """Read a spec, `<run>/specs/<stage>/<unit>.json`.

    Returns:
        The spec and its run.

    Raises:
        UserError: If the file is missing or damaged.
    """
    return _read(path, Spec), RunDir(path.resolve().parents[2])


def _read(path: Path, kind: type[T]) -> T:
    """Read a file that a submission has written; raises `UserError` if it is missing or damaged."""
    try:
        content: T | None = checked_reads.read_json(path, kind, checked_reads.MANIFEST_BYTES)
    except Unreadable as error:
        raise UserError(f"{path}: {error.reason}; submit the run again") from None
    require(content is not None, f"{path}: is missing; submit the run again")
    return cast(T, content)
