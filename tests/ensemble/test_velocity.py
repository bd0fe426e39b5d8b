"""On a mixture of Gaussians everything has a closed form, so the ensemble's identity is tested to rounding."""

from functools import partial

import pytest
import torch

from hpcddm.ensemble import strategies
from hpcddm.ensemble.members import Members
from hpcddm.ensemble.velocity import EnsembleVelocity, known, routed

SHAPE, COMPONENTS, CLUSTERS, NULL = (1, 2, 2), 9, 3, 2
GENERATOR = torch.Generator().manual_seed(0)
MEANS = 2 * torch.randn(COMPONENTS, *SHAPE, generator=GENERATOR, dtype=torch.float64)
SPREAD = 0.2 + torch.rand(COMPONENTS, generator=GENERATOR, dtype=torch.float64)
CLUSTER_OF = torch.arange(COMPONENTS) % CLUSTERS
# Rows: class 0, class 1, and the null class, which is both together.
JOINT = torch.rand(2, COMPONENTS, generator=GENERATOR, dtype=torch.float64)
LOG_WEIGHTS = torch.cat([JOINT, JOINT.sum(0, keepdim=True)]).log()


def log_joint(x, t, classes, log_weights=LOG_WEIGHTS):
    """log p(component, x_t | class) up to a constant per sample: (N, components)."""
    variance = (1 - t[:, None]) ** 2 * SPREAD**2 + t[:, None] ** 2
    centred = x[:, None] - (1 - t.view(-1, 1, 1, 1, 1)) * MEANS
    squares = centred.flatten(2).square().sum(2)
    return log_weights[classes] - 0.5 * squares / variance - 0.5 * 4 * variance.log()


def mixture_velocity(x, t, classes, allowed=None):
    """E[eps - x0 | x_t, class] over the allowed components."""
    scores = log_joint(x, t, classes)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    time = t.view(-1, 1, 1, 1, 1)
    spread = SPREAD.view(1, -1, 1, 1, 1) ** 2
    whitened = (x[:, None] - (1 - time) * MEANS) / ((1 - time) ** 2 * spread + time**2)
    velocities = time * whitened - (MEANS + (1 - time) * spread * whitened)
    return (scores.softmax(1).view(*scores.shape, 1, 1, 1) * velocities).sum(1)


def router(x, t, classes, log_weights=LOG_WEIGHTS):
    """Exact logits of p(cluster | x_t, class)."""
    scores = log_joint(x, t, classes, log_weights)
    return torch.stack([scores[:, CLUSTER_OF == k].logsumexp(1) for k in range(CLUSTERS)], dim=1)


EVERYONE = torch.ones(CLUSTERS, dtype=torch.bool)
EXPERTS = [partial(mixture_velocity, allowed=CLUSTER_OF == k) for k in range(CLUSTERS)]


def batch(count=64):
    generator = torch.Generator().manual_seed(1)
    x = 2 * torch.randn(count, *SHAPE, generator=generator, dtype=torch.float64)
    t = 0.02 + 0.98 * torch.rand(count, generator=generator, dtype=torch.float64)
    return x, t, torch.arange(count) % 2


def ensemble(name="full", posterior=None, guidance=1.0):
    rule = strategies.rule(strategies.parse(name))
    return EnsembleVelocity(EXPERTS, posterior or routed(router, EVERYONE), rule, NULL, guidance)


def guided(x, t, classes, guidance):
    conditional, unconditional = (mixture_velocity(x, t, c) for c in (classes, torch.full_like(classes, NULL)))
    return unconditional + guidance * (conditional - unconditional)


@pytest.mark.parametrize("name", ["full", "top3"])
@pytest.mark.parametrize("guidance", [1.0, 0.0, 3.0])
def test_exact_experts_and_posterior_give_the_global_velocity(name, guidance):
    difference = ensemble(name, guidance=guidance)(*batch()) - guided(*batch(), guidance)
    assert difference.abs().max() < 1e-10


def test_a_router_trained_on_balanced_clusters_does_not():
    totals = torch.stack([LOG_WEIGHTS[:, CLUSTER_OF == k].logsumexp(1) for k in range(CLUSTERS)], dim=1)
    balanced = LOG_WEIGHTS - totals[:, CLUSTER_OF]
    field = ensemble(posterior=routed(partial(router, log_weights=balanced), EVERYONE))
    assert (field(*batch()) - mixture_velocity(*batch())).abs().max() > 1e-2


def test_one_posterior_for_both_halves_of_guidance_does_not():
    def class_blind(x, t, classes):
        return router(x, t, torch.full_like(classes, NULL))

    assert (
        ensemble(posterior=routed(class_blind, EVERYONE), guidance=3.0)(*batch()) - guided(*batch(), 3.0)
    ).abs().max() > 1e-2


def test_top_1_asks_the_most_probable_expert_only():
    x, t, classes = batch()
    chosen = router(x, t, classes).argmax(1)
    expected = torch.stack([EXPERTS[k](*(v[i : i + 1] for v in batch()))[0] for i, k in enumerate(chosen.tolist())])
    torch.testing.assert_close(ensemble("top1")(x, t, classes), expected)


@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_known_clusters_need_no_router(guidance):
    x, t, classes = batch()
    clusters = torch.arange(64) % CLUSTERS
    velocity = ensemble("oracle", known(clusters, CLUSTERS), guidance)(x, t, classes)
    for k, expert in enumerate(EXPERTS):
        own = clusters == k
        halves = [expert(x[own], t[own], c[own]) for c in (classes, torch.full_like(classes, NULL))]
        torch.testing.assert_close(velocity[own], halves[1] + guidance * (halves[0] - halves[1]))


@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_one_model_is_an_ensemble_of_one(guidance):
    alone = known(torch.zeros(64, dtype=torch.long), 1)
    field = EnsembleVelocity([mixture_velocity], alone, strategies.rule(strategies.parse("full")), NULL, guidance)
    torch.testing.assert_close(field(*batch()), guided(*batch(), guidance))


@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_usage_counts_the_conditional_half(guidance):
    x, t, classes = batch()
    field = ensemble("top1", guidance=guidance)
    field(x, t, classes)
    field(x, 0.5 * t, classes)
    expected = [router(x, time, classes).argmax(1).bincount(minlength=CLUSTERS) for time in (t, 0.5 * t)]
    torch.testing.assert_close(torch.stack(field.usage), torch.stack(expected).double())


def test_an_experts_group_is_one_batch_with_both_halves():
    calls = []

    def expert(x, t, classes):
        calls.append(classes.tolist())
        return x

    alone = known(torch.zeros(4, dtype=torch.long), 1)
    field = EnsembleVelocity([expert], alone, strategies.rule(strategies.parse("full")), NULL, guidance=3.0)
    field(*batch(4))
    assert calls == [[0, 1, 0, 1, NULL, NULL, NULL, NULL]]


class Router(torch.nn.Module):
    """A function in the clothes of a network."""

    def __init__(self, logits):
        super().__init__()
        self.logits, self.somewhere = logits, torch.nn.Parameter(torch.zeros(1))

    def forward(self, x, t, classes):
        return self.logits(x, t, classes)


def without(*missing, logits=router):
    """The members of the ensemble when some experts are missing."""
    return Members([None if k in missing else one for k, one in enumerate(EXPERTS)], Router(logits), None, NULL)


@pytest.mark.parametrize("guidance", [1.0, 3.0])
@pytest.mark.parametrize("name, k", [("full", 3), ("top-3", 3), ("top-2", 2), ("top-1", 1)])
@pytest.mark.parametrize("missing", [(0,), (2,), (0, 2)])
def test_the_weights_of_missing_experts_are_shared_by_those_that_are_there(name, k, missing, guidance):
    def expected(x, t, classes):
        posterior = router(x, t, classes).softmax(1)
        posterior[:, list(missing)] = 0
        kept = posterior * (posterior >= posterior.topk(k).values[:, -1:])
        weights = kept / kept.sum(1, keepdim=True)
        velocities = [expert(x, t, classes) for expert in EXPERTS]
        return sum(w.view(-1, 1, 1, 1) * one for w, one in zip(weights.unbind(1), velocities, strict=True))

    x, t, classes = batch()
    halves = [expected(x, t, c) for c in (classes, torch.full_like(classes, NULL))]
    field = without(*missing).field(name, guidance)
    torch.testing.assert_close(field(x, t, classes), halves[1] + guidance * (halves[0] - halves[1]))
    assert not field.usage[0][list(missing)].any()


@pytest.mark.parametrize("name", ["full", "top-1", "top-2"])
def test_an_ensemble_that_misses_an_expert_is_the_ensemble_of_the_others(name):
    def others(x, t, classes):
        return router(x, t, classes)[:, :2]

    alone = Members(EXPERTS[:2], Router(others), None, NULL)
    torch.testing.assert_close(without(2).field(name, 3.0)(*batch()), alone.field(name, 3.0)(*batch()))


def test_a_router_that_is_sure_of_a_missing_expert_leaves_a_choice_of_the_others():
    def sure(x, t, classes):
        return torch.tensor([[2000.0, 0.0, 1.0]], dtype=torch.float64).expand(len(x), 3)

    assert sure(*batch()).softmax(1)[0].tolist() == [1, 0, 0]
    field = without(0, logits=sure).field("full", 1.0)
    field(*batch())
    shares = torch.tensor([0, 1 / (1 + torch.e), torch.e / (1 + torch.e)], dtype=torch.float64)
    torch.testing.assert_close(field.usage[0] / 64, shares)


@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_the_oracle_leaves_the_samples_of_missing_experts_to_the_router(guidance):
    clusters = torch.arange(64) % CLUSTERS
    velocity = without(1).field("oracle", guidance, clusters)(*batch())
    own, shared = (without(*gone).field(name, guidance, clusters) for gone, name in (((), "oracle"), ((1,), "full")))
    lost = clusters == 1
    torch.testing.assert_close(velocity[~lost], own(*batch())[~lost])
    torch.testing.assert_close(velocity[lost], shared(*batch())[lost])


@pytest.mark.parametrize("name", ["full", "top-2", "oracle"])
def test_when_all_are_there_nothing_changes_by_a_bit(name):
    clusters = torch.arange(64) % CLUSTERS
    plain = (known(clusters, CLUSTERS)) if name == "oracle" else lambda *inputs: router(*inputs).softmax(1)
    field = without().field(name, 3.0, clusters)
    assert torch.equal(field(*batch()), ensemble(name, plain, 3.0)(*batch()))
