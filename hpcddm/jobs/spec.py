"""Specification of a unit: the JSON file from which a job reads what to make."""

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, cast

from hpcddm.errors import UserError, require
from hpcddm.files import atomic, reading
from hpcddm.files.reading import Unreadable
from hpcddm.runs.layout import RunDir

T = TypeVar("T")


@dataclass(frozen=True)
class Spec:
    """One unit to be made; `key` is stage/unit, `requires` lists the keys of its required inputs."""

    key: str
    experiment: dict[str, Any]
    fingerprint_settings: dict[str, Any]
    requires: list[str]
    resources: dict[str, int | bool | None]
    """`Resources` of the site, by name."""
    is_collective: bool = False
    """True for a training, in which all ranks take part and which a later attempt continues."""
    network_interface: str | None = None
    signal_lead_seconds: int = 120
    watchdog_minutes: int = 20
    requeue: str = "none"
    """Way in which a job that has to leave comes back: 'scontrol', 'resubmit' or 'none'."""
    max_excluded_nodes: int = 4
    """Number of nodes at fault that the next attempt avoids."""
    recheck_seconds: int = 300
    """Longest time in seconds between two checks of inputs from another cluster."""
    escalate: dict[str, float] = field(default_factory=dict)
    """Factors by which the next attempt requests more memory_gb, or more minutes, after there were too few."""
    optional: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Optional inputs, by key, with the settings that they must have been made with."""
    min_optional: int = 0
    """Least number of optional inputs that must be there."""
    extras: list[str] = field(default_factory=list)
    """Optional inputs that do not count towards that number."""
    parts: dict[str, str] = field(default_factory=dict)
    """Parts of required inputs that alone count in the fingerprint, by key; '' where nothing of it does."""
    lengths: list[str] = field(default_factory=list)
    """Beginnings of settings from which nothing but the number of images of a training follows."""
    keep_states: bool = True
    """True to keep the last state of a finished training, which more images would continue."""

    @property
    def stage(self) -> str:
        """The stage's name, which is also its module's."""
        return self.key.split("/")[0]

    @property
    def threads(self) -> int:
        """Number of threads of a rank."""
        return self.resources.get("cpus_per_rank") or 1

    def write(self, run: RunDir) -> Path:
        """Store the spec in the run and return its path."""
        path = run.spec(self.key)
        # On one line and without a copy of the experiment: a sweep writes thousands.
        values = {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}
        atomic.write_text(path, json.dumps(values, allow_nan=False) + "\n", durable=False)
        return path


@dataclass(frozen=True)
class ElementMap:
    """Specs of the elements of an array, relative to the file."""

    specs: list[str]


def name_in(home: RunDir, run: RunDir, key: str) -> str:
    """Return the name of a unit in the journal of `home`, where the run's name stands before it in a sweep."""
    return key if home.root.resolve() == run.root.resolve() else f"{run.root.name}/{key}"


def read_map(path: Path) -> list[Path]:
    """Read the spec paths of an array's elements from `<run>/jobs/<token>.json`, which are relative to it."""
    content = _read(path, ElementMap)
    return [path.parent / spec for spec in content.specs]


def read_spec(path: Path) -> tuple[Spec, RunDir]:
    """Read a spec and the run that it lies in (`<run>/specs/<stage>/<unit>.json`)."""
    return _read(path, Spec), RunDir(path.resolve().parents[2])


def _read(path: Path, kind: type[T]) -> T:
    """Read a file that a submission has written; raises `UserError` where it is missing or damaged."""
    try:
        content: T | None = reading.read_json(path, kind, reading.MANIFEST_BYTES)
    except Unreadable as error:
        raise UserError(f"{path}: {error.reason}; submit the run again") from None
    require(content is not None, f"{path}: is missing; submit the run again")
    return cast(T, content)
