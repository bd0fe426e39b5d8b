"""The verb submit: selects the units to run, then submits them to the queue, or runs them here."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from hpcddm.collaboration.contract_settings import with_agreed_probe
from hpcddm.commands.agreed_submission import open_submission, own_settings
from hpcddm.commands.options import DRY_RUN, EXPERIMENT, OVERRIDES, PATH, RUN_DIR, SITE
from hpcddm.commands.submission_flow import (
    check_schedulers,
    check_submission,
    is_cancelled,
    make_launcher,
    run_items,
    show_scripts,
    submission_lock,
    submit_arrays,
)
from hpcddm.commands.submit_messages import announce, announce_code, print_nothing_to_do, require_no_refusal
from hpcddm.config.experiment import Experiment
from hpcddm.config.site import Site
from hpcddm.config.weights import SettingsWithWeights
from hpcddm.errors import ConfigError, UserError, require
from hpcddm.errors.next_step import step
from hpcddm.errors.printing import echo
from hpcddm.jobs.outcome import HookEvent
from hpcddm.launch.array_items import ArrayItem, call_hook, make_items
from hpcddm.launch.base import DirectLauncher, Launcher
from hpcddm.launch.cancel_jobs import cancel_jobs
from hpcddm.launch.checks.preflight import preflight
from hpcddm.launch.continuation import RemainingUnits
from hpcddm.launch.decision import Decision
from hpcddm.launch.load_site import load_site
from hpcddm.launch.redo import set_ranges_aside, set_redone_aside
from hpcddm.launch.script_template import store_parts
from hpcddm.launch.submission import (
    check_experiment,
    decide_units,
    store_experiment,
    store_site,
)
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.loading.last_command import (
    SubmitCommand,
    keep_command,
    last_site,
    resubmit_step,
    store_command,
    submit_command,
)
from hpcddm.loading.run_defaults import Defaults, load_for_run
from hpcddm.pipeline.unit_graph import STAGE_NAMES
from hpcddm.runs.contracts import require_vouched, run_contract
from hpcddm.runs.journal import Journal
from hpcddm.runs.lease import lease
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import is_sweep, stored_experiment, with_relative_paths
from hpcddm.runs.unit_keys import REPORT


@click.command()
@EXPERIMENT
@OVERRIDES
@SITE
@RUN_DIR
@click.option("--redo", multiple=True, metavar="STAGE", help="Run a stage again; its old outputs move to superseded/.")
@click.option(
    "--until", metavar="STAGE", help="The last stage to submit: 'cluster_report' ends before anything is trained."
)
@DRY_RUN
@click.option(
    "--contract",
    "folder",
    type=PATH,
    help="Train this site's experts of a contract, which replaces EXPERIMENT; KEY=VALUE says where its images are.",
)
@click.option("--trust", "trusted", metavar="FINGERPRINT", help="Fingerprint of the coordinator's key.")
@click.option("--wait", "and_wait", is_flag=True, help="Then wait as 'hpcddm wait' does, with its exit codes.")
def submit(
    name: str,
    overrides: tuple[str, ...],
    site_name: str,
    run_dir: Path | None,
    folder: Path | None,
    trusted: str | None,
    and_wait: bool,
    **how: Any,
) -> int:
    """Submit the missing units of EXPERIMENT, or run them here.

    EXPERIMENT is the name of an experiment or a YAML file. Complete units are kept, so the same command continues a
    run. KEY=VALUE changes a setting of the experiment. Without --site a run continues at the site of your last command.

    \b
    Example: hpcddm submit fashion_mnist --site my-cluster experts.training.images=30000
             hpcddm submit --contract cells-contract --site uni-b data.source.folder=/data/cells
    Next:    hpcddm status runs/fashion_mnist
    """
    redo, until, dry_run = how["redo"], how["until"], how["dry_run"]
    if and_wait and dry_run:
        raise ConfigError("--wait: nothing is submitted with --dry-run; leave one of them out")
    _check_stages("--redo", redo)
    _check_stages("--until", () if until is None else (until,))
    if folder is None:
        experiment, run, site, defaults = _load(name, overrides, site_name, run_dir, redo, trusted, dry_run)
    elif site_name == "auto":
        raise ConfigError("--contract: name this site, as the contract does, with --site")
    else:
        agreed = open_submission(folder, own_settings(name, overrides), load_site(site_name), run_dir)
        experiment, run, site, defaults = agreed.experiment(trusted, redo, dry_run), agreed.run, agreed.site, None
    typed = submit_command(name, overrides, site_name, until, folder)
    code = submit_missing(experiment, site, run, defaults=defaults, typed=typed, **how)
    if code or not and_wait:
        return code
    from hpcddm.commands.wait import wait_for

    return wait_for(run, None)


def _load(
    name: str,
    overrides: tuple[str, ...],
    site_name: str,
    run_dir: Path | None,
    redo: Collection[str],
    trusted: str | None,
    is_dry_run: bool,
) -> tuple[Experiment, RunDir, Site, Defaults]:
    """Read experiment and site of a run, and print the experiment's defaults."""
    experiment, run, defaults = load_for_run(name, overrides, run_dir)
    before = last_site(run) if site_name == "auto" else None
    if before:
        echo(f"note: at site {before}, as in your last command for this run; --site takes another one")
        site_name = before
    site = load_site(site_name)
    if is_sweep(RunDir(run.root.resolve().parent)):
        raise ConfigError(f"--run-dir {run.root}: a setting of a sweep; the same hpcddm sweep submits missing units")
    require(not is_sweep(run), f"--run-dir {run.root}: contains a sweep; choose another folder", ConfigError)
    require_vouched(run, site.name, trusted, is_dry_run)
    experiment = with_agreed_probe(with_content_hashes(experiment, run, redo=redo), run_contract(run))
    defaults.print()
    return experiment, run, site, defaults


def _check_stages(option: str, names: Collection[str]) -> None:
    if unknown := set(names) - set(STAGE_NAMES):
        raise ConfigError(f"{option} {min(unknown)}: unknown stage; valid: {', '.join(STAGE_NAMES)}")


def submit_missing(
    experiment: Experiment,
    site: Site,
    run: RunDir,
    redo: Collection[str] = (),
    only: Collection[str] | None = None,
    dry_run: bool = False,
    parts: Mapping[str, str] | None = None,
    rest: RemainingUnits | None = None,
    until: str | None = None,
    defaults: Defaults | None = None,
    typed: SubmitCommand | None = None,
) -> int:
    """Select the units to run of an experiment with absolute paths, and submit them; return the exit code.

    parts: of the batch script's template, with which the run was last submitted; None for the user's own here.
    rest: what an earlier submission left out, where this one continues it. until: the last stage, None for all.
    defaults: newly filled-in defaults; None if the experiment is the stored one.
    typed: the command to be kept with the run, None for that of before.
    """
    launcher = make_launcher(site, run, parts)
    decide = partial(decide_units, experiment, run, launcher, only=only, until=until)
    decision = decide(redo=redo)
    if not decision.to_run:
        if not dry_run:
            keep_command(typed, run)
            _keep_settings(experiment, run, decision, typed)
        print_nothing_to_do(decision, run)
        return 0
    _check(experiment, site, run, launcher, decision, dry_run)
    with submission_lock("submit", run, launcher):
        if is_cancelled(rest, run):
            return 0
        # Another submit may have been at work between the first look and the lock.
        decision = decide(redo=redo)
        if not decision.to_run:
            print_nothing_to_do(decision, run)
            return 0
        experiment = with_relative_paths(experiment, run)
        items = make_items(decision.to_run, experiment, run)
        check_schedulers(items, run, launcher)
        if dry_run:
            show_scripts(items, run, launcher, decision.active)
            return 0
        _store(experiment, site, run, launcher, decision, redo)
        if defaults is not None:
            defaults.store(run)
        store_command(typed, run)
        # The advice repeats the stored command.
        announce(site, run, decision)
        announce_code(launcher)
        if isinstance(launcher, DirectLauncher):
            return _run_here(items, run, launcher, decision, decide)
        submit_arrays(items, run, launcher, decision.active, only, until=until)
    echo(f"scripts  {run.scripts}/", f"logs     {run.root / 'logs'}/")
    echo(step("hpcddm", "status", run.root))
    require_no_refusal(decision)
    return 0


def _check(
    experiment: Experiment, site: Site, run: RunDir, launcher: Launcher, decision: Decision, is_dry_run: bool
) -> None:
    """Check all that can be checked before the run is locked or changed."""
    check_experiment(experiment, site, decision)
    _check_condition(experiment, decision)
    check_submission(make_items(decision.to_run, experiment, run), run, launcher, is_dry_run)
    if not is_dry_run:
        preflight(experiment, site, run, decision.to_run)


def _store(
    experiment: Experiment, site: Site, run: RunDir, launcher: Launcher, decision: Decision, redo: Collection[str]
) -> None:
    """Set aside the units that run again, and store the files that the run's jobs and later commands read."""
    # Before anything is set aside: cancelling another user's jobs may be refused.
    cancel_jobs(decision.recalled, Journal(run.journal).submissions(), launcher)
    set_redone_aside(run, decision, redo)
    set_ranges_aside((run, unit.key) for unit in decision.to_run if unit.key in decision.changed_ranges)
    store_experiment(experiment, run)
    store_site(site, run)
    store_parts(run, launcher.template_parts)


def _keep_settings(experiment: Experiment, run: RunDir, decision: Decision, typed: SubmitCommand | None) -> None:
    """Store settings that make no unit run again, such as the site of an expert, where this user may write the run."""
    if typed is None or decision.active or not run.experiment.exists():
        return
    changed = with_relative_paths(experiment, run)
    with suppress(OSError, UserError):
        # The same command again writes nothing, not even who holds the lock.
        if stored_experiment(run) != changed:
            with lease(run.lock, "hpcddm submit"):
                store_experiment(changed, run)


def _check_condition(experiment: Experiment, decision: Decision) -> None:
    """Try the condition's encoder here if a unit will: K jobs would find it missing only after the data stages.

    One on weights of the user is not tried: it may be too large for this machine, and its files have been looked at.
    Raises `UserError` naming a prompt that is too long, or the weights that are to be fetched.
    """
    encoder = experiment.data.condition.text_encoder
    encodes = encoder is not None and not isinstance(encoder, SettingsWithWeights)
    encoding = {"encode_captions", "train", "distill", "router", "draw"}
    if encodes and encoding.intersection(unit.stage for unit in decision.to_run):
        from hpcddm.diffusion.conditions import base as conditions

        conditions.create_condition(experiment.data).check()


def _run_here(
    items: list[ArrayItem], run: RunDir, launcher: DirectLauncher, decision: Decision, decide: Callable[[], Decision]
) -> int:
    absent = {*decision.elsewhere, *decision.blocked, *decision.refused}
    if run_items(items, run, launcher, len(decision.complete), absent):
        echo(resubmit_step(run, "after fixing that"), err=True)
        return 1
    final = decide()
    if final.to_run:
        raise UserError(str(resubmit_step(run, f"not complete: {', '.join(unit.key for unit in final.to_run)}")))
    if REPORT in final.complete:
        call_hook(launcher.site, run, HookEvent.COMPLETE, REPORT)
    print_nothing_to_do(final, run)
    return 0
