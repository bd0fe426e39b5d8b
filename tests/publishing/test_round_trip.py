"""What a published ensemble draws is what its run draws, bit for bit, though nothing of the run is read."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import hpcddm
from hpcddm.errors import UserError
from hpcddm.models.checkpoints import file_formats
from hpcddm.runs.run_dir import RunDir
from tests import helpers
from tests.helpers import LATENT_SPACE, python
from tests.publishing.made_runs import document, made_run, published

TEXT = {"name": "text", "encoder": {"name": "words", "width": 8}}
NAMES = ["caf\xe9", "th\xe9", "\u9774", "a|b <i>"]
MIXED = [{"clusters": [1], "objective": {"name": "epsilon", "schedule": {"name": "cosine"}}}]
AVERAGED = {"experts__training__snapshots": [32, 64], "experts__training__power_ema": [0.05, 0.1]}
KINDS = {
    "classes": {"data__class_names": NAMES},
    "captions": {"data__condition": TEXT},
    "mixed objectives": {"experts__overrides": MIXED, "evaluate__guidance": 2.0},
    "latents": {"data__space": LATENT_SPACE},
    "a snapshot": AVERAGED | {"evaluate__snapshot": 32},
    "an average": AVERAGED | {"evaluate__sigma_rel": 0.07},
}
ALL = ("--strategies", "top-1,monolith,expert-1")
STRATEGIES = ("top-1", "top-2", "full", "per-trajectory", "expert-1", "monolith")


@pytest.fixture(scope="module", params=KINDS)
def both(request, tmp_path_factory):
    """A run of each kind, opened, and the ensemble that it published."""
    folder = tmp_path_factory.mktemp("both")
    run = made_run(folder / "run", **KINDS[request.param])
    return hpcddm.open(run.root), hpcddm.open(published(run, folder / "ensemble", *ALL)), folder


def asked_of(model):
    if model.experiment.data.condition.reads_captions:
        return {"prompts": ["a red hat", "two boots"]}
    return {"classes": [1, 3]}


def conditions_of(model):
    asked = asked_of(model)
    return model.condition.of_prompts(asked["prompts"]) if "prompts" in asked else model.condition.of_classes([1, 3])


def test_samples_and_velocities_are_those_of_the_run(both):
    run, ensemble, _ = both
    x = torch.randn(2, *run.space.shape, generator=torch.Generator().manual_seed(1))
    drawn = {}
    for strategy in STRATEGIES:
        drawn[strategy] = ensemble.sample(3, strategy, **asked_of(run), seed=5)
        assert np.array_equal(drawn[strategy], run.sample(3, strategy, **asked_of(run), seed=5)), strategy
        of_both = [model.velocity(x, 0.5, conditions_of(model), strategy, seed=2) for model in (run, ensemble)]
        assert torch.equal(*of_both), strategy
    assert not np.array_equal(drawn["top-1"], drawn["monolith"])


def test_each_network_describes_itself(both):
    run, ensemble, folder = both
    for key, network in ensemble.document.networks.items():
        if network.objective is not None:
            stored = file_formats.read_checkpoint(folder / "ensemble" / network.file)
            _, info = file_formats.layout("hpcddm").load(stored, None)
            assert info.model.name == "dit" and info.objective.name == network.objective["name"], key


def test_the_copies_for_diffusers_are_the_same_networks(both):
    run, ensemble, folder = both
    copies = sorted((folder / "ensemble/diffusers").glob("*")) if (folder / "ensemble/diffusers").exists() else []
    is_by_class = not run.experiment.data.condition.reads_captions
    assert [path.name for path in copies] == (["expert-00", "expert-01", "monolith"] if is_by_class else [])
    for path in copies:
        copy = file_formats.read_checkpoint(path)
        tensors, _ = file_formats.layout("diffusers_dit").load(copy, run.experiment.experts.model)
        ours = file_formats.read_checkpoint(folder / "ensemble/networks" / f"{path.name}.safetensors").tensors
        table = "trunk.embed_class.weight"
        # The table has as many rows as diffusers' pipeline needs.
        assert torch.equal(tensors[table][: len(ours[table])], ours[table])
        assert all(torch.equal(tensors[name], ours[name]) for name in ours if name != table)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDir:
    """A run with named classes."""
    return made_run(tmp_path_factory.mktemp("made") / "run", data__class_names=NAMES)


def test_the_command_draws_the_same_picture_without_the_run(run, tmp_path):
    folder = published(run, tmp_path / "ensemble")
    call = ("--class", "caf\xe9", "--num-images", 3, "--steps", 2, "--guidance", 1.5, "--output")
    assert helpers.hpcddm("sample", run.root, *call, tmp_path / "run.png").exit_code == 0
    shutil.copytree(run.root, tmp_path / "kept")
    shutil.rmtree(run.root)
    try:
        done = helpers.hpcddm("sample", folder, *call, tmp_path / "ensemble.png")
    finally:
        shutil.copytree(tmp_path / "kept", run.root)
    assert done.exit_code == 0 and "3 images of caf\xe9, top-1, 2 euler steps, guidance 1.5" in done.output
    pictures = [np.asarray(Image.open(tmp_path / f"{name}.png")) for name in ("run", "ensemble")]
    assert np.array_equal(*pictures)
    done = helpers.hpcddm("sample", folder, "--num-images", 4, "--output", tmp_path / "four.npz")
    assert done.exit_code == 0 and np.load(tmp_path / "four.npz")["arr_0"].shape == (4, 8, 8, 3)


def test_an_opened_folder_says_what_it_has(run, tmp_path):
    ensemble = hpcddm.open(published(run, tmp_path / "ensemble"), steps=3)
    assert ensemble.class_names == NAMES and ensemble.experiment.evaluate.steps == 3
    assert ensemble.strategies == ["top-1", "expert-0", "expert-1"] and "2 experts; top-1" in repr(ensemble)
    assert ensemble.sample(2, classes=["\u9774"]).shape == (2, 8, 8, 1)
    with pytest.raises(UserError, match="train/monolith was not published; strategies of its networks: top-1, exp"):
        ensemble.sample(1, "monolith", classes=[0])
    with pytest.raises(UserError, match="only the run has the conditions of its evaluation; name classes"):
        ensemble.sample(1)
    with pytest.raises(UserError, match="only the run knows the clusters"):
        ensemble.sample(1, "oracle", classes=[0])
    x, condition = torch.zeros(2, *ensemble.space.shape), ensemble.condition.of_classes([0, 1])
    known = ensemble.velocity(x, 0.5, condition, "oracle", clusters=torch.tensor([1, 1]))
    assert torch.equal(known, ensemble.velocity(x, 0.5, condition, "expert-1"))


def test_experts_are_left_out_by_name_or_by_number(run, tmp_path):
    folders = [
        published(run, tmp_path / "named", "--without", "train/expert-00"),
        published(run, tmp_path / "numbered", "--experts", "1"),
    ]
    assert document(folders[0]) == document(folders[1]) and document(folders[0])["left_out"] == ["train/expert-00"]
    ensemble = hpcddm.open(folders[0])
    assert ensemble.ensemble("top-2").experts[0] is None and ensemble.strategies == ["top-1", "expert-1"]
    alone = ensemble.sample(2, "expert-1", classes=[0, 1])
    assert np.array_equal(ensemble.sample(2, "top-2", classes=[0, 1]), alone)
    assert "Without train/expert-00" in (folders[0] / "README.md").read_text()


def test_half_precision_halves_the_weights(run, tmp_path):
    full, half = published(run, tmp_path / "full"), published(run, tmp_path / "half", "--bf16")
    sizes = [sum(path.stat().st_size for path in (folder / "networks").iterdir()) for folder in (full, half)]
    assert 1.7 < sizes[0] / sizes[1] <= 2
    drawn = [hpcddm.open(folder).sample(2, classes=[0, 1]).astype(int) for folder in (full, half)]
    assert 0 < np.abs(drawn[0] - drawn[1]).mean() < 20


def test_a_folder_that_was_moved_opens_from_anywhere(run, tmp_path, monkeypatch):
    before = hpcddm.open(published(run, tmp_path / "ensemble")).sample(2, classes=[0])
    (tmp_path / "ensemble").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    assert np.array_equal(hpcddm.open(Path("moved")).sample(2, classes=[0]), before)


def test_drawing_waits_for_no_package_of_trainings(run, tmp_path):
    folder = published(run, tmp_path / "ensemble")
    code = f"import sys, hpcddm; hpcddm.open({str(folder)!r}).sample(2, classes=[0]); print(*sorted(sys.modules))"
    loaded = {name.partition(".")[0] for name in python(code).stdout.split()}
    assert "torch" in loaded and not loaded & {"deepspeed", "submitit", "faiss", "webdataset", "pyarrow", "open_clip"}
