"""Data sets of Hugging Face through the stages, where they are: the same run whatever files hold them."""

import os
import shutil

import numpy as np
import pytest

from hpcddm.data import run_samples
from hpcddm.data.copies import open_copy
from hpcddm.data.images import CatalogImages
from hpcddm.errors import UserError
from hpcddm.loading.content_hashes import with_tar_counts
from hpcddm.runs import manifest
from hpcddm.runs.unit_keys import CATALOG, MONOLITH
from tests.sources.test_huggingface import FIXTURES, KINDS, READ
from tests.stages.adopting import ADOPTED, keys_of
from tests.stages.routes import Bench

ROWS = {key: value for key, value in ADOPTED.items() if key != "evaluators__classifier"}
ROWS |= {"data__num_classes": len(READ["names"]), "evaluate__images": 21, "evaluate__batch": 7}
ROWS |= {"data__read_from": {"name": "expert_copy"}}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs of all kinds of files up to the copies of the lists, and the folders of the files."""
    runs = {}
    for kind in KINDS:
        root = tmp_path_factory.mktemp(kind)
        folder = shutil.copytree(FIXTURES / kind, root / "images")
        source = {"name": "huggingface", "folder": str(folder), "caption": "text", "label": "label"}
        bench = Bench(root, "run", data__source=source, **ROWS)
        bench.settings = with_tar_counts(bench.settings)
        bench.make_data()
        bench.make("copy_lists/expert-00", "copy_lists/expert-01")
        runs[kind] = bench
    return runs


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_copied_and_no_pixel_differs(made, kind):
    bench = made[kind]
    assert not list(bench.run.root.glob("shard/*/*.tar"))
    reader, other = (run_samples.open_reader(own.unit(MONOLITH), "train") for own in (bench, made["saved"]))
    assert len(reader) == len(READ["splits"]["train"])
    numbers = range(len(reader))
    assert np.array_equal(reader.images(numbers), other.images(numbers))
    assert reader.captions(numbers) == [row[3] for row in READ["splits"]["train"]]
    assert reader.labels(numbers).tolist() == [row[2] for row in READ["splits"]["train"]]
    # In any order, and from several threads of a loader.
    shuffled = np.random.default_rng(0).permutation(len(reader))
    assert np.array_equal(reader.images(shuffled), other.images(numbers)[shuffled])
    names = manifest.read(bench.run.unit(CATALOG)).results["class_names"]
    assert names == ([] if kind == "pandas" else READ["names"])


@pytest.mark.parametrize("kind", KINDS)
def test_copies_of_a_list_have_the_same_files(made, kind):
    bench = made[kind]
    catalog = run_samples.open_catalog(bench.run, "train")
    for expert in ("expert-00", "expert-01"):
        copy = open_copy(bench.run.unit(f"copy_lists/{expert}"))
        numbers = np.flatnonzero(np.isin(catalog.texts("key").gather(range(len(catalog))), copy_keys(copy)))
        assert CatalogImages(copy).files(range(len(copy))) == CatalogImages(catalog).files(numbers)


def copy_keys(copy):
    return copy.texts("key").gather(range(len(copy)))


def test_the_same_lists_are_drawn_from_all_kinds_with_the_same_keys(made):
    first, second = (manifest.read(made[kind].run.unit(CATALOG)).results for kind in ("hub", "small_groups"))
    assert first[manifest.DIGESTS] == second[manifest.DIGESTS]
    assert keys_of(made["hub"], "train") == keys_of(made["small_groups"], "train")


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_file_is_named(made, kind, tmp_path):
    bench = made[kind]
    reader = run_samples.open_reader(bench.unit(MONOLITH), "train")
    path = sorted((bench.run.root.parent / "images").rglob("*-00001-of-00002.*"))[0]
    status = path.stat()
    os.utime(path, (status.st_atime, status.st_mtime + 10))
    try:
        with pytest.raises(UserError, match=f"{path.name} was changed after it had been indexed"):
            reader.images([len(reader) - 1])
    finally:
        os.utime(path, (status.st_atime, status.st_mtime))


def test_labels_out_of_range_are_one_line(made, tmp_path):
    changes = ROWS | {"data__num_classes": 2, "evaluate__images": 20, "evaluate__batch": 10}
    bench = Bench(tmp_path, "run", data__source=made["hub"].settings.data.source.model_dump(), **changes)
    bench.settings = with_tar_counts(bench.settings)
    with pytest.raises(UserError, match="^data.num_classes: 2, but data.source has class 2$"):
        bench.make("shard/train-000")
