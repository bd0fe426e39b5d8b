"""A published folder draws the same bits as its run, which is not there any more."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import hpcddm
from hpcddm.config.variants import settings_class
from hpcddm.config.weights import content_hash
from hpcddm.errors import UserError
from hpcddm.pipeline.required_units import units_of_strategy
from hpcddm.publishing.making import publish as write
from hpcddm.publishing.published_units import Publication, select_units
from hpcddm.randomness import keyed
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment, with_absolute_paths
from hpcddm.runs.unit_keys import expert_keys
from tests import helpers
from tests.encoders import networks
from tests.helpers import JOINED, LATENT_SPACE, python
from tests.publishing.made_runs import document, made_run, publish, published, refusal_of

STRATEGIES = ("top-1", "top-2", "full", "expert-2")
CLASSES = ["caf\xe9", "M\xfctze", "\u9774", "\u0646\u06cc\u0645\u200c\u0641\u0627\u0635\u0644\u0647"]
"""Names in several scripts; the last needs a character that keeps its letters apart."""
TEXT = {"name": "text", "encoder": {"name": "words", "width": 8}}


@pytest.fixture(scope="module")
def drawn(finished) -> dict[str, np.ndarray]:
    """Samples of the run by strategy."""
    run = hpcddm.open(finished)
    return {strategy: run.sample(6, strategy, [2, 9], seed=5) for strategy in STRATEGIES}


@pytest.fixture(scope="module")
def ensemble(finished, tmp_path_factory) -> Path:
    """The finished run, published; the copy that it was made from is gone."""
    folder = tmp_path_factory.mktemp("published")
    run = shutil.copytree(finished, folder / "run")
    made = published(Path(run), folder / "made")
    shutil.rmtree(run)
    return made.rename(folder / "elsewhere")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_samples_are_those_of_the_run(ensemble, drawn, tmp_path, strategy):
    opened = hpcddm.open(ensemble)
    assert np.array_equal(opened.sample(6, strategy, [2, 9], seed=5), drawn[strategy])
    done = helpers.hpcddm(
        *("sample", ensemble, "--strategy", strategy, "--class", 2, "--num-images", 6, "--seed", 5),
        *("--output", tmp_path / "x.npz"),
    )
    assert done.exit_code == 0, done.output
    array = np.load(tmp_path / "x.npz")["arr_0"]
    assert np.array_equal(array, opened.sample(6, strategy, [2], seed=5).repeat(3, 3))


def test_velocities_are_those_of_the_run(ensemble, finished):
    run, opened = hpcddm.open(finished, guidance=1.5), hpcddm.open(ensemble, guidance=1.5)
    x = keyed.gaussian(0, "initial", range(3), run.space.shape)
    condition = opened.condition.of_classes([1, 2, 3])
    for strategy in ("top-2", "expert-1"):
        assert torch.equal(opened.velocity(x, 0.7, condition, strategy), run.velocity(x, 0.7, condition, strategy))
    assert opened.class_names == run.class_names and "top-1" in opened.strategies


def test_half_the_bytes(finished, ensemble, tmp_path):
    half = published(finished, tmp_path / "half", "--bf16")
    for name in ("networks/expert-01.safetensors", "networks/router.safetensors"):
        share = (half / name).stat().st_size / (ensemble / name).stat().st_size
        assert 0.45 < share < 0.55
    assert hpcddm.open(half).sample(2, "top-2", [0]).shape == (2, 28, 28, 1)


def test_what_is_not_here_is_named(ensemble, tmp_path):
    said = refusal_of(helpers.hpcddm("sample", ensemble, "--strategy", "monolith", "--output", tmp_path / "x.png"))
    assert "train/monolith was not published" in said and "top-1, top-2" in said
    said = refusal_of(helpers.hpcddm("sample", ensemble, "--strategy", "oracle", "--output", tmp_path / "x.png"))
    assert "only the run knows the clusters" in said
    with pytest.raises(UserError, match="which has no images and no results|has no outputs|only the run"):
        hpcddm.open(ensemble).sample(2, "oracle", [0])


IMPORTS = """
import sys, hpcddm
assert hpcddm.open(sys.argv[1]).sample(1, "top-1", [0]).shape == (1, 28, 28, 1)
print(sorted({"deepspeed", "submitit", "faiss", "webdataset"} & set(sys.modules)))
"""


def test_opening_imports_nothing_that_only_runs_need(ensemble):
    done = python(IMPORTS, ensemble)
    assert done.returncode == 0 and done.stdout == "[]\n", done.stdout + done.stderr


def test_an_ensemble_without_an_expert(finished, tmp_path):
    without = published(finished, tmp_path / "without", "--without", "train/expert-02")
    others = published(finished, tmp_path / "others", "--experts", "0,1,3")
    assert document(without) == document(others) and document(without)["left_out"] == ["train/expert-02"]
    said = [
        helpers.hpcddm("sample", without, "--strategy", one, "--num-images", 1, "--output", tmp_path / "x.png").output
        for one in ("top-1", "expert-1")
    ]
    assert "top-1 without train/expert-02, 4 euler" in said[0] and "expert-1, 4 euler" in said[1]
    opened, run = hpcddm.open(without), hpcddm.open(finished)
    assert opened.ensemble("top-2").experts[2] is None
    units = (*expert_keys(run.experiment), "router/all")
    ensemble = run._load([key for key in units if key != "train/expert-02"])
    run._ensembles[tuple(units_of_strategy(run.experiment, "top-2"))] = ensemble
    assert np.array_equal(opened.sample(4, "top-2", [3]), run.sample(4, "top-2", [3]))


MADE = {
    "names in many scripts": ({"data__class_names": CLASSES}, {"classes": [CLASSES[3], CLASSES[0]]}),
    "sentences of classes": ({"data__condition": TEXT | {"prompts": ["a", "b", "c", "d"]}}, {"classes": [1]}),
    "captions": ({"data__condition": TEXT}, {"prompts": ["a hat", "a shoe"]}),
    "mixed objectives": (
        {"experts__overrides": [{"clusters": [0], "objective": {"name": "epsilon"}}]},
        {"classes": [0, 1]},
    ),
    "latents": ({"data__space": LATENT_SPACE}, {"classes": [2]}),
    "a snapshot": ({"experts__training__snapshots": [32, 64], "evaluate__snapshot": 32}, {"classes": [3]}),
    "no condition": (
        {"data__condition": {"name": "none"}, "data__num_classes": None, "evaluators__classifier": None},
        {},
    ),
    "experts that may be missing": ({"evaluate__min_experts": 1}, {"classes": [3]}),
}


@pytest.mark.parametrize("case", MADE)
def test_a_run_of_another_kind(tmp_path, case):
    changes, request = MADE[case]
    run = made_run(tmp_path / "run", **changes)
    opened = hpcddm.open(run.root)
    expected = {} if case == "no condition" else {one: opened.sample(3, one, **request) for one in ("full", "expert-1")}
    made = published(run, tmp_path / "made")
    shutil.rmtree(run.root)
    again = hpcddm.open(made)
    for strategy, images in expected.items():
        assert np.array_equal(again.sample(3, strategy, **request), images), strategy
    assert again.sample(1, **request).dtype == np.uint8


def test_an_average_that_is_computed_afterwards_is_what_is_published(finished, tmp_path):
    run = RunDir(finished)
    experiment = with_absolute_paths(stored_experiment(run), run)
    units, lists = select_units(run, experiment, ["top-1"], [])
    averaged = experiment.model_copy(update={"evaluate": experiment.evaluate.model_copy(update={"sigma_rel": 0.07})})
    write(run, averaged, Publication(["top-1"], units, [], lists), tmp_path / "made", lambda part: None)
    expected = hpcddm.open(finished, sigma_rel=0.07)
    assert np.array_equal(hpcddm.open(tmp_path / "made").sample(3, classes=[4]), expected.sample(3, classes=[4]))
    final = load_file(finished / "train/expert-00/weights.safetensors")
    stored = load_file(tmp_path / "made/networks/expert-00.safetensors")
    assert any(not torch.equal(final[name], values) for name, values in stored.items())


@pytest.mark.parametrize("strategy", ["monolith", "expert-1", "hats", "student"])
def test_one_model_alone(tmp_path, strategy):
    run = made_run(tmp_path / "run", experts__extra=[JOINED], distill__teacher="cluster")
    expected = hpcddm.open(run.root).sample(2, strategy, [1])
    opened = hpcddm.open(published(run, tmp_path / "made", "--strategies", strategy))
    assert opened.strategies == [strategy] and len(opened.document.networks) == 1
    assert np.array_equal(opened.sample(2, classes=[1]), expected)
    with pytest.raises(UserError, match=f"was not published; strategies of its networks: {strategy}"):
        opened.sample(2, "top-1", [1])


def test_the_default_is_a_strategy_that_is_here(tmp_path):
    run = made_run(tmp_path / "run", evaluate__strategies=["oracle", "full"])
    opened = hpcddm.open(published(run, tmp_path / "made"))
    assert opened.strategies[0] == "full" and opened.sample(2, classes=[0]).shape == (2, 8, 8, 1)


def test_nothing_of_the_machine_is_in_the_folder(tmp_path):
    made = published(made_run(tmp_path / "run"), tmp_path / "made")
    assert all(str(tmp_path).encode() not in path.read_bytes() for path in made.rglob("*") if path.is_file())
    assert json.loads((made / "ensemble.json").read_text())["experiment"]["data"]["source"]["folder"] == "not-published"
    assert publish(tmp_path / "run", tmp_path / "made").exit_code == 2


def test_public_weights_are_copied_if_asked_for_and_else_fetched_by_the_reader(tmp_path):
    encoder = settings_class("encoders/text", "clip_text")(**networks.clip_text(tmp_path / "clip"))
    place = {"folder": str(tmp_path / "clip"), "content_hash": content_hash(encoder)}
    condition = {"name": "text", "encoder": encoder.model_dump() | {"weights": place}, "tokens": 16}
    run = made_run(tmp_path / "run", data__condition=condition)
    ours = hpcddm.open(run.root).sample(2, prompts=["a red hat"])
    whole = published(run, tmp_path / "whole", "--with-encoders")
    bare = published(run, tmp_path / "bare")
    (tmp_path / "clip").rename(tmp_path / "elsewhere")
    assert np.array_equal(hpcddm.open(whole).sample(2, prompts=["a red hat"]), ours)
    place = bare / "encoders/data.condition.encoder"
    for call in (("sample", bare, "--prompt", "a", "--output", tmp_path / "x.png"), ("prefetch", bare)):
        assert f"{place}: weights of clip_text: no such folder" in refusal_of(helpers.hpcddm(*call))
    shutil.copytree(tmp_path / "elsewhere", place)
    assert np.array_equal(hpcddm.open(bare).sample(2, prompts=["a red hat"]), ours)
    weights = place / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match=r"weights of clip_text: SHA-256 over .* begins .* and not .*content_hash"):
        hpcddm.open(bare).sample(2, prompts=["a red hat"])
    (place / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../../../elsewhere.bin"}}))
    with pytest.raises(UserError, match=r"index.json: names other files than those beside it; refused"):
        hpcddm.open(bare).sample(2, prompts=["a red hat"])
    (place / "model.safetensors.index.json").unlink()
    (place / "model.safetensors").rename(place / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model.bin: is a pickle, which could run code; refused"):
        hpcddm.open(bare).sample(2, prompts=["a red hat"])
    shutil.rmtree(place)
    place.symlink_to(tmp_path / "elsewhere")
    assert "encoder: is a link; " in refusal_of(
        helpers.hpcddm("sample", bare, "--prompt", "a", "--output", tmp_path / "x.png")
    )


def test_what_unusual_runs_have_is_published(tmp_path):
    encoder = settings_class("encoders/image", "dinov2")(**networks.dinov2(tmp_path / "dino"))
    place = {"folder": str(tmp_path / "dino"), "content_hash": content_hash(encoder)}
    router = {"name": "feature_router", "encoder": encoder.model_dump() | {"weights": place}}
    changes = {"router__model": router, "router__training": None, "data__filter": "label != 1", "name": "20261130"}
    run = made_run(tmp_path / "features", **changes)
    folder = published(run, tmp_path / "whole", "--with-encoders")
    assert str(tmp_path) not in (folder / "ensemble.json").read_text()
    assert document(folder)["experiment"]["data"]["filter"] is None and document(folder)["name"] == "20261130"
    assert (folder / "encoders/router.model.encoder/model.safetensors").exists()


def test_a_table_of_clusters_is_not_published(tmp_path):
    table = {"name": "file", "table": {"file": "clusters.csv", "key": "key"}}
    (tmp_path / "clusters.csv").write_text("key,cluster\n")
    folder = published(made_run(tmp_path / "run", cluster__clustering=table), tmp_path / "made")
    assert not (folder / "partition.safetensors").exists() and "partition" not in (folder / "README.md").read_text()


def test_samples_of_experts_that_are_left_out_are_not_published(tmp_path):
    run = made_run(tmp_path / "run")
    whole, part = published(run, tmp_path / "whole"), published(run, tmp_path / "part", "--experts", "0")
    assert {path.name for path in (whole / "samples").iterdir()} == {"monolith.png", "top-1.png"}
    assert {path.name for path in (part / "samples").iterdir()} == {"monolith.png"}
    with open(whole / "calibration.json", "r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(UserError, match="calibration.json: has 1,099,511,627,776 bytes instead of"):
        hpcddm.open(whole).sample(1, "top-1", classes=[0])
