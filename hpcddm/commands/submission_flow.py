"""Steps that the verbs submit and sweep share: launcher, checks, lock, and units that go to a queue or run here."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from hpcddm.config.site import Site
from hpcddm.errors.next_step import step
from hpcddm.errors.printing import echo
from hpcddm.jobs.outcome import HookEvent
from hpcddm.launch import continuation
from hpcddm.launch.array_items import ArrayItem, call_hook, group_into_arrays, make_array_spec
from hpcddm.launch.base import DirectLauncher, Job, Launcher, QueueFull, QueueLauncher, create_launcher
from hpcddm.launch.checks.other_schedulers import check_other_schedulers
from hpcddm.launch.continuation import RemainingUnits
from hpcddm.launch.run_folder import check_folder, make_folder
from hpcddm.launch.script_template import stored_part_path
from hpcddm.launch.slurm.early_failures import blame_nodes
from hpcddm.launch.submission import reconcile_journal
from hpcddm.loading.load_sweep import Sweep
from hpcddm.pipeline.state import QUEUED, State
from hpcddm.runs.journal import Journal
from hpcddm.runs.lease import PATIENCE_SECONDS, lease
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CONTINUATION


def make_launcher(site: Site, home: RunDir, parts: Mapping[str, str] | None) -> QueueLauncher | DirectLauncher:
    """Make the launcher of a submission; print a note where the template here is another one than that which it uses.

    parts: of the template with which the run was submitted; None for the user's.
    """
    launcher = create_launcher(site, home)
    if parts is None:
        return launcher
    here, launcher.template_parts = launcher.template_parts, dict(parts)
    for part in sorted({*here, *parts}):
        if here.get(part) != parts.get(part):
            kept = stored_part_path(home, part) if part in parts else "the package's"
            other = f"; {part} here is another one, which hpcddm submit would take" if part in here else ""
            echo(f"note: the batch script follows {kept}, as submitted{other}")
    return launcher


def check_submission(items: Sequence[ArrayItem], home: RunDir, launcher: Launcher, is_dry_run: bool) -> None:
    """Raise `UserError` or `ConfigError` for units that cannot be submitted to this site, or from this machine."""
    check_schedulers(items, home, launcher)
    check_folder(home)
    if not is_dry_run:
        launcher.check([make_array_spec(group[:1], launcher.site) for group in group_into_arrays(items, launcher.site)])


def check_schedulers(items: Sequence[ArrayItem], home: RunDir, launcher: Launcher) -> None:
    """Refuse units that another scheduler may be running."""
    check_other_schedulers(Journal(home.journal).submissions(), home, launcher, {item.name for item in items})


@contextmanager
def submission_lock(verb: str, home: RunDir, launcher: Launcher) -> Iterator[None]:
    """Make the folder of a run or a sweep, and hold its lock, with a journal that knows what is in the queue."""
    make_folder(home)
    with lease(home.lock, f"hpcddm {verb}", PATIENCE_SECONDS if isinstance(launcher, QueueLauncher) else 0):
        reconcile_journal(home, launcher)
        yield


def is_cancelled(rest: RemainingUnits | None, home: RunDir) -> bool:
    """Tell if the submission that is to be continued was cancelled while this waited for the lock; then print it."""
    if rest is None or continuation.read_remaining(home) is not None:
        return False
    echo("cancelled meanwhile; nothing more is submitted")
    return True


def run_items(
    items: list[ArrayItem], home: RunDir, launcher: DirectLauncher, num_complete: int, absent: Collection[str]
) -> bool:
    """Run items on this machine, and print which fail; tell if some do.

    num_complete: number of units that are complete already; absent: names of units that nobody makes here.
    """
    from hpcddm.launch.local.driver import EmbeddedDriver

    failed = EmbeddedDriver(items, home, launcher, num_complete, absent).drive()
    unit_of = {item.name: item for item in items}
    for name, reason in failed.items():
        item = unit_of[name]
        echo(step("hpcddm", "logs", item.run.root, item.unit.key, reason=f"error: {name}: {reason}"), err=True)
        call_hook(launcher.site, home, HookEvent.STOPPED, name, reason)
    return bool(failed)


def submit_arrays(
    items: Sequence[ArrayItem],
    home: RunDir,
    launcher: QueueLauncher,
    active: Mapping[str, Job],
    only: Collection[str] | None = None,
    sweep: Sweep | None = None,
    until: str | None = None,
) -> None:
    """Submit as many items as the queue takes, print every array, and leave the rest to a job that continues.

    only: units to which the submission was restricted, None for all; sweep: None for a single run; until: the last
    stage of the submission, None for all.
    """
    from hpcddm.launch.queue import plan_arrays, submit_planned

    echo(*blame_nodes(items, home, launcher.site.max_excluded_nodes))
    planned_arrays, limit = plan_arrays(items, home, launcher, keeps_place=_needs_place(launcher, active))
    launcher.check_shared_folder([make_array_spec(planned.items, launcher.site) for planned in planned_arrays])
    jobs: dict[str, Job] = {}
    try:
        for array in submit_planned(planned_arrays, home, launcher, active):
            jobs |= {name: Job(array.job, State.PENDING) for name in array.keys}
            after = f"  after {', '.join(array.after)}" if array.after else ""
            if array.begin_seconds:
                after = f"  looks in {array.begin_seconds} s for what another cluster makes"
            last = len(array.keys) - 1
            names = array.keys[0] if last == 0 else f"{array.keys[0]} ... {array.keys[-1]}"
            echo(f"job {array.job.range(last)}  {names}{after}")
    except QueueFull as full:
        limit = str(full)
    if remaining := [item.name for item in items if item.name not in jobs]:
        echo(f"{len(remaining)} units remain, for the queue takes no more of your jobs now ({limit})")
    sweep_file, base_file = (None, None) if sweep is None else (str(sweep.file.resolve()), str(sweep.base.resolve()))
    rest = RemainingUnits(launcher.site.name, remaining, sweep_file, base_file, until)
    if message := continuation.schedule_remaining(rest, items, only, home, launcher, {**active, **jobs}):
        echo(message)


def _needs_place(launcher: Launcher, active: Mapping[str, Job]) -> bool:
    """Tell if a place in the queue must be kept free for a job that continues."""
    waiting = active.get(CONTINUATION)
    return launcher.site.continue_submission and not (waiting and waiting.state in QUEUED)


def show_scripts(items: Sequence[ArrayItem], home: RunDir, launcher: Launcher, active: Mapping[str, Job]) -> None:
    """Write the scripts that `submit_arrays` would submit, and print each; without a queue print the units."""
    if not isinstance(launcher, QueueLauncher):
        echo("would run here: " + " ".join(item.name for item in items))
        return
    from hpcddm.launch.queue import plan_arrays, submit_planned

    planned_arrays, limit = plan_arrays(items, home, launcher, keeps_place=_needs_place(launcher, active))
    for array in submit_planned(planned_arrays, home, launcher, active, is_dry_run=True):
        waits = f"   waits for {', '.join(array.waits_for)}" if array.waits_for else ""
        echo(f"job {array.name}-TOKEN{waits}", f"would submit {home.scripts / array.script}: {', '.join(array.keys)}")
    if num_remaining := len(items) - sum(len(planned.items) for planned in planned_arrays):
        echo(f"{num_remaining} units would remain ({limit})")
