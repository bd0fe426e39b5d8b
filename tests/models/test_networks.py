"""The networks of a run as it lies on disk."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from hpcddm.config import variants
from hpcddm.errors import ConfigError, UserError
from hpcddm.models import build_denoiser
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import MONOLITH, ROUTER, STUDENT, expert_key, expert_keys
from hpcddm.sampling import load_ensemble
from hpcddm.sampling.sampler import sample
from hpcddm.stages.training import router_job
from tests.diffusion.spaces.examples import pixels
from tests.helpers import CLASSES, SIDE, tiny

CPU = torch.device("cpu")
MIXED = [
    {"clusters": [1], "objective": {"name": "epsilon"}, "precision": "bf16"},
    {"clusters": [2], "model": {"name": "dit", "width": 24, "depth": 2, "heads": 2, "patch": 4}},
]


def experiment(folder, **changes):
    return tiny(folder, cluster__experts=4, experts__overrides=MIXED, distill__teacher="cluster", **changes)


@pytest.fixture
def run(tmp_path):
    """Mixed experts, monolith, student and router, none of which is trivial."""
    settings, run = experiment(tmp_path), RunDir(tmp_path / "run")
    configs = {expert_key(index): settings.expert_config(index) for index in range(4)}
    configs |= dict.fromkeys((MONOLITH, STUDENT), settings.expert_config())
    torch.manual_seed(0)
    built = {key: build_denoiser.build(settings, config) for key, config in configs.items()}
    for key, network in (built | {ROUTER: router_job.build(settings)}).items():
        weights = {name: one + 0.05 * torch.randn_like(one) for name, one in network.state_dict().items()}
        folder = run.unit(key)
        folder.mkdir(parents=True)
        save_file(weights, folder / "weights.safetensors")
        outputs = manifest.describe_outputs(folder, ["weights.safetensors"])
        manifest.publish(folder, Manifest(*key.split("/"), {}, {}, outputs))
    return run


def ensemble_of(settings, run, without=()):
    needed = [unit.key for unit in plan_units(settings) if unit.key not in without]
    return load_ensemble.load_ensemble(settings, run.unit, needed, CPU)


def draw(ensemble, arm, settings):
    clusters = torch.arange(8) % 4
    field = ensemble.field(arm, settings.evaluate, clusters)
    return sample(field, 0, range(8), torch.arange(8) % CLASSES, pixels(1, SIDE, SIDE), settings.evaluate)


def test_every_expert_is_read_by_its_own_config(run, tmp_path):
    ensemble = ensemble_of(experiment(tmp_path), run)
    objectives = [expert.objective.settings.name for expert in ensemble.experts]
    dtypes = [next(expert.model.parameters()).dtype for expert in ensemble.experts]
    assert objectives == ["flow_matching", "epsilon", "flow_matching", "flow_matching"]
    assert dtypes == [torch.float32, torch.bfloat16, torch.float32, torch.float32]
    assert len(ensemble.experts[2].model.trunk.blocks) == 2
    for key, denoiser in ((MONOLITH, ensemble.monolith), (STUDENT, ensemble.student)):
        stored = load_file(run.unit(key) / "weights.safetensors")
        assert all(torch.equal(stored[name], one) for name, one in denoiser.model.named_parameters())


ARMS = ["full", "top-1", "top-2", "sample-1", "oracle", "per-trajectory", "expert-1", "monolith", "student"]


@pytest.mark.parametrize("guidance", [1.0, 2.0])
def test_wherever_the_weights_are_the_images_are_the_same(run, tmp_path, guidance):
    size = max((run.unit(key) / "weights.safetensors").stat().st_size for key in expert_keys(experiment(tmp_path)))
    few = {"name": "lru", "max_gib": 1.5 * size / 2**30}
    placements = [{"name": "resident"}, {"name": "spread"}, {"name": "lru", "max_gib": 1.0}, few]
    assert {one["name"] for one in placements} == set(variants.list_variants("sampling/placements"))
    images = []
    for placement in placements:
        settings = experiment(tmp_path, evaluate__guidance=guidance, evaluate__placement=placement)
        ensemble = ensemble_of(settings, run)
        images.append({arm: draw(ensemble, arm, settings) for arm in ARMS})
    for arm, expected in images[0].items():
        assert expected.isfinite().all() and expected.std() > 0.1, arm
        assert all(torch.equal(others[arm], expected) for others in images[1:]), arm


def test_a_bound_that_is_too_tight_names_the_setting(run, tmp_path):
    with pytest.raises(ConfigError, match=r"evaluate.placement.max_gib: .* less than train/expert-00 alone.*at least"):
        ensemble_of(experiment(tmp_path, evaluate__placement={"name": "lru", "max_gib": 1e-6}), run)


def test_weights_that_are_not_those_of_the_manifest_are_refused(run, tmp_path):
    path = run.unit(expert_key(1)) / "weights.safetensors"
    weights = load_file(path)
    weights["head.bias"] += 1
    save_file(weights, path)
    with pytest.raises(UserError, match="its bytes are not those of its manifest"):
        ensemble_of(experiment(tmp_path), run)
