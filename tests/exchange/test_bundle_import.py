"""Importing a bundle: what arrives, what is refused, and what a killed import leaves."""

import json
import os
import resource
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from hpcddm.collaboration import bundle_checks, bundle_import
from hpcddm.collaboration.bundle_checks import imported_bundle
from hpcddm.commands.sites import site_import
from hpcddm.exchange import ssh_keys
from hpcddm.files import guarded_writes
from hpcddm.pipeline.state import State
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import survey_units
from hpcddm.runs import manifest
from hpcddm.runs.import_records import accepted_reason, read_signed_bundle
from hpcddm.runs.lease import lease
from hpcddm.runs.unit_keys import EXPERT_LISTS
from tests.exchange.agreed_runs import FLOPS, KEY, train
from tests.exchange.hostile import refused, sign_file, sign_list, tree
from tests.helpers import python


@pytest.fixture
def sent(runs):
    return runs.pack("sent")


def weights_of(folder):
    return (folder / "weights.safetensors").read_bytes()


def state(run, experiment, key=KEY):
    return survey_units(plan_units(experiment), run)[key].state


def test_an_expert_arrives_with_the_figures_of_this_run(runs, sent):
    done = runs.take(sent)
    assert done.exit_code == 0, done.output
    assert state(runs.home, runs.experiment) is State.COMPLETE
    theirs, ours = (manifest.read(run.unit(KEY)) for run in (runs.partner, runs.home))
    of_both = [(made.settings, made.inputs) for made in (theirs, ours)]
    assert of_both[0] == of_both[1]
    weights = [{output for output in made.outputs if output.path != "curve.json"} for made in (theirs, ours)]
    assert weights[0] == weights[1] and manifest.find_damage(runs.home.unit(KEY), ours) is None
    for output in ours.outputs:
        assert manifest.read_verified(runs.home.unit(KEY), output.path)
    curve = manifest.read_verified_json(runs.home.unit(KEY), "curve.json", list[tuple[int, float]])
    assert curve == [(16, 0.5), (32, 0.00123456789012346)]
    assert ours.results == {
        "samples": 12,
        "class_counts": [3, 3, 3, 3],
        "images": 32,
        "train_flops": 32 * FLOPS,
        "snapshots": {"32": {"images": 16, "train_flops": 16 * FLOPS}},
    }
    bundle, signer = read_signed_bundle(sent)
    assert ours.record == {
        "imported": {
            "site": "uni-b",
            "fingerprint": signer.fingerprint,
            "bundle": 1,
            "contract": {"id": runs.contract.id, "revision": 1},
            "word": {"ranks": 2, "skipped_steps": 1, "code": "c0de", "versions": {"torch": "2.13.0"}},
        }
    }
    assert imported_bundle(runs.home, KEY) == bundle
    assert [path.name for path in runs.home.imports.iterdir()] == ["expert-01"]


def test_one_table_says_what_was_checked_and_who_is_missing(runs, sent):
    done = runs.take(sent)
    for text in ("uni-b", "all finite", "revision 1", "32 images", "c0de", "missing: train/expert-00 of uni-a"):
        assert text in done.output


def test_the_same_bundle_again_is_imported_already(runs, sent):
    runs.take(sent)
    before = tree(runs.home)
    done = runs.take(sent)
    assert done.exit_code == 0 and "bundle 1 of uni-b is imported already" in done.output
    assert tree(runs.home) == before
    # After a loss it is taken again.
    shutil.rmtree(runs.home.unit(KEY))
    assert runs.take(sent).exit_code == 0 and state(runs.home, runs.experiment) is State.COMPLETE


def test_a_newer_bundle_wants_replace_and_an_older_one_returns_by_it_alone(runs, sent):
    runs.take(sent)
    train(runs, runs.partner, seed=2)
    newer = runs.pack("newer")
    refused(runs, newer, "is here already; --replace sets it aside; next: hpcddm site import")
    done = runs.take(newer, "--replace")
    assert done.exit_code == 0 and imported_bundle(runs.home, KEY).number == 2
    (aside,) = (runs.home.root / "superseded").glob("*/train/expert-01/weights.safetensors")
    assert aside.read_bytes() == weights_of(sent)
    refused(runs, sent, "bundle 1 is older than bundle 2 of train/expert-01")
    shutil.rmtree(runs.home.unit(KEY))
    refused(runs, sent, "refused, unless uni-b says that it counts from 1 again; next: hpcddm site import")
    done = runs.take(sent, "--replace")
    assert done.exit_code == 0 and "bundle 1 is older than bundle 2" in done.output
    assert imported_bundle(runs.home, KEY).number == 1
    assert "is imported already" in runs.take(sent).output
    refused(runs, newer, "--replace sets it aside")


def test_a_site_that_lost_its_run_counts_from_one_again(runs, sent):
    assert runs.take(sent, "--accept-probe", "agreed by mail").exit_code == 0
    runs.partner.bundles(KEY).unlink()
    train(runs, runs.partner, seed=2)
    again = runs.pack("again")
    assert read_signed_bundle(again)[0].number == 1 and weights_of(again) != weights_of(sent)
    refused(runs, again, "is another bundle 1 of train/expert-01 than the one that was imported; refused, unless uni-b")
    done = runs.take(again, "--replace")
    assert done.exit_code == 0 and "taken because of --replace" in done.output, done.output
    assert weights_of(runs.home.unit(KEY)) == weights_of(again)
    outputs = manifest.sizes_and_digests(manifest.read(runs.home.unit(KEY)).outputs)
    assert state(runs.home, runs.experiment) is State.COMPLETE and accepted_reason(runs.home, KEY, outputs) is None
    assert "is imported already" in runs.take(again).output
    # Which of two with the same number came first, no signature says.
    shutil.rmtree(runs.home.unit(KEY))
    refused(runs, sent, "is another bundle 1")
    assert runs.take(sent, "--replace").exit_code == 0 and weights_of(runs.home.unit(KEY)) == weights_of(sent)


@pytest.mark.parametrize("case", ["a revoked key", "another site", "another recipe"])
def test_numbers_of_another_site_recipe_or_key_do_not_count(runs, sent, case):
    sign_list(sent, runs, number=999_999)
    assert runs.take(sent).exit_code == 0
    signer = "uni-b"
    if case == "another recipe":
        runs = runs.change_expert(samples=11)
    else:
        key = ssh_keys.make_key(runs.key("uni-c")).text
        signer, sites = "uni-c", {"uni-c": replace(runs.contract.sites["uni-b"], key=key)}
        experts = runs.contract.experts | {KEY: replace(runs.contract.experts[KEY], site="uni-c")}
        if case == "a revoked key":
            runs = runs.change_revision(2, is_revoked=True)
            sites, experts = {"uni-b": sites["uni-c"]}, runs.contract.experts
        sites = runs.contract.sites | sites
        runs = runs.sign_contract(replace(runs.contract, revision=3, sites=sites, experts=experts))
    entry = runs.contract.experts[KEY]
    train(runs, runs.partner, seed=2)
    shutil.copy(runs.partner.unit(KEY) / "weights.safetensors", sent)
    sign_file(sent, runs)
    sign_list(sent, runs, signer=signer, number=1, site=entry.site, recipe=entry.digest)
    refused(runs, sent, "is here already; --replace sets it aside")
    done = runs.take(sent, "--replace")
    assert done.exit_code == 0 and "because of --replace" not in done.output, done.output
    assert imported_bundle(runs.home, KEY).number == 1


def test_a_lock_alone_does_not_count_as_an_expert(runs, sent):
    runs.home.unit(KEY).mkdir(parents=True)
    (runs.home.unit(KEY) / ".lease").touch()
    assert runs.take(sent).exit_code == 0 and state(runs.home, runs.experiment) is State.COMPLETE


def test_a_copied_expert_is_replaced_only_on_demand(runs, sent):
    shutil.copytree(runs.partner.unit(KEY), runs.home.unit(KEY))
    refused(runs, sent, "--replace sets it aside")
    assert runs.take(sent, "--replace").exit_code == 0 and imported_bundle(runs.home, KEY) is not None


def test_a_key_that_may_not_sign_today_is_refused(runs, sent):
    today = datetime.now(UTC).date()
    yesterday, tomorrow = ((today + timedelta(days)).isoformat() for days in (-1, 1))
    runs.change_revision(1, is_revoked=True)
    refused(runs, sent, "the key of uni-b was revoked")
    runs.change_revision(1, valid_until=yesterday)
    refused(runs, sent, f"was valid until {yesterday}")
    runs.change_revision(1, valid_from=tomorrow)
    refused(runs, sent, f"is valid from {tomorrow}")
    runs.change_revision(1, valid_from=today.isoformat(), valid_until=today.isoformat())
    assert runs.take(sent).exit_code == 0


def test_what_operating_systems_leave_is_passed_over_and_said(runs, sent):
    (sent / ".profile").touch()
    refused(runs, sent, ".profile is not listed in what was signed; refused, remove it first")
    (sent / ".profile").unlink()
    for name in (".DS_Store", "._bundle.json", "Thumbs.db", "desktop.ini", "._weights.safetensors"):
        (sent / name).symlink_to("/nowhere")
    (sent / "__MACOSX").mkdir()
    done = runs.take(sent)
    left = ".DS_Store, ._bundle.json, ._weights.safetensors, Thumbs.db, __MACOSX, desktop.ini,"
    assert done.exit_code == 0 and f"passed over {left}" in done.stderr, done.stderr


def test_a_run_without_a_contract_imports_nothing(runs, sent):
    shutil.rmtree(runs.home.root / "contract")
    refused(runs, sent, "this run has no contract")


def other_lists(runs):
    lists = manifest.read(runs.home.unit(EXPERT_LISTS))
    results = lists.results | {"digests": {"expert-00": "0" * 64, "expert-01": "2" * 64}}
    manifest.publish(runs.home.unit(EXPERT_LISTS), replace(lists, results=results))


def other_batch(runs):
    values = json.loads(runs.home.experiment.read_text())
    values["experts"]["training"]["batch"] = 32
    runs.home.experiment.write_text(json.dumps(values))


CHANGED = {
    "another batch": (other_batch, "this run has changed since the contract: training.batch is 16 instead of 8"),
    "another list": (other_lists, "this run has changed since the contract: expert_lists/all#expert-01 is '2222"),
    "no lists": (
        lambda runs: (runs.home.unit(EXPERT_LISTS) / "manifest.json").unlink(),
        "expert_lists/all is missing; next: hpcddm status",
    ),
    "a linked folder": (lambda runs: (runs.home.root / "train").symlink_to(runs.home.root.parent), "is a link"),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_run_that_has_changed_since_the_contract_says_where(runs, sent, case):
    change, reason = CHANGED[case]
    change(runs)
    refused(runs, sent, reason)


def test_a_full_disk_is_said_before_anything_is_copied(runs, sent, monkeypatch):
    monkeypatch.setattr(bundle_checks.atomic, "free_bytes", lambda folder: 1000)
    refused(runs, sent, "1,000 bytes are free, and the bundle needs")
    assert not runs.home.imports.exists()


def test_a_disk_that_fills_up_leaves_the_run_as_it_was(runs, sent):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
    try:
        refused(runs, sent, "the bundle cannot be written (File too large)")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(runs.home.imports.iterdir()) == []
    assert runs.take(sent).exit_code == 0


def test_ctrl_c_leaves_nothing_behind(runs, sent, monkeypatch):
    experiment, before = runs.experiment, tree(runs.home)
    signed = bundle_checks.open_bundle(runs.home, sent)
    plan = bundle_checks.plan_import(runs.home, experiment, signed, False)
    for block in range(4):
        calls = []

        def interrupt(size, calls=calls, block=block):
            calls.append(size)
            if len(calls) > block * 10:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            bundle_import.import_bundle(runs.home, signed, plan, interrupt)
        assert tree(runs.home) == before and list(runs.home.imports.iterdir()) == []


def test_where_names_cannot_be_exchanged_two_renames_do(runs, sent, monkeypatch):
    monkeypatch.setattr(guarded_writes, "exchange", lambda first, second: False)
    runs.take(sent)
    train(runs, runs.partner, seed=2)
    assert runs.take(runs.pack("newer"), "--replace").exit_code == 0
    (aside,) = runs.home.superseded.glob("*/train/expert-01/weights.safetensors")
    assert aside.read_bytes() == (sent / "weights.safetensors").read_bytes()
    assert imported_bundle(runs.home, KEY).number == 2


def test_a_run_at_work_is_left_alone(runs, sent, monkeypatch):
    monkeypatch.setattr(site_import, "PATIENCE_SECONDS", 0)
    with lease(runs.home.lock, "hpcddm submit"):
        refused(runs, sent, "hpcddm submit")
    runs.home.unit(KEY).mkdir(parents=True)
    with lease(runs.home.unit(KEY) / ".lease", "a job"):
        done = runs.take(sent)
        assert done.exit_code == 1 and "a job" in done.output and "is at work here" in done.output
    assert manifest.read(runs.home.unit(KEY)) is None and runs.take(sent).exit_code == 0


def test_in_a_shared_folder_the_group_may_write_and_nobody_reads_the_quarantine(runs, sent, monkeypatch):
    for path in (runs.home.root, *(path for path in runs.home.root.rglob("*") if path.is_dir())):
        path.chmod(0o2775)
    modes, check = [], bundle_import._check_tensors

    def look(files, *arguments):
        modes.append(files.parent.stat().st_mode & 0o777)
        check(files, *arguments)

    monkeypatch.setattr(bundle_import, "_check_tensors", look)
    before = os.umask(0o077)
    try:
        assert runs.take(sent).exit_code == 0
    finally:
        os.umask(before)
    assert modes == [0o700]
    places = [runs.home.unit(KEY), *runs.home.unit(KEY).rglob("*"), *runs.home.imports.rglob("*")]
    assert [path for path in places if path.stat().st_mode & 0o070 != (0o070 if path.is_dir() else 0o060)] == []


def test_torch_is_not_imported(runs, sent):
    code = """
import sys
from hpcddm.cli import main
try:
    main(sys.argv[1:])
finally:
    print("torch", "torch" in sys.modules, "h5py", "h5py" in sys.modules)
"""
    own = {"XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}
    done = python(code, "site", "import", runs.home.root, sent, **own)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "torch False h5py False", done.stdout + done.stderr
