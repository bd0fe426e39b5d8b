"""The verb submit: decide, then hand over to the queue, or run here."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import click

from hpcddm.config import Experiment
from hpcddm.errors import ConfigError, UserError
from hpcddm.files import is_sweep, load_experiment, load_site, with_content, within_run
from hpcddm.launch.base import Job, Launcher, QueueFull, launcher_of
from hpcddm.launch.continuation import Rest, leave
from hpcddm.launch.continuation import read as read_rest
from hpcddm.launch.early_ends import early_ends, is_nodes_fault
from hpcddm.launch.ending import end
from hpcddm.launch.hook import call_hook
from hpcddm.launch.items import Item, array_spec, arrays, items_of
from hpcddm.launch.preflight import preflight
from hpcddm.launch.schedulers import check_other_schedulers
from hpcddm.launch.snapshot import Checkout
from hpcddm.launch.submission import (
    Decision,
    check_experiment,
    check_folder,
    decide,
    settle,
    store_experiment,
    store_site,
)
from hpcddm.launch.template import store_parts, stored_part, stored_parts
from hpcddm.pipeline import CONTINUATION, REPORT, STAGE_NAMES
from hpcddm.rundir import manifest, sharing
from hpcddm.rundir.journal import Journal
from hpcddm.rundir.layout import RunDir, set_aside
from hpcddm.rundir.lease import lease
from hpcddm.runtime.records import records
from hpcddm.site import Site
from hpcddm.sweep.settings import Sweep

PATIENCE_SECONDS = 60
"""How long one submit waits for another of the same run."""
SIGNS_IN_PATHS = {"%": "Slurm", ":": "Python, which finds the run's code by PYTHONPATH"}
"""Signs that the path of a run must not hold, and who would take them for something else."""


def submit(
    name: str,
    overrides: tuple[str, ...],
    site_name: str,
    run_dir: Path | None,
    redo: tuple[str, ...],
    dry_run: bool,
    live: bool = False,
    and_wait: bool = False,
) -> int:
    """Submit what is missing, and wait for it where asked to; return the exit code.

    live: jobs run the checkout itself, and no snapshot of it.
    """
    if dry_run and and_wait:
        raise ConfigError("--wait: nothing is submitted with --dry-run; leave one of them out")
    unknown = set(redo) - set(STAGE_NAMES)
    if unknown:
        raise ConfigError(f"--redo {min(unknown)}: unknown stage; valid: {', '.join(STAGE_NAMES)}")
    experiment, site = load_experiment(name, overrides), load_site(site_name)
    run = RunDir(run_dir or Path("runs") / experiment.name)
    if is_sweep(RunDir(run.root.resolve().parent)):
        raise ConfigError(f"--run-dir {run.root}: a setting of a sweep; the same hpcddm sweep submits what is missing")
    if is_sweep(run):
        raise ConfigError(f"--run-dir {run.root}: a sweep lies there; take another folder")
    experiment = with_content(experiment, run)
    code = bring(experiment, site, run, redo=redo, dry_run=dry_run, live=live)
    if code or not and_wait:
        return code
    from hpcddm.commands.wait import wait

    return wait(run.root, None)


def bring(
    experiment: Experiment,
    site: Site,
    run: RunDir,
    redo: Collection[str] = (),
    only: Collection[str] | None = None,
    dry_run: bool = False,
    live: bool = False,
    as_submitted: bool = False,
    rest: Rest | None = None,
) -> int:
    """Decide what is to run of an experiment whose images lie where it says, and submit it; return the exit code.

    as_submitted: the batch script follows the template with which the run was last submitted.
    rest: what an earlier submission left out, where this one continues it.
    """
    launcher = launcher_of(site, run)
    if as_submitted:
        follow_stored_template(launcher, run)
    if live:
        launcher.code = Checkout()
    decision = decide(experiment, run, launcher, redo, only)
    if not decision.to_run:
        _say_nothing_to_do(decision, run)
        return 0
    _check_schedulers(decision, run, launcher)
    check_experiment(experiment, site, decision)
    _check_prompts(experiment, decision)
    check_folder(run)
    if not dry_run:
        groups = arrays(items_of(decision.to_run, experiment, run), site)
        launcher.check([array_spec(group[:1], site) for group in groups])
        preflight(experiment, site, run, decision.to_run)
    make_folder(run)
    is_queue = site.scheduler != "local"
    with lease(run.lock, "hpcddm submit", PATIENCE_SECONDS if is_queue else 0):
        if is_cancelled(rest, run):
            return 0
        settle(run, launcher)
        # Another submit may have been at work between the first look and the lock.
        decision = decide(experiment, run, launcher, redo, only)
        if not decision.to_run:
            _say_nothing_to_do(decision, run)
            return 0
        _check_schedulers(decision, run, launcher)
        experiment = within_run(experiment, run)
        if dry_run:
            return _dry_run(experiment, run, launcher, decision)
        # Before anything is set aside: what belongs to somebody else may be refused.
        end(decision.recalled, Journal(run.journal).submissions(), launcher)
        for key in (unit.key for unit in decision.to_run if unit.stage in redo):
            set_aside(run, key)
        store_experiment(experiment, run)
        store_site(site, run)
        store_parts(run, launcher.template_parts)
        _announce(site, run, decision)
        announce_code(launcher)
        start = _queue if is_queue else _run_here
        return start(experiment, run, launcher, decision, only)


def is_cancelled(rest: Rest | None, home: RunDir) -> bool:
    """Tell, and print, if somebody cancelled the submission that is to be continued while this waited for the lock."""
    if rest is None or read_rest(home) is not None:
        return False
    click.echo("cancelled meanwhile; nothing more is submitted")
    return True


def follow_stored_template(launcher: Launcher, run: RunDir) -> None:
    """Take the template with which the run was submitted, and say so where another one is in the way."""
    here, launcher.template_parts = launcher.template_parts, stored_parts(run)
    for part in sorted({*here, *launcher.template_parts}):
        if here.get(part) != launcher.template_parts.get(part):
            kept = (
                f"{stored_part(run, part)}, as submitted"
                if part in launcher.template_parts
                else "the package's, as submitted"
            )
            other = f"; {part} here is another one, which hpcddm submit would take" if part in here else ""
            click.echo(f"note: the batch script follows {kept}{other}")


def _check_schedulers(decision: Decision, run: RunDir, launcher: Launcher) -> None:
    check_other_schedulers(Journal(run.journal).submissions(), run, launcher, {unit.key for unit in decision.to_run})


def _check_prompts(experiment: Experiment, decision: Decision) -> None:
    """Encode the prompts once here where somebody will need them: K jobs would find a long one after the data stages.

    Raises `UserError` naming the prompt, or the weights that are to be fetched.
    """
    if experiment.data.text is not None and {unit.stage for unit in decision.to_run} & {"train", "distill", "route"}:
        from hpcddm.encoders.texts import prompt_states

        prompt_states(experiment.data.text)


def make_folder(run: RunDir) -> None:
    """Make the folder of a run; raises `ConfigError` when that cannot be, or when a sign in its name has a meaning."""
    for sign, who in SIGNS_IN_PATHS.items():
        if sign in str(run.root.resolve()):
            raise ConfigError(f"--run-dir {run.root}: '{sign}' in a path means something to {who}; take another name")
    sharing.follow(run.root)
    try:
        run.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--run-dir {run.root}: cannot be made ({error.strerror})") from None


def _run_here(
    experiment: Experiment, run: RunDir, launcher: Launcher, decision: Decision, only: Collection[str] | None
) -> int:
    from hpcddm.launch.embedded import Embedded

    items = items_of(decision.to_run, experiment, run)
    absent = {*decision.elsewhere, *decision.blocked}
    failed = Embedded(items, run, launcher, len(decision.complete), absent).drive()
    for key, reason in failed.items():
        click.echo(f"error: {key}: {reason}; its log: hpcddm logs {run.root} {key}", err=True)
        call_hook(launcher.site, run, "stopped", key, reason)
    if failed:
        click.echo("after mending, the same command continues", err=True)
        return 1
    left = decide(experiment, run, launcher, only=only)
    if left.to_run:
        raise UserError(f"not complete: {', '.join(unit.key for unit in left.to_run)}; the same command continues")
    if REPORT in left.complete:
        call_hook(launcher.site, run, "complete", REPORT)
    _say_nothing_to_do(left, run)
    return 0


def _queue(
    experiment: Experiment, run: RunDir, launcher: Launcher, decision: Decision, only: Collection[str] | None
) -> int:
    hand_over(items_of(decision.to_run, experiment, run), run, launcher, decision.active, only)
    click.echo(f"scripts  {run.scripts}/\nlogs     {run.root / 'logs'}/")
    click.echo(f"next     hpcddm status {run.root}   hpcddm logs {run.root} STAGE/UNIT")
    return 0


def hand_over(
    items: Sequence[Item],
    home: RunDir,
    launcher: Launcher,
    active: Mapping[str, Job],
    only: Collection[str] | None = None,
    sweep: Sweep | None = None,
) -> None:
    """Submit as many items as the queue takes, tell of every array, and leave the rest to a job that continues.

    only: units that were looked for, where not all of the run or sweep were; sweep: None of a run.
    """
    from hpcddm.launch.queue import batches_of, submit_batches

    _avoid_lost_nodes(items, home, launcher)
    batches, limit = batches_of(items, home, launcher, keeps_place=_needs_place(launcher, active))
    launcher.prove_folder([array_spec(batch.items, launcher.site) for batch in batches])
    jobs: dict[str, Job] = {}
    try:
        for array in submit_batches(batches, home, launcher, active):
            jobs |= {name: Job(array.job, "pending") for name in array.keys}
            after = f"  after {', '.join(array.after)}" if array.after else ""
            if array.begin_seconds:
                after = f"  looks in {array.begin_seconds} s for what another cluster makes"
            last = len(array.keys) - 1
            names = array.keys[0] if last == 0 else f"{array.keys[0]} ... {array.keys[-1]}"
            click.echo(f"job {array.job.range(last)}  {names}{after}")
    except QueueFull as full:
        limit = str(full)
    remaining = [item.name for item in items if item.name not in jobs]
    if remaining:
        click.echo(f"{len(remaining)} units remain, for the queue takes no more of your jobs now ({limit})")
    files = (None, None) if sweep is None else (str(sweep.file.resolve()), str(sweep.base.resolve()))
    rest = Rest(launcher.site.name, remaining, str(Path.cwd()), *files, launcher.code.is_live)
    if words := leave(rest, items, only, home, launcher, {**active, **jobs}):
        click.echo(words)


def _needs_place(launcher: Launcher, active: Mapping[str, Job]) -> bool:
    """Tell if a place in the queue has to be kept for a job that continues."""
    waiting = active.get(CONTINUATION)
    return launcher.site.continue_submission and not (waiting and waiting.state == "pending")


def _avoid_lost_nodes(items: Sequence[Item], home: RunDir, launcher: Launcher) -> None:
    """Tell on which nodes the last jobs of these items ended before Python began, and avoid those that are to blame."""
    journal = Journal(home.journal)
    submissions = journal.submissions()
    newest = {unit: one for one in submissions for unit in one.units}
    idle = [item for item in items if item.name in newest]
    tokens = {item.name: {record.token for record in records(item.run.logs(item.unit.key))} for item in idle}
    vanished = [name for name, begun in tokens.items() if newest[name].uuid not in begun]
    for name, early in early_ends(submissions, vanished).items():
        words = f"{name}: {early.text}"
        if is_nodes_fault(early, name, submissions, home):
            journal.lost(newest[name].uuid, name, early.node)
            most = launcher.site.max_excluded_nodes
            words += f" Jobs avoid it from now on, for a day (max_excluded_nodes: {most})"
        click.echo(words)


def _dry_run(experiment: Experiment, run: RunDir, launcher: Launcher, decision: Decision) -> int:
    if launcher.site.scheduler == "local":
        click.echo("would run here: " + " ".join(unit.key for unit in decision.to_run))
        return 0
    rehearse(items_of(decision.to_run, experiment, run), run, launcher, decision.active)
    return 0


def rehearse(items: Sequence[Item], home: RunDir, launcher: Launcher, active: Mapping[str, Job]) -> None:
    """Write the scripts that `hand_over` would submit, and tell of every one."""
    from hpcddm.launch.queue import batches_of, render_batches

    batches, limit = batches_of(items, home, launcher, keeps_place=_needs_place(launcher, active))
    for array in render_batches(batches, launcher):
        click.echo(f"would submit {home.scripts / array.script}: {', '.join(array.keys)}")
    left = len(items) - sum(len(batch.items) for batch in batches)
    if left:
        click.echo(f"{left} units would remain ({limit})")


def _announce(site: Site, run: RunDir, decision: Decision) -> None:
    counts = f"{len(decision.complete)} units complete, {len(decision.to_run)} to run"
    if decision.active:
        counts += f", {len(decision.active)} in the queue or running"
    click.echo(f"run {run.root}   site {site.name}   {counts}")
    _say_who_else(decision, run)


def announce_code(launcher: Launcher) -> None:
    """Keep the code that jobs will run and say which one it is, and whether it is other than before."""
    code, before = launcher.code.make(), launcher.code.others()
    where = f"{launcher.code.folder}, live: a change there changes what jobs run" if launcher.code.is_live else ""
    click.echo(f"code {code}   {where or f'kept in {launcher.run.code}/'}")
    if before:
        click.echo(f"note: earlier jobs were submitted with other code and keep theirs; the last was {before[0]}")


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
