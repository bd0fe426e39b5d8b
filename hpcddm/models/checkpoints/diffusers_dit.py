"""The layout of diffusers' `DiTTransformer2DModel`, its tensors and its config.json.

The same network as the original's under other names: q, k and v are apart, and every block has its own copy of the
embeddings of time and class. Values that are not tensors are in config.json.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from hpcddm.config.conditions import ConditionForm
from hpcddm.config.models import FREQUENCIES, MLP_RATIO, BlockStyle, DenoiserModelSettings, LayoutSettings
from hpcddm.config.objectives import ObjectiveSettings
from hpcddm.errors import UserError
from hpcddm.models.checkpoints.base import CheckpointContent, CheckpointInfo, CheckpointLayout, RemainingTensors
from hpcddm.models.checkpoints.original_dit import channels_first, image_side, original_objective

EMBEDDINGS = {
    "trunk.embed_time.0": ("timestep_embedder.linear_1", FREQUENCIES, 0),
    "trunk.embed_time.2": ("timestep_embedder.linear_2", 0, 1),
}
BLOCK = {
    "attention.out": ("attn1.to_out.0", 1, 1),
    "mlp.0": ("ff.net.0.proj", 1, MLP_RATIO),
    "mlp.2": ("ff.net.2", MLP_RATIO, 1),
    "modulation": ("norm1.linear", 1, 6),
}
"""Our name of a linear layer -> theirs, its inputs and outputs in widths."""
LAST = {"modulation": "proj_out_1", "head": "proj_out_2"}
CLASSES = "norm1.emb.class_embedder.embedding_table.weight"
REQUIRED = {
    "activation_fn": "gelu-approximate",
    "attention_bias": True,
    "norm_type": "ada_norm_zero",
    "norm_elementwise_affine": False,
}
"""Values of config.json that describe our network; another value would be another network."""
NORM_EPS = 1e-6


class DiffusersDiTSettings(LayoutSettings):
    """Variant without settings."""


class DiffusersDiT(CheckpointLayout[DiffusersDiTSettings]):
    """Tensors of a DiT as diffusers names them; the one layout that can also be written."""

    def recognises(self, stored: CheckpointContent) -> bool:
        return stored.tensors.keys() >= {"pos_embed.proj.weight", f"transformer_blocks.0.{CLASSES}"}

    def load(self, stored: CheckpointContent, like: Any) -> tuple[dict[str, Tensor], CheckpointInfo]:
        """Rename the tensors and describe their network; `like` gives the time spacing where the file does not.

        Raises `UserError` also when config.json is missing or of another network, or when the blocks' copies of the
        embeddings differ.
        """
        config = _checked_config(stored)
        source = RemainingTensors(stored.tensors, stored.path)
        embed = source.take("pos_embed.proj.weight", None, config["in_channels"], None, config["patch_size"])
        width, channels, patch, _ = embed.shape
        ours = {"trunk.embed_patch.weight": embed.flatten(1)}
        ours["trunk.embed_patch.bias"] = source.take("pos_embed.proj.bias", width)
        for block in range(config["num_layers"]):
            _load_block(ours, source, block, width)
        image_side(source, "pos_embed.pos_embed", width, patch)
        for name, theirs in LAST.items():
            ours |= source.take_linear(name, theirs, None, width)
        for name in ("head.weight", "head.bias"):
            ours[name] = channels_first(ours[name], patch)
        source.finish()
        ours["trunk.embed_class.weight"] = table = _without_added_classes(stored, ours["trunk.embed_class.weight"])
        return ours, _info(stored, config, width, len(table) - 1, like)


def is_representable(info: CheckpointInfo) -> bool:
    """Return True if `DiTTransformer2DModel` can represent a network."""
    model = info.model
    known = ("dit", "zero", ConditionForm.CLASS, False)
    return (model.name, model.modulation, info.condition, model.qk_norm) == known and model.block == BlockStyle()


def dump(
    tensors: dict[str, Tensor], info: CheckpointInfo, num_classes: int = 0
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Rename the tensors to diffusers' names and make config.json; the inverse of `DiffusersDiT.load`.

    num_classes: least number of classes in the table; classes that are added are copies of the null class.
    Raises `UserError` for a network that `DiTTransformer2DModel` cannot represent.
    """
    model = info.model
    if not is_representable(info):
        shown = model.model_dump() | {"condition": info.condition}
        settings = ", ".join(f"{key} {value}" for key, value in shown.items() if key != "name")
        raise UserError(
            "DiTTransformer2DModel is a dit with modulation zero, condition class, no qk_norm and the original block;"
            f" this is a {model.name}: {settings}; diffusers has no layout for it, use 'hpcddm publish'"
        )
    table = tensors["trunk.embed_class.weight"]
    more = max(0, num_classes - info.num_classes)
    tensors = tensors | {"trunk.embed_class.weight": torch.cat([table, table[-1:].expand(more, -1)])}
    info = replace(info, num_classes=info.num_classes + more)
    theirs = {f"pos_embed.proj.{kind}": tensors[f"trunk.embed_patch.{kind}"] for kind in ("weight", "bias")}
    convolution = (-1, info.channels, model.patch, model.patch)
    theirs["pos_embed.proj.weight"] = theirs["pos_embed.proj.weight"].view(convolution)
    for block in range(model.depth):
        theirs |= _dump_block(tensors, block)
    for kind in ("weight", "bias"):
        theirs[f"proj_out_1.{kind}"] = tensors[f"modulation.{kind}"]
        theirs[f"proj_out_2.{kind}"] = _channels_last(tensors[f"head.{kind}"], model.patch)
    # A view of another tensor would be refused by safetensors, and so would two names for one memory.
    return {name: values.clone().contiguous() for name, values in theirs.items()}, _config(info)


def _load_block(ours: dict[str, Tensor], source: RemainingTensors, block: int, width: int) -> None:
    prefix = f"transformer_blocks.{block}."
    for kind, shape in (("weight", (width, width)), ("bias", (width,))):
        rows = [source.take(f"{prefix}attn1.to_{part}.{kind}", *shape) for part in "qkv"]
        ours[f"trunk.blocks.{block}.attention.qkv.{kind}"] = torch.cat(rows)
    for name, (theirs, inputs, outputs) in BLOCK.items():
        names = f"trunk.blocks.{block}.{name}", f"{prefix}{theirs}"
        ours |= source.take_linear(*names, outputs * width, inputs * width)
    shared = {"trunk.embed_class.weight": source.take(f"{prefix}{CLASSES}", None, width)}
    for name, (theirs, inputs, _) in EMBEDDINGS.items():
        shared |= source.take_linear(name, f"{prefix}norm1.emb.{theirs}", width, inputs or width)
    for name, values in shared.items():
        if not torch.equal(ours.setdefault(name, values), values):
            raise UserError(
                f"{source.place}: block {block} has another embedding of time or class than block 0 ({name});"
                " here all blocks share one"
            )


def _dump_block(tensors: dict[str, Tensor], block: int) -> dict[str, Tensor]:
    ours, prefix, theirs = f"trunk.blocks.{block}.", f"transformer_blocks.{block}.", {}
    for kind in ("weight", "bias"):
        for part, rows in zip("qkv", tensors[f"{ours}attention.qkv.{kind}"].chunk(3), strict=True):
            theirs[f"{prefix}attn1.to_{part}.{kind}"] = rows
        for name, (layer, *_) in BLOCK.items():
            theirs[f"{prefix}{layer}.{kind}"] = tensors[f"{ours}{name}.{kind}"]
        for name, (layer, *_) in EMBEDDINGS.items():
            theirs[f"{prefix}norm1.emb.{layer}.{kind}"] = tensors[f"{name}.{kind}"]
    return theirs | {f"{prefix}{CLASSES}": tensors["trunk.embed_class.weight"]}


def _channels_last(rows: Tensor, patch: int) -> Tensor:
    """Invert `channels_first`. rows: (C patch^2, ...)."""
    return rows.view(-1, patch, patch, *rows.shape[1:]).movedim(0, 2).reshape(rows.shape)


def _checked_config(stored: CheckpointContent) -> dict[str, Any]:
    needed = ("num_attention_heads", "attention_head_dim", "in_channels", "num_layers", "patch_size", "sample_size")
    place = stored.path.with_name("config.json")
    missing = [key for key in needed if not isinstance(stored.config.get(key), int)]
    if missing:
        raise UserError(
            f"{place}: needs whole numbers for {', '.join(missing)}; copy it from where the weights are from"
        )
    for key, value in REQUIRED.items():
        if stored.config.get(key, value) != value:
            raise UserError(f"{place}: {key} is {stored.config[key]!r}; only {value!r} can be read")
    return stored.config


def _without_added_classes(stored: CheckpointContent, table: Tensor) -> Tensor:
    """Return the class table without the rows that `hpcddm export` adds for the pipeline."""
    num_classes = stored.description.get("data", {}).get("num_classes", len(table) - 1)
    return torch.cat([table[:num_classes], table[-1:]])


def _info(stored: CheckpointContent, config: dict[str, Any], width: int, num_classes: int, like: Any) -> CheckpointInfo:
    heads, channels = config["num_attention_heads"], config["in_channels"]
    if heads * config["attention_head_dim"] != width:
        raise UserError(f"{stored.path}: {heads} heads of {config['attention_head_dim']} are not the width {width}")
    outputs = config.get("out_channels") or channels
    if outputs not in (channels, 2 * channels):
        raise UserError(f"{stored.path}: {outputs} output channels are neither one nor two per input channel")
    spacing, notes = _spacing(stored, like)
    shape = {"width": width, "depth": config["num_layers"], "heads": heads, "patch": config["patch_size"]}
    options = {"learned_sigma": outputs == 2 * channels, "time_spacing": spacing}
    model = DenoiserModelSettings.model_validate({"name": "dit", **shape, **options})
    if config.get("norm_eps", 1e-5) != NORM_EPS:
        notes += (
            f"norm_eps before the MLPs is {config.get('norm_eps', 1e-5):g} there, here {NORM_EPS:g}, as originally",
        )
    objective, unknown = _objective(stored)
    return CheckpointInfo(model, channels, num_classes, objective, config["sample_size"], notes=notes + unknown)


def _spacing(stored: CheckpointContent, like: Any) -> tuple[str, tuple[str, ...]]:
    """Return the time spacing, from hpcddm's exports or else from the target, and notes on the assumption."""
    exported = stored.description.get("model", {}).get("time_spacing")
    if exported is not None:
        return exported, ()
    taken = getattr(like, "time_spacing", "original")
    return taken, (f"nothing says how the time's frequencies are spaced: taken to be {taken}, as in the target",)


def _objective(stored: CheckpointContent) -> tuple[ObjectiveSettings, tuple[str, ...]]:
    """Return the objective, from hpcddm's exports or else the published networks', and notes on the assumption."""
    exported = stored.description.get("objective")
    if exported is not None:
        return ObjectiveSettings.model_validate(exported), ()
    return original_objective(), ("nothing says what the network predicts: taken to be epsilon, as the published ones",)


def _config(info: CheckpointInfo) -> dict[str, Any]:
    model = info.model
    return REQUIRED | {
        "_class_name": "DiTTransformer2DModel",
        "attention_head_dim": model.width // model.heads,
        "in_channels": info.channels,
        "norm_eps": NORM_EPS,
        "num_attention_heads": model.heads,
        "num_embeds_ada_norm": info.num_classes,
        "num_layers": model.depth,
        "out_channels": info.channels * (2 if model.learned_sigma else 1),
        "patch_size": model.patch,
        "sample_size": info.image_size,
    }
