"""The verb wait: waits until a run or a sweep is complete, or until nothing more goes on by itself."""

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from hpcddm.commands.options import RUN
from hpcddm.commands.overview import Queue, scan_run
from hpcddm.commands.status import summary
from hpcddm.commands.typed import step_again
from hpcddm.errors import exit_codes
from hpcddm.errors.next_step import NextStep, step
from hpcddm.errors.printing import MOST_OF_A_LINE, echo, printable
from hpcddm.evaluation.sweep_results.table import states_by_files
from hpcddm.runs.layout import RunDir
from hpcddm.runs.stored_experiment import is_sweep
from hpcddm.runs.sweep_index import read_index

READ_SECONDS = 5
QUERY_SECONDS = 30
"""Least time in seconds between two queries to the scheduler, which serves all users."""
FINAL_CODES = (exit_codes.DONE, exit_codes.NEEDS_ACTION)


@dataclass(frozen=True)
class Finding:
    """Observation of a run or a sweep: exit code, one line for people, next command."""

    code: int
    line: str
    next: NextStep


@click.command()
@RUN
@click.option("--timeout", type=click.FloatRange(min=0), metavar="MINUTES", help="Default: for ever.")
def wait(root: Path, timeout: float | None) -> int:
    """Wait until RUN is complete, or needs the user.

    RUN may also be the folder of a sweep. One that was submitted with --until is complete when that stage is. The user
    is needed when nothing more goes on by itself.

    \b
    Exit codes: 0 complete; 3 not complete, and the user has to act; with --timeout also 5 (jobs still wait or run)
    and 4 (the scheduler does not answer). Ctrl-C (130) leaves the jobs alone.
    Example: hpcddm submit fashion_mnist --site my-cluster && hpcddm wait runs/fashion_mnist && ./next.sh
    Next:    after code 3: hpcddm status runs/fashion_mnist
    """
    return wait_for(root, timeout)


def wait_for(root: Path, timeout: float | None) -> int:
    """Wait until the run is complete or needs the user, or until `timeout` minutes are over; return the exit code.

    Raises `ConfigError` when the folder holds neither a run nor a sweep.
    """
    run = RunDir(root)
    observe = _observe_sweep if is_sweep(run) else _observe_run
    ends = None if timeout is None else time.monotonic() + 60 * timeout
    try:
        finding = _wait(run, observe, ends)
    except KeyboardInterrupt:
        echo("", step("hpcddm", "wait", root, reason="no longer waiting; jobs in a queue go on"), err=True)
        return exit_codes.INTERRUPTED
    if finding.code != exit_codes.DONE:
        first, *others = finding.next.lines()
        echo(f"{_reason(finding.code)}; {first}", *others, err=True)
    return finding.code


def _reason(code: int) -> str:
    return {
        exit_codes.NEEDS_ACTION: "not complete, and nothing goes on by itself",
        exit_codes.SILENT: "the time is over and the scheduler does not answer",
        exit_codes.UNDER_WAY: "the time is over and jobs wait or run",
    }[code]


def _wait(run: RunDir, observe: Callable[[RunDir, Queue], Finding], ends: float | None) -> Finding:
    shown, before = "", None
    queue = Queue.query(run)
    while True:
        finding = observe(run, queue)
        shown = _show(finding.line, shown)
        # Between two jobs of one unit there is a moment without any: only two looks, each at a new queue, settle it.
        is_settled = finding.code == exit_codes.DONE or (before is not None and before.code == finding.code)
        is_over = ends is not None and time.monotonic() >= ends
        if is_over or (finding.code in FINAL_CODES and is_settled):
            if sys.stdout.isatty():
                echo()
            return finding
        before = finding
        patience = READ_SECONDS * random.uniform(1.0, 1.2)
        time.sleep(patience if ends is None else max(0.0, min(patience, ends - time.monotonic())))
        if finding.code in FINAL_CODES or time.time() - queue.queried_at > QUERY_SECONDS:
            queue = Queue.query(run)


def _observe_run(run: RunDir, queue: Queue) -> Finding:
    overview = scan_run(run, queue)
    return Finding(overview.exit_code, summary(overview), overview.next_step())


def _observe_sweep(home: RunDir, queue: Queue) -> Finding:
    index = read_index(home)
    missing = states_by_files(index, home)
    total = len(index.current)
    line = f"sweep {home.root}: {total - len(missing)} of {total} settings complete"
    running = sum(job.state == "running" for job in (queue.jobs or {}).values())
    line += f", {len(queue.jobs)} units in the queue, {running} of them running" if queue.jobs else ""
    if not missing:
        return Finding(exit_codes.DONE, line, NextStep())
    if queue.jobs is None:
        return Finding(exit_codes.SILENT, line, step("hpcddm", "wait", home.root, reason="when the scheduler answers"))
    # Of a sweep on this machine the units' own files tell.
    is_alive = queue.jobs or any(word.endswith(" running") for word in missing.values())
    code = exit_codes.UNDER_WAY if is_alive else exit_codes.NEEDS_ACTION
    if is_alive:
        return Finding(code, line, step("hpcddm", "wait", home.root))
    label, text = next(iter(missing.items()))
    following = step_again(home, "when that is mended")
    return Finding(code, line, step("hpcddm", "status", home.root / label, reason=f"{label}: {text}", then=following))


def _show(line: str, shown: str) -> str:
    """Print a line in the place of the last one on a terminal, elsewhere only where it is news; return it."""
    if sys.stdout.isatty():
        click.echo(f"\r\033[K{time.strftime('%H:%M:%S')}  {printable(line, MOST_OF_A_LINE)}", nl=False)
    elif line != shown:
        echo(line)
    return line
