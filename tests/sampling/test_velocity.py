"""On a mixture of Gaussians everything has a closed form, so the ensemble's identity is tested to rounding."""

import copy

import pytest
import torch

from hpcddm.sampling.denoiser_velocity import DenoiserVelocity
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.step_context import StepContext
from tests.sampling.fields import context, conversion, evaluation, flowing
from tests.sampling.mixtures import Mixture, objective

CLUSTERS, NULL = 3, 2
MIXTURE = Mixture(dimension=4, clusters=CLUSTERS, components=3, spread=2)
JOINT = torch.rand(2, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
WEIGHTS = torch.cat([JOINT, JOINT.sum(0, keepdim=True)])
"""Of the mixture's components for class 0, class 1, and the null class, which is both together."""


def by_class(ask, weights=WEIGHTS):
    """A function of x, t and classes, from one of a mixture, x and t."""
    mixtures = [copy.copy(MIXTURE) for _ in weights]
    for mixture, own in zip(mixtures, weights, strict=True):
        mixture.weights = own

    def asked(x, t, classes):
        return torch.stack([ask(mixture, x, t) for mixture in mixtures])[classes, torch.arange(len(x))]

    return asked


mixture_velocity, router = by_class(Mixture.velocity), by_class(Mixture.router)
OF_CLUSTERS = [by_class(lambda mixture, x, t, k=k: mixture.velocity(x, t, k)) for k in range(CLUSTERS)]
EXPERTS = [flowing(velocity) for velocity in OF_CLUSTERS]
GUIDED = [1.0, 0.0, 3.0]


def batch(count=64):
    generator = torch.Generator().manual_seed(1)
    x = 2 * torch.randn(count, *MIXTURE.shape, generator=generator, dtype=torch.float64)
    t = 0.02 + 0.98 * torch.rand(count, generator=generator, dtype=torch.float64)
    return x, t, torch.arange(count) % 2


def ensemble(*missing, logits=router, experts=EXPERTS):
    """The ensemble without the experts that are missing."""
    there = [None if k in missing else one for k, one in enumerate(experts)]
    return Ensemble(there, logits, flowing(mixture_velocity), flowing(mixture_velocity), NULL)


def field_of(arm="full", clusters=None, own=None, **settings):
    return (own or ensemble()).field(arm, evaluation(**settings), clusters)


def ask(field, *inputs, step=0, time=0.5):
    inputs = inputs or batch()
    return field(*inputs, context(len(inputs[0]), step=step, time=time))


def guided(velocity, x, t, classes, guidance):
    conditional, unconditional = (velocity(x, t, c) for c in (classes, torch.full_like(classes, NULL)))
    return unconditional + guidance * (conditional - unconditional)


@pytest.mark.parametrize("name", ["full", "top3", "threshold-0", "sample-3", "full-until-0.5-then-top-3"])
@pytest.mark.parametrize("guidance", GUIDED)
def test_exact_experts_and_posterior_give_the_global_velocity(name, guidance):
    difference = ask(field_of(name, guidance=guidance)) - guided(mixture_velocity, *batch(), guidance)
    assert difference.abs().max() < 1e-10


def class_blind(x, t, classes):
    return router(x, t, torch.full_like(classes, NULL))


@pytest.mark.parametrize("name", ["full", "top-1", "top-2", "sample-1", "nucleus-0.9"])
def test_shared_posteriors_are_separate_ones_when_the_router_sees_no_class(name):
    blind = ensemble(logits=class_blind)
    halves = [ask(field_of(name, own=blind, guidance=3.0, posteriors=one)) for one in ("shared", "separate")]
    assert (halves[0] - halves[1]).abs().max() < 1e-10
    seeing = [ask(field_of(name, guidance=3.0, posteriors=one)) for one in ("shared", "separate")]
    assert (seeing[0] - seeing[1]).abs().max() > 1e-2


def never(x, t, classes):
    raise AssertionError("the router was asked")


@pytest.mark.parametrize("guidance", GUIDED)
def test_the_oracle_needs_no_router(guidance):
    clusters = torch.arange(64) % CLUSTERS
    velocity = ask(field_of("oracle", clusters, ensemble(logits=never), guidance=guidance))
    for k, expert in enumerate(EXPERTS):
        own = clusters == k
        torch.testing.assert_close(velocity[own], guided(expert, *(one[own] for one in batch()), guidance))


@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_usage_and_entropy_are_of_the_conditional_half_once_per_step(guidance):
    x, t, classes = batch()
    field = field_of("top1", guidance=guidance)
    for step, time in ((0, t), (0, 0.9 * t), (1, 0.5 * t)):
        ask(field, x, time, classes, step=step)
    looked = [router(x, time, classes).softmax(1) for time in (t, 0.5 * t)]
    used = [one.argmax(1).bincount(minlength=CLUSTERS).double() for one in looked]
    torch.testing.assert_close(torch.stack(field.usage), torch.stack(used))
    torch.testing.assert_close(torch.stack(field.entropy), torch.stack([-(p * p.log()).sum() for p in looked]))


class Recorder:
    """An expert that remembers the classes that it was asked about."""

    def __init__(self):
        self.calls = []

    def __call__(self, x, t, classes):
        self.calls.append(classes.tolist())
        return x


@pytest.mark.parametrize("posteriors", ["shared", "separate"])
def test_outside_the_interval_of_guidance_the_null_half_is_not_asked(posteriors):
    expert = Recorder()
    own = Ensemble([flowing(expert)], lambda x, t, c: torch.zeros(len(x), 1), None, None, NULL)
    field = field_of(own=own, guidance=3.0, guidance_interval=[0.2, 0.6], posteriors=posteriors)
    for step, time in enumerate((0.9, 0.6, 0.2, 0.1)):
        ask(field, *batch(2), step=step, time=time)
    assert expert.calls == [[0, 1], [0, 1, NULL, NULL], [0, 1, NULL, NULL], [0, 1]]


@pytest.mark.parametrize("name, asked", [("top-1", [0, 3, 6]), ("sample-1", [0, 3, 6]), ("per-trajectory", [0])])
def test_the_router_is_asked_every_so_many_steps(name, asked):
    at = []

    def noted(x, t, classes):
        at.append(round(10 * (1 - t[0].item())))
        return router(x, t, classes)

    x, _, classes = batch()
    field = field_of(name, own=ensemble(logits=noted), route_every_steps=3, guidance=3.0)
    stream = context(64).stream
    for step in range(8):
        t = torch.full((64,), 1 - step / 10, dtype=torch.float64)
        for _ in range(2):
            field(x, t, classes, StepContext(stream, step, 0.5))
    assert at == asked
    # Between two questions the weights stay; a new trajectory asks anew.
    assert torch.equal(field.usage[0], field.usage[2])
    assert torch.equal(field.usage[0], field.usage[7]) == (name == "per-trajectory")
    ask(field, x, t, classes)
    assert len(at) == len(asked) + 1


def test_once_gives_both_halves_of_guidance_the_same_expert():
    x, t, classes = batch()
    field = field_of("per-trajectory", guidance=3.0)
    velocity = ask(field)
    found = torch.stack([guided(expert, x, t, classes, 3.0) for expert in EXPERTS])
    fits = (found - velocity).abs().flatten(2).amax(2) < 1e-10
    assert (fits.sum(0) == 1).all() and torch.equal(fits.sum(1).double(), field.usage[0])


def test_without_renormalising_chosen_experts_keep_their_posterior():
    x, t, classes = batch()
    share = router(x, t, classes).softmax(1).amax(1).view(-1, 1, 1, 1)
    torch.testing.assert_close(ask(field_of("top-1", renormalise=False)), share * ask(field_of("top-1")))


def clamped(k):
    """An expert that predicts noise and whose estimated images are kept within bounds."""

    def predict(y, tau, classes):
        x, t = y / (torch.cos(torch.pi / 2 * tau) + torch.sin(torch.pi / 2 * tau)).view(-1, 1, 1, 1), linear_time(tau)
        return OF_CLUSTERS[k](x, t, classes) * (1 - t).view(-1, 1, 1, 1) + x

    return DenoiserVelocity(predict, objective("epsilon"), conversion(x0_clamp=1.0))


def linear_time(tau):
    return torch.sigmoid((torch.pi / 2 * tau).tan().log())


@pytest.mark.parametrize("arm", ["per-trajectory", "expert-1", "full"])
def test_guidance_acts_before_the_clamp(arm):
    own, (x, t, classes) = ensemble(experts=[clamped(k) for k in range(CLUSTERS)]), batch()
    t = t.clamp(0.1, 0.9)

    def estimated(posteriors):
        velocity = ask(field_of(arm, own=own, guidance=3.0, posteriors=posteriors), x, t, classes)
        return (x - t.view(-1, 1, 1, 1) * velocity).abs().max()

    assert estimated("shared") <= 1 + 1e-9
    # Halves that are weighted apart are clamped apart; one expert for both has no such halves.
    assert (estimated("separate") > 1.1) == (arm == "full")


@pytest.mark.parametrize("name", "full top-1 top-2 sample-1 nucleus-0.9 threshold-0.1 per-trajectory".split())
@pytest.mark.parametrize("posteriors, missing", [("shared", [2]), ("separate", [0]), ("shared", [0, 2])])
def test_an_ensemble_that_misses_experts_is_the_ensemble_of_the_others(name, posteriors, missing):
    there = [k for k in range(CLUSTERS) if k not in missing]

    def others(x, t, classes):
        return router(x, t, classes)[:, there]

    alone = Ensemble([EXPERTS[k] for k in there], others, None, None, NULL)
    keys = {"guidance": 3.0, "posteriors": posteriors}
    # One expert has all weight, and there is no second one to choose.
    of_others = field_of(name if len(there) > 1 else "full", own=alone, **keys)
    field = field_of(name, own=ensemble(*missing), **keys)
    torch.testing.assert_close(ask(field), ask(of_others))
    assert not field.usage[0][missing].any()


def test_a_router_that_is_sure_of_a_missing_expert_leaves_a_choice_of_the_others():
    def sure(x, t, classes):
        return torch.tensor([[2000.0, 0.0, 1.0]], dtype=torch.float64).expand(len(x), 3)

    assert sure(*batch()).softmax(1)[0].tolist() == [1, 0, 0]
    field = field_of(own=ensemble(0, logits=sure))
    ask(field)
    shares = torch.tensor([0, 1 / (1 + torch.e), torch.e / (1 + torch.e)], dtype=torch.float64)
    torch.testing.assert_close(field.usage[0] / 64, shares)


@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_the_oracle_leaves_the_samples_of_missing_experts_to_the_router(guidance):
    clusters = torch.arange(64) % CLUSTERS
    velocity, own, shared = (
        ask(field_of(name, clusters, ensemble(*gone), guidance=guidance))
        for name, gone in (("oracle", (1,)), ("oracle", ()), ("full", (1,)))
    )
    lost = clusters == 1
    torch.testing.assert_close(velocity[~lost], own[~lost])
    torch.testing.assert_close(velocity[lost], shared[lost])


def test_an_expert_that_is_not_trusted_leaves_its_weight_to_the_others():
    silent = DenoiserVelocity(never, objective("epsilon"), conversion(skip_above=0.7))
    own = ensemble(experts=[silent, *EXPERTS[1:]])
    x, t, classes = batch()
    above = (x, t.clamp(min=0.71), classes)
    for name in ("full", "top-1", "top-2", "sample-1"):
        torch.testing.assert_close(ask(field_of(name, own=own), *above), ask(field_of(name, own=ensemble(0)), *above))
    with pytest.raises(AssertionError, match="asked"):
        ask(field_of("full", own=own), x, 0.5 * t, classes)
    # Where nobody is trusted, those that are there speak.
    with pytest.raises(AssertionError, match="asked"):
        ask(field_of("full", own=ensemble(1, 2, experts=[silent, *EXPERTS[1:]])), *above)


def test_once_draws_experts_that_are_not_yet_trusted_when_it_draws():
    """If it did not, their clusters would be lost for the whole trajectory."""
    shy = DenoiserVelocity(lambda y, tau, classes: y, objective("epsilon"), conversion(skip_above=0.7))
    x, _, classes = batch()
    start = torch.ones(64, dtype=torch.float64)
    several = (ensemble(experts=[first, *EXPERTS[1:]]) for first in (EXPERTS[0], shy))
    plain, skipping = (field_of("per-trajectory", own=own) for own in several)
    for field in (plain, skipping):
        ask(field, x, start, classes, time=1.0)
    assert torch.equal(plain.usage[0], skipping.usage[0]) and plain.usage[0].all()
