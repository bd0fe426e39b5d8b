"""The verb selftest: checks, through real small jobs, everything at a site on which a training depends."""

import json
import secrets
import shutil
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

from rich.table import Table
from rich.text import Text

from hpcddm.commands.terminal import table_console
from hpcddm.errors import UserError
from hpcddm.launch.client import unavailable_reason
from hpcddm.loading import load_site
from hpcddm.selftest.checks import (
    accounting,
    array,
    collective,
    environment,
    gpus,
    rendezvous,
    requeue,
    signals,
    storage,
    submit,
)
from hpcddm.selftest.checks import time_left as time_left_check
from hpcddm.selftest.evidence import Part, checked
from hpcddm.selftest.local_trial import LocalTrial
from hpcddm.selftest.slurm_trial import SlurmTrial
from hpcddm.selftest.verdict import Row, Verdict
from hpcddm.site import Site

TABLE_COLUMNS = 150
COLOURS = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red", Verdict.NOT_RUN: "yellow"}


def selftest(name: str, folder: Path, timeout: float, as_json: bool) -> int:
    """Print one verdict per check; return 0 when every check ran and none failed, else 1.

    Raises `UserError` when the folder cannot be written here, `ConfigError` when the site is wrong.
    """
    site, started = load_site(name), time.time()
    place = folder.resolve() / f"selftest-{secrets.token_hex(4)}"
    try:
        place.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"{place}: cannot be made ({error.strerror}); choose another --folder") from None
    rows = (_on_slurm if site.scheduler == "slurm" else _here)(site, place, timeout)
    is_good = not {row.verdict for row in rows} & {Verdict.FAIL, Verdict.NOT_RUN}
    if is_good:
        shutil.rmtree(place, ignore_errors=True)
    if as_json:
        result = {"site": site.name, "passed": is_good, "seconds": round(time.time() - started, 1)}
        result |= {"kept": None if is_good else str(place), "checks": [asdict(row) for row in rows]}
        print(json.dumps(result, indent=1))
    else:
        _print(site, rows, place, time.time() - started, is_good)
    return 0 if is_good else 1


def _on_slurm(site: Site, place: Path, timeout: float) -> list[Row]:
    """Check every cluster of the site, each with jobs of its own in a folder of its own; return all rows."""
    if len(site.clusters) < 2:
        return _on_cluster(site, place, timeout, next(iter(site.clusters), None))
    rows = []
    for cluster in site.clusters:
        (place / cluster).mkdir()
        cluster_rows = _on_cluster(site, place / cluster, timeout, cluster)
        rows += [replace(row, check=f"{row.check}@{cluster}") for row in cluster_rows]
    return rows


def _on_cluster(site: Site, place: Path, timeout: float, cluster: str | None) -> list[Row]:
    trial = SlurmTrial(site, place, cluster)
    reason = unavailable_reason(cluster)
    if reason:
        advice = "try on a login node; is SLURM_CONF set?"
        return [Row("submit", Verdict.FAIL, None, f"no Slurm answers: {reason}", advice)]
    rows = _through_the_queue(trial, site, timeout)
    evidence = trial.evidence
    for check in (array, rendezvous, gpus, collective, signals, requeue, storage, environment):
        rows.append(check.evaluate_check(evidence))
    return [*rows, time_left_check.evaluate_check(evidence, trial.minutes), accounting.evaluate_check(evidence)]


def _through_the_queue(trial: SlurmTrial, site: Site, timeout: float) -> list[Row]:
    """Submit the jobs and wait for them; return the rows about sbatch. No job is left in the queue."""
    started = time.time()
    trial.prepare()
    cluster = trial.evidence.cluster
    rows = submit.evaluate_check(site, lambda resources: trial.text(Part.NODES, resources), cluster)
    if submit.is_refused(rows, checked(site, cluster)):
        return rows
    try:
        complaint = trial.submit()
        seconds = time.time() - started
        complaint = complaint or trial.wait(timeout, _progress(started))
    finally:
        trial.cancel()
    if complaint:
        advice = submit.advice(site, checked(site, cluster), complaint)
        rows.append(Row("submit", Verdict.FAIL, seconds, complaint, advice))
    return rows or [submit.accepted(site, seconds, cluster)]


def _here(site: Site, place: Path, timeout: float) -> list[Row]:
    trial = LocalTrial(site, place)
    try:
        trial.run(60 * timeout)
    finally:
        trial.cancel()
    return [check.evaluate_check(trial.evidence) for check in (rendezvous, signals, storage, environment)]


def _progress(started: float):
    """Return a function that prints a text whenever it changes, with the time since `started`."""
    last = ""

    def say(text: str) -> None:
        nonlocal last
        if text != last:
            last = text
            print(f"{time.time() - started:5.0f} s  {text}", file=sys.stderr, flush=True)

    return say


def _print(site: Site, rows: list[Row], place: Path, seconds: float, is_good: bool) -> None:
    table = Table(title=Text(f"site {site.name}"), title_justify="left")
    for column in ("check", "verdict"):
        table.add_column(column, no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("what was seen", overflow="fold", ratio=3)
    table.add_column("what to do", overflow="fold", ratio=2)
    for row in rows:
        verdict = Text(row.verdict, style=COLOURS[row.verdict])
        figure = "" if row.seconds is None else f"{row.seconds:.1f}"
        table.add_row(Text(row.check), verdict, figure, Text(row.seen), Text(row.advice))
    table_console(TABLE_COLUMNS).print(table)
    if is_good:
        print(f"site {site.name} passes after {seconds:.0f} s")
        return
    counts = [f"{sum(row.verdict is kind for row in rows)} {kind}" for kind in (Verdict.FAIL, Verdict.NOT_RUN)]
    print(f"site {site.name} does not pass after {seconds:.0f} s: {', '.join(counts)}; scripts and answers: {place}")
