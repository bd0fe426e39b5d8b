"""Weights that a user names by their path: in a unit's folder of a run with a contract, only those that count."""

import os
from pathlib import Path

from hpcddm.errors import require
from hpcddm.runs import manifest
from hpcddm.runs.files import CONTRACT
from hpcddm.runs.unit_keys import trained_unit


def counted_digest(path: Path) -> str | None:
    """Return the SHA-256 that a file must have; None if it is in no unit's folder of a run with a contract.

    None, too, for a file of a training of this site that is not complete.

    Args:
        path: The file; it may be a link into such a folder.

    Raises:
        UserError: If the unit is of another site that has not signed it, or does not list the file.
    """
    digests = [
        manifest.recorded_digest(folder, str(way.relative_to(folder)))
        for way in (Path(os.path.abspath(path)), Path(os.path.realpath(path)))
        for folder in list(way.parents)[:2]
        if (unit := trained_unit(folder)) is not None and (unit[0] / CONTRACT).is_dir()
    ]
    return next(filter(None, digests), None)


def require_counted(path: Path, stated: str | None, digest: str) -> None:
    """Raise `UserError` for a file that has not the digest that `counted_digest` has returned."""
    require(stated in (None, digest), f"{path}: its bytes are not those of its manifest; fetch it again")
