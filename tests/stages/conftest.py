"""Runs on a collection of img2dataset, whose tars are adopted."""

import shutil

import pytest

from hpcddm.loading.content_hashes import with_tar_counts
from tests.pictures import IMG2DATASET
from tests.stages.adopting import ADOPTED
from tests.stages.routes import Bench


@pytest.fixture
def collection(tmp_path):
    """A copy of the tars of img2dataset."""
    return shutil.copytree(IMG2DATASET, tmp_path / "collection")


@pytest.fixture
def adopted_run(tmp_path, collection):
    """Return a function that prepares a run of the collection, with other keys of data."""

    def make(heldout=None, own=None, **changes):
        source = {"name": "webdataset", "folder": str(collection), "heldout": heldout or {"shards": 1}, "label": None}
        run = Bench(tmp_path, "run", data__source=source | (own or {}), **(ADOPTED | changes))
        run.settings = with_tar_counts(run.settings)
        return run

    return make
