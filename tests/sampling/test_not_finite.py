"""Samples, probabilities and pixels that are NaN or infinite are refused by name, and become no figure."""

import numpy as np
import pytest
import torch

from hpcddm.config import variants
from hpcddm.config.sampling import SolverSettings
from hpcddm.diffusion.spaces.base import create_space
from hpcddm.errors import UserError
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.sampler import sample
from tests.helpers import tiny
from tests.sampling.fields import evaluation, flowing

NULL = 9
SOLVERS = variants.list_variants(SolverSettings.package)
DRAWING = "top-1 top-2 full sample-2 sample-2-until-0.5-then-full per-trajectory nucleus-0.9 threshold-0.1".split()


def ensemble(*bad, when=lambda x, t, condition: t < 2, router=None, value=torch.nan):
    """Three experts that point at zero; the velocities of some are `value` where `when` says so."""

    def network(number):
        def velocity(x, t, condition):
            wild = when(x, t, condition) if number in bad else torch.zeros_like(t, dtype=torch.bool)
            return torch.where(wild.view(-1, 1, 1, 1), torch.full_like(x, value), x)

        return flowing(velocity)

    even = router or (lambda x, t, condition: torch.zeros(len(x), 3))
    experts = [network(number) for number in range(3)]
    return Ensemble(experts, even, experts[0], None, NULL)


def draw(own, arm, tmp_path, first=40, **changes):
    settings = evaluation(**({"steps": 4} | changes))
    clusters = torch.tensor([0, 1, 2, 1])
    space = create_space(tiny(tmp_path).data)
    condition = torch.zeros(4, dtype=torch.long)
    return sample(own.field(arm, settings, clusters), 0, range(first, first + 4), condition, space, settings)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_first_sample_that_is_not_finite_is_named_with_arm_and_time(tmp_path, solver, value):
    own = ensemble(0, when=lambda x, t, condition: (t < 0.6) & (condition == 0), value=value)
    native = SolverSettings.model_validate({"name": solver}).native
    said = "" if native else r" at t = 0\.\d+: the velocity of monolith is not finite"
    with pytest.raises(UserError, match=f"monolith: sample 40 is NaN or infinite{said}"):
        draw(own, "monolith", tmp_path, solver={"name": solver})
    assert draw(ensemble(), "monolith", tmp_path, solver={"name": solver}).isfinite().all()


def test_the_expert_at_fault_is_named_and_whether_it_is_its_null_condition(tmp_path):
    with pytest.raises(UserError, match="oracle: sample 41 .* at t = 1: the velocity of expert-1 is not finite; look"):
        draw(ensemble(1), "oracle", tmp_path)
    null = ensemble(2, when=lambda x, t, condition: condition == NULL)
    assert draw(null, "full", tmp_path, guidance=1.0).isfinite().all()
    for posteriors in ("shared", "separate"):
        with pytest.raises(UserError, match="full: sample 40 .*: the velocity of expert-2 without its condition is"):
            draw(null, "full", tmp_path, guidance=2.0, posteriors=posteriors)


def test_guidance_that_is_too_large_is_named(tmp_path):
    def velocity(x, t, condition):
        return x * torch.where(condition == NULL, -1.0, 1.0).view(-1, 1, 1, 1)

    own = Ensemble([flowing(velocity)] * 3, lambda x, t, condition: torch.zeros(len(x), 3), None, None, NULL)
    with pytest.raises(UserError, match=r"top-1: sample 40 .*: guidance 1e\+38 or the steps"):
        draw(own, "top-1", tmp_path, guidance=1e38)


@pytest.mark.parametrize("renormalise", [True, False])
@pytest.mark.parametrize("arm", DRAWING)
def test_probabilities_that_are_not_finite_choose_no_expert(tmp_path, arm, renormalise):
    dead = ensemble(router=lambda x, t, condition: torch.full((len(x), 3), torch.nan))
    with pytest.raises(UserError, match=f"{arm} at t = 1: the router's probabilities are NaN; look at its training"):
        draw(dead, arm, tmp_path, renormalise=renormalise)
    assert draw(ensemble(), arm, tmp_path, renormalise=renormalise).isfinite().all()


@pytest.mark.parametrize("name", ["pixels", "latents"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_values_that_are_not_finite_are_no_pixels(tmp_path, name, value):
    space = create_space(tiny(tmp_path, data__space={"name": name}).data)
    x = torch.zeros(2, *space.shape)
    assert space.to_images(x).dtype == np.uint8
    x[1, 0, 0, 0] = value
    with pytest.raises(UserError, match="images with values that are NaN or infinite cannot be shown or measured"):
        space.to_images(x)
