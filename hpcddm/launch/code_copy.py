"""Code that jobs run: a snapshot in the run, made when they were submitted."""

import os
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hpcddm.errors import UserError, require
from hpcddm.files import atomic, checked_reads, guarded_writes
from hpcddm.runs import provenance
from hpcddm.runs.provenance import Code
from hpcddm.runs.run_dir import RunDir

HEXADECIMAL = re.compile(r"[0-9a-f]+")


class CodeCopy:
    """Code as it is now, kept as `<run>/code/<digest>/`; a pull or an edit changes no job that was submitted."""

    def __init__(self, run: RunDir) -> None:
        self._home = run.code

    @cached_property
    def _files(self) -> dict[str, bytes]:
        return provenance.code_files()

    @cached_property
    def _hashes(self) -> dict[str, str]:
        return provenance.digests(self._files)

    @cached_property
    def folder(self) -> Path:
        """Folder where Python finds the package; there after `make`."""
        # The last name is not resolved: a link would lead to a folder that may change after it was hashed.
        return self._home.resolve() / provenance.code_digest(self._hashes)

    def make(self) -> Code:
        """Write the snapshot unless it exists, and return its version; jobs are started or submitted right after.

        One that exists is hashed at every call, because its folder may have come with files of others.

        Raises `UserError` with the path when the disk is full or not writable, or when its files are not this code.
        """
        code = self._made
        require(
            provenance.code_digest(provenance.folder_digests(self.folder)) == self.folder.name,
            f"{self.folder}: files there were changed, added or removed, and are not the code that jobs are to run;"
            " remove this folder, then repeat the command",
        )
        return code

    def ensure(self) -> Code:
        """Make it and hash it once in a command, and return its version: a job of Slurm hashes it when it starts."""
        return self._ensured

    @cached_property
    def _ensured(self) -> Code:
        return self.make()

    @cached_property
    def _made(self) -> Code:
        record = provenance.record_path(self.folder)
        stored = _read(record)
        if self.folder.is_dir() and stored:
            return Code(self.folder.name, stored.get("commit"), stored.get("modified"))
        with ThreadPoolExecutor(1) as other:
            commit = other.submit(provenance.commit)
            try:
                if not self.folder.is_dir():
                    self._write()
            except OSError as error:
                raise UserError(f"{self.folder}: the code cannot be kept there: {error.strerror}") from error
            code = Code(self.folder.name, *commit.result())
        atomic.write_json(record, asdict(code) | {"made": time.time(), "files": self._hashes}, durable=False)
        return code

    def others(self) -> list[Code]:
        """List the other versions that jobs of this run were submitted with, the newest first."""
        return [Code(version["digest"], version.get("commit"), version.get("modified")) for version in self._others()]

    def _others(self) -> list[dict[str, Any]]:
        stored = [_read(path) for path in self._home.glob("*.json") if path.stem != self.folder.name]
        return sorted(filter(None, stored), key=lambda version: version["made"], reverse=True)

    def _same_files(self) -> dict[str, Path]:
        """Return files of the newest other version that are the same in this one; none where its hash does not fit."""
        for version in self._others()[:1]:
            folder = self._home / version["digest"]
            with suppress(UserError):
                hashes = provenance.folder_digests(folder)
                if provenance.code_digest(hashes) == folder.name:
                    return {path: folder / path for path, value in hashes.items() if self._hashes.get(path) == value}
        return {}

    def _write(self) -> None:
        """Write to a temporary folder, then rename; another submit may make the same snapshot at the same time."""
        guarded_writes.make_folder(self._home)
        staged = self._home / f".{self.folder.name}.{atomic.unique_suffix()}"
        before = self._same_files()
        try:
            for folder in {Path(path).parent for path in self._files}:
                (staged / folder).mkdir(parents=True, exist_ok=True)
            for path, content in self._files.items():
                if not (path in before and _link(before[path], staged / path)):
                    _write_once(staged / path, content)
            staged.rename(self.folder)
        except OSError:
            if not self.folder.is_dir():
                raise
        finally:
            shutil.rmtree(staged, ignore_errors=True)


@dataclass(frozen=True)
class CodeRecord:
    """Types of the record beside a snapshot."""

    digest: str
    commit: str | None
    modified: bool | None
    made: float
    files: dict[str, str]

    def __post_init__(self) -> None:
        """Raise `ValueError` for what cannot be a digest or a commit: the digest is the name of a folder."""
        if not HEXADECIMAL.fullmatch(self.digest) or not HEXADECIMAL.fullmatch(self.commit or "0"):
            raise ValueError("holds a digest that cannot be")


def _read(record: Path) -> dict[str, Any] | None:
    """Read the record beside a snapshot; None where it is missing or damaged."""
    return checked_reads.usable(checked_reads.read_mapping, record, CodeRecord)


def _link(existing: Path, new: Path) -> bool:
    """Hard-link a file of another snapshot; return False where the file system or the user cannot."""
    with suppress(OSError):
        os.link(existing, new)
        return True
    return False


def _write_once(path: Path, content: bytes) -> None:
    """Write a new read-only file."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o444)) as file:
        file.write(content)
