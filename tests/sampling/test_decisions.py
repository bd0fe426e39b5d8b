"""What is recorded of an ensemble's samples is what it does, and recording changes no bit of them."""

from itertools import pairwise

import pytest
import torch

from hpcddm.sampling.decisions import DecisionRecorder
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.sampler import sample, time_grid
from tests.diffusion.spaces.examples import pixels
from tests.sampling.fields import evaluation, experts_of
from tests.sampling.mixtures import Mixture

MIXTURE = Mixture(dimension=2, clusters=4, spread=0.5)
WHOLE = Ensemble(experts_of(MIXTURE), MIXTURE.router, None, None, 0)
IMAGES, STEPS = 6, 16


class Watching(DecisionRecorder):
    """Keeps the first state of every step, and its velocity."""

    seen = ()

    def __call__(self, x, t, condition, context):
        velocity = super().__call__(x, t, condition, context)
        if context.step == len(self.seen):
            self.seen = (*self.seen, (x, t, condition, velocity))
        return velocity


def drawn(arm, recorded=Watching, steps=STEPS, **settings):
    """Samples with and without recording, and the recorder."""
    evaluate = evaluation(steps=steps, **settings)
    given = 0, range(IMAGES), torch.zeros(IMAGES, dtype=torch.long), pixels(*MIXTURE.shape), evaluate
    recorder = recorded(WHOLE.field(arm, evaluate), evaluate, 8)
    return sample(recorder, *given), sample(WHOLE.field(arm, evaluate), *given), recorder


@pytest.mark.parametrize(
    "arm, settings",
    [
        ("full", {}),
        ("top-1", {"guidance": 2.0, "solver": {"name": "heun"}}),
        ("top-2", {"guidance": 2.0, "posteriors": "shared"}),
        ("sample-1", {"guidance": 2.0}),
        ("per-trajectory", {}),
        ("top-1", {"route_every_steps": 3}),
    ],
)
def test_samples_are_the_same_and_the_posterior_is_the_routers_at_every_state(arm, settings):
    recorded, plain, recorder = drawn(arm, **settings)
    assert torch.equal(recorded, plain)
    assert len(recorder.posterior) == len(recorder.weights) == len(recorder.seen) == STEPS
    for step, (x, t, condition, velocity) in enumerate(recorder.seen):
        routed = MIXTURE.router(x, t, condition).softmax(1)
        torch.testing.assert_close(recorder.posterior[step], routed, rtol=0, atol=1e-6)
        if step in recorder.shown:
            estimate = x - t.view(-1, 1, 1, 1) * velocity
            torch.testing.assert_close(recorder.estimates[recorder.shown.index(step)], estimate)
    torch.testing.assert_close(torch.stack(recorder.weights).sum(2), torch.ones(STEPS, IMAGES), check_dtype=False)


def test_weights_are_those_of_the_experts_that_are_evaluated():
    _, _, recorder = drawn("top-1")
    weights = torch.stack(recorder.weights)
    assert torch.equal(weights.argmax(2), torch.stack(recorder.posterior).argmax(2))
    assert weights.unique().tolist() == [0.0, 1.0]
    _, _, recorder = drawn("per-trajectory")
    weights = torch.stack(recorder.weights)
    assert torch.equal(weights, weights[:1].expand_as(weights)), "one expert for the whole trajectory"
    _, _, recorder = drawn("top-1", route_every_steps=4)
    weights = torch.stack(recorder.weights).unflatten(0, (4, 4))
    assert torch.equal(weights, weights[:, :1].expand_as(weights))


@pytest.mark.parametrize("steps, shown", [(16, [1, 3, 5, 7, 9, 11, 13, 15]), (8, [*range(8)]), (3, [0, 1, 2])])
def test_estimates_are_spread_over_the_trajectory(steps, shown):
    _, _, recorder = drawn("full", steps=steps)
    assert recorder.shown == shown and len(recorder.estimates) == len(shown)
    assert all(first > second for first, second in pairwise(time_grid(steps)[step] for step in shown))
