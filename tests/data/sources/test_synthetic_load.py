"""Invented samples whose pictures are those of real tars, through the data stages."""

from collections import Counter

import numpy as np
import pytest

from hpcddm.config import variant_files
from hpcddm.data import run_samples
from hpcddm.data.images import TarImages
from hpcddm.errors import UserError
from hpcddm.launch.content_hashes import with_tar_counts
from hpcddm.runs import manifest
from hpcddm.runs.unit_keys import EXPERT_LISTS, MONOLITH
from tests.pictures import IMG2DATASET
from tests.stages.routes import Bench

pytestmark = pytest.mark.usefixtures("load_variants")
LOAD = {
    "data__source": {
        "name": "synthetic_load",
        "folder": str(IMG2DATASET),
        "samples": 950,
        "heldout_samples": 60,
        "samples_per_tar": 200,
        "words": 300,
    },
    "data__image_size": 16,
    "data__channels": 3,
    "data__num_classes": None,
    "data__condition": {"name": "none"},
    "evaluators__classifier": None,
    "encode__encoder": {"name": "synthetic_load", "size": 6, "cubes": 4},
    "cluster__clustering": {"name": "kmeans", "fine_clusters": 16, "iterations": 10, "restarts": 1, "max_share": None},
    "cluster__experts": 4,
}


def made(folder, name):
    bench = Bench(folder, name, **LOAD)
    bench.settings = with_tar_counts(bench.settings)
    bench.make_data()
    return bench


def test_as_many_samples_as_wanted_have_keys_captions_features_and_real_pictures(tmp_path):
    bench, again = made(tmp_path, "first"), made(tmp_path, "again")
    unit = bench.unit(MONOLITH)
    reader, catalog = run_samples.open_reader(unit, "train"), run_samples.open_unit_catalog(unit, "train")
    assert len(reader) == 950 and len(run_samples.open_reader(unit, "heldout")) == 60
    assert len(set(reader.keys(range(950)))) == 950
    assert reader.images(range(940, 950)).shape == (10, 16, 16, 3)
    files = TarImages(catalog).files(range(950))
    assert 20 < len(set(files)) < 200 and files[0] == files[len(set(TarImages(catalog).files(range(200))))]
    results = [manifest.read(bench.run.unit(EXPERT_LISTS)).results for bench in (bench, again)]
    assert results[0] == results[1] and sum(results[0]["sizes"]) == 950 and min(results[0]["sizes"]) > 100


def test_words_are_as_frequent_as_their_rank_says():
    captions = variant_files.import_file("data/sources", "synthetic_load").captions
    counts = Counter(" ".join(captions(np.random.default_rng(0), 20_000, 1000)).split())
    shares = [counts[f"word{rank}"] / counts["word1"] for rank in (2, 4, 10, 100)]
    assert shares == pytest.approx([1 / 2, 1 / 4, 1 / 10, 1 / 100], rel=0.1)


def test_a_folder_without_tars_is_named(tmp_path):
    bench = Bench(tmp_path, "run", **(LOAD | {"data__source": LOAD["data__source"] | {"folder": str(tmp_path)}}))
    with pytest.raises(UserError, match=r"data.source.folder: .* has no tars of real pictures"):
        with_tar_counts(bench.settings)
