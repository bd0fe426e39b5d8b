"""In a run with a contract, an expert of another site counts only from a bundle that this site has signed."""

import shutil
from dataclasses import replace

import pytest

from hpcddm.exchange import ssh_keys
from hpcddm.files.checked_reads import Unreadable
from hpcddm.runs import contracts, manifest
from hpcddm.runs.run_dir import RunDir
from tests.exchange.agreed_runs import KEY, train
from tests.exchange.hostile import row
from tests.helpers import hpcddm


def copy(runs):
    shutil.copytree(runs.partner.unit(KEY), runs.home.unit(KEY))


def is_unverified(run):
    """Whether nobody may read the expert, and status says why."""
    with pytest.raises(Unreadable, match="unverified: is of site uni-b"):
        manifest.read(run.unit(KEY))
    state, reason = row(run.root, KEY)
    return state == "elsewhere" and "unverified: is of site uni-b" in reason


def test_status_names_the_bundle_of_an_imported_expert(runs):
    assert row(runs.home.root, KEY) == ("elsewhere", "belongs to site uni-b")
    runs.take(runs.pack("sent"))
    assert row(runs.home.root, KEY) == (
        "complete",
        "imported from uni-b (bundle 1), by its word with code c0de, torch 2.13.0",
    )
    assert f"{KEY}: complete, imported from uni-b (bundle 1)" in hpcddm("status", runs.home.root).output


def test_a_copied_expert_is_unverified_in_a_run_with_a_contract(runs):
    copy(runs)
    assert is_unverified(runs.home)
    # At its own site nothing needs to vouch for it.
    assert row(runs.partner.root, KEY) == ("complete", "")
    shutil.rmtree(runs.home.root / "contract")
    assert row(runs.home.root, KEY) == ("complete", "")


def test_other_weights_in_the_place_of_the_imported_ones_are_unverified(runs):
    runs.take(runs.pack("sent"))
    train(runs, runs.home, seed=3)
    assert is_unverified(runs.home)


def test_a_changed_record_vouches_for_nothing(runs):
    runs.take(runs.pack("sent"))
    (record,) = runs.home.imports.glob("expert-01/1-*/bundle.json")
    record.write_text(record.read_text().replace("uni-b", "uni-x"))
    assert is_unverified(runs.home)


def test_a_bundle_of_a_revoked_key_counts_no_more_and_one_of_an_earlier_key_does(runs):
    runs.take(runs.pack("sent"))
    old = runs.contract.sites["uni-b"]
    other = runs.contract.sites["uni-a"].key
    later = runs.change_revision(2, key=other)
    assert row(later.home.root, KEY)[0] == "complete"
    assert is_unverified(later.change_revision(3, key=old.key, is_revoked=True).home)


def test_export_and_sample_refuse_an_expert_that_nothing_vouches_for(runs, tmp_path):
    copy(runs)
    export = ("export", runs.home.root, KEY, "--output")
    sample = ("sample", runs.home.root, "--strategy", "expert-1", "--num-images", 2, "--output", tmp_path / "grid.png")
    for command in ((*export, tmp_path / "copied"), sample):
        done = hpcddm(*command)
        assert done.exit_code == 1 and "unverified: is of site uni-b" in done.output, done.output
    assert runs.take(runs.pack("sent"), "--replace").exit_code == 0
    assert manifest.read(runs.home.unit(KEY)).record["imported"]["bundle"] == 1


def test_a_run_that_is_merged_with_a_hostile_one_keeps_its_coordinator(runs):
    home = runs.home
    contracts.vouch(home, runs.contract, "uni-a")
    # Theirs: another contract, whose coordinator is the other site, with a journal and a record of its own.
    runs.put(home, replace(runs.contract, revision=9, coordinator="uni-b"), "uni-b")
    shutil.copy(runs.partner.journal, home.journal)
    copy(runs)
    runs.put_forged(home, 8)
    assert contracts.run_contract(home) == runs.contract and contracts.own_sites(home) == {"uni-a"}
    assert contracts.accepted_keys(home, "uni-a") == {runs.contract.sites["uni-a"].key}
    with pytest.raises(Unreadable, match="unverified: is of site uni-b"):
        manifest.read(home.unit(KEY))
    assert row(home.root, KEY)[0] != "complete"


def test_trust_hangs_on_contract_and_key_and_not_on_the_place_of_a_run(runs, tmp_path):
    bundle = runs.pack("sent")
    home = RunDir(runs.home.root.rename(tmp_path / "moved"))
    runs.put_forged(home, 8)
    assert contracts.run_contract(home) == runs.contract and contracts.own_sites(home) == {"uni-a"}
    assert contracts.accepted_keys(home, "uni-b") == {runs.contract.sites["uni-b"].key}
    assert hpcddm("site", "import", home.root, bundle).exit_code == 0
    assert row(home.root, KEY)[0] == "complete"


@pytest.mark.parametrize("verb", ["import", "bundle", "submit"])
def test_a_contract_that_nobody_here_has_vouched_for_is_refused_in_one_line(runs, tmp_path, monkeypatch, verb):
    bundle, run = runs.pack("sent"), runs.partner if verb == "bundle" else runs.home
    runs.put_forged(run, 8)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of-another-account"))
    site = tmp_path / "uni-a.yaml"
    site.write_text("name: uni-a\nscheduler: local\n")
    submit = ("submit", run.root.parent / "tiny.yaml", "--site", site, "--run-dir", run.root)
    pack = ("site", "bundle", run.root, KEY, "--sign", runs.key("uni-b"), "--output", tmp_path / "out")
    done = hpcddm(*{"import": ("site", "import", run.root, bundle), "bundle": pack, "submit": submit}[verb])
    (line,) = done.output.strip().splitlines()
    assert done.exit_code == 1 and "is not vouched for here; compare the fingerprint" in line, done.output
    own, stranger = (ssh_keys.read_public(runs.key(site)).fingerprint for site in ("uni-a", "uni-b"))
    assert own in line and stranger in line
    assert f"is signed by {stranger}; {own}; do not trust it" in hpcddm(*submit, "--trust", "SHA256:another").output
    hpcddm(*submit, "--trust", own, "--dry-run")
    assert contracts.vouched_here(run, "uni-a") == []
    named = ("submit", run.root.parent / "tiny.yaml", "--site", "embedded", "--run-dir", run.root, "--trust", own)
    assert "--site embedded: not a site of the contract; its sites: uni-a, uni-b" in hpcddm(*named).output
    hpcddm(*submit, "--trust", own)
    assert contracts.run_contract(run) == runs.contract


def test_a_run_without_a_contract_has_no_coordinator_to_trust(runs):
    shutil.rmtree(runs.home.root / "contract")
    submit = ("submit", runs.home.root.parent / "tiny.yaml", "--run-dir", runs.home.root, "--site", "embedded")
    assert "home has no contract; name one with --contract" in hpcddm(*submit, "--trust", "SHA256:x").output
