"""The block of today's best DiTs, value by value: SwiGLU, RMS norm and rotary positions as their papers write them."""

import math

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from hpcddm.config import variants
from hpcddm.config.schema import settings_to_hash
from hpcddm.models import layers
from hpcddm.models.flops import forward_flops, training_flops
from tests.diffusion.spaces.examples import told
from tests.models.examples import DATA, batch, label, pairwise, settings, trained

STRONG = {"mlp": "swiglu", "norm": "rms", "positions": "rotary", "qk_norm": True}
WIDTH, HEADS, GRID = 32, 2, 3


def rms(x, gain):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * gain


def affine(x, weights, name):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def silu(x):
    return x / (1 + np.exp(-x))


def rotated(x):
    """Heads (T, D) by the angles of their row, then of their column: eq. 34 of arXiv 2104.09864 on either axis."""
    turned, quarter = np.empty_like(x), x.shape[-1] // 4
    for token, values in enumerate(x):
        for plane in range(2 * quarter):
            place = token // GRID if plane < quarter else token % GRID
            angle = place * 10_000 ** (-(plane % quarter) / quarter)
            a, b = values[plane], values[2 * quarter + plane]
            turned[token, plane] = a * math.cos(angle) - b * math.sin(angle)
            turned[token, 2 * quarter + plane] = a * math.sin(angle) + b * math.cos(angle)
    return turned


def expected(x, condition, weights):
    """Tokens (T, D) after a block, from its weights by name."""
    shift, scale, gate, shift_mlp, scale_mlp, gate_mlp = affine(condition, weights, "modulation").reshape(6, -1)
    seen = rms(x, weights["norm_attention.weight"]) * (1 + scale) + shift
    parts = affine(seen, weights, "attention.qkv").reshape(len(x), 3, HEADS, -1)
    heads = []
    for head in range(HEADS):
        q, k, v = parts[:, :, head].swapaxes(0, 1)
        q, k = (rotated(rms(one, weights[f"attention.norm_{name}.weight"])) for one, name in ((q, "q"), (k, "k")))
        scores = np.exp(q @ k.T / math.sqrt(q.shape[1]))
        heads.append(scores / scores.sum(1, keepdims=True) @ v)
    x = x + gate * affine(np.concatenate(heads, axis=1), weights, "attention.out")
    seen = rms(x, weights["norm_mlp.weight"]) * (1 + scale_mlp) + shift_mlp
    first, second = np.split(affine(seen, weights, "mlp.w12"), 2, axis=1)
    return x + gate_mlp * affine(silu(first) * second, weights, "mlp.w3")


def test_a_block_computes_what_the_papers_write():
    torch.manual_seed(0)
    block = layers.TransformerBlock(settings("dit", **STRONG), with_text=False).double()
    for values in block.parameters():
        torch.nn.init.normal_(values, std=0.3)
    x, condition = torch.randn(GRID**2, WIDTH, dtype=torch.float64), torch.randn(WIDTH, dtype=torch.float64)
    rows, columns = (layers.angles(axis, WIDTH // HEADS // 4) for axis in layers.grid_axes(GRID))
    planes = torch.cat([rows, columns], dim=1)
    rotation = torch.stack([planes.cos(), planes.sin()])
    # The buffer of a network has these values in float32.
    assert torch.equal(layers.grid_rotation(GRID, WIDTH // HEADS), rotation.float())
    made = block(x[None], condition[None], None, rotation)[0].detach().numpy()
    weights = {name: values.detach().numpy() for name, values in block.state_dict().items()}
    wanted = expected(x.numpy(), condition.numpy(), weights)
    assert np.abs(made - wanted).max() <= 1e-12 * np.abs(wanted).max()


def test_the_hidden_width_gives_the_parameters_of_a_gelu_mlp():
    for width, hidden in ((48, 128), (768, 2048), (1024, 2730), (1152, 3072)):
        network = settings("dit", width=width, heads=4, **STRONG)
        with torch.device("meta"):
            assert layers.block_mlp(network).w3.in_features == hidden


@pytest.mark.parametrize("name", ["dit", "router_dit"])
def test_every_part_of_the_block_changes_the_network(name):
    x, t, classes = torch.randn(4, 2, 8, 8), torch.rand(4), torch.tensor([0, 1, 2, 3])
    plain = trained(name, condition="class")(x, t, classes)
    for key in ("mlp", "norm", "positions"):
        other = trained(name, condition="class", **{key: STRONG[key]})(x, t, classes)
        assert other.isfinite().all() and (other - plain).abs().max() > 1e-3, key


def test_without_it_no_fingerprint_moves():
    plain = settings("dit")
    assert not {"mlp", "norm", "positions"} & settings_to_hash(plain).keys()
    assert settings_to_hash(settings("dit", **STRONG)).items() >= STRONG.items()


def test_mmdit_has_a_block_of_its_own():
    schema = variants.settings_class("models", "mmdit")
    for key in ("mlp", "norm", "positions"):
        with pytest.raises(ValueError, match=key):
            schema(name="mmdit", size="3B", patch=2, **{key: STRONG[key]})


VALUES = {"mlp": ("gelu", "swiglu"), "norm": ("layer", "rms"), "positions": ("sinusoidal", "rotary")}
VALUES |= {"condition": ("none", "class", "text"), "modulation": ("zero", "single"), "qk_norm": (False, True)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", pairwise(VALUES), ids=label)
def test_every_two_settings_are_finite_and_cost_what_torch_counts(options, dtype):
    model, inputs = trained("dit", **options).to(dtype).train(), batch(**options)
    with FlopCounterMode(display=False) as counter:
        outputs = model(*inputs)
        forward = counter.get_total_flops()
        outputs.sum().backward()
    values = [outputs, *(parameter.grad for parameter in model.parameters())]
    assert all(one.isfinite().all() and one.any() for one in values)
    costs = forward_flops(model, *inputs), training_flops(model, *inputs)
    assert costs == (forward, counter.get_total_flops()) and 2 * forward < costs[1] <= 3 * forward
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert settings("dit", **options).parameters(told(DATA, options["condition"])) == counted
