"""Small networks in the public layouts, written down from the public code and not from the code under test."""

import math
from types import SimpleNamespace

import torch

WIDTH, DEPTH, HEADS, PATCH, SIDE, CHANNELS, NUM_CLASSES = 64, 2, 4, 2, 8, 4, 10

SIT_ARGUMENTS = {"model": "SiT-XL/2", "path_type": "Linear", "prediction": "velocity", "loss_weight": None}
"""Of the arguments that SiT's train.py keeps with what it saves."""
LIKE = SimpleNamespace(heads=HEADS, time_spacing="original")
"""What the layouts ask of the target's settings."""


def random_original(outputs: int = 2, dtype: torch.dtype = torch.float32, seed: int = 0) -> dict[str, torch.Tensor]:
    """A state dict as the original DiT's `model.state_dict()`, every tensor random but for the positions."""
    generator = torch.Generator().manual_seed(seed)
    linears = {"t_embedder.mlp.0": (WIDTH, 256), "t_embedder.mlp.2": (WIDTH, WIDTH)}
    linears |= {"final_layer.linear": (PATCH**2 * outputs * CHANNELS, WIDTH)}
    linears |= {"final_layer.adaLN_modulation.1": (2 * WIDTH, WIDTH)}
    for block in (f"blocks.{number}" for number in range(DEPTH)):
        linears |= {f"{block}.attn.qkv": (3 * WIDTH, WIDTH), f"{block}.attn.proj": (WIDTH, WIDTH)}
        linears |= {f"{block}.mlp.fc1": (4 * WIDTH, WIDTH), f"{block}.mlp.fc2": (WIDTH, 4 * WIDTH)}
        linears |= {f"{block}.adaLN_modulation.1": (6 * WIDTH, WIDTH)}
    shapes = {"x_embedder.proj.weight": (WIDTH, CHANNELS, PATCH, PATCH), "x_embedder.proj.bias": (WIDTH,)}
    shapes["y_embedder.embedding_table.weight"] = (NUM_CLASSES + 1, WIDTH)
    for name, shape in linears.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    tensors = {}
    for name, shape in shapes.items():
        fan_in = math.prod(shape[1:]) if len(shape) > 1 else 4
        tensors[name] = torch.randn(shape, generator=generator, dtype=dtype) / math.sqrt(fan_in)
    return tensors | {"pos_embed": positions(SIDE // PATCH).to(dtype)}


def positions(grid: int) -> torch.Tensor:
    """The fixed table (1, grid^2, WIDTH): half of the width for the column, half for the row; sines, then cosines."""
    table = torch.zeros(grid * grid, WIDTH, dtype=torch.float64)
    quarter = WIDTH // 4
    for place in range(grid * grid):
        for half, number in enumerate((place % grid, place // grid)):
            for index in range(quarter):
                angle = number / 10000 ** (index / quarter)
                table[place, half * WIDTH // 2 + index] = math.sin(angle)
                table[place, half * WIDTH // 2 + quarter + index] = math.cos(angle)
    return table[None]


def as_diffusers(original: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The mapping of diffusers' public conversion script for DiT, tensor by tensor."""
    theirs = {f"pos_embed.proj.{kind}": original[f"x_embedder.proj.{kind}"] for kind in ("weight", "bias")}
    for kind in ("weight", "bias"):
        theirs[f"proj_out_1.{kind}"] = original[f"final_layer.adaLN_modulation.1.{kind}"]
        theirs[f"proj_out_2.{kind}"] = original[f"final_layer.linear.{kind}"]
        for block in range(DEPTH):
            mine, other = f"transformer_blocks.{block}", f"blocks.{block}"
            q, k, v = torch.chunk(original[f"{other}.attn.qkv.{kind}"], 3, dim=0)
            theirs |= {f"{mine}.attn1.to_{name}.{kind}": value for name, value in zip("qkv", (q, k, v), strict=True)}
            theirs[f"{mine}.attn1.to_out.0.{kind}"] = original[f"{other}.attn.proj.{kind}"]
            theirs[f"{mine}.ff.net.0.proj.{kind}"] = original[f"{other}.mlp.fc1.{kind}"]
            theirs[f"{mine}.ff.net.2.{kind}"] = original[f"{other}.mlp.fc2.{kind}"]
            theirs[f"{mine}.norm1.linear.{kind}"] = original[f"{other}.adaLN_modulation.1.{kind}"]
            embedding = f"{mine}.norm1.emb.timestep_embedder"
            theirs[f"{embedding}.linear_1.{kind}"] = original[f"t_embedder.mlp.0.{kind}"]
            theirs[f"{embedding}.linear_2.{kind}"] = original[f"t_embedder.mlp.2.{kind}"]
    for block in range(DEPTH):
        table = f"transformer_blocks.{block}.norm1.emb.class_embedder.embedding_table.weight"
        theirs[table] = original["y_embedder.embedding_table.weight"]
    return theirs


def diffusers_config(outputs: int = 2) -> dict[str, object]:
    """The arguments of diffusers' `DiTTransformer2DModel`."""
    own = {"num_attention_heads": HEADS, "attention_head_dim": WIDTH // HEADS, "num_layers": DEPTH, "norm_eps": 1e-6}
    own |= {"in_channels": CHANNELS, "out_channels": outputs * CHANNELS, "sample_size": SIDE, "patch_size": PATCH}
    return own | {"num_embeds_ada_norm": NUM_CLASSES}


def use_the_originals_frequencies(model: torch.nn.Module) -> None:
    """diffusers spaces the frequencies of the time by 1/127, the original code by 1/128."""
    for block in model.transformer_blocks:
        assert block.norm1.emb.time_proj.downscale_freq_shift == 1
        block.norm1.emb.time_proj.downscale_freq_shift = 0


def batch(count: int = 5, dtype: torch.dtype = torch.float32):
    """Images, times that are whole steps of 1000, classes of which the last is the null class."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(count, CHANNELS, SIDE, SIDE, generator=generator, dtype=dtype)
    steps = torch.tensor([0, 1, 250, 711, 999])[:count]
    return x, steps, torch.tensor([0, 3, 9, 5, NUM_CLASSES])[:count]
