import numpy as np
import pytest
import torch

from hpcddm import api
from hpcddm.errors import ConfigError
from hpcddm.pipeline.unit_graph import plan_units
from tests.data.refusals import assert_refused
from tests.pictures import write_folder
from tests.stages.routes import Bench

STORED = ["caption", "crc32", "key", "offset", "size", "tar"]
CAPTIONED = {"data__image_size": 24, "data__channels": 3, "data__num_classes": None, "cluster__experts": 2}
CAPTIONED |= {"data__condition": {"name": "none"}, "evaluators__classifier": None, "evaluate__images": 20}
CAPTIONED |= {"encode__encoder": {"name": "pixels", "size": 4}, "evaluate__batch": 10}


def bench_in(folder):
    """A run on captioned pictures."""
    source = {"name": "image_folder", "folder": str(write_folder(folder / "emoji"))}
    return Bench(folder, "run", data__source=source, **CAPTIONED)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The data of such a run."""
    bench = bench_in(tmp_path_factory.mktemp("named"))
    bench.make_data()
    return api.Run(bench.run, bench.settings)


@pytest.mark.parametrize("threads", [0, 2])
def test_batches_have_the_images_and_the_columns_that_are_asked_for(run, threads):
    samples, numbers = run.data(), np.random.default_rng(0).permutation(100)
    assert samples.columns == sorted([*STORED, "cluster", "features"])
    batches = list(samples.batches(32, ["caption", "cluster", "features", "key"], numbers, threads))
    assert [len(batch["images"]) for batch in batches] == [32, 32, 32, 4]
    assert set(batches[0]) == {"images", "caption", "cluster", "features", "key"}
    assert batches[0]["features"].shape == (32, 48) and batches[0]["features"].dtype == torch.float16
    assert batches[0]["cluster"].dtype == torch.int64
    for name, asked in {"images": samples.images, "cluster": samples.clusters}.items():
        assert np.array_equal(torch.cat([batch[name] for batch in batches]), asked(numbers))
    for name, texts in {"caption": samples.captions(numbers), "key": samples.keys(numbers)}.items():
        assert [text for batch in batches for text in batch[name]] == texts


def test_without_names_batches_are_images_of_all_samples_in_their_order(run):
    heldout = run.data("heldout")
    with heldout.batches(30) as batches:
        images = torch.cat([batch["images"] for batch in batches])
    assert np.array_equal(images, heldout.images(range(len(heldout))))


def test_a_column_that_there_is_not_is_refused_at_once_with_those_that_there_are(run):
    valid = "caption, cluster, crc32, features, key, offset, size, tar"
    for ask in (lambda: run.data().batches(8, ["label"]), lambda: run.data().column("label", [0])):
        assert_refused(f"columns: unknown name label; valid names: {valid}", ask, error=ConfigError)


def test_batches_refuse_a_wrong_argument_by_its_name(run):
    for arguments, message in (
        ({"size": 0}, "^size: a batch cannot have 0 samples; it is 1 or more$"),
        ({"size": -3}, "^size: a batch cannot have -3 samples"),
        ({"size": 8, "threads": -1}, "^threads: -1; it is 0, to read each batch when it is taken, or more$"),
        ({"size": 8, "columns": "caption"}, r"^columns: 'caption' is one text; give a list .*, as \['caption'\]$"),
    ):
        assert_refused(message, run.data().batches, **arguments, error=ConfigError)


def test_columns_of_stages_are_there_when_all_have_clusters(tmp_path):
    bench = bench_in(tmp_path)
    bench.make(*(unit.key for unit in plan_units(bench.settings) if unit.stage in ("shard", "catalog")))
    samples = api.Run(bench.run, bench.settings).data()
    assert samples.columns == STORED and samples.column("size", [3, 1]).dtype == torch.int64
    with pytest.raises(ConfigError, match="unknown name cluster; valid names: caption, crc32"):
        samples.column("cluster", [0])


def test_a_file_of_a_column_that_is_gone_is_named(run):
    path = next(run._run.root.glob("encode/train-*/features.h5"))
    path.rename(path.with_suffix(".away"))
    try:
        assert_refused("lists/all is waiting .assign/train-000 is not complete.; next: hpcddm", run.data)
    finally:
        path.with_suffix(".away").rename(path)
