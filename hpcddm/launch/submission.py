"""Decisions of `submit` before anything is submitted: what is complete, what is missing, what may start here."""

import os
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcddm.config import variants, vouching
from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import validate
from hpcddm.config.site import Site
from hpcddm.errors import ConfigError
from hpcddm.errors.printing import warn
from hpcddm.files import atomic, fresh, reading
from hpcddm.launch.base import Job, Launcher
from hpcddm.launch.checks.gpu_requests import check_gpus
from hpcddm.launch.leaving import settled_jobs
from hpcddm.launch.redo import changed_ranges, redone_units
from hpcddm.pipeline.plan import STAGE_NAMES, PlannedUnit, batch_of, init_request, needed_by, plan
from hpcddm.pipeline.unit_states import State, UnitStatus, check_stale, survey
from hpcddm.runs import initial_weights, passed_over
from hpcddm.runs.journal import Journal, Submission
from hpcddm.runs.layout import RunDir
from hpcddm.runs.links import link_at
from hpcddm.runs.manifest import LENGTH
from hpcddm.runs.unit_keys import CLUSTER, LATENT_SCALE, OTHER_STAGES, list_key

if TYPE_CHECKING:
    from hpcddm.data.sources.base import Split

RECONCILE_SECONDS = 15
"""Seconds that a request may be on its way to the scheduler after the submit that sent it has died."""
LEAST_BYTES = 10_000_000
"""Bytes that the bookkeeping of a submission needs; what the stages write is more."""
CONTENT = "data.content"
"""Key of the hash of the images."""
IMAGES_TRIED = 16
"""Images of a split that submit tries, until it can read one."""
FOREIGN_LATENTS = (
    "note: {path} was trained on latents of an autoencoder that its run trained; if that of this run comes out"
    " otherwise, no training starts; with the same images and augmentations, copy autoencoder, latents and latent_scale"
    " of that run first"
)


@dataclass(frozen=True)
class Decision:
    """Units of a run in seven groups; `to_run` keeps the order of the pipeline."""

    states: dict[str, UnitStatus]
    complete: list[str] = field(default_factory=list)
    active: dict[str, Job] = field(default_factory=dict)
    elsewhere: dict[str, str] = field(default_factory=dict)
    """Units of other sites that are not complete here: key -> what is wrong with the folder that is here, or ''."""
    blocked: dict[str, str] = field(default_factory=dict)
    """Units of this site that wait for one elsewhere, or for one not requested: key -> the key that is missing."""
    refused: dict[str, str] = field(default_factory=dict)
    """Units of this site that are not made while a link is in the way: key -> what is to be done."""
    not_requested: list[str] = field(default_factory=list)
    """Units that are missing and to which the submission was not restricted."""
    to_run: list[PlannedUnit] = field(default_factory=list)
    recalled: list[Job] = field(default_factory=list)
    """Pending jobs of units with an input in `to_run`: they would not wait for it, so they are submitted anew."""
    changed_ranges: set[str] = field(default_factory=set)
    """Units of shard that are made again, because the images changed before there was a catalog."""


def check_experiment(experiment: Experiment, site: Site, decision: Decision) -> None:
    """Refuse settings that are bound to fail, before anything is submitted.

    Raises `UserError` or `ConfigError` naming the key, the file and a remedy.
    """
    for key in site.stages:
        valid = (*STAGE_NAMES, *OTHER_STAGES)
        stage = key.split("/")[0]
        if stage not in valid:
            raise ConfigError(f"site {site.name}: stages.{key}: unknown stage; valid: {', '.join(valid)}")
    for unit in decision.to_run:
        minutes = site.resources_for(*unit.key.split("/")).minutes
        if site.scheduler != "local" and 60 * minutes <= site.signal_lead_seconds:
            raise ConfigError(
                f"site {site.name}: signal_lead_seconds: {site.signal_lead_seconds} leave nothing of the"
                f" {minutes} minutes of {unit.key}"
            )
        ranks, batch = site.resources_for(*unit.key.split("/")).ranks, batch_of(experiment, unit.key)
        if batch % ranks:
            raise ConfigError(f"site {site.name}: {ranks} ranks cannot share the batch of {batch} of {unit.key} evenly")
    check_gpus(site, [unit.key for unit in decision.to_run], experiment)
    _check_starts(experiment, [unit.key for unit in decision.to_run])
    _check_lists(experiment, {unit.key for unit in decision.to_run})
    if CLUSTER in (unit.key for unit in decision.to_run):
        experiment.cluster.clustering.check_file(experiment.cluster.experts)
    if any(unit.stage == "shard" for unit in decision.to_run):
        _check_source(experiment)


def _check_starts(experiment: Experiment, keys: list[str]) -> None:
    """Check that the initial weights of units exist and fit their networks, before the data stages and not after."""
    candidates = (init_request(experiment, key) for key in keys)
    requests = [request for request in candidates if request is not None]
    # Most units start from the same file as the same network.
    for request in {
        (request.place, request.model_place, request.objective_place): request for request in requests
    }.values():
        path = Path(request.init_from.weights)
        initial_weights.check_file(request, path)
        if LATENT_SCALE in keys and request.space.is_trained_in_run and initial_weights.is_for_own_latents(path):
            warn(FOREIGN_LATENTS.format(path=path))


def _check_lists(experiment: Experiment, keys: Collection[str]) -> None:
    """Check that the files of keys exist, and name every sample once; which samples there are says the catalog."""
    files = [Path(joined.list) for joined in experiment.experts.joined if list_key(joined.name) in keys]
    if files:
        from hpcddm.data import sample_keys

        for file in files:
            sample_keys.read(file)


def _check_source(experiment: Experiment) -> None:
    """Check that the images exist, with the classes and captions that the experiment needs, and are enough."""
    from hpcddm.data.filtering import Filter
    from hpcddm.data.sources.base import Source

    data = experiment.data
    source, chosen = variants.create(Source, data.source), Filter.of(data)
    splits = []
    for split, shards in (("train", data.shards), ("heldout", data.heldout_shards)):
        records = source.open_split(split)
        for line in passed_over.lines(passed_over.counted(records.passed_over)):
            print(f"passed over in {split}   {line}")
        if data.num_classes is not None and not records.has_labels:
            raise ConfigError(
                f"data.num_classes: {data.num_classes}, but the {split} images have no classes; remove it, or sort them"
                " into one folder per class"
            )
        if data.condition.reads_captions and not records.has_captions:
            raise ConfigError(
                f"data.condition: the {split} images have no captions; name a sentence for every class as prompts, or"
                " take the condition none"
            )
        chosen.check(records.known)
        # Else only the catalog knows the numbers, and sees to them.
        if records.is_exact:
            _check_counts(records, split, shards, experiment)
        _check_readable(records)
        splits.append(records)
    for line in passed_over.lines(passed_over.counted(chosen.lacking(splits, source.prefix))):
        print(f"passed over   {line}")


def _check_readable(records: "Split") -> None:
    """Read one image, before a job finds that they cannot be read at all; a broken one may be among the first."""
    from hpcddm.data.pictures import PictureError

    tried = range(min(len(records), IMAGES_TRIED))
    for number in tried:
        try:
            records[number]
            return
        except PictureError:
            if number == tried[-1]:
                raise


def _check_counts(records: "Split", split: str, shards: int, experiment: Experiment) -> None:
    """Check that a split has images enough, of every class where there are any."""
    images, num_classes = experiment.evaluate.first + experiment.evaluate.images, experiment.data.num_classes
    labels, place = records.labels, "evaluate.images" if not experiment.evaluate.first else "evaluate.first"
    if len(records) < shards:
        raise ConfigError(f"data: {len(records)} {split} images cannot fill {shards} shards")
    if num_classes is None or labels is None:
        if len(records) < images:
            raise ConfigError(
                f"{place}: {images} samples are compared with as many {split} images, there are {len(records)}"
            )
        return
    counts = [int((labels == label).sum()) for label in range(num_classes)]
    if sum(counts) < len(labels):
        named = f", of {len(records.class_names)} classes: {', '.join(records.class_names)}" * bool(records.class_names)
        raise ConfigError(f"data.num_classes: {num_classes}, but the {split} images have class {labels.max()}{named}")
    needed = max(images // num_classes, 1)
    if min(counts) < needed:
        scarce = counts.index(min(counts))
        raise ConfigError(
            f"{place}: {images} balanced images need {needed} {split} images of every class,"
            f" class {scarce} has {counts[scarce]}"
        )


def check_folder(run: RunDir) -> None:
    """Refuse a folder that cannot be written, or whose STOP file forbids jobs; creates nothing.

    Raises `ConfigError` naming the folder and a remedy.
    """
    if fresh.exists(run.stop):
        raise ConfigError(f"{run.stop} tells every job to leave: remove it, then repeat this command")
    place = run.root.absolute()
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        reason = f"{place} is no folder"
    elif not os.access(place, os.W_OK | os.X_OK):
        reason = f"no permission for this user in {place}"
    elif atomic.free_bytes(place) < LEAST_BYTES:
        reason = f"{atomic.free_bytes(place):,} bytes are free in {place}"
    else:
        return
    verb = "not writable" if run.root.is_dir() else "cannot be made"
    raise ConfigError(f"--run-dir {run.root}: {verb} ({reason}); take another folder, or make room there")


def decide(
    experiment: Experiment,
    run: RunDir,
    launcher: Launcher,
    redo: Iterable[str] = (),
    only: Collection[str] | None = None,
    active: dict[str, Job] | None = None,
    states: dict[str, UnitStatus] | None = None,
    until: str | None = None,
) -> Decision:
    """Decide from the run and the queue what has to be submitted here.

    only: units to submit, None for all; units that read one of these or a redone one go along. active: jobs in the
    queue, and states: the states of the units read after that, where the caller has them. until: the last stage, of
    which nothing that comes behind it is submitted; None for all. Raises `ConfigError` over
    settings that changed, `UserError` when the scheduler does not answer.
    """
    # The queue first: what leaves it while we look has its manifest by then, and is not submitted again.
    active = active_units(run, launcher) if active is None else active
    states = survey(plan(experiment), run) if states is None else states
    units = [status.unit for status in states.values()]
    own = [states[unit.key] for unit in units if unit.site in (None, launcher.site.name)]
    changed = changed_ranges(experiment, run, states, active)
    kept = [status for status in own if status.key not in changed]
    check_stale(kept, set(redo), partial(_explained, experiment, run))
    redone = set(redone_units(own, set(redo))) | changed
    decision = Decision(states, active=active, changed_ranges=changed)
    within, submitted = None if until is None else needed_by(until, units), set[str]()
    for unit in units:
        missing = unit.missing_inputs(
            {*decision.elsewhere, *decision.blocked, *decision.refused, *decision.not_requested}
        )
        # What reads a unit that is redone goes along: its job does nothing when the bytes come out the same.
        is_own = unit.site in (None, launcher.site.name)
        touched = unit.key in redone or (is_own and any(key in submitted and unit.counts(key) for key in unit.inputs))
        if states[unit.key].state is State.COMPLETE and not touched:
            decision.complete.append(unit.key)
        elif within is not None and unit.key not in within:
            decision.not_requested.append(unit.key)
            if touched and unit.key in active and active[unit.key].state == "pending":
                decision.recalled.append(active.pop(unit.key))
        elif unit.key in active and not (touched and active[unit.key].state == "pending"):
            continue
        elif not is_own:
            status = states[unit.key]
            decision.elsewhere[unit.key] = "" if status.state is State.WAITING else status.reason
        elif missing:
            decision.blocked[unit.key] = missing[0]
        elif only is not None and unit.key not in only and not touched:
            decision.not_requested.append(unit.key)
        elif fault := link_at(run, unit.key):
            decision.refused[unit.key] = fault
        else:
            decision.to_run.append(unit)
            submitted.add(unit.key)
            if unit.key in active:
                decision.recalled.append(active.pop(unit.key))
    return decision


def _explained(experiment: Experiment, run: RunDir, key: str, before: Any) -> str:
    """Return what is to be said of a changed setting."""
    if key == CONTENT:
        return _changed_tar(experiment, run, before)
    return " (with --redo, a training with a state of fewer images goes on from it)" if key.endswith(LENGTH) else ""


def _changed_tar(experiment: Experiment, run: RunDir, before: str) -> str:
    """Name an adopted tar that is no longer what it was when the images had this hash; empty for other images."""
    if not experiment.data.source.adopts_tars:
        return ""
    from hpcddm.data.tar_changes import first_change

    change = first_change(experiment.data, run, before)
    return f" (tars: {change})" if change else ""


def active_units(run: RunDir, launcher: Launcher) -> dict[str, Job]:
    """Return the jobs of units that wait or run under this site's scheduler, by unit; waits for those that are ending.

    Raises `SchedulerSilent` when something was submitted and the scheduler does not answer: 'unknown' is never 'free'.
    """
    submissions = submitted_jobs(run, launcher.site)
    return settled_jobs(run, launcher, submissions) if submissions else {}


def reconcile_journal(run: RunDir, launcher: Launcher) -> None:
    """Record the jobs of submits that died between the request and the answer; wait while one may be on its way."""
    journal = Journal(run.journal)
    while True:
        unconfirmed = [submission for submission in submitted_jobs(run, launcher.site) if submission.job is None]
        ours = [submission for submission in unconfirmed if submission.site == launcher.site.name]
        queued = launcher.states(ours) if ours else {}
        if not ours or queued is None:
            return
        for submission in ours:
            jobs = {queued[unit].id.array for unit in submission.units if unit in queued}
            if jobs:
                journal.submitted(submission.uuid, min(jobs, key=lambda job: int(job.number)))
        if not any(
            time.time() - submission.time < RECONCILE_SECONDS
            for submission in ours
            if not queued.keys() & set(submission.units)
        ):
            return
        time.sleep(1)


def submitted_jobs(run: RunDir, site: Site) -> list[Submission]:
    """List the journal's submissions to this site's scheduler."""
    return [submission for submission in Journal(run.journal).submissions() if submission.scheduler == site.scheduler]


def store_experiment(experiment: Experiment, run: RunDir) -> None:
    """Store the experiment, all defaults filled in, with the run."""
    atomic.write_json(run.experiment, experiment.model_dump(mode="json"))


def store_site(site: Site, run: RunDir) -> None:
    """Store the site as it was used, so that later commands need not name it; the user vouches for it."""
    keys = site.model_dump(mode="json")
    atomic.write_json(run.site(site.name), keys, durable=False)
    vouching.remember(run.root, keys)


def stored_site(name: str, run: RunDir) -> Site:
    """Load the site as the run last used it; errors as those of `stored_keys`, and for keys that it cannot have."""
    return validate(Site, stored_keys(name, run), str(run.site(name)))


def stored_keys(name: str, run: RunDir) -> dict[str, Any]:
    """Read the keys of the site as the run last used it.

    Raises `ConfigError` naming the sites that the run used.
    """
    path = run.site(name)
    values = reading.read_mapping(path)
    if values is None:
        names = ", ".join(sorted(file.stem for file in path.parent.glob("*.json"))) or "none"
        raise ConfigError(f"{run.root}: site '{name}' was not used here; known: {names}; or name one with --site")
    return values
