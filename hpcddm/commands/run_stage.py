"""The verb run-stage: runs one unit on this machine."""

import time
from pathlib import Path

import click

from hpcddm.commands.naming import unit_named
from hpcddm.commands.options import RUN
from hpcddm.config.experiment import Experiment
from hpcddm.config.site import Resources, Site
from hpcddm.errors import ConfigError, UserError
from hpcddm.errors.next_step import step
from hpcddm.files import inside
from hpcddm.launch.array_items import array_spec, items_of, submit_unit
from hpcddm.launch.checks.other_schedulers import check_other_schedulers
from hpcddm.launch.checks.preflight import check_snapshots, check_state
from hpcddm.launch.journal_dirs import submissions_of
from hpcddm.launch.local.launcher import Local
from hpcddm.pipeline.plan import STAGES, batch_of, is_collective, plan
from hpcddm.pipeline.unit_states import State, activity, survey
from hpcddm.runs import sharing
from hpcddm.runs.layout import RunDir
from hpcddm.runs.stored_experiment import stored_experiment


@click.command("run-stage")
@RUN
@click.argument("key", metavar="STAGE/UNIT")
@click.option("--ranks", type=click.IntRange(min=1), default=1, show_default=True, help="Processes of the unit.")
def run_stage(root: Path, key: str, ranks: int) -> int:
    """Run one unit of RUN here, without any scheduler.

    \b
    Example: hpcddm run-stage runs/quickstart train/expert-02 --ranks 2
    Next:    hpcddm logs runs/quickstart train/expert-02
    """
    run = RunDir(root)
    sharing.follow(root)
    inside.guard(run.root)
    experiment = stored_experiment(run)
    units = {unit.key: unit for unit in plan(experiment)}
    key = unit_named(root, key, list(units))
    _check_ranks(experiment, key, ranks)
    site = Site(name="here", scheduler="local", resources=Resources(ranks_per_node=ranks))
    check_state(units[key], run)
    check_snapshots(experiment, units[key], run)
    launcher = Local(site, run)
    check_other_schedulers(submissions_of(run), run, launcher, [key])
    launcher.check([array_spec(items_of([units[key]], experiment, run), site)])
    job = submit_unit(units[key], experiment, run, launcher)
    try:
        while launcher.is_running(job):
            time.sleep(0.1)
    except KeyboardInterrupt:
        launcher.cancel(job)
        raise
    if survey(list(units.values()), run)[key].state is State.COMPLETE:
        print(f"{key} is complete")
        return 0
    last = activity(run, key)
    reason = f": {last.reason}" if last.reason else ""
    raise UserError(str(step("hpcddm", "logs", root, key, reason=f"{key} {last.outcome or 'died'}{reason}")))


def _check_ranks(experiment: Experiment, key: str, ranks: int) -> None:
    """Refuse ranks that the stage cannot use, or that do not divide the batch evenly."""
    if ranks > 1 and not is_collective(key):
        shared = ", ".join(stage.name for stage in STAGES.values() if stage.is_collective)
        raise ConfigError(f"--ranks {ranks}: {key} is the work of one rank; more share {shared}")
    batch = batch_of(experiment, key)
    if batch % ranks:
        raise ConfigError(f"--ranks {ranks}: {ranks} ranks cannot share the batch of {batch} of {key} evenly")
