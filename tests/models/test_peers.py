"""adaLN-single and cross-attention against diffusers' PixArt, an independent implementation; it must be installed."""

import torch
from diffusers import PixArtTransformer2DModel

from tests.models.examples import DATA, batch, fresh

WIDTH, DEPTH, HEADS, PATCH = 48, 2, 2, 2
LINEAR = {
    "trunk.embed_time.0": "adaln_single.emb.timestep_embedder.linear_1",
    "trunk.embed_time.2": "adaln_single.emb.timestep_embedder.linear_2",
    "trunk.modulation": "adaln_single.linear",
}
OF_BLOCK = {
    "attention.out": "attn1.to_out.0",
    "cross.q": "attn2.to_q",
    "cross.out": "attn2.to_out.0",
    "mlp.0": "ff.net.0.proj",
    "mlp.2": "ff.net.2",
}


def peer() -> PixArtTransformer2DModel:
    """A small PixArt with random weights; our text projection stands before it, for its own is an MLP."""
    model = PixArtTransformer2DModel(
        num_attention_heads=HEADS,
        attention_head_dim=WIDTH // HEADS,
        cross_attention_dim=WIDTH,
        in_channels=DATA.channels,
        out_channels=DATA.channels,
        num_layers=DEPTH,
        sample_size=DATA.image_size,
        patch_size=PATCH,
        caption_channels=None,
        use_additional_conditions=False,
        interpolation_scale=1,
    )
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return model.eval()


def translated(theirs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """PixArt's tensors by our names."""
    linear, found = dict(LINEAR), {"table": theirs["scale_shift_table"]}
    for number in range(DEPTH):
        ours, name = f"trunk.blocks.{number}", f"transformer_blocks.{number}"
        linear |= {f"{ours}.{key}": f"{name}.{value}" for key, value in OF_BLOCK.items()}
        found[f"{ours}.table"] = theirs[f"{name}.scale_shift_table"]
        for kind in ("weight", "bias"):
            parts = {"attention.qkv": ("attn1", "qkv"), "cross.kv": ("attn2", "kv")}
            for key, (layer, letters) in parts.items():
                several = [theirs[f"{name}.{layer}.to_{letter}.{kind}"] for letter in letters]
                found[f"{ours}.{key}.{kind}"] = torch.cat(several)
    found |= {
        f"{ours}.{kind}": theirs[f"{name}.{kind}"] for ours, name in linear.items() for kind in ("weight", "bias")
    }
    found["trunk.embed_patch.weight"] = theirs["pos_embed.proj.weight"].flatten(1)
    found["trunk.embed_patch.bias"] = theirs["pos_embed.proj.bias"]
    for kind in ("weight", "bias"):
        # A patch is (pixel, channel) there and (channel, pixel) here.
        rows = theirs[f"proj_out.{kind}"].unflatten(0, (PATCH**2, DATA.channels))
        found[f"head.{kind}"] = rows.transpose(0, 1).flatten(0, 1)
    return found


def test_dit_with_text_and_adaln_single_is_pixart():
    theirs = peer()
    options = {"width": WIDTH, "depth": DEPTH, "heads": HEADS, "patch": PATCH}
    model = fresh("dit", modulation="single", condition="text", **options)
    unknown = model.load_state_dict(translated(theirs.state_dict()), strict=False)
    assert set(unknown.missing_keys) == {"trunk.embed_text.weight", "trunk.embed_text.bias"}
    assert not unknown.unexpected_keys
    x, t, text = batch(condition="text")
    with torch.no_grad():
        expected = theirs(
            x,
            encoder_hidden_states=model.trunk.embed_text(text),
            timestep=1000 * t,
            encoder_attention_mask=text.any(dim=2),
            added_cond_kwargs={"resolution": None, "aspect_ratio": None},
        ).sample
        torch.testing.assert_close(model(x, t, text), expected, atol=1e-5, rtol=0)
    assert expected.std() > 0.1
