"""Tars of img2dataset through the data stages, where they lie."""

import hashlib
import io
import json
import os
import shutil
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import webdataset
import yaml
from PIL import Image
from safetensors.torch import load_file

from hpcddm.data import samples
from hpcddm.data.catalog import open_catalog
from hpcddm.data.copies import open_copy, write_copy
from hpcddm.data.images import TarImages
from hpcddm.data.pictures import read_picture
from hpcddm.errors import UserError
from hpcddm.loading import with_tars
from hpcddm.networks.batches import noisy_batches
from hpcddm.pipeline import ranges
from hpcddm.pipeline.keys import CATALOG, MONOLITH
from hpcddm.rundir import manifest
from hpcddm.rundir.layout import RunDir
from hpcddm.stages import shard
from tests.pictures import IMG2DATASET
from tests.runs import hpcddm
from tests.stages.routes import Bench

ADOPTED = {
    "data__image_size": 16,
    "data__channels": 3,
    "data__num_classes": None,
    "data__condition": {"name": "none"},
    "measuring__classifier": None,
    "encode__encoder": {"name": "pixels", "size": 4},
    "cluster__clustering": {"name": "kmeans", "fine": 8, "iterations": 5, "nredo": 1},
    "cluster__experts": 2,
    "experts__training__batch": 12,
    "evaluate__images": 20,
    "evaluate__batch": 10,
}


TRAINING = {"images": 256, "batch": 32, "learning_rate": 0.004, "warmup_images": 64, "ema_halflife_images": 64}
TRAINING |= {"precision": "fp32"}
NETWORK = {"width": 32, "depth": 2, "heads": 2, "patch": 4}
EXPERIMENT = {
    "name": "adopted",
    "data": {
        "source": {"name": "webdataset", "folder": "collection", "heldout": {"shards": 2}},
        "image_size": 16,
        "keep": "aesthetic >= 3.5",
        "reading": {"name": "materialised"},
        "condition": {"name": "text", "encoder": {"name": "words", "width": 32}, "tokens": 6},
    },
    "encode": {"encoder": {"name": "pixels", "size": 8}},
    "cluster": {"experts": 2, "clustering": {"name": "kmeans", "fine": 8, "iterations": 5, "nredo": 1}},
    "experts": {"model": {"name": "dit"} | NETWORK, "objective": {"name": "flow_matching"}, "training": TRAINING},
    "monolith": {"enabled": False},
    "router": {"model": {"name": "router_dit"} | NETWORK, "training": TRAINING},
    "measuring": {"extractor": {"model": {"name": "small_cnn", "width": 16, "features": 32}, "training": TRAINING}},
    "evaluate": {"images": 20, "batch": 10, "steps": 2, "strategies": ["top-1"]},
}
"""The smallest run on captioned tars; each expert reads tars of its own."""


@pytest.fixture
def folder(tmp_path):
    """A copy of the collection."""
    return shutil.copytree(IMG2DATASET, tmp_path / "collection")


@pytest.fixture
def bench(tmp_path, folder):
    """Return a function that prepares a run of the collection, with other keys of data."""

    def make(heldout=None, own=None, **changes):
        source = {"name": "webdataset", "folder": str(folder), "heldout": heldout or {"shards": 1}, "label": None}
        bench = Bench(tmp_path, "run", data__source=source | (own or {}), **(ADOPTED | changes))
        bench.settings = with_tars(bench.settings)
        return bench

    return make


def members(folder, pattern="*.tar"):
    """All members of the tars, by name."""
    found = {}
    for path in sorted(folder.glob(pattern)):
        with tarfile.open(path) as file:
            found |= {member.name: file.extractfile(member).read() for member in file}
    return found


def keys_of(bench, split):
    reader = samples.reader(bench.unit(MONOLITH), split)
    return reader.keys(range(len(reader)))


def broken_in(made):
    """The only broken sample of a run."""
    (path,) = made.run.root.glob("shard/train-*/broken.jsonl")
    return json.loads(path.read_text())


def test_pictures_are_read_where_they_lie_and_every_sample_once(bench, folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    made = bench()
    made.make_data()
    contents = members(folder)
    train, heldout = keys_of(made, "train"), keys_of(made, "heldout")
    assert sorted(train + heldout) == sorted(name[:-4] for name in contents if name.endswith(".jpg"))
    reader = samples.reader(made.unit(MONOLITH), "train")
    for number, image in enumerate(reader.images(range(len(train)))):
        expected = Image.open(io.BytesIO(contents[f"{train[number]}.jpg"])).resize((16, 16), Image.Resampling.LANCZOS)
        assert np.array_equal(image, np.asarray(expected))
    assert reader.captions([0, 5]) == [contents[f"{train[number]}.txt"].decode() for number in (0, 5)]
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert not list(made.run.root.glob("shard/*/*.tar"))


def test_collections_in_a_list_are_read_each_where_it_lies(tmp_path, folder):
    (tmp_path / "other").mkdir()
    (folder / "00003.tar").rename(tmp_path / "other" / "x.tar")
    own = [{"name": "webdataset", "folder": str(place), "label": None} for place in (folder, tmp_path / "other")]
    own[0] |= {"collection": "a", "heldout": {"shards": 1}}
    own[1] |= {"collection": "b", "heldout": {"share": 0.3}, "caption": "json:caption"}
    made = Bench(tmp_path, "run", data__source=own, **ADOPTED)
    made.settings = with_tars(made.settings)
    assert (made.settings.data.shards, made.settings.data.heldout_shards) == (3, 2)
    made.make_data()
    a, b = members(folder), members(tmp_path / "other")
    train, heldout = keys_of(made, "train"), keys_of(made, "heldout")
    expected = [f"a/{name[:-4]}" for name in a if name.endswith(".jpg")]
    expected += [f"b/{name[:-4]}" for name in b if name.endswith(".jpg")]
    assert sorted(train + heldout) == sorted(expected)
    reader = samples.reader(made.unit(MONOLITH), "train")
    captions = {f"{name}/{key}": text for name, of in (("a", a), ("b", b)) for key, text in of.items()}
    assert reader.captions(range(len(train))) == [captions[f"{key}.txt"].decode() for key in train]
    assert {key[0] for key in train} == {key[0] for key in heldout} == {"a", "b"}
    assert reader.images([0, len(train) - 1]).shape == (2, 16, 16, 3)


def test_a_share_by_the_keys_hash_splits_the_same_tars(bench):
    made = bench({"share": 0.3})
    made.make_data()
    train, heldout = set(keys_of(made, "train")), set(keys_of(made, "heldout"))
    assert len(train | heldout) == 100 and not train & heldout and 20 <= len(heldout) <= 40


def test_a_filter_keeps_what_it_says_and_the_manifest_says_what_it_drops(bench, folder):
    made = bench({"shards": 2}, data__keep="aesthetic >= 5 and width >= 20")
    made.make_data()
    scores = {
        name[:-5]: json.loads(content)["aesthetic"] for name, content in members(folder).items() if "json" in name
    }
    kept = keys_of(made, "train") + keys_of(made, "heldout")
    assert sorted(kept) == sorted(key for key, score in scores.items() if score >= 5)
    dropped = [manifest.read(path).results["dropped"] for path in made.run.root.glob("shard/*")]
    assert sum(own["samples"] for own in dropped) == 100 - len(kept)
    conditions = [own["by_condition"] for own in dropped]
    assert sum(own["aesthetic >= 5"] for own in conditions) == 100 - len(kept)
    assert sum(own["width >= 20"] for own in conditions) == 0


def test_a_table_by_key_says_more_of_the_samples(bench, folder, tmp_path):
    keys = [name[:-4] for name in members(folder) if name.endswith(".jpg")]
    rows = [f"{key},{number % 2}" for number, key in enumerate(keys)]
    (tmp_path / "scores.csv").write_text("\n".join(["key,good", *rows]) + "\n")
    made = bench({"shards": 2}, data__keep="good == 1", data__table={"file": str(tmp_path / "scores.csv")})
    made.make_data()
    assert sorted(keys_of(made, "train") + keys_of(made, "heldout")) == sorted(keys[1::2])


def test_broken_samples_are_left_out_up_to_a_budget_and_named_beyond_it(bench, folder):
    damaged = bytearray((folder / "00001.tar").read_bytes())
    with tarfile.open(folder / "00001.tar") as file:
        member = file.next()
    damaged[member.offset_data : member.offset_data + 100] = bytes(100)
    (folder / "00001.tar").write_bytes(damaged)
    key = member.name[:-4]
    with pytest.raises(UserError, match=rf"data\.broken: 1 of 100 samples are broken, more than 0\.001.*{key} "):
        bench().make_data()
    made = bench(data__broken=0.02)
    made.make_data()
    assert len(keys_of(made, "train")) + len(keys_of(made, "heldout")) == 99
    assert manifest.read(made.run.unit(CATALOG)).results["broken"] == 1
    assert broken_in(made)["key"] == key


def test_the_digests_of_the_tars_are_in_the_manifests_on_request(bench, folder):
    made = bench(own={"digests": True})
    made.make_data()
    for key in ("shard/train-000", "shard/heldout-000"):
        (tar,) = manifest.read(made.run.unit(key)).results["tars"]
        assert tar["sha256"] == hashlib.sha256((made.run.root / tar["file"]).read_bytes()).hexdigest()


def test_a_tar_that_was_changed_after_it_had_been_indexed_is_refused(bench, folder):
    made = bench()
    made.make_data()
    path = folder / "00000.tar"
    os.utime(path, (1, 1))
    with pytest.raises(UserError, match=r"00000\.tar was changed after it had been indexed; bring it back, or index"):
        samples.reader(made.unit(MONOLITH), "train").images([0])
    path.unlink()
    with pytest.raises(UserError, match=r"00000\.tar: cannot be read \(No such file or directory\); bring it back"):
        samples.reader(made.unit(MONOLITH), "train").images([0])


def test_keys_that_several_tars_have_are_refused_with_the_key_that_tells_them_apart(bench, folder):
    shutil.copy(folder / "00000.tar", folder / "00004.tar")
    with pytest.raises(UserError, match=r"have a key that another one has, .*data\.source\.qualified: true"):
        bench().make_data()


def test_a_tar_without_samples_and_one_of_which_none_is_kept_are_passed_over(bench, folder):
    """img2dataset leaves an empty tar where no download succeeded."""
    tarfile.open(folder / "00000a.tar", "w").close()
    keys = sorted(name[:-4] for name in members(folder) if name.endswith(".jpg"))
    later = [key for key in keys if key >= "0000100"]
    made = bench(data__keep="aesthetic > 0 and key >= '0000100'")
    made.make_data()
    train, heldout = keys_of(made, "train"), keys_of(made, "heldout")
    assert sorted(train + heldout) == later and 0 < len(later) < len(keys)
    reader = samples.reader(made.unit(MONOLITH), "train")
    assert reader.images(range(len(train))).shape == (len(train), 16, 16, 3)
    assert len(reader.captions(range(len(train)))) == len(train)


def test_a_tar_without_captions_among_tars_that_have_them_is_named(bench, folder, monkeypatch):
    with tarfile.open(folder / "00001.tar") as whole, tarfile.open(folder / "00000a.tar", "w") as cut:
        for member in whole:
            if not member.name.endswith("txt"):
                cut.addfile(member, whole.extractfile(member))
    (folder / "00001.tar").unlink()
    # In one range or in several, it is one of them that finds it.
    for most, error in (
        (1, r"00000a\.tar: its samples have .*those of other tars have .*caption"),
        (256, "others caption, "),
    ):
        monkeypatch.setattr(ranges, "MOST_RANGES", most)
        with pytest.raises(UserError, match=error):
            bench().make_data()


def test_a_filter_that_keeps_nothing_is_named(bench):
    with pytest.raises(UserError, match=r"no train sample is left; see data\.keep"):
        bench(data__keep="aesthetic > 100").make_data()


def test_the_budget_of_broken_samples_is_a_share_of_all_and_not_of_those_that_are_kept(bench, folder):
    damaged = bytearray((folder / "00001.tar").read_bytes())
    with tarfile.open(folder / "00001.tar") as file:
        member = file.next()
    damaged[member.offset_data : member.offset_data + 100] = bytes(100)
    (folder / "00001.tar").write_bytes(damaged)
    made = bench({"shards": 2}, data__broken=0.011, data__keep="aesthetic >= 5")
    made.make_data()
    assert manifest.read(made.run.unit(CATALOG)).results["broken"] == 1


def test_pictures_are_seen_in_another_form_without_another_copy_of_them(bench, tmp_path):
    made = bench()
    made.make_data()
    catalog = open_catalog(made.run, "train")
    (tmp_path / "copy").mkdir()
    write_copy(tmp_path / "copy", catalog, range(5), lambda done: None)
    larger = replace(catalog.form, size=24)
    seen = TarImages(open_copy(tmp_path / "copy").seen_in(larger)).images(range(5))
    assert seen.shape == (5, 24, 24, 3)
    assert np.array_equal(seen, TarImages(catalog.seen_in(larger)).images(range(5)))


def test_copies_for_others_show_the_same_pictures_without_exif(bench, folder):
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "52N13E-camera"
    for path in folder.glob("*.tar"):
        rewritten = io.BytesIO()
        with tarfile.open(path) as old, tarfile.open(fileobj=rewritten, mode="w") as new:
            for member in old:
                content = old.extractfile(member).read()
                if member.name.endswith(".jpg"):
                    stream = io.BytesIO()
                    Image.open(io.BytesIO(content)).save(stream, format="JPEG", exif=exif)
                    content, member.size = stream.getvalue(), len(stream.getvalue())
                new.addfile(member, io.BytesIO(content))
        path.write_bytes(rewritten.getvalue())
    made = bench(data__reading={"name": "materialised", "exif": "drop"})
    made.make_data()
    made.make("materialise/expert-00")
    unit = made.unit("train/expert-00")
    listed = samples.expert_list(unit, 0)
    numbers = listed.gather(range(len(listed)))
    with samples.training_reader(made.settings, unit, listed) as reader:
        assert np.array_equal(reader.images(numbers), samples.reader(unit, "train").images(numbers))
    assert b"52N13E" in (folder / "00000.tar").read_bytes()
    copied = [path.read_bytes() for path in made.run.unit("materialise/expert-00").glob("*.tar")]
    assert copied and not any(b"52N13E" in content for content in copied)


@pytest.mark.parametrize("reading", ["indexed", "materialised"])
def test_crops_of_adopted_pictures_are_cut_from_larger_squares_of_them(bench, reading):
    changes = {"data__reading": {"name": reading}, "data__augmentations": [{"name": "random_crop", "share": 0.5}]}
    made = bench(**changes)
    made.make_data()
    if reading == "materialised":
        made.make("materialise/expert-00")
    unit = made.unit("train/expert-00")
    listed = samples.expert_list(unit, 0)
    order = samples.list_order(made.settings, unit.key, listed)
    with samples.training_reader(made.settings, unit, listed, made.settings.data.augmentations) as reader:
        assert reader.images(listed.gather([0])).shape == (1, 32, 32, 3)
        batch = noisy_batches(made.settings, unit.key, reader, order).read(range(8))
    assert batch.x0.shape == (8, 16, 16, 3)
    with samples.training_reader(made.settings, unit, listed) as reader:
        assert reader.images(listed.gather([0])).shape == (1, 16, 16, 3)
        drawn = noisy_batches(made.settings, unit.key, reader, order, is_drawn=True).read(range(8))
        assert np.array_equal(drawn.x0.numpy(), reader.images(order.rows(range(8))))


def test_a_picture_is_decoded_for_its_own_split_only(bench, monkeypatch):
    decoded = []
    monkeypatch.setattr(shard, "read_picture", lambda content: decoded.append(content) or read_picture(content))
    made = bench({"share": 0.3})
    made.make("shard/train-000", "shard/heldout-000")
    kept = [manifest.read(made.run.unit(key)).results["images"] for key in ("shard/train-000", "shard/heldout-000")]
    assert len(decoded) == sum(kept)


def test_a_caption_of_a_megabyte_is_one_broken_sample(bench, folder):
    content = b"x" * (2 << 20)
    with tarfile.open(folder / "00000.tar", "a") as file:
        for name, data in (("late.jpg", members(folder)["0000000.jpg"]), ("late.txt", content)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    made = bench(data__broken=0.02)
    made.make_data()
    broken = broken_in(made)
    assert broken["key"] == "late" and broken["reason"] == "its txt has more than 1048576 bytes"


def test_tars_that_changed_after_the_submission_are_not_indexed(bench, folder):
    made = bench()
    data = made.settings.data.model_copy(update={"content": "another"})
    made.settings = made.settings.model_copy(update={"data": data})
    with pytest.raises(UserError, match=r"the tars have changed since the run was submitted; .* --redo shard"):
        made.make("shard/train-000")


def test_experts_learn_from_adopted_tars_and_webdataset_reads_the_copies_of_their_lists(folder, tmp_path):
    (tmp_path / "adopted.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    done = hpcddm("submit", tmp_path / "adopted.yaml", "--site", "embedded", "--run-dir", tmp_path / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    run, contents = RunDir(tmp_path / "run"), members(folder, "0000[01].tar")
    for expert in ("train/expert-00", "train/expert-01"):
        weights = load_file(run.unit(expert) / "weights.safetensors")
        # Zero at first: what the words give to the image.
        assert weights["trunk.blocks.0.cross.out.weight"].abs().max() > 1e-4
    copies = sorted(map(str, run.root.glob("materialise/expert-*/*.tar")))
    copied = list(webdataset.WebDataset(copies, shardshuffle=False))
    scores = {name[:-5]: json.loads(content)["aesthetic"] for name, content in contents.items() if "json" in name}
    assert sorted(sample["__key__"] for sample in copied) == sorted(key for key in scores if scores[key] >= 3.5)
    for sample in copied:
        key = sample["__key__"]
        assert sample["jpg"] == contents[f"{key}.jpg"] and sample["txt"] == contents[f"{key}.txt"]
