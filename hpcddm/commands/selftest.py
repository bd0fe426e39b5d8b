"""The verb selftest: checks, through real small jobs, everything at a site on which a training depends."""

import json
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from hpcddm.commands.options import JSON, PATH, SITE
from hpcddm.commands.terminal import plain_text
from hpcddm.config.site import Site
from hpcddm.errors import ConfigError, UserError
from hpcddm.errors.printing import echo
from hpcddm.launch import script_paths
from hpcddm.launch.load_site import load_site
from hpcddm.launch.selftest import sbatch_refusals
from hpcddm.launch.selftest.check_results import CheckResult, CheckVerdict
from hpcddm.launch.selftest.checks import (
    accounting,
    array,
    collective,
    environment,
    gpus,
    rendezvous,
    requeue,
    signals,
    storage,
    time_left,
)
from hpcddm.launch.selftest.evidence import TrialJob, checked_stage
from hpcddm.launch.selftest.slurm_trial import SlurmTrial
from hpcddm.launch.slurm.client import unavailable_reason

CHECKS = {
    "array": array.evaluate,
    "ranks, rendezvous": rendezvous.evaluate,
    "GPUs": gpus.evaluate,
    "collective": collective.evaluate,
    "signals": signals.evaluate,
    "requeue": requeue.evaluate,
    "storage": storage.evaluate,
    "environment": environment.evaluate,
    "time left": time_left.evaluate,
    "accounting": accounting.evaluate,
}
"""Checks of a cluster, in the order of the table; each gives the row of it from the evidence that the jobs left."""
COLOURS = {
    CheckVerdict.OK: "green",
    CheckVerdict.WARN: "yellow",
    CheckVerdict.FAIL: "bold red",
    CheckVerdict.NOT_RUN: "yellow",
}
READABLE_COLUMNS = 140
"""Least width of the table in a file or a pipe, where rich would assume 80."""
NOT_PASSED = (CheckVerdict.FAIL, CheckVerdict.NOT_RUN)
"""Verdicts with which a site does not pass."""


@click.command()
@SITE
@click.option(
    "--folder", type=PATH, default="runs", show_default=True, help="Folder of future runs; its file system is tested."
)
@click.option("--timeout", type=click.FloatRange(min=0.1), default=30.0, show_default=True, metavar="MINUTES")
@JSON
def selftest(site_name: str, folder: Path, timeout: float, as_json: bool) -> int:
    """Check a site with a few jobs of some seconds.

    It prints a verdict per check, and advice if the check does not pass.

    The exit code is 0 only if every check ran and none failed. Ctrl-C cancels only its own jobs.

    \b
    Example: hpcddm selftest --site my-cluster --folder /scratch/me/runs
    Next:    correct the site's file as advised, then: hpcddm submit quickstart --site my-cluster
    """
    site, started = load_site(site_name), time.time()
    if site.scheduler != "slurm":
        raise ConfigError(f"--site {site.name}: has no queue whose jobs could be tried; name a site with Slurm")
    script_paths.check_folder(folder, "--folder")
    place = folder.resolve() / f"selftest-{secrets.token_hex(4)}"
    try:
        place.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"{place}: cannot be made ({error.strerror}); choose another --folder") from None
    rows = _on_slurm(site, place, timeout)
    if is_good := not any(row.verdict in NOT_PASSED for row in rows):
        shutil.rmtree(place, ignore_errors=True)
    if as_json:
        result = {"site": site.name, "passed": is_good, "seconds": round(time.time() - started, 1)}
        result |= {"kept": None if is_good else str(place), "checks": [row.as_json() for row in rows]}
        print(json.dumps(result, indent=1))
    else:
        _print(site, rows, place, time.time() - started, is_good)
    return 0 if is_good else 1


def _on_slurm(site: Site, place: Path, timeout: float) -> list[CheckResult]:
    """Check every cluster of the site, each with jobs of its own in a folder of its own; return all rows."""
    if len(site.clusters) < 2:
        return _on_cluster(site, place, timeout, next(iter(site.clusters), None))
    rows = []
    for cluster in site.clusters:
        (place / cluster).mkdir()
        cluster_rows = _on_cluster(site, place / cluster, timeout, cluster)
        rows += [replace(row, check=f"{row.check}@{cluster}") for row in cluster_rows]
    return rows


def _on_cluster(site: Site, place: Path, timeout: float, cluster: str | None) -> list[CheckResult]:
    trial = SlurmTrial(site, place, cluster)
    if reason := unavailable_reason(cluster):
        advice = "try on a login node; is SLURM_CONF set?"
        return [CheckResult(CheckVerdict.FAIL, None, f"no Slurm answers: {reason}", advice, "submit")]
    rows = _through_the_queue(trial, site, timeout)
    return rows + [replace(evaluate(trial.evidence), check=name) for name, evaluate in CHECKS.items()]


def _through_the_queue(trial: SlurmTrial, site: Site, timeout: float) -> list[CheckResult]:
    """Submit the jobs and wait for them; return the rows about sbatch. No job is left in the queue."""
    started = time.time()
    trial.prepare()
    cluster = trial.evidence.cluster
    rows = sbatch_refusals.refusals(site, lambda resources: trial.text(TrialJob.NODES, resources), cluster)
    if sbatch_refusals.is_refused(rows, checked_stage(site, cluster)):
        return rows
    try:
        complaint = trial.submit()
        seconds = time.time() - started
        complaint = complaint or trial.wait(timeout, _progress(started))
    finally:
        trial.cancel()
    if complaint:
        advice = sbatch_refusals.advice(site, checked_stage(site, cluster), complaint)
        rows.append(CheckResult(CheckVerdict.FAIL, seconds, complaint, advice, "submit"))
    return rows or [sbatch_refusals.accepted_result(site, seconds, cluster)]


def _progress(started: float) -> Callable[[str], None]:
    """Return a function that prints a text whenever it changes, with the time since `started`."""
    last = ""

    def say(text: str) -> None:
        nonlocal last
        if text != last:
            last = text
            echo(f"{time.time() - started:5.0f} s  {text}", err=True)

    return say


def _print(site: Site, rows: list[CheckResult], place: Path, seconds: float, is_good: bool) -> None:
    table = Table(title=plain_text(f"site {site.name}"), title_justify="left")
    for column in ("check", "verdict"):
        table.add_column(column, no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("finding", overflow="fold", ratio=3)
    table.add_column("what to do", overflow="fold", ratio=2)
    for row in rows:
        verdict = plain_text(row.verdict, style=COLOURS[row.verdict])
        figure = "" if row.seconds is None else f"{row.seconds:.1f}"
        table.add_row(plain_text(row.check), verdict, figure, plain_text(row.finding), plain_text(row.advice))
    console = Console()
    (console if console.is_terminal else Console(width=max(console.width, READABLE_COLUMNS))).print(table)
    if is_good:
        print(f"site {site.name} passes after {seconds:.0f} s")
        return
    counts = [f"{sum(row.verdict is kind for row in rows)} {kind}" for kind in NOT_PASSED]
    print(f"site {site.name} does not pass after {seconds:.0f} s: {', '.join(counts)}; scripts and answers: {place}")
