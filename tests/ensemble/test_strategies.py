import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from hpcddm import plugins
from hpcddm.ensemble import strategies
from hpcddm.errors import ConfigError

NAMES = ["full", "oracle", "top-1", "top-2", "top-4"]


def posterior():
    generator = torch.Generator().manual_seed(0)
    return (2 * torch.randn(50, 4, generator=generator, dtype=torch.float64)).softmax(1)


@pytest.mark.parametrize(
    ("name", "label"),
    [("top1", "top-1"), ("top-1", "top-1"), ("top-12", "top-12"), ("full", "full"), ("oracle", "oracle")],
)
def test_names_have_one_label(name, label):
    assert strategies.parse(name).label == label
    assert strategies.parse(label) == strategies.parse(name)


@pytest.mark.parametrize("name", ["top", "top0", "top-0", "topk", "Full", "full ", ""])
def test_an_unknown_name_is_answered_with_the_valid_ones(name):
    with pytest.raises(ConfigError) as error:
        strategies.parse(name)
    for usage in ("full", "oracle", "top-1, top-2, ..."):
        assert usage in str(error.value)


def test_the_login_node_can_parse_without_torch():
    code = "import sys; from hpcddm.ensemble import strategies as s; s.parse('top1'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_strategy_is_covered():
    assert {strategies.parse(name).name for name in NAMES} == set(plugins.names(strategies.ROOM))


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_a_distribution(name):
    weights = strategies.rule(strategies.parse(name))(posterior())
    assert weights.shape == (50, 4)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(1), torch.ones(50, dtype=torch.float64))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_top_k_keeps_the_k_largest_in_proportion(k):
    given = posterior()
    weights = strategies.rule(strategies.parse(f"top{k}"))(given)
    for row, expected in zip(weights, given, strict=True):
        kept = expected.argsort(descending=True)[:k]
        assert set(row.nonzero().flatten().tolist()) == set(kept.tolist())
        torch.testing.assert_close(row[kept], expected[kept] / expected[kept].sum())


def test_top_k_of_k_is_full():
    full, top = (strategies.rule(strategies.parse(name))(posterior()) for name in ("full", "top4"))
    torch.testing.assert_close(top, full)


def test_only_the_oracle_needs_no_router():
    assert [name for name in NAMES if not strategies.parse(name).needs_router] == ["oracle"]


def test_top_k_needs_k_experts():
    experiment = SimpleNamespace(cluster=SimpleNamespace(experts=4))
    strategies.parse("top4").check(experiment)
    with pytest.raises(ValueError, match="top-5 needs 5 experts, there are 4"):
        strategies.parse("top5").check(experiment)
