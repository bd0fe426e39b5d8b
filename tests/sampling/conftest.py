"""Held-out images of two clusters, for whatever measures a denoiser on them."""

from types import SimpleNamespace
from unittest.mock import create_autospec

import numpy as np
import pytest

from hpcddm.data import run_samples
from hpcddm.data.catalog import Catalog
from hpcddm.data.reader import ArrayReader


@pytest.fixture
def heldout_clusters(monkeypatch):
    """The clusters of eight held-out images, which every unit of the test reads."""
    of_image = np.array([0, 1, 1, 0, 1, 1, 1, 0])
    images = np.random.default_rng(0).integers(0, 256, (8, 8, 8, 1)).astype(np.uint8)
    reader = ArrayReader(images, np.arange(8) % 4, of_image)
    column = SimpleNamespace(gather=lambda numbers: of_image[numbers])
    monkeypatch.setattr(run_samples, "open_reader", lambda unit, split: reader)
    catalog = create_autospec(Catalog, instance=True)
    catalog.__len__.return_value = 8
    monkeypatch.setattr(run_samples, "open_unit_catalog", lambda unit, split: catalog)
    monkeypatch.setattr(run_samples, "clusters", lambda catalog: column)
    monkeypatch.setattr(run_samples, "sample_expert_list", lambda unit, expert, seed, count: np.arange(3))
    return of_image
