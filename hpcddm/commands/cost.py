"""The verb cost: GPU-hours and CPU-hours per unit and attempt, wasted ones apart."""

import json
import time
from collections import defaultdict
from dataclasses import asdict, replace

import click
from rich.table import Table

from hpcddm.commands.job_costs import JobCost, list_job_costs, units_with_logs
from hpcddm.commands.options import JSON, RUN
from hpcddm.commands.terminal import WITHOUT_LINES, make_table, plain_text, print_table
from hpcddm.errors.printing import echo
from hpcddm.files import checked_reads
from hpcddm.jobs.attempt_records import read_records
from hpcddm.launch.journal_dirs import submissions_of
from hpcddm.launch.local.progress import format_duration
from hpcddm.launch.slurm.client import SlurmUnavailable
from hpcddm.launch.slurm.sacct import Execution, executions
from hpcddm.runs.links import FINISHED_RUN
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import is_sweep, stored_experiment


@click.command()
@RUN
@click.option("--records", "records_only", is_flag=True, help="From the run's own records, even where sacct answers.")
@JSON
def cost(run: RunDir, records_only: bool, as_json: bool) -> None:
    """Count the GPU-hours and CPU-hours of RUN.

    They are listed per unit and attempt, with the wasted share. The numbers come from sacct, including every execution
    of a requeued job, or else from the run's own records.

    \b
    Example: hpcddm cost runs/fashion_mnist
    Next:    hpcddm clean runs/fashion_mnist   removes files that the run no longer needs
    """
    if not is_sweep(run):
        stored_experiment(run)
    from_sacct, why_not = ([], "--records") if records_only else _query_sacct(run)
    spent = list_job_costs(run, from_sacct)
    if is_sweep(run):
        # Shared units are charged to the setting that submitted them, so the sum counts them once.
        folders = [path.parent for path in sorted(run.root.glob(f"*/{run.experiment.name}"))]
        for folder in (folder for folder in folders if folder.name != FINISHED_RUN):
            costs = list_job_costs(RunDir(folder), from_sacct)
            spent += [replace(job_cost, unit=folder.name) for job_cost in costs]
    source = _source(spent, why_not)
    if as_json:
        rows = [asdict(cost) | {"cpu_hours": cost.cpu_hours, "gpu_hours": cost.gpu_hours} for cost in spent]
        totals = _totals(spent) | {"is_estimate": any(cost.is_estimate for cost in spent)}
        content = {"run": str(run.root), "source": source, "total": totals, "attempts": rows}
        print(json.dumps(content, indent=1, allow_nan=False))
        return
    if spent:
        print_table(_table(spent, "setting" if is_sweep(run) else "unit"), labels=2)
    echo(_total_line(spent), f"source: {source}", *_legend(spent))


def _query_sacct(run: RunDir) -> tuple[list[Execution], str]:
    """Query the run's executions from sacct; return them, and a reason for the case that there are none."""
    submissions = [submission for submission in submissions_of(run) if submission.scheduler == "slurm"]
    attempts = [record for key in units_with_logs(run) for record in read_records(run.logs(key))]
    tried = [(record, name) for record in attempts if (name := record.job_name)]
    # The attempts name their jobs, too: a folder that was copied from another site comes without a journal.
    names: dict[str | None, set[str]] = defaultdict(set)
    for submission in submissions:
        if submission.name:
            names[submission.cluster].add(submission.job_name)
    for record, name in tried:
        names[record.job.cluster if record.job else None].add(name)
    if not names:
        return [], "no job of it went through Slurm"
    if not any(_has_sacct(run, site) for site in {submission.site for submission in submissions} or {""}):
        return [], "the site says has_sacct: false"
    timestamps = [submission.time for submission in submissions]
    timestamps += [record.started for record, _ in tried if record.started]
    try:
        return executions(
            {cluster: sorted(some) for cluster, some in names.items()}, min(timestamps, default=time.time())
        ), "sacct knows nothing of it"
    except SlurmUnavailable as error:
        return [], f"sacct does not answer: {error}"


def _has_sacct(run: RunDir, site: str) -> bool:
    stored = checked_reads.usable(checked_reads.read_mapping, run.site(site)) or {}
    return bool(stored.get("has_sacct", True))


def _source(spent: list[JobCost], why_not: str) -> str:
    if (sources := {job_cost.source for job_cost in spent}) == {"sacct"}:
        return "sacct, all executions of requeued jobs included"
    if "sacct" in sources:
        count = sum(job_cost.source == "records" for job_cost in spent)
        return f"sacct; {count} of {len(spent)} attempts, which it does not know, from the run's own records"
    return f"the run's own records ({why_not})"


def _table(spent: list[JobCost], what: str) -> Table:
    """Build the table of every attempt and the sum of each unit; of a sweep's settings the sums alone."""
    kinds = ["GPU", "CPU"] if any(job_cost.gpus for job_cost in spent) else ["CPU"]
    amounts = [word for kind in kinds for word in (f"{kind}s", f"{kind}-h", "wasted")]
    rows: list[list[object]] = []
    for unit in dict.fromkeys(job_cost.unit for job_cost in spent):
        costs = [job_cost for job_cost in spent if job_cost.unit == unit]
        for job_cost in costs if what == "unit" else []:
            cells = [unit, str(job_cost.attempt or "-"), job_cost.job or "", job_cost.ending, _time([job_cost])]
            rows.append([*cells, *_amounts([job_cost], kinds)])
        if len(costs) > 1 or what != "unit":
            cells = [unit, "all", "", "", _time(costs), *_amounts(costs, kinds)]
            rows.append([plain_text(word, style="bold") for word in cells])
    columns = (what, "try", "job", "ended", "time", *amounts)
    return make_table(columns, rows, (what, "job", "ended"), **WITHOUT_LINES)


def _time(spent: list[JobCost]) -> str:
    mark = "~" if any(job_cost.is_estimate for job_cost in spent) else ""
    return mark + format_duration(sum(job_cost.seconds for job_cost in spent))


def _amounts(spent: list[JobCost], kinds: list[str]) -> list[str]:
    totals, cells = _totals(spent), []
    for kind in (kind.lower() for kind in kinds):
        count = str(getattr(spent[0], f"{kind}s")) if len(spent) == 1 else ""
        cells += [count, _hours(totals[f"{kind}_hours"]), _hours(totals[f"wasted_{kind}_hours"])]
    return cells


def _totals(spent: list[JobCost]) -> dict[str, float]:
    totals = {}
    for key in ("gpu_hours", "cpu_hours"):
        totals[key] = sum(getattr(cost, key) for cost in spent)
        totals[f"wasted_{key}"] = sum(getattr(cost, key) * cost.wasted for cost in spent)
    return totals


def _total_line(spent: list[JobCost]) -> str:
    totals = _totals(spent)
    parts = []
    for kind in ("GPU", "CPU"):
        hours, wasted = totals[f"{kind.lower()}_hours"], totals[f"wasted_{kind.lower()}_hours"]
        share = f" ({wasted / hours:.1%})" if hours else ""
        parts.append(f"{_hours(hours)} {kind}-hours, {_hours(wasted)} of them wasted{share}")
    running = sum(job_cost.ending == "running" for job_cost in spent)
    return f"total: {'; '.join(parts)}" + (f"; {running} attempts still run" if running else "")


def _legend(spent: list[JobCost]) -> list[str]:
    estimate = "~ is an estimate: nobody recorded the end, so it is the last word or sign of life that counts"
    wasted = "wasted: the share of the images that a later attempt made again, and attempts that led to nothing"
    shown = {estimate: any(cost.is_estimate for cost in spent), wasted: any(cost.wasted for cost in spent)}
    return [line for line, is_shown in shown.items() if is_shown]


def _hours(hours: float) -> str:
    return f"{hours:,.2f}" if hours >= 1 or not hours else f"{hours:.4f}"
