"""Decisions of `submit` before anything is submitted: which units are complete, which are missing, which start here."""

import time
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hpcddm.config import trusted_submissions
from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import validate
from hpcddm.config.site import Site
from hpcddm.errors import ConfigError, SchedulerUnreachable, UserError
from hpcddm.errors.printing import echo, warn
from hpcddm.files import atomic, checked_reads
from hpcddm.jobs.planned_unit import PlannedUnit
from hpcddm.launch.base import Job, Launcher
from hpcddm.launch.checks.gpu_requests import check_gpus
from hpcddm.launch.decision import Decision
from hpcddm.launch.redo import changed_ranges, redone_units
from hpcddm.loading.source_check import check_source
from hpcddm.pipeline.state import QUEUED, State
from hpcddm.pipeline.unit_graph import STAGE_NAMES, batch_size, needed_by, plan_units
from hpcddm.pipeline.unit_states import UnitStatus, check_stale, survey_units
from hpcddm.runs import contracts, initial_weights, manifest
from hpcddm.runs.initial_weights import init_request
from hpcddm.runs.journal import Journal, Submission
from hpcddm.runs.links import link_at
from hpcddm.runs.manifest import LENGTH
from hpcddm.runs.run_dir import RunDir, run_in_home
from hpcddm.runs.unit_keys import CLUSTER, CONTINUATION, LATENT_SCALE, OTHER_STAGES, key_in_run, list_key

RECONCILE_SECONDS = 15
"""Seconds for which a request may still reach the scheduler after the `submit` that sent it has died."""
CONTENT = "data.content_hash"
"""Key of the hash of the images."""
OTHER_LATENTS_NOTE = (
    "note: {path} was trained on latents of an autoencoder that its run trained; if that of this run comes out"
    " otherwise, no training starts; with the same images and augmentations, copy autoencoder and latents of that run"
    " first"
)


def check_experiment(experiment: Experiment, site: Site, decision: Decision) -> None:
    """Raise `UserError` for settings that would fail, before anything is submitted."""
    for key in site.stages:
        valid = (*STAGE_NAMES, *OTHER_STAGES)
        if key.split("/")[0] not in valid:
            raise ConfigError(f"site {site.name}: stages.{key}: unknown stage; valid: {', '.join(valid)}")
    for unit in decision.to_run:
        minutes = site.resources_for(*unit.key.split("/")).minutes
        if site.scheduler != "local" and 60 * minutes <= site.signal_lead_seconds:
            lead = f"signal_lead_seconds: {site.signal_lead_seconds}"
            raise ConfigError(f"site {site.name}: {lead} leave nothing of the {minutes} minutes of {unit.key}")
        ranks, batch = site.resources_for(*unit.key.split("/")).ranks, batch_size(experiment, unit.key)
        if batch % ranks:
            raise ConfigError(f"site {site.name}: {ranks} ranks cannot share the batch of {batch} of {unit.key} evenly")
    check_gpus(site, [unit.key for unit in decision.to_run], experiment)
    _check_starts(experiment, [unit.key for unit in decision.to_run])
    _check_lists(experiment, {unit.key for unit in decision.to_run})
    if CLUSTER in (unit.key for unit in decision.to_run):
        experiment.cluster.clustering.check_file(experiment.cluster.experts)
    if any(unit.stage == "shard" for unit in decision.to_run):
        check_source(experiment)


def _check_starts(experiment: Experiment, keys: list[str]) -> None:
    """Check, before the data stages run, that the initial weights of units exist and fit their networks."""
    candidates = (init_request(experiment, key) for key in keys)
    requests = [request for request in candidates if request is not None]
    # Most units start from the same file with the same network.
    starts = {(one.place, one.model_place, one.objective_place, one.locate(Path())): one for one in requests}
    for (*_, (path, digest)), request in starts.items():
        initial_weights.check_file(request, path, digest)
        if LATENT_SCALE in keys and request.space.is_trained_in_run and initial_weights.is_for_own_latents(path):
            warn(OTHER_LATENTS_NOTE.format(path=path))


def _check_lists(experiment: Experiment, keys: Collection[str]) -> None:
    """Check that the lists of extra experts exist and name every sample once; their samples are checked later."""
    if files := [Path(extra.list) for extra in experiment.experts.extra if list_key(extra.name) in keys]:
        from hpcddm.data import sample_keys

        for file in files:
            sample_keys.read(file)


def decide_units(
    experiment: Experiment,
    run: RunDir,
    launcher: Launcher,
    redo: Iterable[str] = (),
    only: Collection[str] | None = None,
    active: dict[str, Job] | None = None,
    states: dict[str, UnitStatus] | None = None,
    until: str | None = None,
) -> Decision:
    """Select the units to submit here, from the states of the run and the queue.

    Args:
        experiment: The experiment.
        run: The run.
        launcher: Launcher of the site.
        redo: Stages whose units are made again.
        only: Units to submit, together with the units that read them; None for all.
        active: Jobs in the queue by unit; None to query them.
        states: States of the units, read after `active`; None to determine them.
        until: Last stage to submit; None for all.

    Raises:
        ConfigError: If settings have changed.
        SchedulerUnreachable: If the scheduler does not answer.
    """
    # Read the queue first: a unit that leaves the queue later already has its manifest, and is not resubmitted.
    active = active_units(run, launcher) if active is None else active
    states = survey_units(plan_units(experiment), run) if states is None else states
    units = [status.unit for status in states.values()]
    own = [states[unit.key] for unit in units if unit.site in (None, launcher.site.name)]
    changed = changed_ranges(experiment, run, states, active)
    kept = [status for status in own if status.key not in changed]
    check_stale(kept, set(redo), partial(_explained, experiment, run))
    redone = set(redone_units(own, set(redo))) | changed
    decision = Decision(states, active=active, changed_ranges=changed)
    within, submitted = None if until is None else needed_by(until, units), set[str]()
    for unit in units:
        is_own = unit.site in (None, launcher.site.name)
        # Units that read a redone unit run as well: their jobs do nothing if the new bytes are the same.
        reads_redone = is_own and any(key in submitted and unit.counts_in_fingerprint(key) for key in unit.inputs)
        is_redone = unit.key in redone or reads_redone
        is_wanted = only is None or unit.key in only or is_redone
        if _decide_unit(unit, decision, run, is_own, is_redone, is_wanted, within is None or unit.key in within):
            decision.to_run.append(unit)
            submitted.add(unit.key)
    return decision


def _decide_unit(
    unit: PlannedUnit, decision: Decision, run: RunDir, is_own: bool, is_redone: bool, is_wanted: bool, is_within: bool
) -> bool:
    """Tell if a unit is to run, else add it to the decision; is_within: it belongs to the stages that are submitted."""
    key, status, active = unit.key, decision.states[unit.key], decision.active
    is_recalled = is_redone and key in active and active[key].state in QUEUED
    runs = False
    missing = unit.missing_inputs({*decision.elsewhere, *decision.blocked, *decision.refused, *decision.not_requested})
    if status.state is State.COMPLETE and not is_redone:
        decision.complete.append(key)
    elif not is_within:
        decision.not_requested.append(key)
    elif key in active and not is_recalled:
        return False
    elif not is_own:
        decision.elsewhere[key] = "" if status.state is State.WAITING else status.reason
    elif missing:
        decision.blocked[key] = missing[0]
    elif not is_wanted:
        decision.not_requested.append(key)
    elif fault := link_at(run, key):
        decision.refused[key] = fault
    else:
        runs = True
    if is_recalled and (runs or not is_within):
        decision.recalled.append(active.pop(key))
    return runs


def _explained(experiment: Experiment, run: RunDir, key: str, before: Any) -> str:
    """Return the remark about a changed setting."""
    if key == CONTENT:
        return _changed_tar(experiment, run, before)
    return " (with --redo, a training with a state of fewer images goes on from it)" if key.endswith(LENGTH) else ""


def _changed_tar(experiment: Experiment, run: RunDir, before: str) -> str:
    """Name a tar that has changed since the images had this hash; empty unless tars are used in place."""
    if not experiment.data.source.uses_existing_tars:
        return ""
    from hpcddm.sources.tars.tar_changes import first_change

    change = first_change(experiment.data, run, before)
    return f" (files: {change})" if change else ""


def active_units(run: RunDir, launcher: Launcher) -> dict[str, Job]:
    """Return the queued and running jobs by unit; raises `SchedulerUnreachable` if the scheduler does not answer."""
    submissions = submitted_jobs(run, launcher.site)
    return settled_jobs(run, launcher, submissions) if submissions else {}


def reconcile_journal(run: RunDir, launcher: Launcher) -> None:
    """Record the jobs of a `submit` that died before it recorded their ids; waits for requests still under way."""
    journal = Journal(run.journal)
    while True:
        unconfirmed = [submission for submission in submitted_jobs(run, launcher.site) if submission.job is None]
        ours = [submission for submission in unconfirmed if submission.site == launcher.site.name]
        queued = launcher.states(ours) if ours else {}
        if not ours or queued is None:
            return
        for submission in ours:
            if jobs := {queued[unit].id.array for unit in submission.units if unit in queued}:
                journal.record_submitted(submission.uuid, min(jobs, key=lambda job: int(job.number)))
        if not any(time.time() - one.time < RECONCILE_SECONDS for one in ours if not queued.keys() & set(one.units)):
            return
        time.sleep(1)


def submitted_jobs(run: RunDir, site: Site) -> list[Submission]:
    """List the journal's submissions to this site's scheduler."""
    return [submission for submission in Journal(run.journal).submissions() if submission.scheduler == site.scheduler]


def store_experiment(experiment: Experiment, run: RunDir) -> None:
    """Store the experiment in the run, with all defaults filled in."""
    atomic.write_json(run.experiment, experiment.model_dump(mode="json"))


def store_site(site: Site, run: RunDir) -> None:
    """Store the site in the run for later commands, and record that this user trusts it."""
    keys = site.model_dump(mode="json")
    atomic.write_json(run.site(site.name), keys, durable=False)
    for vouched in (keys, *contracts.vouched_here(run, site.name)):
        trusted_submissions.remember(run.root, vouched)


def stored_site(name: str, run: RunDir) -> Site:
    """Load a site as the run last used it; raises `ConfigError` if the run did not use it or a key is invalid."""
    return validate(Site, stored_site_keys(name, run), str(run.site(name)))


def stored_site_keys(name: str, run: RunDir) -> dict[str, Any]:
    """Read the keys of a site as the run last used it; raises `ConfigError` if the run did not use the site."""
    path = run.site(name)
    if (values := checked_reads.read_mapping(path)) is None:
        names = ", ".join(sorted(file.stem for file in path.parent.glob("*.json"))) or "none"
        raise ConfigError(f"{run.root}: site '{name}' was not used here; known: {names}; or name one with --site")
    return values


LEAVING_SECONDS = 120
"""Seconds that a submission waits for jobs that are ending; longer where jobs may take longer to save."""
POLL_SECONDS = 2


def settled_jobs(home: RunDir, launcher: Launcher, submissions: Sequence[Submission]) -> dict[str, Job]:
    """Return the jobs that wait or run, by unit, after the cancelled and ending ones have left the queue.

    A job that is ending and comes back, as a requeued one does, is among them.
    Raises `SchedulerUnreachable` when the scheduler does not answer, `UserError` when a job takes too long to end.
    """
    newest = {unit: submission for submission in submissions for unit in submission.units}
    seconds, began = max(LEAVING_SECONDS, launcher.site.signal_lead_seconds), None
    while True:
        if (jobs := launcher.states(list(submissions))) is None:
            text = "jobs were submitted and the scheduler does not answer; try again when it does"
            raise SchedulerUnreachable(f"{home.root}: {text}")
        withdrawn = {unit: job for unit, job in jobs.items() if unit in newest[unit].cancelled}
        leaving = withdrawn | {unit: job for unit, job in jobs.items() if _is_ending(unit, job, home)}
        if not leaving:
            return jobs
        first = next(iter(leaving))
        if began is None:
            began = time.monotonic()
            number = f"{len(leaving)} jobs that are" if len(leaving) > 1 else "a job that is"
            echo(f"waiting for {number} ending, at most {seconds} s: {leaving[first].id} ({first}) ...")
        if time.monotonic() - began > seconds:
            reason = f"job {leaving[first].id} of {first} is still ending after {seconds} s"
            raise UserError(f"{reason}; repeat the command when it has left the queue")
        # Slurm may requeue even a job that was just cancelled.
        launcher.cancel(*(job.id for job in withdrawn.values() if job.state in QUEUED))
        time.sleep(POLL_SECONDS)


def _is_ending(unit: str, job: Job, home: RunDir) -> bool:
    """Tell if a job is ending while its unit is not complete, and no job that it submitted itself follows."""
    if job.state != State.STOPPING or job.others or unit == CONTINUATION:
        return False
    return manifest.read_if_usable(run_in_home(home, unit).unit(key_in_run(unit))) is None
