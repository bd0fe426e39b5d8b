"""The verb status: prints every unit's state and progress, and the next command."""

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hpcddm.commands.options import JSON, RUN
from hpcddm.commands.run_status import QueueAnswer, RunStatus, scan_run
from hpcddm.commands.submit_messages import clusters_line, data_lines, metric_lines
from hpcddm.commands.terminal import WITHOUT_LINES, make_table, plain_text, print_table
from hpcddm.commands.unit_rows import UnitRow
from hpcddm.config.class_names import are_numbers, describe_names
from hpcddm.errors import ExitCode
from hpcddm.errors.next_step import without_step
from hpcddm.errors.printing import echo
from hpcddm.launch.journal_dirs import journal_dirs
from hpcddm.launch.local.progress import format_duration
from hpcddm.pipeline.state import State
from hpcddm.runs import group_permissions
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CLUSTER_REPORT, REPORT

NAMED_UNITS = 3
STYLES = {
    **{State.COMPLETE: "green", State.RUNNING: "cyan"},
    **dict.fromkeys((State.FAILED, State.GAVE_UP, State.DAMAGED), "red"),
    **dict.fromkeys((State.STALE, State.HELD, State.SUSPENDED, State.UNKNOWN), "yellow"),
}


@click.command()
@RUN
@JSON
@click.option(
    "--exit-code",
    "has_code",
    is_flag=True,
    help="0 complete, 3 needs the user, 4 no answer from the scheduler, 5 under way.",
)
def status(run: RunDir, as_json: bool, has_code: bool) -> int:
    """Show the state of every unit of RUN, and the next command.

    A manifest counts first, then the queue, then the unit's own files, so it also works without a scheduler.

    \b
    Example: hpcddm status runs/fashion_mnist
    Next:    the last line names the command
    """
    overview = scan_run(run, QueueAnswer.query(run))
    if as_json:
        print(json.dumps(overview.as_json(), indent=1, allow_nan=False))
        return overview.exit_code if has_code else ExitCode.DONE
    echo(*filter(None, (summary(overview), outlook(overview))))
    print_table(table(overview.rows), labels=2)
    console = Console()
    for remark in remarks(overview.rows):
        # Whole lines: a reason that is cut cannot be searched for, and a command that is cut cannot be pasted.
        console.print(remark, soft_wrap=True)
    passed_over = [fault for home in journal_dirs(run) for fault in Journal(home.journal).line_errors()]
    echo(*passed_over, *closing_lines(overview))
    return overview.exit_code if has_code else ExitCode.DONE


def closing_lines(overview: RunStatus) -> list[str]:
    """List the classes, what was left out, the page about the clusters before the report, and the next command."""
    complete = {row.unit for row in overview.rows if row.state == State.COMPLETE}
    page = [clusters_line(overview.run)] if CLUSTER_REPORT in complete and REPORT not in complete else []
    classes = [] if are_numbers(overview.class_names) else [describe_names(overview.class_names)]
    lines = (*data_lines(overview.run, complete), *metric_lines(overview.run, complete))
    return [*classes, *lines, *page, *overview.next_step().lines()]


def summary(overview: RunStatus) -> str:
    """Count the units by state, on one line."""
    parts = [f"run {overview.run.root}: {overview.count(State.COMPLETE)} of {len(overview.rows)} units complete"]
    states = dict.fromkeys(row.state for row in overview.rows if row.state not in (State.COMPLETE, State.MISSING))
    parts += [f"{overview.count(state)} {state}" for state in states]
    parts += [f"all up to {overview.until}, the last requested stage"] * overview.is_stopped_at_stage
    return ", ".join(parts)


def outlook(overview: RunStatus) -> str:
    """Describe the experts' progress and the time left, on one line; empty when both are unknown."""
    parts = []
    done, total = overview.expert_images
    if 0 < done < total:
        parts.append(f"experts {done / total:.1%} ({done:,} of {total:,} images)")
    if overview.seconds_left is not None:
        running = (State.COMPLETE, State.RUNNING, State.STOPPING)
        at_least = "at least " if any(row.state not in running for row in overview.rows) else ""
        parts.append(f"{at_least}{format_duration(overview.seconds_left)} left")
    if overview.is_continued:
        parts.append("a job submits the missing units when there is room in the queue")
    if overview.is_scheduler_unreachable:
        parts.append("the scheduler does not answer: states are from the run's own files")
    return ", ".join(parts)


def table(rows: list[UnitRow]) -> Table:
    """Build a table with one line for each unit, and the columns in which some unit has an entry."""
    cells = [_cells(row) for row in rows]
    named = {name for row_cells in cells for name, cell in row_cells.items() if cell} | {"unit", "state"}
    if len({row.cluster for row in rows}) < 2:
        named.discard("cluster")
    names = [name for name in (cells[0] if cells else ("unit", "state")) if name in named]
    styled = (
        [plain_text(row_cells[name], style=STYLES.get(row.state, "") if name == "state" else "") for name in names]
        for row, row_cells in zip(rows, cells, strict=True)
    )
    return make_table(names, styled, ("unit", "state", "cluster", "node", "by"), **WITHOUT_LINES)


def _cells(row: UnitRow) -> dict[str, str]:
    """Format a row by column; `saved` is the age of the newest training state.

    `wait` is the share of the time in which rank 0 waited for data, `GiB` its peak memory.
    """
    is_open = row.state != State.COMPLETE
    saved = row.saved_seconds if is_open else None
    rate = row.rate if row.images_per_second is None else row.images_per_second
    return {
        "unit": row.unit,
        "state": row.state,
        "try": str(row.attempts or ""),
        "cluster": row.cluster or "",
        "node": row.where,
        "images": f"{row.done:,}/{row.total:,}" if row.total and is_open else "",
        "step": f"{row.step or 0:,}/{row.steps:,}" if row.steps and is_open else "",
        "loss": (f"{row.loss:.4f}" if row.loss is not None else "") + (f" ({row.skipped} skipped)" * bool(row.skipped)),
        "img/s": "" if rate is None else f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}",
        "wait": "" if row.data_wait is None else f"{row.data_wait:.1%}",
        "TFLOP/s": "" if row.tflops is None else f"{row.tflops:.3g}",
        "GiB": "" if row.memory_gib is None else f"{row.memory_gib:.3g}",
        "left": "" if row.seconds_left is None else format_duration(row.seconds_left),
        "saved": "" if saved is None else format_duration(saved),
        "by": row.user if row.user != group_permissions.current_user() and is_open else "",
    }


def remarks(rows: list[UnitRow]) -> list[Text]:
    """List reasons, next commands, faulty nodes and changed code of units; units with the same ones share a line."""
    following = {row.unit: str(row.next) for row in rows}
    steps = _units_by(
        ((row.state, row.reason, following[row.unit]), row.unit)
        for row in rows
        if row.reason or (following[row.unit] and row.state != State.MISSING)
    )
    lines = []
    for (state, reason, advice), units in steps.items():
        reason = without_step(reason) if advice else reason
        state_text = reason if reason.startswith(state) else f"{state}, {reason}" if reason else state
        hint = f"; {advice}" if advice else ""
        lines.append(plain_text(f"{units}: {state_text}{hint}", style=STYLES.get(state, "")))
    for (node, reason), units in _units_by((one, row.unit) for row in rows for one in row.faulty_nodes.items()).items():
        lines.append(plain_text(f"node {node} is to blame for an attempt at {units}: {reason}", style="yellow"))
    for changes, units in _units_by(("; ".join(row.changes), row.unit) for row in rows if row.changes).items():
        lines.append(plain_text(f"{units}: other code or packages {changes}"))
    return lines


def _units_by(pairs: Iterable[tuple[Any, str]]) -> dict[Any, str]:
    """Name the units that have something in common: the first names, with the number of further ones."""
    units_of = defaultdict[Any, list[str]](list)
    for shared, unit in pairs:
        units_of[shared].append(unit)
    rest = {shared: len(units) - NAMED_UNITS for shared, units in units_of.items()}
    return {
        shared: ", ".join(units[:NAMED_UNITS]) + (f" and {rest[shared]} more" if rest[shared] > 0 else "")
        for shared, units in units_of.items()
    }
