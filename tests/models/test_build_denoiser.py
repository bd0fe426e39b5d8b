"""What a training starts from."""

import json
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from hpcddm.diffusion.conditions import base as conditions
from hpcddm.errors import ConfigError, UserError
from hpcddm.files import atomic
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.models import build_denoiser, build_router
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import with_relative_paths
from hpcddm.runs.unit_keys import MONOLITH, ROUTER, expert_key
from hpcddm.runs.unit_training import resolve_training
from tests.helpers import CLASSES, SIDE, tiny, write_source

TEXT = {"name": "text", "encoder": {"name": "words"}, "tokens": 6}
TEXT |= {"prompts": [f"thing number {label}" for label in range(CLASSES)]}


START = {"weights": "seed.safetensors"}
OTHER = {"name": "epsilon", "schedule": {"name": "cosine"}}


def unit_in(folder, key=MONOLITH):
    run = RunDir(folder)
    return SimpleNamespace(key=key, run=run, folder=run.unit(key), ranks=SimpleNamespace(rank=0), inputs={})


def built(experiment):
    return build_denoiser.build(experiment, experiment.expert_config())


def weights_of(experiment, folder, metadata=None, **changed):
    weights = built(experiment).state_dict() | changed
    kept = {name: values for name, values in weights.items() if values is not None}
    save_file(kept, folder / "seed.safetensors", metadata)
    return weights


def unit_of_a_run(experiment, folder, key=MONOLITH, **results):
    """A complete unit of another run; the file of its weights."""
    run = RunDir(folder)
    unit = run.unit(key)
    unit.mkdir(parents=True)
    network = build_router.build(experiment) if key == ROUTER else built(experiment)
    save_file(network.state_dict(), unit / "weights.safetensors")
    planned = next(one for one in plan_units(experiment) if one.key == key)
    outputs = manifest.describe_outputs(unit, ["weights.safetensors"])
    manifest.publish(unit, Manifest(*key.split("/"), planned.fingerprint_settings, {}, outputs, results))
    return unit / "weights.safetensors"


def begin(experiment, unit):
    """A denoiser as the training loop starts it where there is no state."""
    model = built(experiment)
    build_denoiser.initial_weights_loader(resolve_training(experiment, unit.key), unit)(model)
    return model


def refused(folder, words, key=MONOLITH, **changes):
    with pytest.raises(UserError, match=words):
        begin(tiny(folder, **changes), unit_in(folder, key))


def test_a_denoiser_starts_from_the_weights_that_it_is_given(tmp_path):
    experiment = tiny(tmp_path, experts__init_from=START)
    weights = weights_of(experiment, tmp_path)
    assert not torch.equal(built(experiment).trunk.embed_patch.weight, weights["trunk.embed_patch.weight"])
    model = begin(experiment, unit_in(tmp_path / "run"))
    assert all(torch.equal(values, weights[name]) for name, values in model.state_dict().items())
    assert build_denoiser.initial_weights_loader(resolve_training(tiny(tmp_path), MONOLITH), unit_in(tmp_path)) is None


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"head.bias": None}, "1 tensors missing, 0 unknown, 0 of another shape, the first head.bias"),
        ({"tail.bias": torch.zeros(1)}, "0 tensors missing, 1 unknown, 0 of another shape, the first tail.bias"),
        ({"head.bias": torch.zeros(3)}, "0 tensors missing, 0 unknown, 1 of another shape, the first head.bias"),
    ],
)
def test_weights_of_another_network_are_refused_and_change_nothing(tmp_path, changed, words):
    experiment = tiny(tmp_path, experts__init_from=START)
    weights_of(experiment, tmp_path, **changed)
    model = built(experiment)
    before = {name: values.clone() for name, values in model.state_dict().items()}
    with pytest.raises(UserError, match=words):
        build_denoiser.initial_weights_loader(resolve_training(experiment, MONOLITH), unit_in(tmp_path))(model)
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())


def test_a_file_of_another_path_is_taken_with_a_note(tmp_path, capsys):
    there = {"name": "linear_beta", "beta_max": 12}
    file = unit_of_a_run(tiny(tmp_path, experts__objective={"name": "epsilon", "schedule": there}), tmp_path / "other")
    for schedule, path in (
        (there, None),
        ({"name": "linear_beta"}, "linear_beta (beta_min 0.1, beta_max 20.0)"),
        ({"name": "cosine"}, "cosine"),
    ):
        objective = {"name": "epsilon", "schedule": schedule}
        own = tiny(tmp_path, experts__objective=objective, experts__init_from={"weights": str(file)})
        begin(own, unit_in(tmp_path))
        printed = capsys.readouterr().err
        words = f"path linear_beta (beta_min 0.1, beta_max 12.0), experts.objective has {path}; at equal t"
        assert (words in printed) if path else ("trained on the path" not in printed)


def test_an_overridden_expert_is_held_to_its_own_settings_and_named_by_its_own_key(tmp_path):
    unit_of_a_run(tiny(tmp_path), tmp_path / "other")
    start = {"weights": "other/train/monolith/weights.safetensors"}
    mixed = [{"clusters": [1], "objective": OTHER, "init_from": start}]
    experiment = tiny(tmp_path, experts__overrides=mixed)
    assert build_denoiser.initial_weights_loader(resolve_training(experiment, expert_key(0)), unit_in(tmp_path)) is None
    words = "experts.overrides.0.objective.name is epsilon and the file's is flow_matching"
    refused(tmp_path, words, expert_key(1), experts__overrides=mixed)


def test_text_states_of_another_encoder_are_refused(tmp_path):
    experiment = tiny(tmp_path, data__condition=TEXT, experts__init_from=START)
    own = {"model": experiment.experts.model.model_dump(), "objective": {"name": "flow_matching"}}
    weights_of(experiment, tmp_path, {"hpcddm": json.dumps(own | {"data": {"encoder": "words"}})})
    begin(experiment, unit_in(tmp_path))
    weights_of(experiment, tmp_path, {"hpcddm": json.dumps(own | {"data": {"encoder": "minilm"}})})
    words = "data.condition.encoder.name is words and the file's is minilm"
    refused(tmp_path, words, data__condition=TEXT, experts__init_from=START)


def test_a_router_is_refitted_from_the_same_network_only(tmp_path):
    other = tiny(tmp_path, router__model__heads=2, cluster__experts=4)
    file = unit_of_a_run(other, tmp_path / "other", ROUTER, images=64, train_flops=500)
    refit = {"weights": str(file)}
    with pytest.raises(UserError, match="router.model.heads is 1 and the file's is 2; only the number of experts"):
        again = tiny(tmp_path, router__refit=refit)
        build_router.build_initialised(again, resolve_training(again, ROUTER), unit_in(tmp_path, ROUTER))
    experiment, unit = tiny(tmp_path, router__refit=refit, router__model__heads=2), unit_in(tmp_path, ROUTER)
    build_router.build_initialised(experiment, resolve_training(experiment, unit.key), unit)
    assert build_denoiser.initial_weights_record(resolve_training(experiment, unit.key), unit)["start"] == {
        "sha256": atomic.sha256(file), "source": "router/all", "images": 64, "train_flops": 500,
    }  # fmt: skip


def test_the_manifest_says_what_a_unit_started_from_and_what_that_had_cost(tmp_path):
    seed = {"sha256": "0" * 64, "source": "digits", "images": 100, "train_flops": 7000}
    results = {"images": 30, "train_flops": 500, "start": seed}
    file = unit_of_a_run(tiny(tmp_path), tmp_path / "other", **results)
    experiment, unit = tiny(tmp_path, experts__init_from={"weights": str(file)}), unit_in(tmp_path)
    begin(experiment, unit)
    expected = {"sha256": atomic.sha256(file), "source": "train/monolith", "images": 130, "train_flops": 7500}
    # The unit may be complete long after its start is gone.
    file.unlink()
    assert build_denoiser.initial_weights_record(resolve_training(experiment, unit.key), unit) == {"start": expected}
    assert build_denoiser.initial_weights_record(resolve_training(tiny(tmp_path), unit.key), unit) == {}


def test_a_text_model_starts_from_another_experiments_whatever_its_prompts(tmp_path):
    file = unit_of_a_run(tiny(tmp_path, data__condition=TEXT | {"prompts": list("abcd")}), tmp_path / "other")
    experiment = tiny(tmp_path, data__condition=TEXT, experts__init_from={"weights": str(file)})
    model = begin(experiment, unit_in(tmp_path))
    assert all(torch.equal(values, load_file(file)[name]) for name, values in model.state_dict().items())
    condition = conditions.create_condition(experiment.data)
    x, t = torch.randn(2, 1, SIDE, SIDE), torch.rand(2)
    assert model(x, t, condition.of_classes([0, 3])).shape == model(x, t, condition.null(2)).shape == x.shape


def test_the_bytes_of_a_start_are_under_the_fingerprint_and_its_place_is_not(tmp_path):
    write_source(tmp_path / "images")
    experiment = tiny(tmp_path, experts__init_from=START)
    weights_of(experiment, tmp_path)
    run = RunDir(tmp_path / "runs" / "one")
    known = with_content_hashes(experiment, run)
    assert known.experts.init_from.content_hash == atomic.sha256(tmp_path / "seed.safetensors")
    assert with_relative_paths(known, run).experts.init_from.weights == "../../seed.safetensors"


def test_weights_that_changed_since_they_were_submitted_are_refused(tmp_path):
    weights_of(tiny(tmp_path), tmp_path)
    start = START | {"content_hash": "0" * 64}
    refused(tmp_path, "has changed since the run was submitted", experts__init_from=start)


def test_a_folder_is_no_file_of_weights_and_the_file_in_it_is_named(tmp_path):
    write_source(tmp_path / "images")
    file = unit_of_a_run(tiny(tmp_path), tmp_path / "other")
    experiment = tiny(tmp_path, experts__init_from={"weights": str(file.parent)})
    with pytest.raises(ConfigError, match=f"a folder.; name the file in it: {file}"):
        with_content_hashes(experiment, RunDir(tmp_path / "run"))


def ensemble_of(experiment, folder, *keys):
    """A published ensemble of these networks, each with weights of its own; the weights, by key."""
    weights, listed, files = {}, {}, {}
    for number, key in enumerate(keys):
        torch.manual_seed(number)
        weights[key] = {name: torch.randn_like(values) for name, values in built(experiment).state_dict().items()}
        listed[key] = {"file": f"networks/{key.split('/')[1]}.safetensors"}
        path = folder / listed[key]["file"]
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(weights[key], path)
        files[listed[key]["file"]] = {"sha256": atomic.sha256(path)}
    atomic.write_json(folder / "ensemble.json", {"networks": listed, "files": files})
    return weights


def test_each_expert_starts_from_its_own_network_of_an_ensemble(tmp_path):
    start = {"ensemble": str(tmp_path / "published")}
    experiment = tiny(tmp_path, experts__init_from=start)
    weights = ensemble_of(experiment, tmp_path / "published", expert_key(0), expert_key(1))
    write_source(tmp_path / "images")
    known = with_content_hashes(experiment, RunDir(tmp_path / "runs" / "one"))
    assert known.experts.init_from.content_hash == atomic.sha256(tmp_path / "published/ensemble.json")
    for key in (expert_key(0), expert_key(1)):
        model = begin(known, unit_in(tmp_path / "run", key))
        assert all(torch.equal(values, weights[key][name]) for name, values in model.state_dict().items())
    words = r"experts.init_from.ensemble: .*published has no train/monolith, but train/expert-00, train/expert-01; .*"
    refused(tmp_path, words + "with 'weights', such as .*networks/expert-00.safetensors", experts__init_from=start)


def test_an_ensemble_that_changed_since_it_was_submitted_is_refused(tmp_path):
    folder = tmp_path / "published"
    start = {"ensemble": str(folder)}
    ensemble_of(tiny(tmp_path), folder, expert_key(0), expert_key(1))
    content_hash = atomic.sha256(folder / "ensemble.json")
    for name, other in (("networks/expert-00.safetensors", "networks/expert-01.safetensors"), ("ensemble.json", None)):
        kept = (folder / name).read_bytes()
        (folder / name).write_bytes((folder / other).read_bytes() if other else kept + b" ")
        words = f"{name}: has changed since the run was submitted"
        refused(tmp_path, words, expert_key(0), experts__init_from=start | {"content_hash": content_hash})
        (folder / name).write_bytes(kept)
    begin(tiny(tmp_path, experts__init_from=start | {"content_hash": content_hash}), unit_in(tmp_path, expert_key(0)))


@pytest.mark.parametrize(
    "content, words",
    [
        ("[]", "ensemble.json: "),
        ('{"networks": {"train/expert-00": {"file": "../x"}}, "files": {}}', "ensemble.json: .*x"),
        ('{"networks": {"train/expert-00": {"file": "x"}}, "files": {}}', "ensemble.json: does not list x"),
    ],
)
def test_an_ensemble_that_lists_what_cannot_be_is_refused(tmp_path, content, words):
    (tmp_path / "published").mkdir()
    (tmp_path / "published/ensemble.json").write_text(content)
    refused(tmp_path, words, expert_key(0), experts__init_from={"ensemble": str(tmp_path / "published")})


@pytest.mark.parametrize("start", [{}, {"weights": "x", "ensemble": "y"}])
def test_a_start_is_a_file_or_an_ensemble(tmp_path, start):
    with pytest.raises(ConfigError, match="needs one of the two, 'weights' or 'ensemble'"):
        tiny(tmp_path, experts__init_from=start)
