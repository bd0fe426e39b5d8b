"""The verb cost: GPU-hours and CPU-hours per unit and attempt, wasted ones apart."""

import json
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hpcddm.commands.spending import JobCost, spending, units_with_logs
from hpcddm.commands.status import READABLE_COLUMNS
from hpcddm.launch.accounting import Execution, executions
from hpcddm.launch.client import SlurmUnavailable
from hpcddm.launch.journal_dirs import submissions_of
from hpcddm.launch.progress import duration
from hpcddm.loading import is_sweep, stored_experiment
from hpcddm.rundir import atomic
from hpcddm.rundir.layout import RunDir
from hpcddm.runtime.records import records


def cost(root: Path, own: bool, as_json: bool) -> None:
    """Print what a run cost, or a sweep setting by setting; `own` leaves the scheduler's accounting aside.

    Raises `ConfigError` when the folder holds neither.
    """
    run = RunDir(root)
    if not is_sweep(run):
        stored_experiment(run)
    known, why_not = ([], "--records") if own else _ask(run)
    spent = spending(run, known)
    if is_sweep(run):
        # What several settings share is on the bill of the one that made it, so the sum counts it once.
        settings = [RunDir(path.parent) for path in sorted(root.glob(f"*/{run.experiment.name}"))]
        spent += [
            replace(one, unit=sweep_run.root.name) for sweep_run in settings for one in spending(sweep_run, known)
        ]
    source = _source(spent, why_not)
    if as_json:
        print(json.dumps(_as_json(root, source, spent), indent=1, allow_nan=False))
        return
    console = Console()
    width = console.width if console.is_terminal else max(console.width, READABLE_COLUMNS)
    if spent:
        Console(width=width).print(_table(spent, "setting" if is_sweep(run) else "unit"))
    for line in (_total_line(spent), f"source: {source}", *_legend(spent)):
        console.print(Text(line), soft_wrap=True)


def _ask(run: RunDir) -> tuple[list[Execution], str]:
    """What sacct holds of this run, and, where it holds nothing, why."""
    submissions = [one for one in submissions_of(run) if one.scheduler == "slurm"]
    tried = [record for key in units_with_logs(run) for record in records(run.logs(key)) if record.job_name]
    # The attempts name their jobs, too: a folder that was copied from another site comes without a journal.
    names: dict[str | None, set[str]] = defaultdict(set)
    for one in submissions:
        if one.name:
            names[one.cluster].add(one.job_name)
    for record in tried:
        names[record.job.cluster if record.job else None].add(record.job_name)
    if not names:
        return [], "no job of it went through Slurm"
    if not any(_has_sacct(run, site) for site in {one.site for one in submissions} or {""}):
        return [], "the site says has_sacct: false"
    timestamps = [one.time for one in submissions] + [record.started for record in tried if record.started]
    try:
        return executions(
            {cluster: sorted(some) for cluster, some in names.items()}, min(timestamps, default=time.time())
        ), "sacct knows nothing of it"
    except SlurmUnavailable as why:
        return [], f"sacct does not answer: {why}"


def _has_sacct(run: RunDir, site: str) -> bool:
    stored = atomic.read_json(run.site(site))
    return not isinstance(stored, dict) or bool(stored.get("has_sacct", True))


def _source(spent: list[JobCost], why_not: str) -> str:
    sources = {one.source for one in spent}
    if sources == {"sacct"}:
        return "sacct, all executions of requeued jobs included"
    if "sacct" in sources:
        count = sum(one.source == "records" for one in spent)
        return f"sacct; {count} of {len(spent)} attempts, which it does not know, from the run's own records"
    return f"the run's own records ({why_not})"


def _table(spent: list[JobCost], what: str) -> Table:
    """Every attempt, and the sum of each unit; of the settings of a sweep the sums alone."""
    kinds = ["GPU", "CPU"] if any(one.gpus for one in spent) else ["CPU"]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    amounts = [word for kind in kinds for word in (f"{kind}s", f"{kind}-h", "wasted")]
    for name in (what, "try", "job", "ended", "time", *amounts):
        table.add_column(name, no_wrap=True, justify="left" if name in (what, "job", "ended") else "right")
    for unit in dict.fromkeys(one.unit for one in spent):
        own = [one for one in spent if one.unit == unit]
        for one in own if what == "unit" else []:
            words = [unit, str(one.attempt or "-"), one.job or "", one.ending, _time([one])]
            table.add_row(*map(Text, [*words, *_amounts([one], kinds)]))
        if len(own) > 1 or what != "unit":
            words = [unit, "all", "", "", _time(own), *_amounts(own, kinds)]
            table.add_row(*(Text(word, style="bold") for word in words))
    return table


def _time(spent: list[JobCost]) -> str:
    mark = "~" if any(one.is_estimate for one in spent) else ""
    return mark + duration(sum(one.seconds for one in spent))


def _amounts(spent: list[JobCost], kinds: list[str]) -> list[str]:
    totals, words = _totals(spent), []
    for kind in (kind.lower() for kind in kinds):
        count = str(getattr(spent[0], f"{kind}s")) if len(spent) == 1 else ""
        words += [count, _hours(totals[f"{kind}_hours"]), _hours(totals[f"wasted_{kind}_hours"])]
    return words


def _totals(spent: Iterable[JobCost]) -> dict[str, float]:
    spent = list(spent)
    return {
        "gpu_hours": sum(one.gpu_hours for one in spent),
        "wasted_gpu_hours": sum(one.gpu_hours * one.wasted for one in spent),
        "cpu_hours": sum(one.cpu_hours for one in spent),
        "wasted_cpu_hours": sum(one.cpu_hours * one.wasted for one in spent),
    }


def _total_line(spent: list[JobCost]) -> str:
    totals = _totals(spent)
    words = []
    for kind in ("GPU", "CPU"):
        hours, wasted = totals[f"{kind.lower()}_hours"], totals[f"wasted_{kind.lower()}_hours"]
        share = f" ({wasted / hours:.1%})" if hours else ""
        words.append(f"{_hours(hours)} {kind}-hours, {_hours(wasted)} of them wasted{share}")
    running = sum(one.ending == "running" for one in spent)
    return f"total: {'; '.join(words)}" + (f"; {running} attempts still run" if running else "")


def _legend(spent: list[JobCost]) -> list[str]:
    lines = []
    if any(one.is_estimate for one in spent):
        lines.append("~ is an estimate: nobody recorded the end, so it is the last word or sign of life that counts")
    if any(one.wasted for one in spent):
        lines.append(
            "wasted: the share of the images that a later attempt made again, and attempts that led to nothing"
        )
    return lines


def _hours(hours: float) -> str:
    return f"{hours:,.2f}" if hours >= 1 or not hours else f"{hours:.4f}"


def _as_json(root: Path, source: str, spent: list[JobCost]) -> dict[str, Any]:
    rows = []
    for one in spent:
        row = asdict(one) | {"cpu_hours": one.cpu_hours, "gpu_hours": one.gpu_hours}
        rows.append(row)
    totals = _totals(spent) | {"is_estimate": any(one.is_estimate for one in spent)}
    return {"run": str(root), "source": source, "total": totals, "attempts": rows}
