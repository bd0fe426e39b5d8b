"""Names that a source gives its classes, and other ones for them: what submit refuses, and what tars contain."""

import pytest
from PIL import Image

from hpcddm.config import variants
from hpcddm.data.run_samples import open_catalog
from hpcddm.errors import UserError
from hpcddm.evaluation.concepts.vocabulary import Concept, Vocabulary
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.files import VOCABULARY_FILE
from hpcddm.runs.stored_results import stored_class_names
from hpcddm.runs.unit_keys import CATALOG, CONCEPT_VOCABULARY
from tests.helpers import hpcddm, write_experiment, write_source
from tests.sources import ilsvrc
from tests.sources.opening import split_of
from tests.stages.routes import Bench

TWICE = '''
"""IDX files whose labels have names, two of which are the same."""

from hpcddm.sources.idx import Idx, IdxSettings, IdxSplit


class TwiceSettings(IdxSettings):
    """The keys of IDX files."""


class Twice(Idx):
    """The images of IDX files."""

    def open_split(self, split: str) -> IdxSplit:
        opened = super().open_split(split)
        opened.class_names = ["crane", "maillot", "crane", "tench"]
        return opened
'''
BOTH = "classes 0 and 2 are both called 'crane'; rename one"


@pytest.fixture
def twice(tmp_path, monkeypatch):
    """A source of one's own that calls two classes by one name."""
    (tmp_path / "variants/sources").mkdir(parents=True)
    (tmp_path / "variants/sources/twice.py").write_text(TWICE)
    write_source(tmp_path / "images")
    monkeypatch.setenv(variants.VARIANTS_VARIABLE, str(tmp_path / "variants"))
    variants.list_variants.cache_clear()
    yield {"name": "twice", "folder": "images"}
    variants.list_variants.cache_clear()


def folder_of_classes(root, names):
    """A folder with pictures of several classes, each of another grey."""
    for number, name in enumerate(names):
        for picture in range(12):
            path = root / ("train" if picture < 6 else "heldout") / name / f"{picture}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), 40 * number).save(path)
    return {"name": "image_folder", "folder": str(root)}


def submitted(tmp_path, **changes):
    file = write_experiment(tmp_path, **changes)
    return hpcddm("submit", file, "--site", "embedded", "--run-dir", tmp_path / "run", "--dry-run")


def test_a_name_that_a_source_gives_two_classes_is_an_error_until_the_key_names_them_all(tmp_path, twice):
    done = submitted(tmp_path, data__source=twice)
    assert done.exit_code == 2
    assert done.stderr == f"error: data.source: {BOTH}, or name all in data.class_names\n"
    named = {"data__class_names": ["a", "b", "c", "d"]}
    assert submitted(tmp_path, data__source=twice, **named).exit_code == 0
    # In a collection it is an error whatever the key says.
    several = [twice | {"collection": "first"}, twice | {"collection": "second"}]
    done = submitted(tmp_path, data__source=several, **named)
    assert done.exit_code == 1 and done.stderr.count("\n") == 1
    assert f"error: data.source: first: {BOTH}\n" in done.stderr


CALLS = "calls class 2 '10'; data.class_names gives this name to class 3: list the names in"


@pytest.mark.parametrize("names, note", [("0 1 2 10", CALLS), ("zero one ten two", None), ("0 1 10 2", None)])
def test_the_sources_names_in_another_order_are_noticed(tmp_path, names, note):
    source = folder_of_classes(tmp_path / "images", ["0", "1", "10", "2"])
    done = submitted(tmp_path, data__source=source, data__class_names=names.split())
    assert done.exit_code == 0, done.output
    assert ("note: data.source" in done.stderr) == (note is not None) and (note or "") in done.stderr


@pytest.mark.parametrize("names, scarce", [(None, "3"), (["ant", "bee", "cat", "dog"], "dog")])
def test_a_class_with_few_images_is_named(tmp_path, names, scarce):
    write_source(tmp_path / "images", heldout=23)
    done = submitted(tmp_path, data__class_names=names)
    assert f"need 6 heldout images of every class, class {scarce} has 5" in done.stderr


SMALL = {"data__image_size": 8, "data__num_classes": 4, "evaluate__images": 24, "evaluate__batch": 4}


def test_the_classes_as_concepts_have_the_names_of_the_key(tmp_path):
    write_source(tmp_path / "images")
    concepts = {"vocabulary": {"name": "labels"}, "tagger": {"name": "labels"}}
    names = ["ant", "bee", "cat", "lady bird"]
    bench = Bench(tmp_path, "run", data__class_names=names, concepts=concepts, **SMALL)
    bench.make(*(unit.key for unit in plan_units(bench.settings) if unit.stage == "shard"), CATALOG, CONCEPT_VOCABULARY)
    vocabulary = Vocabulary.read(bench.run.unit(CONCEPT_VOCABULARY) / VOCABULARY_FILE)
    assert vocabulary.concepts == [Concept(name, label) for label, name in enumerate(names)]


def test_captions_of_imagenet_contain_the_names_of_the_key(tmp_path):
    ilsvrc.write_images(tmp_path, is_flat=False)
    records = split_of("imagenet", folder=str(tmp_path), caption="a photo of a {class}")
    assert records[0].caption == "a photo of a n01440764"
    records.rename_classes([f"fish {number}" for number in range(10)])
    assert records[0].caption == "a photo of a fish 0" and records[len(records) - 1].caption == "a photo of a fish 9"
    with pytest.raises(UserError, match=r"data.class_names: 9 names, but data.source has 10 classes"):
        records.rename_classes(["fish"] * 9)


def captions_of(bench, split):
    catalog = open_catalog(bench.run, split)
    return sorted(set(catalog.texts("caption").gather(range(len(catalog)))))


@pytest.fixture
def captioned(tmp_path):
    """Return a function that makes tars and catalog of two collections whose captions contain the classes' names."""
    captions = {"one": "a photo of a {class}", "two": "a {class}"}
    classes = {"one": ["n01", "n03", "n04"], "two": ["n02", "n03"]}
    sources = [
        folder_of_classes(tmp_path / name, classes[name]) | {"collection": name, "caption": caption}
        for name, caption in captions.items()
    ]

    def make(name, **more):
        bench = Bench(tmp_path, name, data__source=sources, data__shards=1, **SMALL | more)
        bench.make("shard/train-000", "shard/heldout-000", CATALOG)
        return bench

    return make


def test_captions_contain_the_names_of_the_key(captioned):
    plain, named = captioned("plain"), captioned("named", data__class_names=["tench", "shark", "hen", "ostrich"])
    before = ["a n02", "a n03", "a photo of a n01", "a photo of a n03", "a photo of a n04"]
    after = ["a hen", "a photo of a hen", "a photo of a ostrich", "a photo of a tench", "a shark"]
    for split in ("train", "heldout"):
        assert captions_of(plain, split) == before and captions_of(named, split) == after
    labels = [open_catalog(bench.run, "train").column("label").gather(range(30)).tolist() for bench in (plain, named)]
    assert labels[0] == labels[1]
    assert stored_class_names(named.settings, named.run) == ["tench", "shark", "hen", "ostrich"]
    # The manifests keep the source's names, which count again when the key is removed.
    results = [manifest.read(bench.run.unit(CATALOG)).results["class_names"] for bench in (plain, named)]
    assert results == [["n01", "n02", "n03", "n04"]] * 2
    assert stored_class_names(plain.settings, named.run) == ["n01", "n02", "n03", "n04"]
