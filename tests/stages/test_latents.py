"""Latents of an autoencoder that the run trains: the column, its scale, what trainings draw, and the way back."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from hpcddm.config import variants
from hpcddm.data import run_samples
from hpcddm.data.latent_moments import LatentInputs
from hpcddm.data.run_samples import open_catalog
from hpcddm.diffusion.spaces.base import create_space
from hpcddm.diffusion.spaces.pixels import pixels_to_values
from hpcddm.encoders.autoencoder.base import TrainedAutoencoder
from hpcddm.errors import ConfigError, UserError
from hpcddm.files.atomic import sha256
from hpcddm.models import build_autoencoder
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.randomness.keyed import RandomDraws
from hpcddm.runs import initial_weights, manifest
from hpcddm.runs.files import WEIGHTS
from hpcddm.runs.manifest import Manifest, Output
from hpcddm.runs.unit_keys import AUTOENCODER, LATENT_SCALE, MONOLITH
from hpcddm.stages.data import autoencoder_job, latents_job
from hpcddm.training.training_inputs import training_inputs
from tests.helpers import FINAL_STAGES, LATENT_SPACE, hpcddm, tiny, write_experiment, write_source
from tests.stages import routes
from tests.stages.routes import Bench, write_images

SPACE = LATENT_SPACE | {"autoencoder": {"name": "kl_small", "factor": 4, "width": 16, "blocks": 1}}
FLIP = {"data__augmentations": [{"name": "flip"}]}
PATCH_ONE = {"experts__model__patch": 1, "router__model__patch": 1}
COUNT = 300


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run with the latents of an autoencoder that it has trained a little, mirrored ones too."""
    root = tmp_path_factory.mktemp("latents")
    write_images(root / "images", COUNT, 100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(routes.STAGES, "latents", latents_job)
        run = Bench(root, "run", data__space=SPACE, **FLIP, **PATCH_ONE)
        keys = [unit.key for unit in plan_units(run.settings)]
        run.make(*(key for key in keys if key.startswith(("shard/", "catalog/"))))
        unit = run.unit(AUTOENCODER)
        run.train(unit, lambda: autoencoder_job.run(run.settings, unit))
        early = ("shard/", "catalog/", "autoencoder/", "evaluators/", "train/", "router/", "measure_real/")
        early += tuple(f"{stage}/" for stage in FINAL_STAGES)
        run.make(*(key for key in keys if not key.startswith(early)))
    return run


@pytest.fixture(scope="module")
def trained(made):
    """The autoencoder of the run."""
    return build_autoencoder.load(made.settings, made.run.output(AUTOENCODER, "weights.safetensors"))


def moments(made, trained, split="train", is_turned=False):
    """The moments of all images of a split, or of their mirror images, as the autoencoder itself gives them."""
    reader = run_samples.open_reader(made.unit(MONOLITH), split)
    images = reader.images(range(len(reader)))
    images = pixels_to_values(torch.from_numpy(np.flip(images, 2).copy() if is_turned else images))
    with torch.no_grad():
        return trained.encode(images).numpy()


def test_the_training_is_measured_on_heldout_images(made):
    results = manifest.read(made.run.unit(AUTOENCODER)).results
    assert results["images"] == 64 and results["train_flops"] > 0 and 3 < results["heldout_psnr"] < 60


def test_the_columns_are_what_the_autoencoder_gives_in_float16(made, trained):
    for split in ("train", "heldout"):
        column = run_samples.latents(open_catalog(made.run, split)).gather(range(100))
        assert column.dtype == np.float16 and column.shape == (100, 2, 4, 7, 7)
        np.testing.assert_allclose(column, moments(made, trained, split)[:100], rtol=1e-3, atol=1e-3)
    mirrored = run_samples.mirrored_latents(open_catalog(made.run, "train")).gather(range(COUNT))
    np.testing.assert_allclose(mirrored, moments(made, trained, is_turned=True), rtol=1e-3, atol=1e-3)


def test_measured_shift_and_scale_are_those_of_drawn_latents(made, trained):
    stored = json.loads(made.run.output(LATENT_SCALE, "latent_scale.json").read_text())
    mean, log_variance = torch.from_numpy(moments(made, trained)).unbind(1)
    latent = torch.randn(64, *mean.shape, generator=torch.Generator().manual_seed(0))
    drawn = mean + (log_variance / 2).exp() * latent
    channels = drawn.transpose(0, 2).flatten(1)
    assert np.allclose(stored["shift"], channels.mean(1), atol=0.01)
    assert np.allclose(stored["scale"], 1 / channels.std(1), rtol=0.01)


def test_trainings_see_drawn_latents_of_zero_mean_and_unit_variance(made):
    unit, space = made.unit(MONOLITH), create_space(made.settings.data, made.unit(MONOLITH).input)
    reader = run_samples.open_reader(unit, "train")
    inputs, numbers = training_inputs(made.settings, unit, "train", reader), np.arange(COUNT)
    x = space.from_batch(inputs.read(range(COUNT), numbers, RandomDraws(0, "here")))
    assert x.shape == (COUNT, 4, 7, 7) and x.dtype == torch.float32
    assert x.mean().abs() < 0.03 and abs(x.std() - 1) < 0.05
    again = space.from_batch(inputs.read(range(COUNT), numbers, RandomDraws(0, "here")))
    other = space.from_batch(inputs.read(range(COUNT, 2 * COUNT), numbers, RandomDraws(0, "here")))
    assert torch.equal(x, again) and not torch.equal(x, other)


def test_half_of_the_visits_see_a_mirrored_image(made):
    own = open_catalog(made.run, "train")
    plain, mirrored = run_samples.latents(own), run_samples.mirrored_latents(own)
    draws = RandomDraws(0, "here")
    seen = LatentInputs(plain, mirrored).read(range(COUNT), np.arange(COUNT), draws)
    both = [LatentInputs(column).read(range(COUNT), np.arange(COUNT), draws) for column in (plain, mirrored)]
    flipped = draws.mirror_mask(range(COUNT))
    assert 0.4 < flipped.float().mean() < 0.6
    assert torch.equal(seen, torch.where(flipped.view(-1, 1, 1, 1), both[1], both[0]))


def test_the_way_back_is_the_decoder(made, trained):
    unit = made.unit(MONOLITH)
    space, reader = create_space(made.settings.data, unit.input), run_samples.open_reader(unit, "heldout")
    images = torch.from_numpy(reader.images(range(20)))
    x = space.to_model(images)
    with torch.no_grad():
        decoded = trained.decode(trained.encode(pixels_to_values(images))[:, 0])
    expected = decoded.add(1).mul(127.5).round().clamp(0, 255).permute(0, 2, 3, 1).numpy()
    assert np.abs(space.to_images(x).astype(int) - expected).max() <= 1
    # Matrix products of other batches round differently on some processors.
    torch.testing.assert_close(space.to_model(images[:3]), x[:3])


def test_the_loss_is_error_and_weighted_divergence(tmp_path):
    weighted = {"autoencoder": {"name": "kl_small", "factor": 2, "kl_weight": 0.5}}
    experiment = tiny(tmp_path, data__space=LATENT_SPACE | weighted).data
    network = variants.create(TrainedAutoencoder, experiment.space.autoencoder, experiment).network
    images, noise = torch.rand(3, 1, 8, 8) * 2 - 1, torch.randn(3, *experiment.x_shape)
    mean, log_variance = network.moments(images).unbind(1)
    posterior = torch.distributions.Normal(mean, (log_variance / 2).exp())
    divergence = torch.distributions.kl_divergence(posterior, torch.distributions.Normal(0.0, 1.0)).flatten(1).sum(1)
    error = (network.decode(mean + (log_variance / 2).exp() * noise) - images).square().flatten(1).mean(1)
    assert torch.allclose(network(images, noise), error + 0.5 * divergence / 64, atol=1e-5)


REFUSED = [
    ({"data__space__training": None}, "kl_small is trained"),
    ({"data__space__scale": [1.0, 2.0]}, "2 numbers for the 4 channels"),
    ({"data__space__scale": -1.0}, "scale: -1.0 is not positive"),
    ({"data__space__scale": "mesured"}, "needs 'measured', a number"),
    ({"data__space__autoencoder__factor": 8, "data__image_size": 12}, "factor 8 does not divide image_size 12"),
    ({"data__augmentations": [{"name": "shift", "max_pixels": 1}]}, "shift of data.augmentations cannot be"),
    ({"data__read_from": {"name": "expert_copy"}}, "remove data.read_from"),
    ({"router": {"model": {"name": "feature_router", "encoder": {"name": "pixels"}}}}, "take distance_router"),
]


@pytest.mark.parametrize("changes, message", REFUSED)
def test_what_cannot_go_with_latents_is_refused(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        tiny(tmp_path, data__space=LATENT_SPACE, **changes)


DIFFUSERS = {"name": "autoencoder", "autoencoder": {"name": "diffusers_kl", "weights": {"folder": "vae"}}}


@pytest.mark.parametrize("space, side", [(LATENT_SPACE, 8), (DIFFUSERS, 64)])
def test_weights_of_a_unit_in_latents_are_a_start_in_the_same_space(tmp_path, space, side):
    experiment = tiny(tmp_path, data__space=space, data__image_size=side, data__channels=3)
    unit = next(unit for unit in plan_units(experiment) if unit.key == MONOLITH)
    data = initial_weights._data_of(unit.fingerprint_settings)
    shape = experiment.data.x_shape
    assert (data["channels"], data["image_size"]) == (shape.channels, shape.height)
    assert data["space"] == experiment.data.space.defining_settings and "weights" not in data["space"]["autoencoder"]


def test_weights_for_the_latents_of_another_runs_autoencoder_are_no_start(tmp_path):
    start = {"weights": str(tmp_path / "a.safetensors")}
    experiment = tiny(tmp_path, data__space=LATENT_SPACE, experts__init_from=start)
    unit = next(unit for unit in plan_units(experiment) if unit.key == MONOLITH)
    expected = unit.expected({key: Manifest(*key.split("/"), {}, {}, []) for key in unit.requires})
    weights = tmp_path / "unit" / WEIGHTS
    weights.parent.mkdir()
    weights.write_bytes(b"tensors")
    manifest.publish(weights.parent, replace(expected, outputs=[Output(WEIGHTS, 7, sha256(weights))]))
    own = expected.inputs[f"{LATENT_SCALE}#space"]
    request = initial_weights.init_request(experiment, MONOLITH)
    description = initial_weights.describe_network(weights, {}, None)
    for known in (own, None):
        initial_weights.check_description(request, weights, description, known)
    with pytest.raises(UserError, match="was trained on the latents of another run's autoencoder"):
        initial_weights.check_description(request, weights, description, "0" * 64)


def test_what_changes_no_latent_makes_no_training_stale(tmp_path):
    def settings(seed=0, space=LATENT_SPACE):
        planned = plan_units(tiny(tmp_path, data__space=space, seed=seed))
        return {unit.key: unit.fingerprint_settings for unit in planned}

    before = settings()
    changed = LATENT_SPACE | {"training": LATENT_SPACE["training"] | {"images": 50, "log_every_images": 7}}
    after = settings(space=changed)
    assert before[MONOLITH] == after[MONOLITH] and before[AUTOENCODER] == after[AUTOENCODER]
    # One autoencoder for all seeds.
    other = settings(seed=1)
    assert all(before[key] == other[key] for key in (AUTOENCODER, "latents/train-000", LATENT_SCALE))


def test_the_scale_of_one_site_serves_another_whose_latents_differ_in_last_bits(made):
    unit = made.unit(LATENT_SCALE)
    planned = next(unit for unit in plan_units(made.settings) if unit.key == LATENT_SCALE)
    before = planned.expected(unit.inputs)
    rounded = {key: replace(own, outputs=[]) for key, own in unit.inputs.items() if key.startswith("latents/")}
    assert planned.expected(unit.inputs | rounded) == before
    other = replace(rounded["latents/train-000"], results={})
    assert planned.expected(unit.inputs | {"latents/train-000": other}) != before


@pytest.mark.long
def test_a_run_in_latents_goes_from_images_to_the_page(tmp_path):
    write_source(tmp_path / "images")
    path = write_experiment(tmp_path, data__space=LATENT_SPACE, monolith={"enabled": False})
    done = hpcddm("submit", path, "--site", "embedded", "--run-dir", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert "everything is complete" in done.output or "report" in done.output
    results = manifest.read(tmp_path / "run" / "autoencoder").results
    assert math.isfinite(results["heldout_psnr"]) and results["train_flops"] > 0
    assert (tmp_path / "run" / "report" / "index.html").is_file()
    assert hpcddm("submit", path, "--site", "embedded", "--run-dir", tmp_path / "run").output.count("nothing to submit")
