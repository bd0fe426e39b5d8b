"""The verb sweep: runs every setting as a separate run, runs shared units once, and compares all in one table."""

import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import click

from hpcddm.commands.options import DRY_RUN, PATH, SITE
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
from hpcddm.commands.submit_messages import announce_code, require_no_refusal
from hpcddm.commands.sweep_scan import SweepScan, scan_sweep
from hpcddm.commands.sweep_table import print_sweep_table
from hpcddm.commands.trusted_settings import trusted_site_and_template
from hpcddm.config.site import Site
from hpcddm.config.sweep import REPORTED
from hpcddm.errors import ConfigError, UserError
from hpcddm.errors.next_step import step
from hpcddm.errors.printing import echo
from hpcddm.evaluation.sweep_results.outputs import publish
from hpcddm.evaluation.sweep_results.setting_results import CSV, PLOT, best_by_arm, blockers_by_files, setting_results
from hpcddm.files import atomic, checked_reads, nfs_reads
from hpcddm.jobs.outcome import HookEvent
from hpcddm.jobs.planned_unit import PlannedUnit
from hpcddm.launch.array_items import ArrayItem, call_hook
from hpcddm.launch.base import DirectLauncher, Launcher, QueueLauncher
from hpcddm.launch.cancel_jobs import cancel_jobs
from hpcddm.launch.checks import disk_estimates
from hpcddm.launch.checks.gpu_requests import check_gpus
from hpcddm.launch.checks.preflight import (
    check_disk_space,
    check_snapshots,
    check_state,
    check_weights,
    warn_of_node_local,
)
from hpcddm.launch.continuation import RemainingUnits
from hpcddm.launch.decision import Decision
from hpcddm.launch.load_site import load_site
from hpcddm.launch.redo import set_ranges_aside
from hpcddm.launch.script_template import store_parts
from hpcddm.launch.submission import (
    check_experiment,
    store_site,
)
from hpcddm.launch.sweep_runs import SweepRun, sweep_runs_of
from hpcddm.loading.last_command import SubmitCommand, resubmit_step, store_command, sweep_command
from hpcddm.loading.load_sweep import Sweep, matching_labels, read_sweep, with_reported
from hpcddm.pipeline.stage import DiskSpace
from hpcddm.pipeline.state import QUEUED
from hpcddm.runs import manifest
from hpcddm.runs.journal import Journal
from hpcddm.runs.ranges import SPLITS
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_values, with_relative_paths
from hpcddm.runs.stored_results import split_results
from hpcddm.runs.sweep_index import SweepIndex, link_finished_run, link_shared_units, write_index
from hpcddm.runs.unit_keys import CATALOG, TABLE


@click.command()
@click.argument("name", metavar="SWEEP")
@SITE
@click.option("--dir", "--run-dir", "folder", type=PATH, help="Default: sweeps/<its name>.")
@DRY_RUN
@click.option(
    "--table", "only_table", is_flag=True, help="Write and print the table of results so far; submit nothing."
)
@click.option(
    "--only",
    multiple=True,
    metavar="KEY=VALUE|LABEL",
    help="Submit the settings with this value, or this label, alone; may be repeated.",
)
def sweep(name: str, **options: Any) -> int:
    """Submit all settings of SWEEP, and compare them.

    SWEEP is the name of a sweep or a YAML file. Each setting is a separate run, DIR/LABEL; units that several settings
    share run once.

    \b
    Example: hpcddm sweep guidance --site my-cluster
    Next:    the same command shows the table, and runs settings added to the file
    """
    return submit_settings(name, **options)


def submit_settings(
    name: str,
    site_name: str,
    folder: Path | None,
    dry_run: bool,
    only_table: bool,
    only: Collection[str] = (),
    rest: RemainingUnits | None = None,
    trust_run: bool = False,
) -> int:
    """Submit the missing units of all settings, or show the table; return the exit code.

    Args:
        name: Name or file of the sweep.
        site_name: Name or file of the site.
        folder: Folder of the sweep; by default below sweeps/.
        dry_run: Print the scripts and submit nothing.
        only_table: Show the table alone.
        only: KEY=VALUE, or labels, of the settings whose units are submitted; by default all are.
        rest: Units that an earlier submission left out; this one continues it with the same site and template.
        trust_run: The user vouches for the copies of these in the folder.
    """
    file = read_sweep(name, rest.experiment if rest else None)
    home = RunDir(folder or Path("sweeps") / file.name)
    definition = _with_reported(file, home)
    sweep_runs = sweep_runs_of(definition, home)
    for folded, taken in definition.folded:
        echo(f"note: setting {folded} means the same as {taken} and runs once")
    site, parts = (
        trusted_site_and_template(rest.site, home, trust_run, in_job=True) if rest else (load_site(site_name), None)
    )
    launcher = make_launcher(site, home, parts)
    asked = matching_labels(definition, only) if only else None
    look = partial(scan_sweep, definition, sweep_runs, home, launcher, requested=asked)
    scan = look(is_final=not only_table)
    if not only_table:
        for label, decision in scan.decisions.items():
            require_no_refusal(decision, f"setting {label}: ")
    if only_table or not scan.items:
        return _show(scan, home, definition)
    _check(scan, home, launcher.site)
    _check_samples(scan.sweep_runs, definition)
    check_submission(scan.items, home, launcher, dry_run)
    typed = None if rest else sweep_command(name, site_name, only)
    with submission_lock("sweep", home, launcher):
        code = _submit_missing(definition, home, launcher, look, dry_run, typed, rest)
    if (
        code == 0
        and isinstance(launcher, DirectLauncher)
        and _with_reported(file, home).settings != definition.settings
    ):
        return submit_settings(name, site_name, folder, dry_run, only_table, only)
    return code


def _submit_missing(
    definition: Sweep,
    home: RunDir,
    launcher: DirectLauncher | QueueLauncher,
    look: Callable[[], SweepScan],
    dry_run: bool,
    typed: SubmitCommand | None,
    rest: RemainingUnits | None,
) -> int:
    """Submit the missing units, or run them here, while nobody else submits; return the exit code.

    typed: the command to keep, None to keep none; other arguments as those of `submit_settings`.
    """
    # Another one may have been at work between the first look and the lock.
    scan = look()
    check_schedulers(scan.items, home, launcher)
    if dry_run:
        echo(_counts(scan))
        items = [*scan.items, _table_item(scan, home)] if isinstance(launcher, QueueLauncher) else scan.items
        show_scripts(items, home, launcher, scan.active)
        return 0
    if not scan.items:
        return _show(scan, home, definition)
    store_command(typed, home)
    _store(scan, home, launcher)
    echo(f"sweep {home.root}   site {launcher.site.name}   {_counts(scan)}")
    announce_code(launcher)
    if isinstance(launcher, QueueLauncher):
        return _queue(definition, scan, home, launcher, rest)
    return _run_here(scan, home, launcher, look, definition)


def _with_reported(sweep: Sweep, home: RunDir) -> Sweep:
    """Add the settings that report the best one of every arm, once all settings of `tune` are complete."""
    if sweep.reported_images is None:
        return sweep
    index = SweepIndex(sweep.name, [*sweep.settings], sweep.settings)
    chosen = best_by_arm(setting_results(index, home, {}))
    # A report may be complete and outdated.
    return with_reported(sweep, chosen) if chosen and not blockers_by_files(index, home) else sweep


def _check(scan: SweepScan, home: RunDir, site: Site) -> None:
    """Refuse settings that are bound to fail, before anything is written.

    Raises `UserError` or `ConfigError`, with the setting where it is about one.
    """
    units: dict[str, list[PlannedUnit]] = {}
    for item in scan.items:
        units.setdefault(item.run.root.name, []).append(item.unit)
    # Of the settings with the same images, the one that evaluates most tells whether there are enough.
    hungriest: dict[str, SweepRun] = {}
    for sweep_run in sorted(scan.sweep_runs, key=lambda sweep_run: sweep_run.experiment.evaluate.images):
        hungriest[sweep_run.experiment.data.model_dump_json()] = sweep_run
    needed, counts = DiskSpace(), {}
    for data, sweep_run in hungriest.items():
        counts[data] = disk_estimates.image_counts(sweep_run.experiment, sweep_run.owner(CATALOG))
    for sweep_run in scan.sweep_runs:
        if nfs_reads.exists(sweep_run.run.stop):
            raise ConfigError(f"{sweep_run.run.stop} tells its jobs to leave: remove it, then repeat this command")
        data, run_units = sweep_run.experiment.data.model_dump_json(), units.get(sweep_run.label, [])
        shards = [unit for unit in scan.decisions[sweep_run.label].to_run if unit.stage == "shard"]
        checked = [unit for unit in run_units if unit.stage != "shard"]
        checked += shards if hungriest[data] is sweep_run else []
        try:
            check_experiment(sweep_run.experiment, site, Decision({}, to_run=checked))
            check_weights(sweep_run.experiment, run_units)
        except UserError as error:
            raise type(error)(f"setting {sweep_run.label}: {error}") from None
        needs = (disk_estimates.estimate_unit(unit, sweep_run.experiment, site, counts[data]) for unit in run_units)
        needed += sum(needs, DiskSpace())
    check_gpus(site, [TABLE], scan.sweep_runs[0].experiment)
    for item in scan.items:
        check_state(item.unit, item.run)
        check_snapshots(item.experiment, item.unit, item.run)
    check_disk_space(needed, home)
    warn_of_node_local(site, home)


def _check_samples(sweep_runs: list[SweepRun], definition: Sweep) -> None:
    """Refuse settings of a finished run that need more images than it has, also where they report; `ConfigError`."""
    for sweep_run in sweep_runs:
        catalog = manifest.read_if_usable(sweep_run.owner(CATALOG).unit(CATALOG)) if sweep_run.finished else None
        if catalog is None:
            continue
        evaluate, is_reported = sweep_run.experiment.evaluate, REPORTED in definition.settings[sweep_run.label]
        last = evaluate.first_sample + evaluate.images + (0 if is_reported else definition.reported_images or 0)
        for split in SPLITS:
            results = split_results({CATALOG: catalog}, split)
            counts = results.get("class_counts") or [results["samples"]]
            if last > (most := min(counts) * len(counts)):
                balanced = ", equally many of each class" if len(counts) > 1 else ""
                needs = f"its samples up to {last:,} need as many {split} images, and the run has {most:,}{balanced}"
                raise ConfigError(f"setting {sweep_run.label}: evaluate.images: {needs}")


def _store(scan: SweepScan, home: RunDir, launcher: Launcher) -> None:
    """Write index, site, template, links and experiments; not synced, because the same command writes them again."""
    write_index(scan.index, home)
    if run := scan.sweep_runs[0].finished:
        link_finished_run(home, run)
    store_site(launcher.site, home)
    store_parts(home, launcher.template_parts)
    set_ranges_aside((item.run, item.unit.key) for item in scan.items if item.name in scan.changed_ranges)
    for sweep_run in scan.sweep_runs:
        link_shared_units(sweep_run.run, sweep_run.owners)
        values = with_relative_paths(sweep_run.experiment, sweep_run.run).model_dump(mode="json")
        if checked_reads.usable(stored_values, sweep_run.run) != values:
            atomic.write_json(sweep_run.run.experiment, values, durable=False)


def _queue(
    definition: Sweep, scan: SweepScan, home: RunDir, launcher: QueueLauncher, rest: RemainingUnits | None
) -> int:
    if is_cancelled(rest, home):
        return 0
    if rest is not None:
        # Units that failed since then wait for the user.
        scan.items = [item for item in scan.items if item.name in rest.units]
    items = [*scan.items, _table_item(scan, home)]
    if (job := scan.active.get(TABLE)) and job.state in QUEUED:
        # The queued job waits only for the jobs that existed when it was submitted.
        scan.recalled[job.id] = job
    cancel_jobs(scan.recalled.values(), Journal(home.journal).submissions(), launcher)
    names = {item.name for item in items}
    active = {name: job for name, job in scan.active.items() if name not in names}
    submit_arrays(items, home, launcher, active, rest.units if rest else None, definition)
    echo(f"scripts  {home.scripts}/", f"table    {home.root / CSV}, {home.root / PLOT}   by the last job")
    echo(*_notes(definition))
    echo(step("hpcddm", "wait", home.root))
    return 0


def _table_item(scan: SweepScan, home: RunDir) -> ArrayItem:
    """Make the item that compares the settings after all queued units."""
    first = scan.sweep_runs[0]
    names = [*(item.name for item in scan.items), *(name for name in scan.active if name != TABLE)]
    unit = PlannedUnit(TABLE, [], {"settings": len(scan.sweep_runs), "submitted": time.time()}, None)
    return ArrayItem(home, unit, with_relative_paths(first.experiment, home), TABLE, tuple(names))


def _run_here(
    scan: SweepScan, home: RunDir, launcher: DirectLauncher, look: Callable[[], SweepScan], definition: Sweep
) -> int:
    run_items(scan.items, home, launcher, len(scan.complete), scan.absent)
    after = look()
    if after.items:
        echo(resubmit_step(home, "after fixing that"), err=True)
    else:
        call_hook(launcher.site, home, HookEvent.COMPLETE, TABLE)
    _show(after, home, definition)
    return 1 if after.items else 0


def _counts(scan: SweepScan) -> str:
    everything = {sweep_run.name(key) for sweep_run in scan.sweep_runs for key in sweep_run.owners}
    counts = f"{len(scan.sweep_runs)} settings, {len(everything)} units, shared units counted once:"
    counts += f" {len(scan.complete)} complete, {len(scan.items)} to run"
    return counts + (f", {len(scan.active)} in the queue or running" if scan.active else "")


def _notes(definition: Sweep) -> list[str]:
    """Say what `tune` waits for."""
    if definition.reported_images is None or any(REPORTED in setting for setting in definition.settings.values()):
        return []
    when = "once all settings are complete, the same command evaluates the best one of every arm on other samples"
    return [f"note: {when}; remove a setting that cannot succeed from {definition.file}"]


def _show(scan: SweepScan, home: RunDir, definition: Sweep) -> int:
    """Write and print the table of the complete settings; return 0."""
    if scan.items:
        echo(_counts(scan))
    elif scan.active:
        echo(f"{len(scan.active)} units are in the queue or running; nothing new to submit")
    elif scan.not_requested:
        echo(f"all requested units are complete; {len(scan.not_requested)} units were not requested")
    elif scan.absent:
        echo("everything that belongs to this site is complete; nothing to submit")
    else:
        echo(f"everything is complete ({len(scan.sweep_runs)} settings); nothing to submit")
    if home.root.is_dir():
        print_sweep_table(publish(home, scan.index, scan.blockers))
        written = [path for path in (home.root / CSV, home.root / PLOT) if path.exists()]
        echo(f"table    {', '.join(map(str, written))}")
    replaced = [label for label in scan.index.left_out if REPORTED in scan.index.settings[label]]
    if removed := [label for label in scan.index.left_out if label not in replaced]:
        echo(f"left out, for the file names them no more: {', '.join(removed)}")
    if replaced:
        echo(f"not chosen, or not yet again: {', '.join(replaced)}")
    if scan.items or scan.active or scan.not_requested or scan.absent:
        echo(*_notes(definition))
    return 0
