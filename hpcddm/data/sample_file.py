"""Entry of a tar, or of another file that is read like one, in the catalog and in the manifests of the stage shard."""

from dataclasses import dataclass, fields
from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.files import checked_reads


@dataclass(frozen=True)
class SampleFile:
    """A tar of samples, or another file that is read like one."""

    file: str
    """Path relative to the run, or for an existing file relative to the folder of its collection."""
    size: int
    """Size in bytes, which reveals a truncated file."""
    changed: int | None = None
    """Time of the last change of an existing file, in seconds since 1970; None for a tar that the run has written."""
    sha256: str | None = None
    """Digest of an existing tar if `hash_tars` of its source is set."""
    collection: str | None = None
    """Name of the collection of an existing file; None for a file without collection."""
    column: str | None = None
    """Column of a parquet file that holds the images, whose offsets are then rows; None for offsets in bytes."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for a path that leads out of its folder or a negative size."""
        checked_reads.require_inside(self.file)
        checked_reads.require_counts(self.size)


FILE_DEFAULTS = {field.name: field.default for field in fields(SampleFile)}
"""Values of an entry that names only a file and its size."""


def size_and_mtime(path: Path) -> tuple[int, int]:
    """Return the size of a tar in bytes and the time of its last change in seconds, which reveal a changed tar.

    Raises:
        UserError: The file cannot be read.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    return status.st_size, int(status.st_mtime)
