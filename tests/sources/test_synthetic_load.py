"""Invented samples whose pictures are those of real tars, through the data stages."""

import pytest

from hpcddm.data import run_samples
from hpcddm.data.images import CatalogImages
from hpcddm.loading.content_hashes import with_tar_counts
from hpcddm.runs import manifest
from hpcddm.runs.unit_keys import EXPERT_LISTS, MONOLITH
from tests.data.refusals import assert_refused
from tests.helpers import CLUSTERING
from tests.pictures import IMG2DATASET
from tests.stages.routes import Bench

pytestmark = pytest.mark.usefixtures("load_variants")
SOURCE = {"name": "synthetic_load", "folder": str(IMG2DATASET), "samples": 450, "heldout_samples": 60}
SOURCE |= {"samples_per_tar": 200, "words": 300}
LOAD = {"data__source": SOURCE, "data__image_size": 16, "data__channels": 3, "data__num_classes": None}
LOAD |= {"data__condition": {"name": "none"}, "evaluators__classifier": None, "cluster__experts": 4}
LOAD |= {"encode__encoder": {"name": "synthetic_load", "size": 6, "cubes": 4}}
LOAD |= {"cluster__clustering": CLUSTERING | {"fine_clusters": 16, "iterations": 10}}


def test_as_many_samples_as_wanted_have_keys_captions_features_and_real_pictures(tmp_path):
    bench = Bench(tmp_path, "run", **LOAD)
    bench.settings = with_tar_counts(bench.settings)
    bench.make_data()
    unit = bench.unit(MONOLITH)
    reader, catalog = run_samples.open_reader(unit, "train"), run_samples.open_unit_catalog(unit, "train")
    assert len(reader) == len(set(reader.keys(range(450)))) == 450
    assert reader.images(range(440, 450)).shape == (10, 16, 16, 3)
    assert 20 < len(set(CatalogImages(catalog).files(range(450)))) < 200
    sizes = manifest.read(bench.run.unit(EXPERT_LISTS)).results["sizes"]
    assert sum(sizes) == 450 and min(sizes) > 30


def test_a_folder_without_tars_is_named(tmp_path):
    bench = Bench(tmp_path, "run", **(LOAD | {"data__source": SOURCE | {"folder": str(tmp_path)}}))
    assert_refused(r"data.source.folder: .* has no tars of real pictures", with_tar_counts, bench.settings)
