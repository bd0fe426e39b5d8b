"""The folder of a run before its first file: whether it can be made, and making it."""

import os

from hpcddm.errors import ConfigError, require
from hpcddm.files import atomic, nfs_reads
from hpcddm.launch import script_paths
from hpcddm.runs import group_permissions
from hpcddm.runs.links import refusal_reason
from hpcddm.runs.run_dir import RunDir

MIN_FREE_BYTES = 10_000_000
"""Bytes that the bookkeeping of a submission needs, without the outputs of the stages."""


def check_folder(run: RunDir) -> None:
    """Raise `ConfigError` if a run's folder cannot be written or has a STOP file; creates nothing."""
    if nfs_reads.exists(run.stop):
        raise ConfigError(f"{run.stop} tells every job to leave: remove it, then repeat this command")
    place = atomic.nearest_existing(run.root)
    if not place.is_dir():
        reason = f"{place} is not a folder"
    elif not os.access(place, os.W_OK | os.X_OK):
        reason = f"no permission for this user in {place}"
    elif atomic.free_bytes(place) < MIN_FREE_BYTES:
        reason = f"{atomic.free_bytes(place):,} bytes are free in {place}"
    else:
        return
    verb = "not writable" if run.root.is_dir() else "cannot be made"
    raise ConfigError(f"--run-dir {run.root}: {verb} ({reason}); take another folder, or make room there")


def make_folder(run: RunDir) -> None:
    """Make the folder of a run; raises `ConfigError` when that cannot be, or when a sign in its path has a meaning."""
    script_paths.check_folder(run.root, "--run-dir")
    group_permissions.prepare_writes(run.root)
    try:
        run.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--run-dir {run.root}: cannot be made ({error.strerror})") from None
    # Else found only when the journal has an intent already, for whose job the next command would wait.
    for folder in (run.jobs, run.scripts, run.code, run.root / "specs"):
        require(not folder.is_symlink(), refusal_reason(folder))
