"""The verb status: every unit's state, from the files of the run first, then from the scheduler."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hpcddm.files import stored_experiment
from hpcddm.launch.base import Job, launcher_of
from hpcddm.pipeline import plan
from hpcddm.rundir.journal import Journal
from hpcddm.rundir.layout import RunDir
from hpcddm.status import Activity, State, UnitStatus, activity, survey

UNKNOWN = "unknown"


def status(root: Path, as_json: bool) -> None:
    """Print the state of every unit and what to type next."""
    run = RunDir(root)
    rows = collect(run)
    if as_json:
        print(json.dumps({"run": str(root), "units": rows}, indent=1))
        return
    table = Table(title=f"run {root}", title_justify="left")
    for name in ("unit", "state", "images", "loss", "attempts", "where", "why"):
        table.add_column(name, overflow="fold")
    for row in rows:
        images = f"{row['done']:,} of {row['total']:,}" if row["total"] else ""
        loss = f"{row['loss']:.4f}" if row["loss"] is not None else ""
        table.add_row(row["unit"], row["state"], images, loss, str(row["attempts"] or ""), row["where"], row["reason"])
    Console().print(table)
    print(_next_step(rows, root))


def collect(run: RunDir) -> list[dict[str, Any]]:
    """One dictionary per unit: unit, state, site, done, total, rate, loss, attempts, where, reason."""
    units = plan(stored_experiment(run))
    states = survey(units, run)
    here = _sites(run)
    jobs = _jobs(run)
    return [_row(states[unit.key], activity(run, unit.key), jobs, here) for unit in units]


def _row(status: UnitStatus, work: Activity, jobs: dict[str, Job | None], here: set[str]) -> dict[str, Any]:
    beat = work.beat if work.attempts else None
    state, reason = _state(status, work, jobs, here)
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


def _state(status: UnitStatus, work: Activity, jobs: dict[str, Job | None], here: set[str]) -> tuple[str, str]:
    """The truth in this order: manifest, the scheduler's queue, the unit's own files. Unknown is never success."""
    if status.state in (State.COMPLETE, State.STALE):
        return status.state, status.reason
    if status.key in jobs:
        job = jobs[status.key]
        return (job.state, "") if job else (UNKNOWN, "the scheduler does not answer")
    if work.is_running:
        return "running", ""
    if status.unit.site is not None and status.unit.site not in here:
        return "elsewhere", f"belongs to site {status.unit.site}"
    if status.state is State.MISSING and work.outcome in ("failed", "stopped"):
        return work.outcome, work.reason
    if status.state is State.MISSING and work.attempts and work.outcome is None:
        return UNKNOWN, "its last attempt left no word"
    return status.state, status.reason


def _sites(run: RunDir) -> set[str]:
    return {submission.site for submission in Journal(run.journal).submissions()}


def _jobs(run: RunDir) -> dict[str, Job | None]:
    """The units that a queueing scheduler knows; None as value where it was asked and did not answer."""
    submissions = [one for one in Journal(run.journal).submissions() if one.scheduler != "local" and one.job]
    if not submissions:
        return {}
    from hpcddm.config import Site

    found: dict[str, Job | None] = {}
    for scheduler in {one.scheduler for one in submissions}:
        own = [one for one in submissions if one.scheduler == scheduler]
        site = Site(name=own[-1].site, scheduler=scheduler)
        answer = launcher_of(site, run).states({one.job: one.units for one in own})
        if answer is None:
            found |= {key: None for one in own for key in one.units}
        else:
            found |= answer
    return found


def _next_step(rows: list[dict[str, Any]], root: Path) -> str:
    states = {row["state"] for row in rows}
    if states == {State.COMPLETE}:
        return f"complete; look at {root}/report/index.html"
    broken = [row["unit"] for row in rows if row["state"] in ("failed", UNKNOWN)]
    if broken:
        return f"look at: hpcddm logs {root} {broken[0]}   then submit again"
    if states & {"running", "pending"}:
        return f"under way; look at: hpcddm logs {root} STAGE/UNIT"
    return "submit again to run what is missing"
