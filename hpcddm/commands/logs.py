"""The verb logs: what a rank of an attempt printed, or what the scheduler kept of a job that never got so far."""

from pathlib import Path

import click

from hpcddm.errors import ConfigError
from hpcddm.rundir.journal import Journal, Submission
from hpcddm.rundir.layout import RunDir
from hpcddm.runtime.attempt import attempts


def logs(root: Path, unit: str, attempt: int | None, rank: int) -> None:
    """Print a log.

    Raises `ConfigError` listing what exists.
    """
    run = RunDir(root)
    tried = dict(attempts(run.logs(unit)))
    if not tried and attempt is None and (kept := _kept(run, unit, rank)):
        click.echo(f"no attempt at {unit}: its job ended before it could start one; what the scheduler kept:")
        for file in kept:
            _show(file)
        return
    if not tried:
        known = sorted(str(place.relative_to(root / "logs").parent) for place in (root / "logs").glob("*/*/attempt-1"))
        raise ConfigError(f"{root}: no attempt at '{unit}'; there are logs of: {', '.join(known) or 'nothing'}")
    number = max(tried) if attempt is None else attempt
    if number not in tried:
        raise ConfigError(f"{unit} has no attempt {number}; there are: {', '.join(map(str, tried))}")
    file = tried[number] / f"rank{rank}.log"
    if not file.exists():
        ranks = sorted(path.stem.removeprefix("rank") for path in tried[number].glob("rank*.log"))
        raise ConfigError(f"{file}: no such log; ranks: {', '.join(ranks) or 'none started'}")
    _show(file)


def _kept(run: RunDir, unit: str, rank: int) -> list[Path]:
    """The scheduler's own files about the last job of a unit that left any."""
    for one in reversed(Journal(run.journal).submissions()):
        if unit in one.units and one.job:
            files = [run.jobs / name for name in _names(one, one.units.index(unit), rank)]
            if any(file.exists() for file in files):
                return [file for file in files if file.exists()]
    return []


def _names(one: Submission, element: int, rank: int) -> list[str]:
    """As submitit's local executor and the template in slurm/ name them."""
    if one.scheduler == "local":
        return [f"{one.job}_{rank}_log.out"]
    return [f"{one.job}_{element}.out", f"{one.job}_{element}_{rank}.out"]


def _show(file: Path) -> None:
    click.echo(f"--- {file}")
    click.echo(file.read_text(errors="replace") or "(empty)\n", nl=False)
