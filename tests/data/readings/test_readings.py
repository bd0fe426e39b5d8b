"""Every way of reading gives the same batches, to the bit."""

import shutil
import time
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from PIL import Image

from hpcddm.config import variants
from hpcddm.config.data_variants import ReadingSettings
from hpcddm.data.batch import NoisyBatches
from hpcddm.data.column_files import write_columns
from hpcddm.data.columns import Column
from hpcddm.data.copies import write_copy
from hpcddm.data.loader import Loader
from hpcddm.data.orders.base import ListOrder
from hpcddm.data.reader import CatalogReader
from hpcddm.data.readings import node_disk
from hpcddm.data.readings.base import Reading
from hpcddm.data.tars import tar_writing
from hpcddm.data.tars.record import Record
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.stopping import StopFlag
from hpcddm.jobs.unit import Unit
from hpcddm.randomness.keyed import RandomDraws
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import MONOLITH, expert_key
from hpcddm.stages.data.copy_lists import copy_key
from tests.catalogs import CENTRE_CROP, catalog_of
from tests.orders import uniform, windowed

SIDE, COUNT, STEPS, BATCH = 8, 60, 8, 8
KEY = expert_key(0)
LISTED = np.flatnonzero(np.arange(COUNT) % 3 != 1).astype(np.uint32)
READINGS = variants.list_variants(ReadingSettings.package)
ORDERS = {"uniform": uniform, "windowed": windowed}


class Data:
    """Sixty samples in a run's tars, the list of an expert, and the list's copy as the stage copy_lists makes it."""

    def __init__(self, root):
        self.run, pixels = RunDir(root), np.random.default_rng(0).integers(0, 256, (COUNT, SIDE, SIDE))
        images = [Image.fromarray(values.astype(np.uint8)) for values in pixels]
        for first in range(0, COUNT, 15):
            records = [Record(str(number), images[number], number % 4) for number in range(first, first + 15)]
            tar_writing.write_tar(root / f"{first}.tar", records, SIDE, 1, CENTRE_CROP)
        self.catalog = catalog_of(root, [root / f"{first}.tar" for first in range(0, COUNT, 15)], ranges=2)
        write_columns(root / "list.h5", {"numbers": LISTED})
        write_columns(root / "clusters.h5", {"cluster": np.arange(COUNT, dtype=np.uint16) % 3})
        self.listed = Column("numbers", {root / "list.h5": len(LISTED)})
        self.clusters = Column("cluster", {root / "clusters.h5": COUNT})
        folder = self.run.unit(copy_key(0))
        folder.mkdir(parents=True)
        write_copy(folder, self.catalog, LISTED, lambda done: None)

    def unit(self, key=KEY, local_rank=0, owner="me"):
        ranks = Ranks(local_rank, local_rank, 2, 1, owner)
        return Unit(key, self.run, ranks, None, None, StopFlag(), {copy_key(0): None}, "f")

    def opened(self, name, unit=None, listed=True):
        reading = variants.create(Reading, variants.settings_class(ReadingSettings.package, name)(name=name))
        return reading.open_images(unit or self.unit(), self.catalog, self.listed if listed else None)

    def batches(self, images, order="uniform", listed=True):
        reader = CatalogReader(self.catalog, self.clusters, images)
        rows = ORDERS[order](0, KEY, len(LISTED) if listed else COUNT)
        draws = RandomDraws(0, KEY)
        numbers = ListOrder(self.listed, rows) if listed else rows

        def carried(rows, dropped):
            return torch.where(dropped, 9, reader.labels(rows))

        return NoisyBatches(reader, numbers, draws, carried, lambda condition: condition, 0.2, (1, SIDE, SIDE))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return Data(tmp_path_factory.mktemp("run"))


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """A disk of the node, on which a rank looks for the copy all the time."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    monkeypatch.setattr(node_disk, "POLL_SECONDS", 0.0)
    return tmp_path / "scratch"


def values(batches, world_size=1, threads=0):
    """All tensors of all batches, those of the ranks one behind the other."""
    share = BATCH // world_size
    spans = [range(first, first + share) for first in range(0, STEPS * BATCH, share)]
    with Loader(batches.read, spans, threads) as loader:
        read = list(loader)
    names = ("x0", "condition", "clusters", "noise", "time")
    return {name: torch.cat([getattr(batch, name) for batch in read]) for name in names}


def await_copy(images):
    """Wait until the images come from the copy."""
    deadline = time.monotonic() + 30
    while images._copy is None and time.monotonic() < deadline:
        time.sleep(0.01)
        images._look()
    assert images._copy is not None


PAIRWISE = [(1, 0, "uniform", True), (2, 1, "windowed", True), (4, 4, "uniform", False), (1, 4, "windowed", False)]


@pytest.mark.parametrize("world_size, threads, order, listed", PAIRWISE)
@pytest.mark.parametrize("name", READINGS)
def test_batches_are_the_same_in_every_reading_at_any_ranks_and_threads(data, name, world_size, threads, order, listed):
    with data.opened("shards", listed=listed) as images:
        reference = values(data.batches(images, order, listed))
    with data.opened(name, listed=listed) as images:
        for _ in range(2):  # while the samples are staged, and afterwards
            read = values(data.batches(images, order, listed), world_size, threads)
            assert all(torch.equal(read[field], reference[field]) for field in reference)
            if name == "node_disk":
                await_copy(images)


@contextmanager
def without_the_shared_tars(data):
    tars = [data.catalog.tar(number)[0] for number in range(4)]
    contents = [path.read_bytes() for path in tars]
    for path in tars:
        path.unlink()
    try:
        yield
    finally:
        for path, content in zip(tars, contents, strict=True):
            path.write_bytes(content)


def test_what_is_materialised_is_read_from_the_copy(data):
    expected = CatalogReader(data.catalog).images(LISTED)
    with without_the_shared_tars(data), data.opened("expert_copy") as images:
        assert np.array_equal(images.images(LISTED), expected)


def test_what_is_staged_is_read_from_the_disk_of_the_node_and_removed_at_the_end(data, scratch, capsys):
    with data.opened("node_disk") as images:
        await_copy(images)
        (folder,) = (path.parent for path in scratch.rglob("*.tar"))
        assert oct(folder.stat().st_mode)[-3:] == "700"
        with without_the_shared_tars(data):
            read = images.images([0, 2])
        # All ranks of the node read it; this one found it there.
        with data.opened("node_disk", data.unit(local_rank=1)) as others:
            await_copy(others)
            assert np.array_equal(others.images([0, 2]), read)
        assert folder.exists()
    assert list(scratch.iterdir()) == []
    assert f"staged {len(LISTED)} samples to {folder}" in capsys.readouterr().out


def test_a_copy_that_vanishes_is_said_once_and_the_shared_tars_are_read(data, scratch, capsys):
    with data.opened("node_disk") as images:
        await_copy(images)
        shutil.rmtree(scratch)
        for _ in range(2):
            assert np.array_equal(images.images(LISTED), CatalogReader(data.catalog).images(LISTED))
    said = capsys.readouterr().out
    assert said.count("not staged: ") == 1 and "the shared tars are read, which changes no result" in said


def test_a_disk_that_is_too_small_is_said_and_the_shared_tars_are_read(data, scratch, capsys, monkeypatch):
    monkeypatch.setattr("hpcddm.files.atomic.free_bytes", lambda folder: 1000)
    with data.opened("node_disk", data.unit(MONOLITH), listed=False) as images:
        images._thread.join()
        assert np.array_equal(images.images([3]), CatalogReader(data.catalog).images([3]))
    assert "0.0 GB free, the copy can take 0.0" in capsys.readouterr().out and list(scratch.iterdir()) == []


def test_a_folder_that_others_can_write_is_not_read(data, scratch, capsys):
    folder = node_disk.staging_folder(data.unit())
    folder.parent.mkdir()
    folder.parent.chmod(0o777)
    folder.mkdir()
    write_copy(folder, data.catalog, LISTED, lambda done: None)
    with data.opened("node_disk", data.unit(local_rank=1)) as images:
        assert np.array_equal(images.images([0]), CatalogReader(data.catalog).images([0])) and images._copy is None
    shutil.rmtree(folder.parent)
    folder.parent.symlink_to(scratch.parent)
    with data.opened("node_disk") as images:
        images._thread.join()
        assert np.array_equal(images.images([0]), CatalogReader(data.catalog).images([0]))
    assert "belongs to somebody else; the shared tars are read" in capsys.readouterr().out


def test_what_a_killed_execution_left_on_the_node_is_removed_by_the_next_one(data, scratch):
    left = node_disk.staging_folder(data.unit(owner="killed"))
    left.mkdir(parents=True)
    (left / "images-00000.tar").write_bytes(b"x" * 1000)
    other = node_disk.staging_folder(data.unit(expert_key(1)))
    other.mkdir(parents=True)
    with data.opened("node_disk") as images:
        await_copy(images)
        assert not left.exists() and other.exists()
