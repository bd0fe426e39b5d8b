"""What status, sample and export say of experts of other sites."""

import json
import shutil

from hpcddm.commands.sites.imported_experts import UNVERIFIED
from hpcddm.errors.printing import warn
from hpcddm.runs import manifest
from tests.exchange.agreed_runs import KEY, train
from tests.helpers import hpcddm


def row(run, key=KEY):
    """Return state and reason of a unit in `status --json`."""
    units = json.loads(hpcddm("status", run.root, "--json").output)["units"]
    return next((unit["state"], unit["reason"]) for unit in units if unit["unit"] == key)


def copy(runs):
    shutil.copytree(runs.partner.unit(KEY), runs.home.unit(KEY))


def test_status_names_the_bundle_of_an_imported_expert(runs):
    assert row(runs.home) == ("elsewhere", "belongs to site uni-b")
    runs.take(runs.pack("sent"))
    assert row(runs.home) == ("complete", "imported from uni-b (bundle 1), by its word with code c0de, torch 2.13.0")
    assert f"{KEY}: complete, imported from uni-b (bundle 1)" in hpcddm("status", runs.home.root).output


def test_a_copied_expert_is_unverified_in_a_run_with_a_contract(runs):
    copy(runs)
    assert row(runs.home) == ("complete", UNVERIFIED)
    # At its own site nothing needs to vouch for it.
    assert row(runs.partner) == ("complete", "")
    shutil.rmtree(runs.home.root / "contract")
    assert row(runs.home) == ("complete", "")


def test_other_weights_in_the_place_of_the_imported_ones_are_unverified(runs):
    runs.take(runs.pack("sent"))
    train(runs, runs.home, seed=3)
    assert row(runs.home) == ("complete", UNVERIFIED)


def test_a_changed_record_vouches_for_nothing(runs):
    runs.take(runs.pack("sent"))
    record = runs.home.imports / "expert-01/1/bundle.json"
    record.write_text(record.read_text().replace("uni-b", "uni-x"))
    assert row(runs.home) == ("complete", UNVERIFIED)


def notes_of(*command):
    warn.cache_clear()
    return hpcddm(*command).stderr


def test_export_and_sample_note_an_expert_that_nothing_vouches_for(runs, tmp_path):
    copy(runs)
    export = ("export", runs.home.root, KEY, "--output")
    sample = ("sample", runs.home.root, "--strategy", "expert-1", "--num-images", 2, "--output", tmp_path / "grid.png")
    for command in ((*export, tmp_path / "copied"), sample):
        assert f"note: {KEY}: {UNVERIFIED}; ask the site for a bundle" in notes_of(*command)
    assert runs.take(runs.pack("sent"), "--replace").exit_code == 0
    assert manifest.read(runs.home.unit(KEY)).record["imported"]["bundle"] == 1
    for command in ((*export, tmp_path / "imported"), sample):
        assert UNVERIFIED not in notes_of(*command)
