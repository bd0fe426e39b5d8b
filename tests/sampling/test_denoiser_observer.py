"""Looks at a denoiser in training: on whose held-out images, by what weights, at what cost to the training."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from hpcddm.models import build_denoiser
from hpcddm.runs.unit_keys import MONOLITH, expert_key
from hpcddm.runs.unit_training import resolve_training
from hpcddm.sampling.denoiser_observer import DenoiserObserver
from hpcddm.sampling.heldout_loss import LEVELS
from tests.helpers import JOINED, tiny

CPU = torch.device("cpu")


@pytest.fixture
def probe(tmp_path, heldout_clusters):
    """A function that makes the probe of an expert, with eight held-out images of two clusters."""

    def make(expert, rank=0, **changes):
        unit = SimpleNamespace(key="train/x", input=None, ranks=SimpleNamespace(rank=rank))
        experiment = tiny(tmp_path, experts__extra=[JOINED], **changes)
        key = MONOLITH if expert is None else expert_key(expert)
        return DenoiserObserver(experiment, unit, resolve_training(experiment, key))

    return make


def network(settings):
    torch.manual_seed(0)
    return build_denoiser.build(settings, settings.expert_config())


@torch.no_grad()
@pytest.mark.parametrize("expert, count", [(0, 3), (1, 5), (None, 8)])
def test_an_expert_is_measured_on_held_out_images_of_its_own_cluster(probe, tmp_path, heldout_clusters, expert, count):
    own = probe(expert)
    assert sorted(own._heldout_numbers) == [n for n, at in enumerate(heldout_clusters) if expert in (None, at)]
    look = own(network(tiny(tmp_path)), CPU)
    assert list(look.losses) == [f"heldout_loss/t={level:g}" for level in LEVELS]
    assert look.images.shape == (16, 8, 8, 1) and look.images.dtype == np.uint8
    assert len(own._heldout_numbers) == count
    # A fresh network predicts zeros, so its loss is the mean square of noise less image.
    assert all(0.5 < loss < 3 for loss in look.losses.values())
    again = own(network(tiny(tmp_path)), CPU)
    assert again.losses == look.losses and (again.images == look.images).all()


@torch.no_grad()
def test_a_perfect_denoiser_has_no_loss_at_any_level(probe):
    own = probe(1)
    x0 = own._loss._x0(own._heldout_numbers)

    class Perfect(nn.Module):
        def forward(self, x, t, condition):
            if len(x) != len(x0):
                return x
            return (x - x0) / t[:, None, None, None]

    assert all(loss < 1e-9 for loss in own(Perfect(), CPU).losses.values())


@torch.no_grad()
def test_of_an_expert_that_joined_only_samples_are_shown_and_other_ranks_show_none(probe, tmp_path):
    look = probe("hats")(network(tiny(tmp_path)), CPU)
    assert look.losses == {} and look.images.shape == (16, 8, 8, 1)
    other = probe(0, rank=1)(network(tiny(tmp_path)), CPU)
    assert other.images is None and len(other.losses) == 5
