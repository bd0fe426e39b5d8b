"""The verb wait: waits until a run or a sweep is complete, or needs the user."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import click

from hpcddm.commands.options import RUN
from hpcddm.commands.run_status import QueueAnswer, jittered, scan_run
from hpcddm.commands.status import summary
from hpcddm.errors import ExitCode
from hpcddm.errors.next_step import NextStep, step
from hpcddm.errors.printing import MAX_LINE_CHARACTERS, echo, printable
from hpcddm.evaluation.sweep_results.setting_results import blockers_by_files
from hpcddm.loading.last_command import resubmit_step
from hpcddm.pipeline.state import ALIVE, State
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import is_sweep
from hpcddm.runs.sweep_index import read_index

READ_SECONDS = 5
REASONS: dict[int, str] = {
    ExitCode.NEEDS_ACTION: "not complete, and nothing goes on by itself",
    ExitCode.SCHEDULER_UNREACHABLE: "the time is over and the scheduler does not answer",
    ExitCode.UNDER_WAY: "the time is over and jobs wait or run",
}
FINAL_CODES = (ExitCode.DONE, ExitCode.NEEDS_ACTION)


@dataclass(frozen=True)
class WaitStatus:
    """Observation of a run or a sweep: exit code, one line for people, next command."""

    code: int
    line: str
    next: NextStep


@click.command()
@RUN
@click.option("--timeout", type=click.FloatRange(min=0), metavar="MINUTES", help="Default: no limit.")
def wait(run: RunDir, timeout: float | None) -> int:
    """Wait until RUN is complete, or needs the user.

    RUN may also be the folder of a sweep. A run submitted with --until is complete when that stage is. It needs the
    user when nothing continues without a command.

    \b
    Exit codes: 0 complete; 3 not complete, and the user has to act; with --timeout also 5 (jobs still wait or run)
    and 4 (the scheduler does not answer). Ctrl-C (130) leaves the jobs alone.
    Example: hpcddm submit fashion_mnist --site my-cluster && hpcddm wait runs/fashion_mnist && ./next.sh
    Next:    after code 3: hpcddm status runs/fashion_mnist
    """
    return wait_for(run, timeout)


def wait_for(run: RunDir, timeout: float | None) -> int:
    """Wait until the run is complete or needs the user, or until `timeout` minutes are over; return the exit code.

    Raises `ConfigError` when the folder holds neither a run nor a sweep.
    """
    observe = _observe_sweep if is_sweep(run) else _observe_run
    ends = None if timeout is None else time.monotonic() + 60 * timeout
    try:
        finding = _wait(run, observe, ends)
    except KeyboardInterrupt:
        echo("", step("hpcddm", "wait", run.root, reason="no longer waiting; jobs in a queue continue"), err=True)
        return ExitCode.INTERRUPTED
    if finding.code != ExitCode.DONE:
        first, *others = finding.next.lines()
        echo(f"{REASONS[finding.code]}; {first}", *others, err=True)
    return finding.code


def _wait(run: RunDir, observe: Callable[[RunDir, QueueAnswer], WaitStatus], ends: float | None) -> WaitStatus:
    shown, before = "", None
    queue = QueueAnswer.query(run)
    while True:
        finding = observe(run, queue)
        shown = _show(finding.line, shown)
        # Between two jobs of one unit there is a moment without any: only two looks, each at a new queue, settle it.
        is_settled = finding.code == ExitCode.DONE or (before is not None and before.code == finding.code)
        if (ends is not None and time.monotonic() >= ends) or (finding.code in FINAL_CODES and is_settled):
            if sys.stdout.isatty():
                echo("")
            return finding
        before = finding
        patience = jittered(READ_SECONDS)
        time.sleep(patience if ends is None else max(0.0, min(patience, ends - time.monotonic())))
        if finding.code in FINAL_CODES or queue.is_old:
            queue = QueueAnswer.query(run)


def _observe_run(run: RunDir, queue: QueueAnswer) -> WaitStatus:
    overview = scan_run(run, queue)
    return WaitStatus(overview.exit_code, summary(overview), overview.next_step())


def _observe_sweep(home: RunDir, queue: QueueAnswer) -> WaitStatus:
    index = read_index(home)
    missing = blockers_by_files(index, home)
    total = len(index.current)
    line = f"sweep {home.root}: {total - len(missing)} of {total} settings complete"
    running = sum(job.state == State.RUNNING for job in (queue.jobs or {}).values())
    line += f", {len(queue.jobs)} units in the queue, {running} of them running" if queue.jobs else ""
    # On this machine the units' own files show the state of a sweep.
    states = {*(job.state for job in (queue.jobs or {}).values()), *(blocker.state for blocker in missing.values())}
    if not missing:
        code, following = ExitCode.DONE, NextStep()
    elif queue.jobs is None:
        code = ExitCode.SCHEDULER_UNREACHABLE
        following = step("hpcddm", "wait", home.root, reason="when the scheduler answers")
    elif states & ALIVE:
        code, following = ExitCode.UNDER_WAY, step("hpcddm", "wait", home.root)
    else:
        label, blocker = next(iter(missing.items()))
        then = resubmit_step(home, "after fixing that")
        code = ExitCode.NEEDS_ACTION
        following = step("hpcddm", "status", home.root / label, reason=f"{label}: {blocker}", then=then)
    return WaitStatus(code, line, following)


def _show(line: str, shown: str) -> str:
    """Print a line in the place of the last one on a terminal, elsewhere only where it is news; return it."""
    if sys.stdout.isatty():
        click.echo(f"\r\033[K{time.strftime('%H:%M:%S')}  {printable(line, MAX_LINE_CHARACTERS)}", nl=False)
    elif line != shown:
        echo(line)
    return line
