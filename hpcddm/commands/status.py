"""The verb status: every unit's state, from the files of the run first, then from the scheduler."""

import json
import math
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hpcddm.config import Site
from hpcddm.errors import ConfigError
from hpcddm.files import stored_experiment
from hpcddm.launch.base import Job, launcher_of
from hpcddm.pipeline import plan
from hpcddm.rundir.journal import Journal, Submission
from hpcddm.rundir.layout import RunDir
from hpcddm.status import Activity, State, UnitStatus, activity, check_stale, survey

UNKNOWN = "unknown"
STARTING_SECONDS = 30
READABLE_COLUMNS = 140
"""The least width of the table in a file or a pipe, where nobody can widen a window."""


def status(root: Path, as_json: bool) -> None:
    """Print the state of every unit and what to type next."""
    run = RunDir(root)
    rows = collect(run)
    if as_json:
        print(json.dumps({"run": str(root), "units": [_finite(row) for row in rows]}, indent=1, allow_nan=False))
        return
    # Text, because paths and reasons may hold what reads as markup in a plain string.
    table = Table(title=Text(f"run {root}"), title_justify="left")
    for name in ("unit", "state", "images", "loss", "tries"):
        table.add_column(name, no_wrap=True, justify="left" if name in ("unit", "state") else "right")
    table.add_column("where and why", overflow="fold")
    for row in rows:
        images = f"{row['done']:,} of {row['total']:,}" if row["total"] and row["state"] != State.COMPLETE else ""
        loss = f"{row['loss']:.4f}" if row["loss"] is not None else ""
        remark = "  ".join(word for word in (row["where"], row["reason"]) if word)
        cells = (row["unit"], row["state"], images, loss, str(row["attempts"] or ""), remark)
        table.add_row(*map(Text, cells))
    console = Console()
    Console(width=console.width if console.is_terminal else max(console.width, READABLE_COLUMNS)).print(table)
    print(_refusal(run) or _next_step(rows, root))


def collect(run: RunDir) -> list[dict[str, Any]]:
    """One dictionary per unit: unit, state, site, done, total, rate, loss, attempts, where, reason."""
    units = plan(stored_experiment(run))
    submissions = Journal(run.journal).submissions()
    # The queue first: what has left it by then has its manifest by the time that the manifests are read.
    jobs = _jobs(run, submissions)
    states = survey(units, run)
    return [_row(states[unit.key], activity(run, unit.key), jobs, submissions) for unit in units]


def _row(
    status: UnitStatus, work: Activity, jobs: dict[str, Job | None], submissions: list[Submission]
) -> dict[str, Any]:
    beat = work.beat if work.attempts else None
    state, reason = _state(status, work, jobs, submissions)
    job = jobs.get(status.key)
    return {
        "unit": status.key,
        "state": state,
        "site": status.unit.site,
        "done": beat.done if beat else 0,
        "total": beat.total if beat else 0,
        "rate": round(beat.rate, 1) if beat else 0.0,
        "loss": (beat.figures or {}).get("loss") if beat else None,
        "attempts": work.attempts,
        "where": job.detail if job else (beat.host if beat and state == "running" else ""),
        "reason": reason,
    }


def _state(
    status: UnitStatus, work: Activity, jobs: dict[str, Job | None], submissions: list[Submission]
) -> tuple[str, str]:
    """The truth in this order: manifest, the scheduler's queue, the unit's own files. Unknown is never success."""
    if status.state in (State.COMPLETE, State.STALE):
        return status.state, status.reason
    if status.key in jobs:
        job = jobs[status.key]
        return (job.state, "") if job else (UNKNOWN, "the scheduler does not answer")
    if work.is_running:
        return "running", ""
    if status.unit.site is not None and status.unit.site not in {one.site for one in submissions}:
        misfit = (
            f"; it is here but does not fit: {status.reason}"
            if status.reason and status.state is not State.WAITING
            else ""
        )
        return "elsewhere", f"belongs to site {status.unit.site}{misfit}"
    if status.state is not State.MISSING:
        return status.state, status.reason
    if work.outcome in ("failed", "stopped"):
        return work.outcome, work.reason
    return _unfinished(work, [one.time for one in submissions if status.key in one.units])


def _unfinished(work: Activity, submitted: list[float]) -> tuple[str, str]:
    """A unit without manifest, without a place in the queue and without a last word."""
    if not submitted:
        return State.MISSING, ""
    if time.time() - submitted[-1] < STARTING_SECONDS:
        return "starting", ""
    if work.attempts:
        return UNKNOWN, "its last attempt left no word"
    return UNKNOWN, "it left the queue without a word; 'hpcddm logs' shows what the scheduler kept"


def _jobs(run: RunDir, submissions: list[Submission]) -> dict[str, Job | None]:
    """The units that a queueing scheduler knows; None as value where it was asked and did not answer."""
    found: dict[str, Job | None] = {}
    for scheduler in {one.scheduler for one in submissions} - {"local"}:
        own = [one for one in submissions if one.scheduler == scheduler]
        answer = launcher_of(Site(name=own[-1].site, scheduler=scheduler), run).states(own)
        found |= {key: None for one in own for key in one.units} if answer is None else answer
    return found


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """A row as JSON can hold it: the loss of a training that diverged becomes null."""
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}


def _refusal(run: RunDir) -> str | None:
    """What submit will say about changed settings here, or None when it will go on."""
    sites = {None} | {one.site for one in Journal(run.journal).submissions()}
    states = survey(plan(stored_experiment(run)), run)
    try:
        check_stale([one for one in states.values() if one.unit.site in sites], set())
    except ConfigError as error:
        return f"submit will refuse: {error}"
    return None


def _next_step(rows: list[dict[str, Any]], root: Path) -> str:
    states = {row["state"] for row in rows}
    if states == {State.COMPLETE}:
        return f"complete; look at {root}/report/index.html"
    broken = [row["unit"] for row in rows if row["state"] in ("failed", UNKNOWN)]
    if broken:
        return f"look at: hpcddm logs {root} {broken[0]}   then submit again"
    if states & {"running", "pending", "starting"}:
        return f"under way; look at: hpcddm logs {root} STAGE/UNIT"
    return "submit again to run what is missing"
