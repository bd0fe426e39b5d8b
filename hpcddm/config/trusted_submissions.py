"""Digests of what the user vouches for, kept outside of every run: no file inside a run vouches for itself.

Others may have written what is inside a run, or a sweep. Nothing there counts as the user's own site, template,
experiment or variant only because the working directory is there. Digests of what this user submitted a run with are
files in a folder of the user, and hold for this run at this place; those of contracts hold wherever a run is. A job,
which may not see that folder, has the digests of its own submission from its script, and Slurm keeps its own copy of
that.

The folder also holds a secret of the user, from which keys are derived.
"""

import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError
from hpcddm.errors.printing import echo
from hpcddm.files import atomic, checked_reads, guarded_writes
from hpcddm.files.atomic import digest
from hpcddm.files.checked_reads import Unreadable

SUBMITTED_VARIABLE = "HPCDDM_SUBMITTED"
"""Environment variable of a job: the digests of the site and of the template's parts that it was submitted with."""
SECRET, SECRET_BYTES = "secret", 32
"""File with random bytes that only this user can read."""

REMEDY = "set XDG_STATE_HOME to a folder of yours, outside of runs, that you can write"

_taken: set[Path] = set()
"""Files below the working directory that this process took as the user's."""


def belongs_to_user(path: Path) -> bool:
    """Tell if a file that was looked for below the working directory is the user's; print the one that is passed over.

    One inside a run is the user's where this user submitted this run with it.
    """
    run, place = guarded_writes.enclosing_run(path), Path(os.path.abspath(path))
    with suppress(OSError):
        if run is None or is_known(run, _content(place)):
            _taken.add(place)
            return True
    _say_passed_over(place, run)
    return False


def remember(run: Path | None, value: Mapping[str, Any]) -> None:
    """Note that this user submits a run with the keys of a site, or with parts of a template; None for any run.

    The same goes for the files inside the run's folder that were taken as the user's, because this was no run yet.
    """
    root, folder = run and Path(os.path.realpath(run)), _folder()
    places = [
        place for place in _taken if root and any(way.is_relative_to(root) for way in guarded_writes.ways_to(place))
    ]
    with suppress(OSError):
        if _made(folder):
            for one in (value, *map(_content, places)):
                (folder / f"{_prefix(root)}{digest(one)}").touch()


def is_known(run: Path | None, value: Mapping[str, Any]) -> bool:
    """Tell if this user has submitted a run, at this place, with the keys of a site, or with parts of a template."""
    name, folder = digest(value), _folder()
    if name in os.environ.get(SUBMITTED_VARIABLE, "").split():
        return True
    return (
        guarded_writes.is_private_folder(folder) and _is_usable(folder) and (folder / f"{_prefix(run)}{name}").is_file()
    )


def digests(*values: Mapping[str, Any]) -> str:
    """Return the value of `SUBMITTED_VARIABLE` for the jobs of a submission: hashes of site keys and template."""
    return " ".join(map(digest, values))


def secret() -> bytes | None:
    """Return the user's secret; None where there is none, or others could read or write it."""
    folder = _folder()
    if not (guarded_writes.is_private_folder(folder) and _is_usable(folder)):
        return None
    try:
        with open(checked_reads.open_regular(folder / SECRET), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
                return None
            content = file.read(SECRET_BYTES + 1)
    except (OSError, Unreadable):
        return None
    return content if len(content) == SECRET_BYTES else None


def make_secret() -> bytes:
    """Return the user's secret, which is made once.

    Jobs never make one: a folder of a node alone would give each attempt another secret.

    Raises:
        UserError: It cannot be stored.
    """
    folder = _folder()
    if secret() is None:
        staged = folder / f".{atomic.unique_suffix()}"
        with suppress(OSError):
            if _made(folder):
                atomic.write_new(staged, secrets.token_bytes(SECRET_BYTES), 0o600)
                # Of several commands at once, one names its file first.
                with suppress(FileExistsError):
                    os.link(staged, folder / SECRET)
        with suppress(OSError):
            staged.unlink()
    made = secret()
    if made is None:
        raise UserError(f"no secret of yours can be kept in {folder / SECRET}, which others must not read: {REMEDY}")
    return made


def distrust_reason(run: Path) -> str:
    """Return the reason why a run's files are not trusted, and a remedy if digests cannot be stored."""
    folder = _folder()
    if not _is_usable(folder):
        return f"what you submit with is not remembered in {folder}, inside a run: {REMEDY}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        is_private = guarded_writes.make_private_folder(folder)
        fault = None if is_private else "others may write it, or it is not a folder of yours"
    except OSError as error:
        fault = error.strerror
    if fault or not os.access(folder, os.W_OK | os.X_OK):
        return f"what you submit with cannot be remembered in {folder} ({fault or 'it cannot be written'}): {REMEDY}"
    if any(entry.startswith(_prefix(run)) for entry in os.listdir(folder)):
        return "it is not what you submitted with: somebody has changed it since"
    return (
        "no submission of yours is noted here: somebody else made it, or you did on another machine, or the run was"
        " moved or copied since"
    )


def _content(path: Path) -> dict[str, str]:
    return {"file": str(path), "sha256": atomic.sha256(path)}


def _prefix(run: Path | None) -> str:
    return "any-" if run is None else f"{digest(os.path.realpath(run))}-"


def _folder() -> Path:
    named = os.environ.get("XDG_STATE_HOME", "")
    # By its specification a relative path there is to be ignored.
    return Path(named if os.path.isabs(named) else os.path.expanduser("~/.local/state"), "hpcddm", "submitted")


def _made(folder: Path) -> bool:
    """Make the folder, and tell if it is private and outside of all runs; raises `OSError`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    return guarded_writes.make_private_folder(folder) and _is_usable(folder)


def _is_usable(folder: Path) -> bool:
    """Tell if the folder of digests is outside of all runs: a run could bring its own digests."""
    return folder.is_absolute() and guarded_writes.enclosing_run(folder) is None


@cache
def _say_passed_over(place: Path, run: Path | None) -> None:
    """Print, once, which file is passed over."""
    advice = "if it is yours, name it by its path, or keep it outside of runs"
    echo(
        f"note: {place} is passed over: it is inside the run {run}, where others may have written it; {advice}",
        err=True,
    )
