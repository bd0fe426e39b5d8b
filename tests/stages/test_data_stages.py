"""The data stages one after the other on a few images: numbers, ranges, lists."""

from dataclasses import replace

import h5py
import numpy as np
import pytest
from PIL import Image

from hpcddm.data import run_samples
from hpcddm.data.copies import open_copy
from hpcddm.data.image_decoding import decode
from hpcddm.data.tars import tar_index
from hpcddm.errors import UserError
from hpcddm.runs import manifest, ranges
from hpcddm.runs.run_dir import set_aside
from hpcddm.runs.unit_keys import CATALOG, CLUSTER, EXPERT_LISTS, MONOLITH
from hpcddm.sources.idx import IdxSplit
from tests.catalogs import CENTRE_CROP
from tests.helpers import JOINED, SIDE, write_source
from tests.stages.routes import Bench

TINY = {
    "data__image_size": 8,
    "data__num_classes": 4,
    "data__shards": 5,
    "encode__encoder": {"name": "pixels", "size": 4},
    "cluster__clustering": {"name": "kmeans", "fine_clusters": 8, "iterations": 5, "restarts": 1},
    "cluster__experts": 3,
    "experts__training__batch": 12,
    "evaluate__images": 24,
    "evaluate__batch": 8,
}


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Make all data stages with so many ranges at most."""
    write_source(tmp_path / "images")

    def make(most, **changes):
        monkeypatch.setattr(ranges, "MAX_RANGES", most)
        bench = Bench(tmp_path, f"run-{most}", **TINY, **changes)
        bench.make_data()
        return bench

    return make


def test_the_number_of_ranges_changes_no_list_and_no_sample(made):
    one, other = made(256), made(2)
    assert len(list(one.run.root.glob("assign/train-*"))) == 5 and len(list(other.run.root.glob("assign/train-*"))) == 2
    for key in (CATALOG, EXPERT_LISTS):
        before, after = (manifest.read(bench.run.unit(key)).results for bench in (one, other))
        assert before == after and before["digests"]
    readers = [run_samples.open_reader(bench.unit(MONOLITH), "train") for bench in (one, other)]
    for name in ("images", "labels", "clusters"):
        assert np.array_equal(*(getattr(reader, name)(range(96)) for reader in readers)), name
    clusters = readers[0].clusters(range(96))
    for expert in range(3):
        own = numbers_in(run_samples.expert_list(one.unit(MONOLITH), expert))
        assert own == np.flatnonzero(clusters == expert).tolist()


def test_the_sample_whose_features_are_no_numbers_is_named(made):
    bench = made(2)
    path = bench.run.unit("encode/train-001") / "features.h5"
    with h5py.File(path, "r+") as file:
        file["features"][7, 3] = np.nan
    reader = run_samples.open_reader(bench.unit(MONOLITH), "train")
    (key,) = reader.keys([len(reader) - len(h5py.File(path)["features"]) + 7])
    with pytest.raises(UserError, match=f"encode.encoder: pixels gives {key} features that are NaN or infinite"):
        bench.make(CLUSTER)


def test_a_list_by_keys_has_their_samples_and_leaves_the_others_alone(made, tmp_path):
    bench = made(2)
    before = {path: path.read_bytes() for path in bench.run.unit(EXPERT_LISTS).iterdir()}
    keys = run_samples.open_reader(bench.unit(MONOLITH), "train").keys(range(96))
    (tmp_path / "hats.txt").write_text("\n".join(keys[number] for number in (70, 3, 12)))
    bench.settings = bench.experiment(**TINY, experts__extra=[JOINED | {"list": str(tmp_path / "hats.txt")}])
    bench.make("expert_lists/hats")
    assert numbers_in(run_samples.expert_list(bench.unit("train/hats"), "hats")) == [3, 12, 70]
    catalog = run_samples.open_unit_catalog(bench.unit(MONOLITH), "train")
    results = manifest.read(bench.run.unit("expert_lists/hats")).results
    assert results["digests"] == {"hats": catalog.digest([3, 12, 70])}
    assert results["lists"]["hats"] == {"samples": 3, "class_counts": [1, 0, 1, 1]}
    assert {path: path.read_bytes() for path in bench.run.unit(EXPERT_LISTS).iterdir() if path.is_file()} == before
    set_aside(bench.run, EXPERT_LISTS)
    assert not (bench.run.unit(EXPERT_LISTS) / "manifest.json").exists()
    assert manifest.read(bench.run.unit("expert_lists/hats")) is not None


def test_another_file_than_was_submitted_is_refused(made, tmp_path):
    bench = made(2)
    (tmp_path / "hats.txt").write_text("anything")
    entry = JOINED | {"list": str(tmp_path / "hats.txt"), "content_hash": "of another file"}
    bench.settings = bench.experiment(**TINY, experts__extra=[entry])
    with pytest.raises(UserError, match="hats.txt: has changed since the run was submitted"):
        bench.make("expert_lists/hats")


def test_experts_are_trained_on_a_share_of_other_clusters_which_changes_no_cluster(made, tmp_path):
    bench = made(2)
    before, unit = manifest.read(bench.run.unit(EXPERT_LISTS)).results, bench.unit(MONOLITH)
    own = [numbers_in(run_samples.expert_list(unit, expert)) for expert in range(3)]
    assert [numbers_in(run_samples.training_list(unit, expert)) for expert in range(3)] == own
    mixing = {"experts__other_clusters_share": 0.2, "data__read_from": {"name": "expert_copy"}}
    bench.settings = bench.experiment(**TINY, **mixing)
    bench.make(EXPERT_LISTS, "copy_lists/expert-01")
    after, unit = manifest.read(bench.run.unit(EXPERT_LISTS)).results, bench.unit(MONOLITH)
    assert [numbers_in(run_samples.expert_list(unit, expert)) for expert in range(3)] == own
    assert after["sizes"] == before["sizes"] and after["digests"]["all"] == before["digests"]["all"]
    for expert, numbers in enumerate(own):
        mixed, name = numbers_in(run_samples.training_list(unit, expert)), f"expert-{expert:02d}"
        count = round(len(numbers) / 4)
        assert set(numbers) < set(mixed) and len(mixed) == len(numbers) + count and mixed == sorted(set(mixed))
        assert after["lists"][name] == before["lists"][name] | {"other_clusters": count}
        assert after["digests"][name] != before["digests"][name]
    copy = open_copy(bench.run.unit("copy_lists/expert-01"))
    reader, mixed = run_samples.open_reader(unit, "train"), numbers_in(run_samples.training_list(unit, 1))
    assert copy.texts("key").gather(range(len(copy))) == reader.keys(mixed)
    bench.settings = bench.experiment(**TINY, experts__other_clusters_share=0.9)
    with pytest.raises(UserError, match=r"experts\.other_clusters_share: cluster 0 has \d+ samples, and only"):
        bench.make(EXPERT_LISTS)


def numbers_in(listed):
    return listed.gather(range(len(listed))).tolist()


@pytest.fixture
def shared_keys(monkeypatch):
    """Give three training samples, of two tars, the key of the first, and a held-out sample that of a training one."""
    real = IdxSplit.__getitem__

    def shared(split, number):
        record = real(split, number)
        keys = {3: "twice", 30: "twice", 90: "twice"} if split.split == "train" else {2: "train-0000005"}
        return replace(record, key=keys.get(number, record.key))

    monkeypatch.setattr(IdxSplit, "__getitem__", shared)


@pytest.mark.usefixtures("shared_keys")
def test_keys_that_samples_share_are_named(made):
    said = "3 samples have a key that another one has, twice, train-0000005; .*data.duplicates: drop"
    with pytest.raises(UserError, match=said):
        made(256)


@pytest.mark.usefixtures("shared_keys")
def test_of_samples_that_share_a_key_the_first_is_kept_on_request(made):
    bench = made(256, data__duplicates="drop")
    train, heldout = (run_samples.open_reader(bench.unit(MONOLITH), split) for split in ("train", "heldout"))
    keys = train.keys(range(len(train)))
    assert keys == [f"train-{number:07d}" if number != 3 else "twice" for number in range(96) if number not in (30, 90)]
    assert train.labels(range(94)).tolist() == [number % 4 for number in range(96) if number not in (30, 90)]
    assert train.images(range(94)).shape == (94, 8, 8, 1) and train.clusters(range(94)).shape == (94,)
    assert len(heldout) == 39 and "train-0000005" not in heldout.keys(range(39))
    assert manifest.read(bench.run.unit(CATALOG)).results["duplicates"] == 3


def test_images_that_change_between_the_units_that_write_them_are_noticed(tmp_path):
    for number in range(40):
        path = tmp_path / "images" / "train" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), number).save(path)
    source = {"name": "image_folder", "folder": str(tmp_path / "images" / "train"), "heldout": {"share": 0.3}}
    bench = Bench(tmp_path, "run", **(TINY | {"data__source": source, "data__num_classes": 2, "data__shards": 2}))
    bench.make("shard/train-000")
    (tmp_path / "images" / "train" / "a" / "0.png").unlink()
    bench.make("shard/train-001", "shard/heldout-000")
    with pytest.raises(UserError, match="changed while their tars were written .*train-000 and shard/train-001"):
        bench.make(CATALOG)


@pytest.mark.parametrize("transform, edges", [("centre_crop", [120, 120]), ("resize", [40, 200])])
def test_tars_have_pictures_as_the_experiments_transform_makes_them(tmp_path, monkeypatch, transform, edges):
    real = IdxSplit.__getitem__

    def wide(split, number):
        record = real(split, number)
        thirds = np.array([[40, 120, 200]], np.uint8).repeat(SIDE, axis=0).repeat(SIDE, axis=1)
        return type(record)(record.key, Image.fromarray(thirds), record.label)

    write_source(tmp_path / "images")
    monkeypatch.setattr(IdxSplit, "__getitem__", wide)
    bench = Bench(tmp_path, "run", **TINY, data__transform={"name": transform})
    bench.make("shard/train-000")
    index = tar_index.index_tar(bench.run.unit("shard/train-000") / "images-00000.tar")
    content = index.path.read_bytes()[int(index.offsets[0]) :][: int(index.sizes[0])]
    assert np.abs(decode(content, 1, SIDE, CENTRE_CROP)[:, [0, -1], 0].astype(int) - edges).max() <= 1


def test_what_a_bound_on_clusters_costs_is_in_the_manifest_and_the_log(made, capsys):
    bench = made(2)
    bounded = TINY["cluster__clustering"] | {"max_share": 0.5}
    bench.settings = bench.experiment(**(TINY | {"cluster__clustering": bounded}))
    bench.make("cluster/all")
    results = manifest.read(bench.run.unit("cluster/all")).results
    assert results["largest_share"] <= 0.5 and results["inertia"] >= results["inertia_without_max_share"] - 1e-9
    assert "inertia_without_max_share" in capsys.readouterr().out
