"""Damaged, changed and repeated samples of existing tars: named, left out or refused."""

import json
import os
import shutil
import tarfile

import pytest

from hpcddm.data import run_samples
from hpcddm.errors import ConfigError, UserError
from hpcddm.launch.submission import decide_units, store_experiment
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.unit_keys import CATALOG, MONOLITH
from tests.launch.queues import Queue
from tests.stages.adopting import keys_of, members


def broken_in(made):
    """The only broken sample of a run."""
    (path,) = made.run.root.glob("shard/train-*/broken.jsonl")
    return json.loads(path.read_text())


def damage_one(collection):
    """Overwrite the first bytes of a picture; return its key."""
    damaged = bytearray((collection / "00001.tar").read_bytes())
    with tarfile.open(collection / "00001.tar") as file:
        member = file.next()
    damaged[member.offset_data : member.offset_data + 100] = bytes(100)
    (collection / "00001.tar").write_bytes(damaged)
    return member.name[:-4]


def test_broken_samples_are_left_out_up_to_a_budget_and_named_beyond_it(adopted_run, collection):
    key = damage_one(collection)
    said = rf"data\.max_broken_share: 1 of 100 samples are broken, more than 0\.001.*{key} "
    with pytest.raises(UserError, match=said):
        adopted_run().make_data()
    made = adopted_run(data__max_broken_share=0.02)
    made.make_data()
    assert len(keys_of(made, "train")) + len(keys_of(made, "heldout")) == 99
    assert manifest.read(made.run.unit(CATALOG)).results["broken"] == 1
    assert broken_in(made)["key"] == key


def test_a_tar_that_was_changed_after_it_had_been_indexed_is_refused(adopted_run, collection):
    made = adopted_run()
    made.make_data()
    path = collection / "00000.tar"
    os.utime(path, (1, 1))
    with pytest.raises(UserError, match=r"00000\.tar was changed after it had been indexed; bring it back, or index"):
        run_samples.open_reader(made.unit(MONOLITH), "train").images([0])
    path.unlink()
    with pytest.raises(UserError, match=r"00000\.tar: cannot be read \(No such file or directory\); bring it back"):
        run_samples.open_reader(made.unit(MONOLITH), "train").images([0])


def test_keys_that_several_tars_have_are_refused_with_the_key_that_tells_them_apart(adopted_run, collection):
    shutil.copy(collection / "00000.tar", collection / "00004.tar")
    with pytest.raises(UserError, match=r"have a key that another one has, .*data\.source\.prefix_keys: true"):
        adopted_run().make_data()


def test_a_tar_without_samples_and_one_of_which_none_is_kept_are_passed_over(adopted_run, collection):
    """img2dataset leaves an empty tar where no download succeeded."""
    tarfile.open(collection / "00000a.tar", "w").close()
    keys = sorted(name[:-4] for name in members(collection) if name.endswith(".jpg"))
    later = [key for key in keys if key >= "0000100"]
    made = adopted_run(data__filter="aesthetic > 0 and key >= '0000100'")
    made.make_data()
    train, heldout = keys_of(made, "train"), keys_of(made, "heldout")
    assert sorted(train + heldout) == later and 0 < len(later) < len(keys)
    reader = run_samples.open_reader(made.unit(MONOLITH), "train")
    assert reader.images(range(len(train))).shape == (len(train), 16, 16, 3)
    assert len(reader.captions(range(len(train)))) == len(train)


@pytest.fixture
def indexed_run(adopted_run):
    """A run of which the stages shard and catalog are complete, as jobs would have left it."""
    made = adopted_run()
    made.settings = with_content_hashes(made.settings, made.run)
    for unit in (unit for unit in plan_units(made.settings) if unit.stage in ("shard", "catalog")):
        made.make(unit.key)
    store_experiment(made.settings, made.run)
    return made


def submitted_again(made, redo=()):
    return decide_units(with_content_hashes(made.settings, made.run), made.run, Queue(made.run), redo)


def test_the_tar_that_changed_since_a_run_was_made_is_named_by_submit(indexed_run, collection):
    assert len(submitted_again(indexed_run).complete) == 5
    path = collection / "00001.tar"
    os.utime(path, (1, 1))
    said = r"data\.content_hash: '.*' -> '.*' \(files: /.*/00001\.tar was changed\)\. Stale"
    with pytest.raises(ConfigError, match=said):
        submitted_again(indexed_run)
    assert len(submitted_again(indexed_run, ["shard"]).to_run) > 4
    path.unlink()
    with pytest.raises(ConfigError, match=r"/collection/00001\.tar is missing\)"):
        submitted_again(indexed_run)


def test_an_added_tar_is_named_by_submit_where_all_others_are_known(indexed_run, collection):
    shutil.copy(collection / "00000.tar", collection / "00000a.tar")
    with pytest.raises(ConfigError, match=r"/collection/00000a\.tar was added\)"):
        submitted_again(indexed_run)
    shutil.rmtree(indexed_run.run.unit("shard/train-002"))
    with pytest.raises(ConfigError, match=r"\(files: one that was not indexed yet\)"):
        submitted_again(indexed_run)


def test_tars_that_changed_after_the_submission_are_not_indexed(adopted_run, collection):
    made = adopted_run()
    data = made.settings.data.model_copy(update={"content_hash": "another"})
    made.settings = made.settings.model_copy(update={"data": data})
    with pytest.raises(UserError, match=r"its files have changed since the run was submitted; .* --redo shard"):
        made.make("shard/train-000")
