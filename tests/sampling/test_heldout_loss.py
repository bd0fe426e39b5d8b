"""The loss on held-out images, and the best predictor that does not look, against least squares by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from hpcddm.data import run_samples
from hpcddm.randomness import keyed
from hpcddm.randomness.streams import PROBE_NOISE
from hpcddm.runs.unit_keys import expert_key
from hpcddm.runs.unit_training import resolve_training
from hpcddm.sampling.heldout_loss import LEVELS, HeldoutLoss
from tests.helpers import tiny
from tests.sampling.mixtures import FORMS

CPU = torch.device("cpu")
NUMBERS = np.array([6, 1, 2, 5, 4])
X0_WEIGHT = {"name": "target_space", "prediction_type": "x0"}


def variance_preserving(level):
    """Alpha and sigma of equal log-SNR with alpha^2 + sigma^2 = 1."""
    return np.array([1 - level, level]) / np.hypot(1 - level, level)


def target(name, x0, noise, level):
    """What a network of an objective is trained to say."""
    of_image, of_noise = FORMS[name](*variance_preserving(level), -1, 1)
    return of_image * x0 + of_noise * noise


@pytest.fixture
def loss_of(tmp_path, heldout_clusters):
    """A function that makes the loss of an expert with an objective."""

    def make(**objective):
        unit = SimpleNamespace(key="probe/expert-01", input=None)
        experiment = tiny(tmp_path, experts__objective=objective)
        return HeldoutLoss(experiment, unit, resolve_training(experiment, expert_key(1)))

    return make


def drawn(level):
    """The images and the noise, as float64."""
    images = run_samples.open_reader(None, "heldout").images(NUMBERS).transpose(0, 3, 1, 2) / 127.5 - 1
    noise = keyed.gaussian(0, PROBE_NOISE.format(level=level), range(len(NUMBERS)), images.shape[1:])
    return images, noise.double().numpy()


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_constant_predictor_is_the_least_squares_solution(loss_of, name, is_weighted):
    loss = loss_of(name=name, **({"weighting": X0_WEIGHT} if is_weighted else {}))
    for level in LEVELS:
        x0, noise = drawn(level)
        targets = target(name, x0, noise, level).reshape(len(x0), -1)
        _, residues, _, _ = np.linalg.lstsq(np.ones((len(x0), 1)), targets, rcond=None)
        alpha, sigma = variance_preserving(level)
        # At a given x_t an error of the prediction is this much of one of x0.
        share = {"epsilon": sigma / alpha, "x0_prediction": 1, "v_prediction": sigma, "flow_matching": level}[name]
        expected = residues.sum() / targets.size * (share**2 if is_weighted else 1)
        assert loss.of_constant(NUMBERS, level) == pytest.approx(expected, rel=1e-5), level


class Constant(nn.Module):
    """Network that predicts one image."""

    def __init__(self, image):
        super().__init__()
        self.image = torch.as_tensor(image, dtype=torch.float32)

    def forward(self, x, t, condition):
        return self.image.expand_as(x)


@pytest.mark.parametrize("level", LEVELS)
def test_a_network_that_predicts_the_mean_has_its_loss_and_any_other_constant_more(loss_of, level):
    loss, mean = loss_of(name="flow_matching"), target("flow_matching", *drawn(level), level).mean(0)
    least = loss.of_constant(NUMBERS, level)
    assert loss.of_network(Constant(mean), NUMBERS, level, CPU) == pytest.approx(least, rel=1e-6)
    shift = np.random.default_rng(0).normal(size=mean.shape)
    for size in (-0.1, 0.01, 0.1):
        more = loss.of_network(Constant(mean + size * shift), NUMBERS, level, CPU)
        assert more == pytest.approx(least + size**2 * np.square(shift).mean(), rel=1e-4)


def test_the_noise_depends_on_level_and_place_and_other_images_are_read_anew(loss_of):
    loss, zero = loss_of(name="epsilon"), Constant(np.zeros(1))
    one = [loss.of_network(zero, NUMBERS[:1], level, CPU) for level in (0.3, 0.5, 0.3)]
    assert one[0] == one[2] != one[1]
    # The noise, of which no image is left in epsilon's target, is that of the place and not that of the image.
    assert loss.of_network(zero, NUMBERS[1:2], 0.3, CPU) == one[0]
    images = loss_of(name="x0_prediction")
    apart = [images.of_network(zero, NUMBERS[n : n + 1], 0.3, CPU) for n in range(len(NUMBERS))]
    assert len(set(apart)) == len(NUMBERS)
    assert np.mean(apart) == pytest.approx(images.of_network(zero, NUMBERS, 0.3, CPU), rel=1e-6)
