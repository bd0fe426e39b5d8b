"""Tars of img2dataset through the data stages, where they lie."""

import base64
import io
import json
import re
import shutil
import socket
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import webdataset
import yaml
from PIL import Image
from safetensors.torch import load_file, save_file

from hpcddm.data import run_samples
from hpcddm.data.batch import PixelInputs
from hpcddm.data.copies import open_copy, write_copy
from hpcddm.data.images import CatalogImages
from hpcddm.data.run_samples import open_catalog
from hpcddm.errors import UserError
from hpcddm.loading.content_hashes import with_tar_counts
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.models import build_denoiser
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CATALOG, MONOLITH
from hpcddm.training.training_inputs import noisy_batches, training_inputs
from tests import pictures
from tests.helpers import EXPERIMENT, changed
from tests.pictures import IMG2DATASET
from tests.sources.tars.test_existing_tars import written
from tests.stages.adopting import ADOPTED, keys_of, members
from tests.stages.routes import Bench
from tests.whole_runs import hpcddm

SOURCE = {"name": "webdataset", "folder": "collection", "heldout": {"shards": 2}}
TEXT = {"name": "text", "encoder": {"name": "words", "width": 32}, "tokens": 6}
DATA = {"source": SOURCE, "image_size": 16, "read_from": {"name": "expert_copy"}, "condition": TEXT}
CAPTIONED = {"data": DATA, "monolith": {"enabled": False}, "evaluate__images": 20, "evaluate__batch": 10}
CAPTIONED |= {"evaluators": {"extractor": EXPERIMENT["evaluators"]["extractor"]}}
"""The smallest run on captioned tars; each expert reads tars of its own."""


def scores_of(collection, pattern="*.tar"):
    """Scores of pictures by their keys."""
    contents = sorted(members(collection, pattern).items())
    return {name[:-5]: json.loads(content)["aesthetic"] for name, content in contents if name.endswith("json")}


def test_pictures_are_read_where_they_lie_and_every_sample_once(adopted_run, collection):
    before = {path.name: path.read_bytes() for path in collection.iterdir()}
    made = adopted_run()
    made.make_data()
    contents = members(collection)
    train, heldout = keys_of(made, "train"), keys_of(made, "heldout")
    assert sorted(train + heldout) == sorted(name[:-4] for name in contents if name.endswith(".jpg"))
    reader = run_samples.open_reader(made.unit(MONOLITH), "train")
    for number, image in enumerate(reader.images(range(len(train)))):
        expected = Image.open(io.BytesIO(contents[f"{train[number]}.jpg"])).resize((16, 16), Image.Resampling.LANCZOS)
        assert np.array_equal(image, np.asarray(expected))
    assert reader.captions([0, 5]) == [contents[f"{train[number]}.txt"].decode() for number in (0, 5)]
    assert before == {path.name: path.read_bytes() for path in collection.iterdir()}
    assert not list(made.run.root.glob("shard/*/*.tar"))


def test_collections_in_a_list_are_read_each_where_it_lies(tmp_path, collection):
    (tmp_path / "other").mkdir()
    (collection / "00003.tar").rename(tmp_path / "other" / "x.tar")
    own = [{"name": "webdataset", "folder": str(place), "label": None} for place in (collection, tmp_path / "other")]
    own[0] |= {"collection": "a", "heldout": {"shards": 1}}
    own[1] |= {"collection": "b", "heldout": {"share": 0.3}, "caption": "json:caption"}
    made = Bench(tmp_path, "run", data__source=own, **ADOPTED)
    made.settings = with_tar_counts(made.settings)
    assert (made.settings.data.shards, made.settings.data.heldout_shards) == (3, 2)
    made.make_data()
    a, b = members(collection), members(tmp_path / "other")
    train, heldout = keys_of(made, "train"), keys_of(made, "heldout")
    expected = [f"a/{name[:-4]}" for name in a if name.endswith(".jpg")]
    expected += [f"b/{name[:-4]}" for name in b if name.endswith(".jpg")]
    assert sorted(train + heldout) == sorted(expected)
    reader = run_samples.open_reader(made.unit(MONOLITH), "train")
    captions = {f"{name}/{key}": text for name, of in (("a", a), ("b", b)) for key, text in of.items()}
    assert reader.captions(range(len(train))) == [captions[f"{key}.txt"].decode() for key in train]
    assert {key[0] for key in train} == {key[0] for key in heldout} == {"a", "b"}
    assert reader.images([0, len(train) - 1]).shape == (2, 16, 16, 3)


def test_a_filter_keeps_what_it_says_and_the_manifest_says_what_it_drops(adopted_run, collection):
    made = adopted_run({"shards": 2}, data__filter="aesthetic >= 5 and width >= 20")
    made.make_data()
    scores = scores_of(collection)
    kept = keys_of(made, "train") + keys_of(made, "heldout")
    assert sorted(kept) == sorted(key for key, score in scores.items() if score >= 5)
    dropped = [manifest.read(path).results["dropped"] for path in made.run.root.glob("shard/*")]
    assert sum(own["samples"] for own in dropped) == 100 - len(kept)
    conditions = [own["by_condition"] for own in dropped]
    assert sum(own["aesthetic >= 5"] for own in conditions) == 100 - len(kept)
    assert sum(own["width >= 20"] for own in conditions) == 0


def test_pictures_are_seen_in_another_form_without_another_copy_of_them(adopted_run, tmp_path):
    made = adopted_run()
    made.make_data()
    catalog = open_catalog(made.run, "train")
    (tmp_path / "copy").mkdir()
    write_copy(tmp_path / "copy", catalog, range(5), lambda done: None)
    larger = replace(catalog.image_format, size=24)
    seen = CatalogImages(open_copy(tmp_path / "copy").with_image_format(larger)).images(range(5))
    assert seen.shape == (5, 24, 24, 3)
    assert np.array_equal(seen, CatalogImages(catalog.with_image_format(larger)).images(range(5)))


def test_copies_for_others_show_the_same_pictures_without_exif(adopted_run, collection):
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "52N13E-camera"
    for path in collection.glob("*.tar"):
        contents = members(collection, path.name)
        for name in (name for name in contents if name.endswith(".jpg")):
            stream = io.BytesIO()
            Image.open(io.BytesIO(contents[name])).save(stream, format="JPEG", exif=exif)
            contents[name] = stream.getvalue()
        written(path, contents.items())
    made = adopted_run(data__read_from={"name": "expert_copy", "exif": "drop"})
    made.make_data()
    made.make("copy_lists/expert-00")
    unit = made.unit("train/expert-00")
    listed = run_samples.expert_list(unit, 0)
    numbers = listed.gather(range(len(listed)))
    with run_samples.training_reader(made.settings, unit, listed) as reader:
        assert np.array_equal(reader.images(numbers), run_samples.open_reader(unit, "train").images(numbers))
    assert b"52N13E" in (collection / "00000.tar").read_bytes()
    copied = [path.read_bytes() for path in made.run.unit("copy_lists/expert-00").glob("*.tar")]
    assert copied and not any(b"52N13E" in content for content in copied)


@pytest.mark.parametrize("reading", ["shards", "expert_copy"])
def test_crops_of_adopted_pictures_are_cut_from_larger_squares_of_them(adopted_run, reading):
    changes = {"data__read_from": {"name": reading}, "data__augmentations": [{"name": "random_crop", "min_share": 0.5}]}
    made = adopted_run(**changes)
    made.make_data()
    if reading == "expert_copy":
        made.make("copy_lists/expert-00")
    unit = made.unit("train/expert-00")
    listed = run_samples.expert_list(unit, 0)
    order = run_samples.list_order(made.settings, unit.key, listed)
    with run_samples.training_reader(made.settings, unit, listed, made.settings.data.augmentations) as reader:
        assert reader.images(listed.gather([0])).shape == (1, 32, 32, 3)
        inputs = training_inputs(made.settings, unit, "train", reader)
        batch = noisy_batches(made.settings, unit, reader, inputs, order).read(range(8))
    assert batch.x0.shape == (8, 16, 16, 3)
    with run_samples.training_reader(made.settings, unit, listed) as reader:
        assert reader.images(listed.gather([0])).shape == (1, 16, 16, 3)
        drawn = noisy_batches(made.settings, unit, reader, PixelInputs(reader), order).read(range(8))
        assert np.array_equal(drawn.x0.numpy(), reader.images(order.sample_numbers(range(8))))


PERSON = "alice-mustermann"
STAYS = set("experiment.json command.json defaults.json journal.jsonl .submit.lock sites specs code jobs logs".split())
STAYS |= {"scripts"}
"""What docs/copying-runs.md says is of no use elsewhere."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A whole run below a person's folder, on tars with a broken sample, and these tars.

    Its table, the list of an extra expert, and the weights that it starts from lie below that folder, too.
    """
    home = tmp_path_factory.mktemp("home") / PERSON
    collection = shutil.copytree(IMG2DATASET, home / "collection")
    for name in ("tables", "lists", "weights"):
        (home / name).mkdir()
    scores = scores_of(collection)
    (home / "tables" / "scores.csv").write_text("\n".join(["key,good", *(f"{key},1" for key in scores), "gone,1"]))
    kept = [key for key, score in scores_of(collection, "0000[01].tar").items() if score >= 3.5]
    (home / "lists" / "hats.txt").write_text("\n".join(kept[:8]))
    with tarfile.open(collection / "00000.tar", "a") as file:
        member = tarfile.TarInfo("zz-broken.jpg")
        member.size = 9
        file.addfile(member, io.BytesIO(b"no image!"))
    own = {"data__filter": "aesthetic >= 3.5 and good == 1", "data__table": {"file": "tables/scores.csv"}}
    own |= {"data__max_broken_share": 0.02, "experts__init_from": {"weights": "weights/start.safetensors"}}
    own |= {"experts__extra": [{"name": "hats", "list": "lists/hats.txt", "images": 64, "batch": 32}]}
    (home / "adopted.yaml").write_text(yaml.safe_dump(changed(EXPERIMENT, **CAPTIONED, **own)))
    experiment = load_experiment(str(home / "adopted.yaml"))
    network = build_denoiser.build(experiment, experiment.expert_config())
    save_file(network.state_dict(), home / "weights" / "start.safetensors")
    done = hpcddm("submit", home / "adopted.yaml", "--site", "embedded", "--run-dir", home / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    return RunDir(home / "run"), collection


def test_nothing_that_may_travel_says_where_and_by_whom_it_was_made(finished):
    run, collection = finished
    needles = [PERSON.encode(), str(collection.parent.parent).encode(), b"/tmp/", b"/home/"]
    # A short name may be part of any word, or of numbers.
    host = socket.gethostname().encode()
    needles += [host] * (len(host) > 5)
    travelling = [path for path in run.root.rglob("*") if path.relative_to(run.root).parts[0] not in STAYS]
    contents = {path: path.read_bytes() for path in travelling if path.is_file()}
    for path, content in contents.items():
        shown = [base64.b64decode(part) for part in re.findall(rb"data:image/[a-z]+;base64,([A-Za-z0-9+/=]+)", content)]
        for told in (str(path.relative_to(run.root)).encode(), content, *shown):
            assert not [needle for needle in needles if needle in told], path
        assert host not in path.name.encode()
    names = {path.name for path in contents}
    assert {"hats.h5", "initial_weights.json", "passed_over.jsonl", "broken.jsonl", "catalog.json"} <= names
    assert {"weights.safetensors", "curve.json", "index.html", "columns.h5"} <= names
    assert any("hats" in path.parts for path in contents) and any("tfevents" in name for name in names)
    (broken,) = [json.loads(content) for path, content in contents.items() if path.name == "broken.jsonl"]
    assert (broken["tar"], broken["key"]) == ("00000.tar", "zz-broken")
    stated = json.loads((run.unit(CATALOG) / "catalog.json").read_text())
    tars = {tar["file"] for split in stated.values() for tar in split["tars"]}
    assert tars == {path.name for path in collection.glob("*.tar")}


def test_a_table_of_captions_beside_pictures_is_not_named_by_its_place(tmp_path):
    home = tmp_path / PERSON
    folder = pictures.write_folder(home / "pictures")
    table = next(folder.rglob("captions.*"))
    with open(table, "a") as file:
        file.write("gone.png,nothing\n" if table.suffix == ".csv" else '{"file": "gone.png", "caption": "nothing"}\n')
    source = {"name": "image_folder", "folder": str(folder)}
    made = Bench(home, "run", data__source=source, data__max_broken_share=0.1, **ADOPTED)
    made.settings = with_tar_counts(made.settings)
    made.make(*(unit.key for unit in plan_units(made.settings) if unit.stage in ("shard", "catalog")))
    for path in (path for stage in ("shard", "catalog") for path in made.run.unit(f"{stage}/all").rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        assert PERSON.encode() not in content and b"/tmp/" not in content, path
    assert "rows of captions" in str(manifest.read(made.run.unit(CATALOG)).results["passed_over"])


def test_a_run_finds_its_tars_where_its_experiment_has_them(finished, tmp_path):
    run, collection = finished
    moved = RunDir(shutil.copytree(run.root, tmp_path / "run"))
    with pytest.raises(UserError, match=r"00000\.tar: cannot be read"):
        CatalogImages(open_catalog(moved, "train")).files([0])
    stored = json.loads(moved.experiment.read_text())
    stored["data"]["source"]["folder"] = str(collection)
    moved.experiment.write_text(json.dumps(stored))
    assert CatalogImages(open_catalog(moved, "train")).files([0]) == CatalogImages(open_catalog(run, "train")).files(
        [0]
    )
    # A catalog of others names no file outside of the collection.
    path = moved.unit(CATALOG) / "catalog.json"
    path.write_text(path.read_text().replace('"00000.tar"', '"../../secret.tar"'))
    with pytest.raises(UserError, match=r"catalog\.json: .*names a file outside of its folder"):
        open_catalog(moved, "train")


def test_experts_learn_from_adopted_tars_and_webdataset_reads_the_copies_of_their_lists(finished):
    run, collection = finished
    contents = members(collection, "0000[01].tar")
    for expert in ("train/expert-00", "train/expert-01"):
        weights = load_file(run.unit(expert) / "weights.safetensors")
        # Zero at first: what the words give to the image.
        assert weights["trunk.blocks.0.cross.out.weight"].abs().max() > 1e-4
    copies = sorted(map(str, run.root.glob("copy_lists/expert-*/*.tar")))
    copied = list(webdataset.WebDataset(copies, shardshuffle=False))
    scores = scores_of(collection, "0000[01].tar")
    assert sorted(sample["__key__"] for sample in copied) == sorted(key for key in scores if scores[key] >= 3.5)
    for sample in copied:
        key = sample["__key__"]
        assert sample["jpg"] == contents[f"{key}.jpg"] and sample["txt"] == contents[f"{key}.txt"]
