"""Blocks that recompute their activations, or are compiled, are the same network under the same names."""

import pytest
import torch
from torch import nn

from hpcddm.commands.planning.live_memory import LiveBytes
from hpcddm.config.schema import validate
from hpcddm.config.site import Site
from hpcddm.errors import ConfigError
from hpcddm.models.base import prepare_blocks
from hpcddm.models.compiled_blocks import Compilation
from tests.models import examples
from tests.training import outside

WITH_BLOCKS = [("dit", "zero"), ("dit", "single"), ("mmdit", "single"), ("router_dit", "zero")]
DEPTH = 6


def network(name: str, every: int, modulation: str = "zero", depth: int = 2) -> nn.Module:
    model = examples.trained(name, modulation=modulation, depth=depth).train()
    prepare_blocks(model, every, Compilation())
    return model


@pytest.mark.parametrize("name, modulation", WITH_BLOCKS)
@pytest.mark.parametrize("every", [1, 2])
def test_gradients_of_blocks_that_recompute_are_the_same_bit_for_bit_under_the_same_names(name, modulation, every):
    plain, recomputing = network(name, 0, modulation), network(name, every, modulation)
    losses = [model(*examples.batch(6)).square().mean() for model in (plain, recomputing)]
    for loss in losses:
        loss.backward()
    assert torch.equal(*losses) and [*plain.state_dict()] == [*recomputing.state_dict()]
    for (name, parameter), own in zip(plain.named_parameters(), recomputing.parameters(), strict=True):
        assert torch.equal(parameter.grad, own.grad), name


@pytest.mark.parametrize("name", ["dit", "mmdit"])
def test_the_more_blocks_recompute_the_less_lives_after_the_forward_pass(name):
    live = {}
    for every in (0, 3, 2, 1):
        model = network(name, every, depth=DEPTH)
        with LiveBytes(model.state_dict().values()) as counted:
            before = counted.now
            outputs = model(*examples.batch(6))
            live[every] = counted.now - before
        del outputs
    of_block = (live[0] - live[1]) / DEPTH
    # Recomputing blocks are one in three, one in two, all; each of them keeps next to nothing.
    assert live[1] < 0.25 * live[0]
    for every in (2, 3):
        assert live[0] - live[every] == pytest.approx(of_block * DEPTH / every, rel=0.1), every


def test_without_gradients_nothing_is_recomputed():
    model = network("dit", 1)
    with torch.no_grad():
        assert torch.equal(model(*examples.batch(6)), network("dit", 0)(*examples.batch(6)))


def test_what_was_done_is_said_and_a_network_without_blocks_stays_as_it_is():
    said = prepare_blocks(examples.trained("dit", depth=DEPTH), 4, Compilation())
    assert said == "activations of 2 of 6 blocks recomputed"
    model = examples.trained("small_cnn")
    assert "no blocks" in prepare_blocks(model, 1, Compilation(True)) and prepare_blocks(model, 0, Compilation()) == ""


def test_compiling_and_zero_3_are_refused_together():
    site = {"name": "here", "scheduler": "local", "stages": {"train": {"compile_blocks": True, "zero_stage": 3}}}
    with pytest.raises(ConfigError, match=r"stages.train.*compile_blocks: .* zero_stage: 0, 1 or 2"):
        validate(Site, site, "here")
    site["stages"]["train"]["zero_stage"] = 2
    assert validate(Site, site, "here").resources_for("train").compile_blocks


def test_compiled_blocks_are_one_graph_for_each_of_their_classes():
    for name, options, own in outside.run("compiled", "captured", timeout=120)[0]:
        assert own == {"graphs": 2 if name == "mmdit" else 1, "breaks": 0}, (name, options)


@pytest.mark.long
def test_blocks_of_a_class_share_what_is_compiled_once_and_give_the_same_gradients(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    found, _ = outside.run("compiled", "compared", timeout=580)
    # Three steps compile nothing but the first one's; the router's blocks are the DiT's, MMDiT's last one is another.
    assert {name: own["graphs"] for name, own in found.items()} == {"dit": 1, "router_dit": 0, "mmdit": 2}
    for name, own in found.items():
        assert own["names"] and own["breaks"] == 0 and own["worst"] < 1e-4, (name, own)
        assert own["said"] == "3 compiled blocks, activations of 2 of 3 blocks recomputed"
