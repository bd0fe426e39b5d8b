"""The verb logs: what a rank of an attempt printed."""

from pathlib import Path

import click

from hpcddm.errors import ConfigError
from hpcddm.rundir.layout import RunDir
from hpcddm.runtime.attempt import attempts


def logs(root: Path, unit: str, attempt: int | None, rank: int) -> None:
    """Print a log.

    Raises `ConfigError` listing what exists.
    """
    run = RunDir(root)
    tried = dict(attempts(run.logs(unit)))
    if not tried:
        known = sorted(str(place.relative_to(root / "logs").parent) for place in (root / "logs").glob("*/*/attempt-1"))
        raise ConfigError(f"{root}: no attempt at '{unit}'; there are logs of: {', '.join(known) or 'nothing'}")
    number = attempt or max(tried)
    if number not in tried:
        raise ConfigError(f"{unit} has no attempt {number}; there are: {', '.join(map(str, tried))}")
    file = tried[number] / f"rank{rank}.log"
    if not file.exists():
        ranks = sorted(path.stem.removeprefix("rank") for path in tried[number].glob("rank*.log"))
        raise ConfigError(f"{file}: no such log; ranks: {', '.join(ranks) or 'none started'}")
    click.echo(f"--- {file}")
    click.echo(file.read_text(errors="replace"), nl=False)
