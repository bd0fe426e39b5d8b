from types import SimpleNamespace

import pytest
import torch

from hpcddm.config import variants
from hpcddm.config.sampling import StrategySettings, parse_strategy
from hpcddm.errors import ConfigError
from hpcddm.sampling.strategies.base import Strategy, draw_expert
from tests.sampling.fields import context, posterior

NAMES = "full oracle top-1 top-2 top-4 sample-1 sample-2-at-0.5 sample-4 nucleus-0.9 nucleus-0.7-at-2".split()
NAMES += "threshold-0.05 threshold-0.9 per-trajectory full-until-0.5-then-top-1".split()
RANDOM = ["sample-1", "sample-2", "sample-3-at-0.5", "nucleus-0.9", "nucleus-0.7-at-2", "per-trajectory"]
FOUR = SimpleNamespace(cluster=SimpleNamespace(experts=4))


def routing_weights(name, given=None, at=None, renormalise=True):
    given = posterior() if given is None else given
    strategy, at = variants.create(Strategy, parse_strategy(name)), at or context(len(given))
    return strategy.normalised_weights(given, at) if renormalise else strategy.routing_weights(given, at)


LABELS = {"top1": "top-1", "top-12": "top-12", "full": "full", "oracle": "oracle", "sample2": "sample-2"}
LABELS |= {"sample-2-at-1": "sample-2", "sample-2-at-0.50": "sample-2-at-0.5", "nucleus0.90": "nucleus-0.9"}
LABELS |= {"nucleus-1-at-2.0": "nucleus-1-at-2", "threshold-0.050": "threshold-0.05"}
LABELS |= {"full-until-0.50-then-top1": "full-until-0.5-then-top-1"}


@pytest.mark.parametrize(("name", "label"), LABELS.items())
def test_names_have_one_label(name, label):
    assert parse_strategy(name).label == parse_strategy(label).label == label
    parse_strategy(name).check(SimpleNamespace(cluster=SimpleNamespace(experts=12)))


@pytest.mark.parametrize("name", [*"top top0 top-0 topk Full sample-0 nucleus per-trajectory-2".split(), "full ", ""])
def test_an_unknown_name_is_answered_with_the_valid_ones(name):
    with pytest.raises(ConfigError) as error:
        parse_strategy(name)
    for variant in variants.list_variants(StrategySettings.package):
        assert variants.settings_class(StrategySettings.package, variant).usage in str(error.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("top5", "top-5 needs 5 experts, there are 4"),
        ("sample-5", "sample-5 needs 5 experts, there are 4"),
        ("sample-2-at-0", "temperature must be above 0"),
        ("nucleus-0", "mass must be above 0"),
        ("nucleus-1.5", "mass must be above 0 and at most 1"),
        ("nucleus-0.9-at-0.0", "temperature must be above 0"),
        ("threshold-1", "at least 0 and below 1"),
        ("full-until-1-then-top-1", "time must be above 0 and below 1"),
        ("full-until-0.5-then-top-5", "top-5 needs 5 experts"),
        ("per-trajectory-until-0.5-then-top-1", "per-trajectory cannot be switched: it does not evaluate the router"),
        ("full-until-0.5-then-oracle", "oracle cannot be switched: it does not evaluate the router"),
        ("full-until-0.5-then-best", "unknown name 'best'; valid names: full"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(name, message):
    with pytest.raises((ValueError, ConfigError), match=message) as error:
        parse_strategy(name).check(FOUR)
    assert "\n" not in str(error.value)


def test_every_strategy_is_covered():
    assert {parse_strategy(name).name for name in NAMES} == set(variants.list_variants(StrategySettings.package))


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_a_distribution_over_possible_experts(name):
    given = posterior(200)
    given[:100, 2] = 0
    given[150:] = torch.eye(4, dtype=torch.float64)[1]
    found = routing_weights(name, given)
    assert found.shape == (200, 4) and (found >= 0).all()
    assert not found[given == 0].any()
    torch.testing.assert_close(found.sum(1), torch.ones(200, dtype=torch.float64))


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("renormalise", [True, False])
def test_top_k_keeps_the_k_largest_in_proportion(k, renormalise):
    given = posterior()
    for row, expected in zip(routing_weights(f"top{k}", renormalise=renormalise), given, strict=True):
        kept = expected.argsort(descending=True)[:k]
        assert set(row.nonzero().flatten().tolist()) == set(kept.tolist())
        torch.testing.assert_close(row[kept], expected[kept] / (expected[kept].sum() if renormalise else 1))


def test_a_threshold_keeps_what_is_above_it_and_never_nobody():
    given = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25], [0.05, 0.9, 0.03, 0.02]])
    raw = routing_weights("threshold-0.25", given, renormalise=False)
    assert raw.tolist() == [pytest.approx([0, 0, 0.3, 0.4]), [0.25, 0, 0, 0], pytest.approx([0, 0.9, 0, 0])]
    assert routing_weights("threshold-0.25", given)[0].tolist() == pytest.approx([0, 0, 3 / 7, 4 / 7])


def frequencies(name, given, count=20000):
    """How often each expert is drawn for one posterior (K,)."""
    return (routing_weights(name, given.expand(count, -1)) > 0).double().mean(0)


@pytest.mark.parametrize("temperature", [0.5, 1, 2])
def test_sample_1_draws_from_the_tempered_posterior(temperature):
    logits = torch.tensor([0.3, -1.0, 1.2, 0.0], dtype=torch.float64)
    wanted = (logits / temperature).softmax(0)
    found = frequencies(f"sample-1-at-{temperature}", logits.softmax(0))
    # Four standard errors of a frequency.
    assert ((found - wanted).abs() < 4 * (wanted * (1 - wanted) / 20000).sqrt()).all()


def test_sample_2_draws_distinct_experts_that_share_by_their_posterior():
    given = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    found = routing_weights("sample-2", given.expand(20000, -1))
    assert ((found > 0).sum(1) == 2).all()
    torch.testing.assert_close(found, (found > 0) * given / ((found > 0) * given).sum(1, keepdim=True))
    # Without replacement: p_i p_j / (1 - p_i) + p_j p_i / (1 - p_j).
    pair = 0.5 * 0.3 / 0.5 + 0.3 * 0.5 / 0.7
    both = ((found[:, 0] > 0) & (found[:, 1] > 0)).double().mean().item()
    assert abs(both - pair) < 4 * (pair * (1 - pair) / 20000) ** 0.5


@pytest.mark.parametrize("k, mean", [(1, [0.6, 0.3, 0.1]), (2, [0.657143, 0.292857, 0.05]), (3, [0.6, 0.3, 0.1])])
def test_the_mean_weights_of_sample_k_are_the_posterior_for_one_and_for_all_alone(k, mean):
    """For two by the sum over all orders of drawing without replacement."""
    drawn = routing_weights(f"sample-{k}", torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64).expand(20000, -1))
    error = 4 * drawn.std(0) / 20000**0.5 + 1e-6
    assert ((drawn.mean(0) - torch.tensor(mean)).abs() < error).all()


def test_nucleus_draws_from_the_smallest_set_of_the_mass():
    given = torch.tensor([0.15, 0.5, 0.05, 0.3], dtype=torch.float64)
    found = frequencies("nucleus-0.7", given)
    assert found[[0, 2]].tolist() == [0, 0] and abs(found[1].item() - 0.625) < 4 * (0.625 * 0.375 / 20000) ** 0.5
    assert frequencies("nucleus-0.5", given).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("name", RANDOM)
def test_a_draw_belongs_to_seed_image_and_step_and_to_nothing_else(name):
    given = posterior(400)
    whole = routing_weights(name, given, context(400, step=3))
    parts = [
        routing_weights(name, given[first : first + 100], context(100, step=3, first=first))
        for first in range(0, 400, 100)
    ]
    assert torch.equal(torch.cat(parts), whole)
    assert not torch.equal(routing_weights(name, given, context(400, step=4)), whole)
    assert not torch.equal(routing_weights(name, given, context(400, step=3, seed=1)), whole)
    # The halves of guidance share their numbers.
    assert torch.equal(
        routing_weights(name, torch.cat([given, given]), context(400, step=3)), torch.cat([whole, whole])
    )


def test_a_switch_changes_when_the_noise_has_fallen():
    for time, name in ((1.0, "full"), (0.51, "full"), (0.5, "top-1"), (0.1, "top-1")):
        found = routing_weights("full-until-0.5-then-top-1", at=context(50, time=time))
        assert torch.equal(found, routing_weights(name))


def test_the_smallest_and_the_largest_number_draw_experts_that_have_weight():
    given = torch.tensor([[0.0, 0.3, 0.7, 0.0], [0.0, 0.0, 0.0, 0.0]])
    for number, expert in ((0.0, 1), (1 - 2**-24, 2)):
        found = draw_expert(given, torch.full((2,), number))
        assert found[0].argmax() == expert and found.sum(1).tolist() == [1, 0]
