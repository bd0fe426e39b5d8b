import numpy as np
import pytest
from PIL import Image

from hpcddm.data.catalog import CatalogPart, SplitEntry, catalog_as_json
from hpcddm.data.column_files import write_columns
from hpcddm.data.run_samples import open_catalog
from hpcddm.data.sample_file import SampleFile
from hpcddm.data.tars import tar_writing
from hpcddm.data.tars.record import Record
from hpcddm.files import atomic
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CATALOG
from tests.catalogs import CENTRE_CROP, catalog_of
from tests.data.refusals import assert_refused
from tests.helpers import SIDE

COUNT = 12


def records(**changes):
    """Twelve images with classes and captions, of which some may be changed."""
    generator = np.random.default_rng(0)
    made = []
    for number in range(COUNT):
        image = Image.fromarray(generator.integers(0, 256, (SIDE, SIDE)).astype(np.uint8))
        values = {"key": f"train-{number}", "image": image, "label": number % 3, "caption": f"number {number}"}
        made.append(Record(**{name: changes.get(name, {}).get(number, value) for name, value in values.items()}))
    return made


def written(folder, sizes=(5, 4, 3), ranges=1, made=None):
    """The catalog of tars of so many of the records each."""
    folder.mkdir(exist_ok=True)
    made, tars = list(made or records()), []
    for number, size in enumerate(sizes):
        tars.append(folder / f"{number}.tar")
        tar_writing.write_tar(tars[-1], made[:size], SIDE, 1, CENTRE_CROP)
        del made[:size]
    return catalog_of(folder, tars, ranges)


@pytest.mark.parametrize("ranges", [1, 2, 3])
def test_samples_are_numbered_by_tar_and_in_a_tar_by_member(tmp_path, ranges):
    catalog, everything = written(tmp_path, ranges=ranges), range(COUNT)
    assert len(catalog) == COUNT
    assert catalog.column("tar").gather(everything).tolist() == [0] * 5 + [1] * 4 + [2] * 3
    assert catalog.column("label").gather(everything).tolist() == [number % 3 for number in everything]
    assert catalog.texts("key").gather(everything) == [f"train-{number}" for number in everything]
    assert catalog.texts("caption").gather(everything) == [f"number {number}" for number in everything]
    assert [catalog.has(name) for name in ("label", "caption", "latents")] == [True, True, False]
    spans = [catalog.numbers_in_range(f"train-{number:03d}") for number in range(ranges)]
    assert [number for span in spans for number in span] == list(everything)


def test_a_list_keeps_its_digest_in_whatever_tars_its_images_lie(tmp_path):
    whole = written(tmp_path / "a")
    digest = whole.digest([1, 5, 11])
    assert written(tmp_path / "b", (1, 1, 10), ranges=3).digest([1, 5, 11]) == digest
    other = Image.fromarray(255 - np.asarray(records()[5].image))
    assert written(tmp_path / "d", made=records(image={5: other})).digest([1, 5, 11]) != digest
    alone = [records()[number] for number in (1, 5, 11)]
    assert written(tmp_path / "c", (3,), made=alone).digest(range(3)) == digest


NOISE = Image.fromarray(np.random.default_rng(9).integers(0, 4, (SIDE, SIDE)).astype(np.uint8))
CHANGES = {"key": "other", "label": 7, "caption": "another", "image": NOISE}


@pytest.mark.parametrize("what", CHANGES)
def test_another_key_class_caption_or_image_is_another_list(tmp_path, what):
    before, after = written(tmp_path / "a"), written(tmp_path / "b", made=records(**{what: {5: CHANGES[what]}}))
    assert before.digest([1, 5, 11]) != after.digest([1, 5, 11])
    assert before.digest([1, 11]) == after.digest([1, 11])
    assert before.digest([1, 11]) != before.digest([11, 1])


def test_a_catalog_is_read_back_and_a_torn_one_named(tmp_path):
    run, tar = RunDir(tmp_path), SampleFile("shard/train-000/a.tar", 7)
    part = CatalogPart("train-000", "shard/train-000/c.h5", 2, "d")
    run.unit(CATALOG).mkdir()
    (tmp_path / "shard" / "train-000").mkdir(parents=True)
    write_columns(tmp_path / part.file, {"key": ["a", "b"]})
    file = run.unit(CATALOG) / "catalog.json"
    atomic.write_json(file, catalog_as_json({"train": SplitEntry(["key"], [tar], [part])}))
    catalog = open_catalog(run, "train")
    assert catalog.tar(0) == (tmp_path / "shard/train-000/a.tar", tar)
    assert catalog.texts("key").gather([1, 0]) == ["b", "a"] and catalog.image_format is None
    message = r"catalog\.json: (holds no usable JSON .*|has no split train); remove .*manifest\.json"
    for content in (file.read_bytes()[:40], b"{}", b'{"train": {"columns": []}}', b"[]"):
        file.write_bytes(content)
        assert_refused(message, open_catalog, run, "train")
