import json

import pytest
import torch

from hpcddm.sampling.diagnostics import diagnose, disagreement, refinement_gap
from hpcddm.sampling.ensemble import Ensemble
from tests.diffusion.spaces.examples import pixels
from tests.sampling.fields import evaluation, experts_of, flowing
from tests.sampling.mixtures import Mixture

MIXTURE = Mixture(dimension=2, clusters=4, spread=0.5)
WHOLE = Ensemble(experts_of(MIXTURE), MIXTURE.router, flowing(lambda x, t, c: MIXTURE.velocity(x, t)), None, 0)
STEPS = 4


def diagnosed(arm, ensemble=WHOLE, **settings):
    evaluate = evaluation(steps=STEPS, **settings)
    condition = torch.zeros(30, dtype=torch.long)
    return diagnose(lambda: ensemble.field(arm, evaluate), 0, range(30), condition, pixels(*MIXTURE.shape), evaluate)


def test_disagreement_is_the_variance_over_experts_and_the_gap_a_mean_square():
    velocities = torch.tensor([[1.0, 3.0], [1.0, 3.0], [2.0, 2.0]]).view(3, 2, 1, 1, 1).expand(3, 2, 3, 2, 2)
    given = torch.tensor([[0.5, 0.5], [0.75, 0.25], [0.3, 0.7]])
    torch.testing.assert_close(disagreement(given, velocities), torch.tensor([1.0, 0.75, 0.0]))
    assert refinement_gap(torch.zeros(2, 1, 2, 2), torch.full((2, 1, 2, 2), 3.0)) == 9


@pytest.mark.parametrize(
    "arm, solver, guidance",
    [("full", "euler", 1.0), ("top-1", "heun", 2.0), ("sample-1", "heun", 1.0), ("per-trajectory", "euler", 2.0)],
)
def test_an_ensemble_is_diagnosed_by_time(arm, solver, guidance):
    found = diagnosed(arm, solver={"name": solver}, guidance=guidance)
    assert json.loads(json.dumps(found)) == found
    assert found["times"] == [1.0, 0.75, 0.5, 0.25]
    prior = -(MIXTURE.masses * MIXTURE.masses.log()).sum().item()
    # Pure noise tells nothing: at t = 1 the posterior is the clusters' masses.
    assert found["entropy"][0] == pytest.approx(prior, rel=1e-4)
    assert found["entropy"][-1] < found["entropy"][0]
    assert len(found["disagreement"]) == STEPS and min(found["disagreement"]) > 0
    assert found["refinement_gap"] > 0


def test_a_straight_flow_has_no_gap_and_its_experts_agree():
    same = flowing(lambda x, t, c: 0.5 * torch.ones_like(x))
    found = diagnosed("full", Ensemble([same] * 4, MIXTURE.router, None, None, 0))
    assert found["disagreement"] == pytest.approx([0.0] * STEPS, abs=1e-12)
    assert found["refinement_gap"] == pytest.approx(0.0, abs=1e-12)
