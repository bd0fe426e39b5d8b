"""The verb logs: prints the log of a rank, or the scheduler's own files of a job that opened no attempt."""

import re
import time
from pathlib import Path

import click

from hpcddm.commands.log_tail import follow
from hpcddm.commands.options import RUN, UNIT, matching_unit
from hpcddm.errors import ConfigError, UserError
from hpcddm.errors.next_step import step
from hpcddm.errors.printing import MAX_LINE_CHARACTERS, echo, printable
from hpcddm.files import checked_reads
from hpcddm.jobs.attempt_records import AttemptRecord, read_records
from hpcddm.launch.journal_dirs import journal_dirs, submissions_of
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.journal import Submission
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment


@click.command()
@RUN
@UNIT
@click.option("--attempt", type=int, help="Default: the last one.")
@click.option("--all", "every", is_flag=True, help="All attempts, oldest first, each with how it ended.")
@click.option(
    "--follow", "following", is_flag=True, help="Print new lines, over all attempts, until the unit has ended."
)
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True)
def logs(run: RunDir, unit: str, attempt: int | None, rank: int, every: bool, following: bool) -> None:
    """Print the log of a unit of RUN.

    \b
    Example: hpcddm logs runs/fashion_mnist train/expert-02 --follow
    Next:    after fixing a failure: hpcddm retry runs/fashion_mnist
    """
    if attempt is not None and (every or following):
        raise ConfigError("--attempt names one attempt, --all and --follow mean several; take one of them")
    if "/" not in unit:
        unit = matching_unit(run.root, unit, [planned.key for planned in plan_units(stored_experiment(run))])
    tried = {record.number: record for record in read_records(run.logs(unit))}
    submissions = [submission for submission in submissions_of(run) if unit in submission.units]
    newest = submissions[-1] if submissions else None
    if following and (tried or newest):
        for record in list(tried.values())[:-1] if every else []:
            _show_attempt(run, record, rank)
        follow(run, unit, rank, max(tried, default=1))
        return
    kept: list[Path] = []
    if attempt is None and _is_ahead(newest, tried):
        kept = _find_scheduler_files(run, unit, rank, [newest] if tried and newest else submissions)
    if not tried and not kept:
        if newest and newest.job and attempt is None:
            text = f"{run.root}: no attempt at '{unit}', and its job {newest.job} left no output"
            raise UserError(str(step("hpcddm", "status", run.root, reason=text)))
        folder = run.root / "logs"
        with_logs = sorted(str(place.relative_to(folder).parent) for place in folder.glob("*/*/attempt-1"))
        raise ConfigError(f"{run.root}: no attempt at '{unit}'; there are logs of: {', '.join(with_logs) or 'nothing'}")
    if tried and every:
        for record in tried.values():
            _show_attempt(run, record, rank)
    elif tried and not kept:
        number = max(tried) if attempt is None else attempt
        if number not in tried:
            raise ConfigError(f"{unit} has no attempt {number}; there are: {', '.join(map(str, tried))}")
        _show(_logs(run, tried[number], rank))
    if kept:
        older = f" (the one before left attempts: --attempt {max(tried)})" if tried and not every else ""
        echo(f"no attempt at {unit} by its newest job{older}; what the scheduler kept:")
        _show(kept)


def _logs(run: RunDir, record: AttemptRecord, rank: int) -> list[Path]:
    """Find the log of a rank, or the scheduler's files of the job where no rank started; raises `ConfigError`."""
    file = record.folder / f"rank{rank}.log"
    if file.exists():
        return [file]
    named = (re.fullmatch("rank([0-9]+).log", path.name) for path in record.folder.glob("rank*.log"))
    ranks = sorted(int(match[1]) for match in named if match)
    names = [f"{record.job}.out", f"{record.job}_{rank}.out"] if record.job and not ranks else []
    kept = [home.jobs / name for home in journal_dirs(run) for name in names if (home.jobs / name).exists()]
    if not kept:
        raise ConfigError(f"{file}: no such log; ranks: {', '.join(map(str, ranks)) or 'none started'}")
    return kept


def _show_attempt(run: RunDir, record: AttemptRecord, rank: int) -> None:
    """Print an attempt's headline and log, or a note where it has no log."""
    echo(f"=== {headline(record)}")
    try:
        files = _logs(run, record, rank)
    except ConfigError:
        echo(f"(no log of rank {rank})")
        return
    _show(files)


def headline(record: AttemptRecord) -> str:
    """Describe start, node, job and end of an attempt on one line."""
    parts = [f"attempt {record.number}"]
    if record.started:
        parts.append(f"started {_clock(record.started)}")
    parts.append(f"on {record.nodes or printable(record.owner.get('host') or 'an unknown node')}")
    if record.job:
        parts.append(f"as job {record.job}")
    if record.stopped:
        parts.append(f"ended {_clock(record.stopped)}")
    return "  ".join([*parts, _ending(record)])


def _ending(record: AttemptRecord) -> str:
    if record.is_open:
        # One that has a successor has ended, however fresh its last sign of life is.
        is_last = not record.folder.with_name(f"attempt-{record.number + 1}").exists()
        return "running" if is_last and record.is_running else "no word about its end"
    reason = f" ({record.reason})" if record.reason else ""
    verdict = f", then: {record.decision}" if record.decision else ""
    return f"{record.outcome or 'left no word'}{verdict}{reason}"


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _is_ahead(newest: Submission | None, tried: dict[int, AttemptRecord]) -> bool:
    """Tell if the newest job of a unit opened none of its attempts; True without a job or without attempts."""
    if newest is None or not tried:
        return True
    last = tried[max(tried)]
    return last.token != newest.uuid and (last.started or 0.0) < newest.time


def _find_scheduler_files(run: RunDir, unit: str, rank: int, submissions: list[Submission]) -> list[Path]:
    """Find the scheduler's files of the last job of a unit that has any.

    Submitit's local executor and the template in slurm/ give them their names.
    """
    for submission in reversed(submissions):
        if submission.job:
            element = submission.job.element(submission.units.index(unit))
            is_local = submission.scheduler == "local"
            names = [f"{submission.job}_{rank}_log.out"] if is_local else [f"{element}.out", f"{element}_{rank}.out"]
            files = [home.jobs / name for home in journal_dirs(run) for name in names]
            if any(file.exists() for file in files):
                return [file for file in files if file.exists()]
    return []


def _show(files: list[Path]) -> None:
    for file in files:
        echo(f"--- {file}")
        with open(checked_reads.open_regular(file), errors="replace") as lines:
            line = lines.readline(MAX_LINE_CHARACTERS) or "(empty)"
            while line:
                echo(line.removesuffix("\n"))
                line = lines.readline(MAX_LINE_CHARACTERS)
