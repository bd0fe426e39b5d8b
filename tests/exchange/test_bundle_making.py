"""Packing an expert: what a bundle holds, what it never holds, and what is not packed."""

import json
import os
import shutil
import subprocess
from dataclasses import replace

import pytest
import torch

from hpcddm.collaboration.bundle_making import thinned
from hpcddm.evaluation.expert_probe import ProbeLosses
from hpcddm.exchange.bundle import MAX_CURVE
from hpcddm.exchange.contract import flat_name
from hpcddm.exchange.signed_folder import SUMS
from hpcddm.exchange.ssh_keys import read_public
from hpcddm.files import atomic
from hpcddm.runs import manifest
from hpcddm.runs.files import CURVE, PROBE_FILE, WEIGHTS
from hpcddm.runs.import_records import read_signed_bundle
from hpcddm.runs.manifest import Manifest
from tests.exchange.agreed_runs import KEY, train
from tests.helpers import hpcddm


def refused(runs, reason, site="uni-b", key=KEY):
    """Packing fails with a reason, and leaves no folder."""
    output = runs.home.root.parent / "refused"
    done = hpcddm("site", "bundle", runs.partner.root, key, "--sign", runs.key(site), "--output", output)
    assert done.exit_code != 0 and reason in done.output, done.output
    assert len(done.output.splitlines()) == 1 and done.output.strip().isprintable() and not output.exists()


def test_a_bundle_holds_the_agreed_files_and_one_signed_list(runs):
    folder = runs.pack("sent")
    bundle, signer = read_signed_bundle(folder)
    made = manifest.read(runs.partner.unit(KEY))
    weights = {flat_name(output.path): output for output in made.outputs if output.path != CURVE}
    assert set(weights) == {"weights.safetensors", "images-000000000032.safetensors"}
    assert {path.name for path in folder.iterdir()} == {*weights, "bundle.json", "bundle.json.sig", SUMS}
    digests = [{name: file.sha256 for name, file in files.items()} for files in (bundle.files, weights)]
    assert digests[0] == digests[1]
    assert (bundle.unit, bundle.site, bundle.number, bundle.contract) == (KEY, "uni-b", 1, runs.contract.id)
    assert bundle.recipe == runs.contract.experts[KEY].digest and signer == read_public(runs.key("uni-b"))
    assert bundle.curve == [(16, 0.5), (32, 0.00123456789012346)]
    assert subprocess.run(["sha256sum", "-c", "--strict", SUMS], cwd=folder, check=False).returncode == 0
    assert len((folder / SUMS).read_text().splitlines()) == len(list(folder.iterdir())) - 1


def test_the_command_says_what_is_sent_and_who_signed(runs):
    output = runs.home.root.parent / "sent"
    done = hpcddm("site", "bundle", runs.partner.root, KEY, "--sign", runs.key("uni-b"), "--output", output)
    assert "images-000000000032.safetensors" in done.output and "hpcddm site verify" in done.output
    assert read_public(runs.key("uni-b")).fingerprint in done.output and "bundle 1 of train/expert-01" in done.output


def test_the_site_says_what_the_contract_asks_for_and_nothing_else(runs):
    word = read_signed_bundle(runs.pack("sent"))[0].word
    assert (word.ranks, word.skipped_steps, word.code, word.versions) == (2, 1, "c0de", {"torch": "2.13.0"})
    # No attempt is recorded in this run, so it does not say hours and GPUs.
    assert (word.gpu_hours, word.gpu, word.gpus) == (None, None, None)
    runs.sign_contract(replace(runs.contract, provenance=["ranks"]))
    word = read_signed_bundle(runs.pack("shy"))[0].word
    assert {name for name, value in vars(word).items() if value is not None} == {"ranks"}


def test_hours_and_gpus_are_those_of_the_attempts(runs):
    attempt = runs.partner.logs(KEY) / "attempt-1"
    attempt.mkdir(parents=True)
    owner = {"host": "secret-node", "started": 1e9, "ranks": 2, "cpus": 8, "gpus": 4, "owner": "ada.lovelace"}
    (attempt / "owner.json").write_text(json.dumps(owner))
    (attempt / "ended.json").write_text(json.dumps({"outcome": "complete", "started": 1e9, "ended": 1e9 + 1800}))
    sites = runs.partner.site("uni-b")
    sites.parent.mkdir()
    sites.write_text(json.dumps({"name": "uni-b", "scheduler": "local", "gpu_type": "a100"}))
    folder = runs.pack("sent")
    word = read_signed_bundle(folder)[0].word
    assert (word.gpu_hours, word.gpus, word.gpu) == (2.0, 4, "a100")
    content = b"".join(path.read_bytes() for path in folder.iterdir())
    planted = (b"secret-node", b"lovelace", b"f" * 40, b"2026-01-01T", str(runs.partner.root).encode())
    assert [text for text in planted if text in content] == []


def test_the_bundle_tells_what_the_site_found_in_its_own_probe(runs):
    folder = runs.partner.unit("probe/expert-01")
    folder.mkdir(parents=True)
    losses = [[0.5, 0.123456789], [0.25, 1e-9]]
    atomic.write_json(folder / PROBE_FILE, ProbeLosses([0.1, 0.9], losses, [[1.0, 1.0]] * 2).as_json())
    outputs = manifest.describe_outputs(folder, [PROBE_FILE])
    manifest.publish(folder, Manifest("probe", "expert-01", {}, {}, outputs, {"faults": [], "accepted": None}))
    bundle, _ = read_signed_bundle(runs.pack("sent"))
    assert bundle.word.probe_losses == [[0.5, 0.123457], [0.25, 1e-9]]
    said = runs.take(runs.home.root.parent / "sent").output
    assert "loss of its own probe 1e-09 to 0.25" in said, said


def test_the_number_counts_other_weights_and_other_recipes(runs):
    numbers = [read_signed_bundle(runs.pack(name))[0].number for name in ("first", "again")]
    train(runs, runs.partner, seed=2)
    numbers.append(read_signed_bundle(runs.pack("trained"))[0].number)
    runs.change_expert(flops_per_image=7)
    numbers.append(read_signed_bundle(runs.pack("agreed"))[0].number)
    assert numbers == [1, 1, 2, 3]


@pytest.mark.parametrize("points", [0, 1, MAX_CURVE, MAX_CURVE + 1, 3 * MAX_CURVE + 7])
def test_a_long_curve_is_thinned_and_keeps_its_end(points):
    curve = [(16 * (number + 1), 1 / (number + 3)) for number in range(points)]
    kept = thinned(curve)
    assert len(kept) <= MAX_CURVE and len(kept) >= min(points, MAX_CURVE // 2)
    assert kept == sorted(kept) and [images for images, _ in kept[-1:]] == [images for images, _ in curve[-1:]]
    assert all(sum(map(str.isdigit, str(loss))) <= 20 for _, loss in kept)


def write_last_byte(runs):
    with open(runs.partner.output(KEY, "weights.safetensors"), "r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")


def agreed(**changes):
    return lambda runs: runs.change_expert(**changes)


REFUSED = {
    "no contract": (lambda runs: shutil.rmtree(runs.partner.root / "contract"), "has no contract"),
    "another size": (lambda runs: os.truncate(runs.partner.output(KEY, WEIGHTS), 1), "has 1 bytes instead of"),
    "changed weights": (write_last_byte, "its bytes are not those of its manifest"),
    "no manifest": (lambda runs: (runs.partner.unit(KEY) / "manifest.json").unlink(), "train/expert-01 is missing"),
    "another setting": (
        lambda runs: runs.change_expert(settings=runs.contract.experts[KEY].settings | {"training.batch": 99}),
        "training.batch is 8 instead of 99",
    ),
    "another list": (agreed(inputs={"expert_lists/all#expert-01": "0" * 64}), "expert_lists/all#expert-01 is '1111"),
    "a file that no training writes": (
        agreed(files=["weights.safetensors", "optimizer.safetensors"]),
        "wants optimizer.safetensors, which this training does not write",
    ),
    "no weights of the end": (agreed(files=["images-000000000032.safetensors"]), "does not want weights.safetensors"),
    "a revoked key": (lambda runs: runs.change_revision(1, is_revoked=True), "the key of uni-b was revoked"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_was_not_agreed_on_is_not_packed(runs, case):
    change, reason = REFUSED[case]
    change(runs)
    refused(runs, reason)


def test_weights_that_are_not_finite_are_not_packed(runs):
    name, tensor = next(iter(sorted(runs.contract.table(KEY).items())))
    train(runs, runs.partner, 1, **{name: torch.full(tensor.shape, torch.nan)})
    refused(runs, f"tensor '{name}' has values that are infinite or not numbers")


def test_the_key_of_another_site_packs_nothing(runs):
    refused(runs, "is not that of uni-b in the contract", site="uni-a")


def test_only_experts_of_the_contract_are_packed(runs):
    refused(runs, "train/monolith: not an expert of the contract", key="train/monolith")


def test_a_folder_with_files_is_left_alone(runs):
    folder = runs.pack("sent")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = hpcddm("site", "bundle", runs.partner.root, KEY, "--sign", runs.key("uni-b"), "--output", folder)
    assert done.exit_code != 0 and "is not empty; name a new folder" in done.output
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_an_expert_that_jobs_of_others_have_made_is_not_packed(runs):
    folder = runs.partner.unit(KEY)
    made = manifest.read(folder)
    for seal in ({}, {"seal": None}, {"seal": "0" * 64}, {"seal": made.record["seal"][::-1]}):
        record = {name: value for name, value in made.record.items() if name != "seal"} | seal
        manifest.publish(folder, replace(made, record=record))
        refused(runs, "jobs of your account have not trained it under this contract")
    train(runs, runs.partner, seed=2)
    other = manifest.read(folder)
    manifest.publish(folder, replace(other, record=other.record | {"seal": made.record["seal"]}))
    refused(runs, "move this folder away and submit again")
    manifest.publish(folder, other)
    runs.pack("sent")
