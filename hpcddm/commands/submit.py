"""The verb submit: decide, then hand over to the queue, or run here."""

import os
from pathlib import Path

import click

from hpcddm.config import Experiment, Site
from hpcddm.errors import ConfigError, UserError
from hpcddm.files import load_experiment, load_site, with_content, within_run
from hpcddm.launch.base import Launcher, launcher_of
from hpcddm.launch.submission import (
    Decision,
    array_spec,
    arrays,
    check_experiment,
    decide,
    store_experiment,
)
from hpcddm.pipeline import REPORT, STAGE_NAMES
from hpcddm.rundir import manifest
from hpcddm.rundir.layout import RunDir, set_aside
from hpcddm.rundir.lease import lease


def submit(
    name: str, overrides: tuple[str, ...], site_name: str, run_dir: Path | None, redo: tuple[str, ...], dry_run: bool
) -> int:
    """Submit what is missing; return the exit code."""
    unknown = set(redo) - set(STAGE_NAMES)
    if unknown:
        raise ConfigError(f"--redo {min(unknown)}: unknown stage; valid: {', '.join(STAGE_NAMES)}")
    experiment, site = load_experiment(name, overrides), load_site(site_name)
    run = RunDir(run_dir or Path("runs") / experiment.name)
    experiment, launcher = with_content(experiment, run), launcher_of(site, run)
    decision = decide(experiment, run, launcher, redo)
    if not decision.to_run:
        _say_nothing_to_do(decision, run)
        return 0
    check_experiment(experiment, site, decision)
    if not dry_run:
        groups = arrays(decision.to_run, site)
        launcher.check([array_spec(units, experiment, run, site, []) for units in groups])
    _make_folder(run)
    with lease(run.lock, "hpcddm submit"):
        # Another submit may have been at work between the first look and the lock.
        decision = decide(experiment, run, launcher, redo)
        experiment = within_run(experiment, run)
        if dry_run:
            return _dry_run(experiment, run, launcher, decision)
        for unit in decision.to_run:
            if unit.stage in redo:
                set_aside(run, unit.key)
        store_experiment(experiment, run)
        _announce(site, run, decision)
        enter = _run_here if site.scheduler == "local" else _queue
        return enter(experiment, run, launcher, decision)


def _make_folder(run: RunDir) -> None:
    if "%" in str(run.root.resolve()):
        raise ConfigError(f"--run-dir {run.root}: '%' in a path means something to Slurm; take another name")
    try:
        run.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--run-dir {run.root}: cannot be made ({error.strerror})") from None
    if not os.access(run.root, os.W_OK):
        raise ConfigError(f"--run-dir {run.root}: not writable for this user")


def _run_here(experiment: Experiment, run: RunDir, launcher: Launcher, decision: Decision) -> int:
    from hpcddm.launch.embedded import Embedded

    failed = Embedded(experiment, run, launcher, decision).drive()
    for key, reason in failed.items():
        click.echo(f"error: {key}: {reason}; its log: hpcddm logs {run.root} {key}", err=True)
    if failed:
        click.echo("after mending, the same command continues", err=True)
        return 1
    left = decide(experiment, run, launcher)
    if left.to_run:
        raise UserError(f"not complete: {', '.join(unit.key for unit in left.to_run)}; the same command continues")
    _say_nothing_to_do(left, run)
    return 0


def _queue(experiment: Experiment, run: RunDir, launcher: Launcher, decision: Decision) -> int:
    from hpcddm.launch.queue import submit_all

    for job in decision.recalled:
        launcher.cancel(job.id)
    for array in submit_all(experiment, run, launcher, decision):
        after = f"  after {', '.join(array.after)}" if array.after else ""
        last = len(array.keys) - 1
        names = array.keys[0] if last == 0 else f"{array.keys[0]} ... {array.keys[-1]}"
        click.echo(f"job {array.job}_[0-{last}]  {names}{after}")
    click.echo(f"scripts  {run.scripts}/\nlogs     {run.root / 'logs'}/")
    click.echo(f"next     hpcddm status {run.root}   hpcddm logs {run.root} STAGE/UNIT")
    return 0


def _dry_run(experiment: Experiment, run: RunDir, launcher: Launcher, decision: Decision) -> int:
    from hpcddm.launch.queue import render_all

    if launcher.site.scheduler == "local":
        click.echo("would run here: " + " ".join(unit.key for unit in decision.to_run))
        return 0
    for array in render_all(experiment, run, launcher, decision):
        click.echo(f"would submit {run.scripts / array.script}: {', '.join(array.keys)}")
    return 0


def _announce(site: Site, run: RunDir, decision: Decision) -> None:
    counts = f"{len(decision.complete)} units complete, {len(decision.to_run)} to run"
    if decision.active:
        counts += f", {len(decision.active)} in the queue or running"
    click.echo(f"run {run.root}   site {site.name}   {counts}")
    _say_who_else(decision, run)


def _say_who_else(decision: Decision, run: RunDir) -> None:
    if decision.elsewhere:
        sites = {decision.states[key].unit.site for key in decision.elsewhere}
        click.echo(f"elsewhere ({', '.join(sorted(sites))}): {', '.join(decision.elsewhere)}")
        for key, reason in decision.elsewhere.items():
            if reason:
                click.echo(f"{key} is here but does not fit: {reason}; fetch the right one, or remove the folder")
    if decision.blocked:
        first = next(iter(decision.blocked.values()))
        stages = dict.fromkeys(key.split("/")[0] for key in decision.blocked)
        click.echo(
            f"waiting for elsewhere: {', '.join(stages)}; copy {first} ... into {run.root}/train/ and submit again"
        )


def _say_nothing_to_do(decision: Decision, run: RunDir) -> None:
    if decision.active:
        click.echo(f"{len(decision.active)} units are in the queue or running; nothing new to submit")
    elif decision.elsewhere:
        click.echo("everything that belongs to this site is complete")
        _say_who_else(decision, run)
    else:
        click.echo(f"everything is complete ({len(decision.complete)} units); nothing to submit")
    report = manifest.read(run.unit(REPORT))
    if report and REPORT in decision.complete:
        from hpcddm.commands.table import print_table

        print_table(report.facts)
        click.echo(f"report {run.unit(REPORT) / 'index.html'}")
