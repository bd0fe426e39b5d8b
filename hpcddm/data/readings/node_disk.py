"""Reading from the node's disk: the samples are copied there during the training, and then read from the copy.

A training never waits for the copy: until it is complete, and where it cannot be made, the run's own tars are read.
"""

import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from hpcddm.config.data_variants import ReadingSettings
from hpcddm.data.catalog import Catalog
from hpcddm.data.columns import Column, Numbers
from hpcddm.data.copies import largest_bytes, open_copy, write_copy
from hpcddm.data.images import CatalogImages, CopiedImages, ImageStore
from hpcddm.data.readings.base import Reading
from hpcddm.errors import UserError, require
from hpcddm.files import atomic, guarded_writes
from hpcddm.jobs.unit import Unit
from hpcddm.runs.files import CATALOG_FILE

POLL_SECONDS = 2.0
"""Least seconds between two looks of a rank for the copy that another rank of its node makes."""


CLOSING_SECONDS = 10
"""Seconds for which a training that is over waits for the thread that copies."""


class StagedReadingSettings(ReadingSettings):
    """Settings of the staged reading, which has none: the site's key `scratch` names the disk, else it is TMPDIR's."""


class NodeDiskReading(Reading[StagedReadingSettings]):
    """Reading from a copy on a disk of the node; the first rank of each node makes it, and removes it at the end."""

    @contextmanager
    def open_images(self, unit: Unit, catalog: Catalog, numbers: Column | None) -> Iterator[ImageStore]:
        images = StagedImages(catalog, numbers, staging_folder(unit), unit.ranks.local_rank == 0)
        try:
            yield images
        finally:
            images.close()


def staging_folder(unit: Unit) -> Path:
    """Return the folder of a unit's copy on this node: that of the unit, and in it that of this execution."""
    place = f"{unit.run.root.resolve()}/{unit.key}"
    name = f"hpcddm-staged-{os.getuid()}-{hashlib.sha256(place.encode()).hexdigest()[:16]}"
    return Path(tempfile.gettempdir()) / name / hashlib.sha256(unit.ranks.owner.encode()).hexdigest()[:16]


class _Closed(Exception):
    """Raised in the thread that copies when the training is over."""


class StagedImages(ImageStore):
    """Images of the run's own tars, and of their copy in `folder` once it is complete.

    numbers: of the list that is copied, None for all samples; is_writer: true for the process that makes the copy.
    """

    def __init__(self, catalog: Catalog, numbers: Column | None, folder: Path, is_writer: bool) -> None:
        self._catalog, self._numbers, self._folder, self._is_writer = catalog, numbers, folder, is_writer
        self._shared = CatalogImages(catalog)
        self._copy: ImageStore | None = None
        self._closed, self._is_given_up, self._next_look = threading.Event(), False, 0.0
        self._thread = threading.Thread(target=self._stage, name="staging", daemon=True)
        if is_writer:
            self._thread.start()

    def images(self, numbers: Numbers) -> UInt8[np.ndarray, "n h w c"]:
        self._look()
        # Once, as another thread may give it up meanwhile.
        copy = self._copy
        if copy is not None:
            try:
                return copy.images(numbers)
            except UserError as error:
                self._give_up(error)
        return self._shared.images(numbers)

    def close(self) -> None:
        """Stop copying, and remove the copy."""
        self._closed.set()
        if self._is_writer:
            # A file system that hangs holds nobody up.
            self._thread.join(CLOSING_SECONDS)
            shutil.rmtree(self._folder, ignore_errors=True)
            with suppress(OSError):
                self._folder.parent.rmdir()

    def _look(self) -> None:
        """Open the copy where it is complete."""
        if self._copy is None and not self._is_given_up and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + POLL_SECONDS
            if guarded_writes.is_private_folder(self._folder.parent) and (self._folder / CATALOG_FILE).exists():
                with suppress(UserError):
                    copy = open_copy(self._folder)
                    self._copy = CatalogImages(copy) if self._numbers is None else CopiedImages(copy, self._numbers)

    def _stage(self) -> None:
        started = time.monotonic()
        # What an execution left that was killed here.
        shutil.rmtree(self._folder.parent, ignore_errors=True)
        try:
            listed = range(len(self._catalog)) if self._numbers is None else self._numbers.as_array()
            require(
                guarded_writes.make_private_folder(self._folder.parent),
                f"{self._folder.parent} belongs to somebody else",
            )
            self._folder.mkdir(mode=0o700)
            needed, free = largest_bytes(self._catalog, listed), atomic.free_bytes(self._folder)
            require(needed < free, f"{self._folder}: {free / 1e9:.1f} GB free, the copy can take {needed / 1e9:.1f}")
            write_copy(self._folder, self._catalog, listed, self._leave_if_closed)
        except _Closed:
            return
        except (UserError, OSError) as error:
            self._give_up(error)
            return
        seconds = time.monotonic() - started
        print(f"staged {len(listed):,} samples to {self._folder} in {seconds:.0f} s; they are read there", flush=True)

    def _leave_if_closed(self, _: int) -> None:
        if self._closed.is_set():
            raise _Closed

    def _give_up(self, error: Exception) -> None:
        self._copy, is_first, self._is_given_up = None, not self._is_given_up, True
        if is_first:
            print(f"not staged: {error}; the shared tars are read, which changes no result", flush=True)
        if self._is_writer:
            shutil.rmtree(self._folder, ignore_errors=True)
