"""A whole run in latents on real images: what is drawn, shown and measured are images of clothes."""

import json

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open

from tests.whole_runs import TINY, hpcddm

pytestmark = pytest.mark.long
LATENTS = [
    "data.space={name: latents, deviation: 0.7}",
    "experts.model.patch=2",
    "experts.training.images=16384",
    "router.model.patch=2",
    "router.samples={images: 100, steps: 3}",
    "distill={teacher: router, share: 0.5}",
    "evaluate.strategies=[top-1, full, oracle]",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = tmp_path_factory.mktemp("latents") / "run"
    done = hpcddm("submit", "quickstart", "--site", "embedded", "--run-dir", run, *TINY, *LATENTS, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return run


@pytest.mark.parametrize("unit", ["train/expert-00", "train/monolith", "distill/student", "router"])
def test_networks_are_of_the_shape_of_latents(run, unit):
    with safe_open(run / unit / "weights.safetensors", "np") as weights:
        assert weights.get_slice("trunk.embed_patch.weight").get_shape()[1] == 4 * 2**2


def test_every_arm_is_measured_as_images(run):
    metrics = json.loads((run / "report/metrics.json").read_text())
    assert list(metrics["arms"]) == ["monolith", "student", "top-1", "full", "oracle"]
    # Without training 7.7 and chance, which is 0.1; the router, made from so few rough samples, is not judged here.
    for name in ("monolith", "oracle"):
        assert metrics["arms"][name]["fd"] < 5 and metrics["arms"][name]["agreement"] > 0.2, metrics["arms"][name]
    results = json.loads((run / "router/manifest.json").read_text())["results"]
    assert max(results["accuracy"]) > results["accuracy"][-1] + 0.05


def test_the_router_is_trained_on_samples_that_are_images(run):
    samples = np.load(run / "router/samples.npy")
    assert samples.shape == (400, 28, 28, 1) and samples.dtype == np.uint8


def test_a_picture_of_samples_shows_clothes(run, tmp_path):
    done = hpcddm("sample", run, "--strategy", "monolith", "--output", tmp_path / "samples.png", "--num-images", 20)
    assert done.returncode == 0, done.stdout + done.stderr
    picture = np.asarray(Image.open(tmp_path / "samples.png").convert("LA"))
    values = picture[..., 0][picture[..., 1] > 0]
    # Clothes on black: of the real ones' pixels half are black.
    assert 0.2 < (values < 16).mean() < 0.8 and values.max() > 200


def test_a_denoiser_of_latents_is_exported_with_their_shape(run, tmp_path):
    done = hpcddm("export", run, "train/expert-00", "--output", tmp_path / "expert")
    assert done.returncode == 0, done.stdout + done.stderr
    config = json.loads((tmp_path / "expert/transformer/config.json").read_text())
    assert (config["in_channels"], config["sample_size"]) == (4, 14)
