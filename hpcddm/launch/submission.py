"""What `submit` decides before any scheduler is asked: what is there, what is missing, what may start here."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hpcddm import plugins
from hpcddm.config import Experiment, Site
from hpcddm.errors import ConfigError, UserError
from hpcddm.launch.base import ArraySpec, Job, Launcher
from hpcddm.pipeline import EXTRACTOR, JUDGE, MONOLITH, ROUTER, STAGE_NAMES, PlannedUnit, plan
from hpcddm.rundir import atomic
from hpcddm.rundir.journal import Journal, Submission
from hpcddm.rundir.layout import RunDir
from hpcddm.runtime.spec import Spec
from hpcddm.status import State, UnitStatus, check_stale, survey

SURVIVAL_KEYS = ("network_interface", "signal_lead_seconds", "watchdog_minutes", "requeue", "hook")
"""What a job must know of its site."""


@dataclass(frozen=True)
class Decision:
    """Every unit of the run in one of five groups; `to_run` keeps the order of the pipeline."""

    states: dict[str, UnitStatus]
    complete: list[str] = field(default_factory=list)
    active: dict[str, Job] = field(default_factory=dict)
    elsewhere: dict[str, str] = field(default_factory=dict)
    """Units of other sites that are not complete here: key -> what is wrong with the folder that is here, or ''."""
    blocked: dict[str, str] = field(default_factory=dict)
    """Units of this site that wait for one elsewhere: key -> the key that is missing."""
    to_run: list[PlannedUnit] = field(default_factory=list)
    recalled: list[Job] = field(default_factory=list)
    """Pending jobs of units that read one that is to run: they would not wait for it, so they are submitted anew."""


def check_experiment(experiment: Experiment, site: Site, decision: Decision) -> None:
    """Refuse what can be known to fail before anything is submitted.

    Raises `UserError` or `ConfigError` naming the key, the file and what would do.
    """
    for key in site.stages:
        if key.split("/")[0] not in STAGE_NAMES:
            raise ConfigError(f"site {site.name}: stages.{key}: unknown stage; valid: {', '.join(STAGE_NAMES)}")
    for unit in decision.to_run:
        ranks, batch = site.resources_for(*unit.key.split("/")).ranks, batch_of(experiment, unit.key)
        if batch % ranks:
            raise ConfigError(f"site {site.name}: {ranks} ranks cannot share the batch of {batch} of {unit.key} evenly")
    if any(unit.stage == "shard" for unit in decision.to_run):
        _check_source(experiment)


def batch_of(experiment: Experiment, key: str) -> int:
    """The images of one step of a unit that trains; 0, which all ranks can share, of any other unit."""
    if key.startswith("train/expert-"):
        return experiment.experts.training.batch // experiment.cluster.experts
    critics = {EXTRACTOR: experiment.critics.extractor, JUDGE: experiment.critics.judge}
    trained = {MONOLITH: experiment.experts, ROUTER: experiment.router} | critics
    return trained[key].training.batch if key in trained else 0


def _check_source(experiment: Experiment) -> None:
    """The images must be there, in the classes that the experiment names, with enough held-out ones."""
    data, evaluate = experiment.data, experiment.evaluate
    source = plugins.load("data/sources", data.source.name)
    for split, shards in (("train", data.shards), ("heldout", data.heldout_shards)):
        records = source.open_split(data.source, split)
        labels = records.labels
        counts = [int((labels == label).sum()) for label in range(data.num_classes)]
        if sum(counts) < len(labels):
            raise ConfigError(f"data.num_classes: {data.num_classes}, but the {split} images have class {labels.max()}")
        needed = max(evaluate.images // data.num_classes, 1)
        if min(counts) < needed:
            scarce = counts.index(min(counts))
            raise ConfigError(
                f"evaluate.images: {evaluate.images} balanced images need {needed} {split} images of every class,"
                f" class {scarce} has {counts[scarce]}"
            )
        if len(labels) < shards:
            raise ConfigError(f"data: {len(labels)} {split} images cannot fill {shards} shards")
        # One image shows whether the images can be read at all, before a job finds that they cannot.
        records[0]


def decide(experiment: Experiment, run: RunDir, launcher: Launcher, redo: Iterable[str] = ()) -> Decision:
    """Look at the run and say what has to be submitted here.

    Raises `ConfigError` over settings that changed, `UserError` when nobody can say what still runs.
    """
    units = plan(experiment)
    # The queue first: what leaves it while we look has its manifest by then, and is not submitted again.
    active = active_units(run, launcher)
    states = survey(units, run)
    check_stale([states[unit.key] for unit in units if unit.site in (None, launcher.site.name)], set(redo))
    decision = Decision(states, active=active)
    for unit in units:
        missing = [key for key in unit.needs if key in decision.elsewhere or key in decision.blocked]
        # What reads a unit that is redone goes along: its job does nothing when the bytes come out the same.
        is_own = unit.site in (None, launcher.site.name)
        touched = unit.stage in redo or (is_own and any(other.key in unit.needs for other in decision.to_run))
        if states[unit.key].state is State.COMPLETE and not touched:
            decision.complete.append(unit.key)
        elif unit.key in active and not (touched and active[unit.key].state == "pending"):
            continue
        elif not is_own:
            status = states[unit.key]
            decision.elsewhere[unit.key] = "" if status.state is State.WAITING else status.reason
        elif missing:
            decision.blocked[unit.key] = missing[0]
        else:
            decision.to_run.append(unit)
            if unit.key in active:
                decision.recalled.append(active.pop(unit.key))
    return decision


def active_units(run: RunDir, launcher: Launcher) -> dict[str, Job]:
    """The units that wait or run under this site's scheduler.

    Raises `UserError` when something was submitted and the scheduler does not answer: 'unknown' is never 'free'.
    """
    known = submitted_jobs(run, launcher.site)
    if not known:
        return {}
    found = launcher.states(known)
    if found is None:
        raise UserError(f"{run.root}: jobs were submitted and the scheduler does not answer; try again when it does")
    return found


def submitted_jobs(run: RunDir, site: Site) -> list[Submission]:
    """What the journal holds for this site's scheduler."""
    return [one for one in Journal(run.journal).submissions() if one.scheduler == site.scheduler]


def store_experiment(experiment: Experiment, run: RunDir) -> None:
    """Keep the experiment, all defaults filled in, with the run."""
    atomic.write_json(run.experiment, experiment.model_dump(mode="json"))


def write_spec(unit: PlannedUnit, experiment: Experiment, run: RunDir, site: Site) -> Path:
    """Write what the unit's job is told."""
    threads = site.resources_for(*unit.key.split("/")).cpus_per_rank
    settings = experiment.model_dump(mode="json")
    survival = {key: getattr(site, key) for key in SURVIVAL_KEYS}
    spec = Spec(unit.key, unit.num_units, settings, unit.covers, unit.needs, threads, **survival)
    return spec.write(run)


def arrays(units: list[PlannedUnit], site: Site) -> list[list[PlannedUnit]]:
    """Units that can be one array: of the same stage and of the same shape, in the pipeline's order."""
    groups: dict[tuple, list[PlannedUnit]] = {}
    for unit in units:
        shape = site.resources_for(*unit.key.split("/"))
        # The monolith stays apart: the experts' array has one element per expert.
        groups.setdefault((array_name(unit), shape), []).append(unit)
    return list(groups.values())


def array_name(unit: PlannedUnit) -> str:
    """What the array of a unit is called, in the job's name and in the script's."""
    return "monolith" if unit.key == MONOLITH else unit.stage


def submit_array(
    units: list[PlannedUnit], experiment: Experiment, run: RunDir, launcher: Launcher, after: list[str], script: str
) -> str:
    """Journal the intent, submit, journal the job id, return it."""
    spec = array_spec(units, experiment, run, launcher.site, after)
    for unit in units:
        write_spec(unit, experiment, run, launcher.site)
    journal = Journal(run.journal)
    token = journal.intend(launcher.site.scheduler, launcher.site.name, spec.keys)
    job = launcher.submit(spec, token, script)
    journal.submitted(token, job)
    return job


def array_spec(
    units: list[PlannedUnit], experiment: Experiment, run: RunDir, site: Site, after: list[str]
) -> ArraySpec:
    """Describe an array."""
    specs = [run.spec(unit.key) for unit in units]
    resources = site.resources_for(*units[0].key.split("/"))
    return ArraySpec(f"{experiment.name}-{array_name(units[0])}", [unit.key for unit in units], specs, resources, after)
