"""Collections as they are through the first stages: a share held out, paths relative to the run, keys, captions."""

import h5py
import numpy as np
import pytest

from hpcddm.data.run_samples import open_catalog
from hpcddm.data.tars.tar_index import index_tar
from hpcddm.launch.checks import disk_estimates
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.stored_experiment import with_relative_paths
from hpcddm.runs.unit_keys import CATALOG
from hpcddm.sources.heldout_share import is_heldout
from hpcddm.sources.tables.tables import Table
from hpcddm.stages.data import shard_job
from tests import pictures
from tests.sources import ilsvrc
from tests.sources.opening import records_of, split_of
from tests.stages.routes import Bench

SHARE = {"heldout": {"share": 0.5}}


def folder_of_classes(root):
    """One folder with three classes, without captions."""
    records = records_of("image_folder", folder=str(pictures.write_folder(root / "all")))
    for number, record in enumerate(records[:90]):
        place = root / "classes" / f"class-{number % 3}" / f"{record.key}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        record.image.save(place)
    return {"name": "image_folder", "folder": "classes"} | SHARE, 90, {"label"}


def array_file(root):
    """An HDF5 file with captions."""
    records = records_of("image_folder", folder=str(pictures.write_folder(root / "all")))[:60]
    with h5py.File(root / "images.h5", "w") as file:
        file["x"] = np.stack([np.asarray(record.image) for record in records])
        file["texts"] = [record.caption for record in records]
    return {"name": "arrays", "file": "images.h5", "images": "x", "captions": "texts"} | SHARE, 60, {"caption"}


def folder_with_captions(root):
    """The same folder with a text beside every picture."""
    source, count, columns = folder_of_classes(root)
    for picture in (root / "classes").glob("*/*.png"):
        picture.with_suffix(".txt").write_text(f"a picture, {picture.stem}")
    return source, count, columns | {"caption"}


def ilsvrc_tree(root):
    """ImageNet, with a part of the training images held out."""
    ilsvrc.write_images(root / "imagenet", of_class=6)
    ilsvrc.write_mapping(root / "imagenet")
    return {"name": "imagenet", "folder": "imagenet"} | SHARE, 60, {"label"}


COLLECTIONS = pytest.mark.parametrize("collection", [folder_of_classes, array_file, folder_with_captions, ilsvrc_tree])


@COLLECTIONS
def test_a_collection_becomes_tars_with_a_share_held_out(tmp_path, collection):
    source, count, columns = collection(tmp_path)
    bench = plain(tmp_path, source, data__shards=2)
    bench.settings = with_relative_paths(with_content_hashes(bench.settings, bench.run), bench.run)
    assert str(tmp_path) not in bench.settings.model_dump_json() and bench.settings.data.content_hash
    counts = disk_estimates.image_counts(bench.settings, bench.run)
    bench.make(*(unit.key for unit in plan_units(bench.settings) if unit.stage == "shard"), CATALOG)
    catalogs = {split: open_catalog(bench.run, split) for split in ("train", "heldout")}
    assert {split: len(catalog) for split, catalog in catalogs.items()} == counts and sum(counts.values()) == count
    for split, catalog in catalogs.items():
        assert all(catalog.has(name) for name in columns)
        keys = catalog.texts("key").gather(range(len(catalog)))
        assert [is_heldout(key, 0.5) for key in keys] == [split == "heldout"] * len(keys)


def test_of_a_folder_sorted_by_class_some_tars_keep_nothing_and_what_is_no_picture_is_broken(tmp_path):
    source, count, _ = folder_of_classes(tmp_path)
    (tmp_path / "classes" / "class-2" / "torn.png").write_bytes(b"no picture")
    changes = {"data__filter": "label >= 1 and width > 16", "data__max_broken_share": 0.1, "data__shards": 4}
    bench = plain(tmp_path, source, **changes)
    bench.make(*(unit.key for unit in plan_units(bench.settings) if unit.stage == "shard"), CATALOG)
    catalogs = [open_catalog(bench.run, split) for split in ("train", "heldout")]
    assert sum(map(len, catalogs)) == count * 2 // 3
    assert all((catalog.column("label").gather(range(len(catalog))) >= 1).all() for catalog in catalogs)
    (broken,) = [path.read_text() for path in bench.run.root.glob("shard/*/broken.jsonl")]
    assert "torn.png: no readable image" in broken


def plain(tmp_path, source, **changes):
    """A run of a collection without classes and conditions."""
    base = {"data__num_classes": None, "data__condition": {"name": "none"}, "evaluators__classifier": None}
    base |= {"data__image_size": 16, "data__channels": 3, "data__shards": 1}
    return Bench(tmp_path, "run", data__source=source, **(base | changes))


@COLLECTIONS
def test_a_key_is_known_without_the_picture(tmp_path, collection, monkeypatch):
    source = collection(tmp_path)[0]
    records = split_of(**absolute(source, tmp_path))
    several = split_of("collections", sources=[absolute(source, tmp_path) | {"collection": "first"}])
    expected = [record.key for record in records_of(**absolute(source, tmp_path))]
    monkeypatch.setattr(type(records), "__getitem__", None)
    assert [records.key(number) for number in range(len(records))] == expected
    assert [several.key(number) for number in range(len(several))] == [f"first/{key}" for key in expected]


def absolute(source, root):
    """The source with its paths below a folder."""
    return source | {key: str(root / source[key]) for key in ("folder", "file") if key in source}


def test_a_table_chooses_records_and_is_read_once_for_a_unit(tmp_path, monkeypatch):
    source = folder_of_classes(tmp_path)[0] | {"collection": "mine"}
    keys = [f"mine/{record.key}" for record in records_of(**absolute(source, tmp_path))]
    rows = [f"{key},{number % 3}" for number, key in enumerate(keys)]
    (tmp_path / "scores.csv").write_text("\n".join(["key,score", *rows]) + "\n")
    asked = []
    real = Table.rows
    monkeypatch.setattr(Table, "rows", lambda table, *names: asked.append(1) or real(table, *names))
    monkeypatch.setattr(shard_job, "IMAGES_AT_ONCE", 4)
    made = plain(tmp_path, source, data__filter="score >= 1 and width > 3", data__table={"file": "scores.csv"})
    made.make("shard/train-000")
    index = index_tar(made.run.unit("shard/train-000") / "images-00000.tar")
    assert index.keys == [key for number, key in enumerate(keys) if number % 3] and asked == [1]
