"""The verb run-unit: runs one unit on this machine."""

import time

import click

from hpcddm.commands.options import RUN, matching_unit
from hpcddm.config.experiment import Experiment
from hpcddm.config.site import Resources, Site
from hpcddm.errors import ConfigError, UserError
from hpcddm.errors.next_step import step
from hpcddm.jobs.activity import read_activity
from hpcddm.launch.array_items import make_array_spec, make_items, submit_unit
from hpcddm.launch.checks.other_schedulers import check_other_schedulers
from hpcddm.launch.checks.preflight import check_snapshots, check_state
from hpcddm.launch.journal_dirs import submissions_of
from hpcddm.launch.local.launcher import LocalLauncher
from hpcddm.pipeline.state import State
from hpcddm.pipeline.unit_graph import STAGES, batch_size, is_collective, plan_units
from hpcddm.pipeline.unit_states import survey_units
from hpcddm.runs import group_permissions
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment


@click.command("run-unit")
@RUN
@click.argument("key", metavar="STAGE/UNIT")
@click.option("--ranks", type=click.IntRange(min=1), default=1, show_default=True, help="Processes of the unit.")
def run_unit(run: RunDir, key: str, ranks: int) -> int:
    """Run one unit of RUN here, without any scheduler.

    \b
    Example: hpcddm run-unit runs/quickstart train/expert-02 --ranks 2
    Next:    hpcddm logs runs/quickstart train/expert-02
    """
    group_permissions.prepare_writes(run.root)
    experiment = stored_experiment(run)
    units = {unit.key: unit for unit in plan_units(experiment)}
    key = matching_unit(run.root, key, list(units))
    _check_ranks(experiment, key, ranks)
    site = Site(name="here", scheduler="local", resources=Resources(ranks_per_node=ranks))
    check_state(units[key], run)
    check_snapshots(experiment, units[key], run)
    launcher = LocalLauncher(site, run)
    check_other_schedulers(submissions_of(run), run, launcher, [key])
    launcher.check([make_array_spec(make_items([units[key]], experiment, run), site)])
    job = submit_unit(units[key], experiment, run, launcher)
    try:
        while launcher.is_running(job):
            time.sleep(0.1)
    except KeyboardInterrupt:
        launcher.cancel(job)
        raise
    if survey_units(list(units.values()), run)[key].state is State.COMPLETE:
        print(f"{key} is complete")
        return 0
    last = read_activity(run, key)
    reason = f": {last.reason}" if last.reason else ""
    raise UserError(str(step("hpcddm", "logs", run.root, key, reason=f"{key} {last.outcome or 'died'}{reason}")))


def _check_ranks(experiment: Experiment, key: str, ranks: int) -> None:
    """Refuse ranks that the stage cannot use, or that do not divide the batch evenly."""
    if ranks > 1 and not is_collective(key):
        shared = ", ".join(stage.name for stage in STAGES.values() if stage.is_collective)
        raise ConfigError(f"--ranks {ranks}: {key} is the work of one rank; more share {shared}")
    batch = batch_size(experiment, key)
    if batch % ranks:
        raise ConfigError(f"--ranks {ranks}: {ranks} ranks cannot share the batch of {batch} of {key} evenly")
