"""Decision of a submission about the units of a run."""

from dataclasses import dataclass, field

from hpcddm.jobs.planned_unit import PlannedUnit
from hpcddm.launch.base import Job
from hpcddm.pipeline.unit_states import UnitStatus


@dataclass(frozen=True)
class Decision:
    """Units of a run, grouped by what `submit` does with them; `to_run` keeps the order of the pipeline."""

    states: dict[str, UnitStatus]
    complete: list[str] = field(default_factory=list)
    active: dict[str, Job] = field(default_factory=dict)
    elsewhere: dict[str, str] = field(default_factory=dict)
    """Units of other sites that are not complete here; the value is the defect of the local folder, or ''."""
    blocked: dict[str, str] = field(default_factory=dict)
    """Units of this site with an input that is not available or not requested; the value is that input."""
    refused: dict[str, str] = field(default_factory=dict)
    """Units of this site that cannot run because of a link; the value is the message with the next step."""
    not_requested: list[str] = field(default_factory=list)
    """Missing units outside the restriction of the submission."""
    to_run: list[PlannedUnit] = field(default_factory=list)
    recalled: list[Job] = field(default_factory=list)
    """Pending jobs of units with an input in `to_run`; they would not wait for it, so they are resubmitted."""
    changed_ranges: set[str] = field(default_factory=set)
    """Units of the stage `shard` that are made again because the images changed before the catalog was complete."""
