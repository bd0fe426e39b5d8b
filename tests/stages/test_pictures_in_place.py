"""Pictures that are files of their own, read where they are: the same pixels as from tars, and no copy."""

import os
import shutil

import numpy as np
import pytest

from hpcddm.data import run_samples
from hpcddm.data.copies import open_copy
from hpcddm.data.images import CatalogImages
from hpcddm.errors import UserError
from hpcddm.runs import manifest
from hpcddm.runs.unit_keys import CATALOG, MONOLITH
from tests import pictures
from tests.sources import ilsvrc
from tests.stages.adopting import ADOPTED, keys_of
from tests.stages.routes import Bench

CHANGES = ADOPTED | {"evaluate__images": 20, "data__shards": 3, "data__read_from": {"name": "expert_copy"}}


def bench_of(root, name, source, **changes):
    made = Bench(root, name, data__source={"name": "image_folder"} | source, **(CHANGES | changes))
    made.make_data()
    return made


def everything(bench, split="train"):
    """Keys, images and classes of a split."""
    reader = run_samples.open_reader(bench.unit(MONOLITH), split)
    numbers = range(len(reader))
    return reader.keys(numbers), reader.images(numbers)


def files_in(folder):
    return {path: (path.read_bytes(), path.stat().st_mtime) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pictures without classes in train and val."""
    root = tmp_path_factory.mktemp("folder")
    pictures.write_folder(root / "all")
    for split, part in (("train", slice(0, 200)), ("val", slice(200, 240))):
        (root / "images" / split).mkdir(parents=True)
        for path in sorted((root / "all").rglob("*.png"))[part]:
            shutil.copy(path, root / "images" / split / path.name)
    return root / "images"


@pytest.fixture(scope="module")
def in_place(tmp_path_factory, folder):
    return bench_of(tmp_path_factory.mktemp("runs"), "run", {"folder": str(folder), "in_place": True})


def test_pixels_and_keys_are_those_of_written_tars_and_nothing_is_copied(in_place, folder, tmp_path):
    before = files_in(folder)
    written = bench_of(tmp_path, "written", {"folder": str(folder)})
    for split in ("train", "heldout"):
        (keys, images), (others, other_images) = (everything(own, split) for own in (in_place, written))
        assert keys == others and np.array_equal(images, other_images)
    assert not list(in_place.run.root.glob("shard/*/*.tar")) and list(written.run.root.glob("shard/*/*.tar"))
    assert files_in(folder) == before


def test_larger_squares_are_cut_from_the_files_themselves(in_place):
    catalog = run_samples.open_catalog(in_place.run, "train")
    form = catalog.image_format
    larger = CatalogImages(catalog.with_image_format(type(form)(3, 20, form.transform)))
    assert larger.images([0, 7]).shape == (2, 20, 20, 3)


def test_an_expert_can_have_a_copy(in_place, folder):
    unit = in_place.unit("copy_lists/expert-00")
    in_place.make("copy_lists/expert-00")
    copy, catalog = open_copy(unit.folder), run_samples.open_catalog(in_place.run, "train")
    keys = copy.texts("key").gather(range(len(copy)))
    files = dict(zip(keys, CatalogImages(copy).files(range(len(copy))), strict=True))
    names = dict(zip(*(catalog.texts(name).gather(range(len(catalog))) for name in ("key", "file")), strict=True))
    assert all(files[key] == (folder / names[key]).read_bytes() for key in keys) and keys


@pytest.mark.parametrize("damage", ["removed", "replaced", "same size", "a pipe"])
def test_a_changed_picture_is_named(in_place, damage):
    catalog = run_samples.open_catalog(in_place.run, "train")
    path = catalog.source_file(catalog.texts("file").gather([5])[0])
    content = path.read_bytes()
    try:
        if damage == "removed":
            path.unlink()
        elif damage == "a pipe":
            path.unlink()
            os.mkfifo(path)
        else:
            path.write_bytes(content[:-1] + b"x" * (1 if damage == "same size" else 9))
        with pytest.raises(UserError, match="index the images with --redo shard") as raised:
            CatalogImages(catalog).images([4, 5])
        assert str(path) in str(raised.value)
    finally:
        path.unlink(missing_ok=True)
        path.write_bytes(content)


def test_held_out_pictures_of_another_folder(folder, tmp_path):
    shutil.copytree(folder / "train", tmp_path / "mine")
    shutil.copytree(folder / "val", tmp_path / "other")
    source = {"folder": str(tmp_path / "mine"), "heldout": {"folder": str(tmp_path / "other")}, "in_place": True}
    made = bench_of(tmp_path, "run", source)
    catalog = run_samples.open_catalog(made.run, "heldout")
    assert catalog.texts("file").gather([0])[0].startswith("@heldout/")
    assert len(everything(made, "heldout")[1]) == 40


@pytest.mark.parametrize("is_written", [False, True])
def test_collections_are_read_each_in_its_folder_or_all_written_where_one_is(folder, tmp_path, is_written):
    source = {"name": "image_folder", "folder": str(folder)}
    sources = [source | {"in_place": name == "a" or not is_written, "collection": name} for name in ("a", "b")]
    made = bench_of(tmp_path, "run", {"name": "collections", "sources": sources})
    keys, images = everything(made)
    assert len(keys) == 400 and keys[0].startswith("a/") and np.array_equal(images[:200], images[200:])
    assert any(made.run.root.glob("shard/*/*.tar")) == is_written
    if not is_written:
        assert run_samples.open_catalog(made.run, "train").texts("file").gather([200])[0].startswith("b/train/")


def test_a_broken_picture_is_counted_and_the_filter_sees_the_sizes_of_the_others(folder, tmp_path):
    copied = shutil.copytree(folder, tmp_path / "images")
    first = sorted((copied / "train").iterdir())[0]
    first.write_bytes(first.read_bytes()[:60])
    source = {"folder": str(copied), "in_place": True}
    made = bench_of(tmp_path, "run", source, data__max_broken_share=0.01, data__filter="width >= 24")
    results = manifest.read(made.run.unit(CATALOG)).results
    assert results["broken"] == 1 and results["splits"]["train"]["samples"] == 199
    assert keys_of(made, "train")[0] != f"train-{first.name.replace('.', '_')}"


@pytest.mark.parametrize("layout", [ilsvrc.kaggle, ilsvrc.sorted_val])
def test_imagenet_is_read_in_place_and_alike_in_all_layouts(tmp_path, layout):
    layout(tmp_path / "images")
    source = {"name": "imagenet", "folder": str(tmp_path / "images")}
    changes = {key: value for key, value in CHANGES.items() if key != "evaluators__classifier"}
    made = Bench(tmp_path, "run", data__source=source, **(changes | {"data__num_classes": 10}))
    made.make("shard/train-000", "shard/train-001", "shard/train-002", "shard/heldout-000")
    shards = [manifest.read(made.run.unit(f"shard/{name}")) for name in ("train-000", "heldout-000")]
    assert all(shard.results["class_names"] == ilsvrc.NAMES for shard in shards) or layout is ilsvrc.sorted_val
    assert not list(made.run.root.glob("shard/*/*.tar"))
    assert shards[1].results["images"] == 10 and shards[0].results["tars"] == []
