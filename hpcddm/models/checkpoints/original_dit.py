"""The layout of the original DiT's checkpoints (arXiv 2212.09748, github.com/facebookresearch/DiT).

Class-conditional, epsilon with learned sigma on the table of 1000 levels. Two things differ from ours: the patch
embedding is a convolution, and a predicted patch is (row, column, channel) where ours is (channel, row, column).
"""

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from hpcddm.config.models import FREQUENCIES, MLP_RATIO, DenoiserModelSettings, LayoutSettings
from hpcddm.config.objectives import ObjectiveSettings
from hpcddm.errors import UserError
from hpcddm.models.checkpoints.base import CheckpointContent, CheckpointInfo, CheckpointLayout, RemainingTensors
from hpcddm.models.layers import grid_positions

ASSUMED_TO_BE_DIT = "no tensor tells SiT from DiT: taken to be DiT; where it is SiT, give --layout sit"
HEADS = {384: 6, 768: 12, 1024: 16, 1152: 16}
"""Heads by width of the published sizes S, B, L, XL (table 1 of the paper): the tensors do not show them."""

TABLE_ERROR = 1e-4
"""Largest difference of a table of positions in float32 from ours: others round frequencies and angles otherwise."""

BLOCK = {
    "attention.qkv": ("attn.qkv", 1, 3),
    "attention.out": ("attn.proj", 1, 1),
    "mlp.0": ("mlp.fc1", 1, MLP_RATIO),
    "mlp.2": ("mlp.fc2", MLP_RATIO, 1),
    "modulation": ("adaLN_modulation.1", 1, 6),
}
"""Our name of a block's linear layer -> theirs, its inputs and outputs in widths."""
OTHER_PARTS = (".mlp.w12.", ".norm1.", ".attn.q_norm.", "feat_rope.")
"""Parts of names by which blocks of LightningDiT differ from those of a DiT."""


class OriginalDiTSettings(LayoutSettings):
    """Variant without settings."""


class OriginalDiT(CheckpointLayout[OriginalDiTSettings]):
    """Tensors of a DiT as its authors named them."""

    def recognises(self, stored: CheckpointContent) -> bool:
        """Tell if these are the tensors of this layout, without the arguments of SiT's train.py."""
        return has_tensors(stored.tensors) and not is_of_sit(stored.arguments)

    def load(self, stored: CheckpointContent, like: Any) -> tuple[dict[str, Tensor], CheckpointInfo]:
        """Rename the tensors and describe their network; `like` gives the heads, which no tensor shows."""
        source = RemainingTensors(stored.tensors, stored.path)
        embed = source.take("x_embedder.proj.weight", None, None, None, None)
        width, channels, patch, _ = embed.shape
        ours = {"trunk.embed_patch.weight": embed.flatten(1)}
        ours["trunk.embed_patch.bias"] = source.take("x_embedder.proj.bias", width)
        table = ours["trunk.embed_class.weight"] = source.take("y_embedder.embedding_table.weight", None, width)
        depth = source.count("blocks.")
        ours |= source.take_linear("trunk.embed_time.0", "t_embedder.mlp.0", width, FREQUENCIES)
        ours |= source.take_linear("trunk.embed_time.2", "t_embedder.mlp.2", width, width)
        parts, stated = self.take_block_parts(source, width, depth)
        ours |= parts
        layers = {name: layer for name, layer in BLOCK.items() if stated.get("mlp") != "swiglu" or "mlp" not in name}
        for block in range(depth):
            for name, (theirs, inputs, outputs) in layers.items():
                names = f"trunk.blocks.{block}.{name}", f"blocks.{block}.{theirs}"
                ours |= source.take_linear(*names, outputs * width, inputs * width)
        ours |= source.take_linear("modulation", "final_layer.adaLN_modulation.1", 2 * width, width)
        head = source.take_linear("head", "final_layer.linear", None, width)
        ours |= {name: channels_first(values, patch) for name, values in head.items()}
        image_size = image_side(source, "pos_embed", width, patch)
        source.finish()
        heads = getattr(like, "heads", None)
        values = {"width": width, "depth": depth, "heads": heads or HEADS.get(width), "patch": patch}
        return ours, _info(stored, values, stated, channels, len(table) - 1, len(ours["head.bias"]), image_size)

    def take_block_parts(
        self, source: RemainingTensors, width: int, depth: int
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Take the tensors of the blocks and of the last norm that the original DiT does not have: none.

        Args:
            source: Tensors of the file.
            width: Width of the network.
            depth: Number of its blocks.

        Returns:
            The tensors by our names, and the settings that they state.
        """
        return {}, {}


def has_tensors(names: Collection[str]) -> bool:
    """Tell if tensors of these names are those of a DiT, or of a SiT, which has the same ones."""
    return has_embeddings(names) and not has_other_blocks(names)


def has_embeddings(names: Collection[str]) -> bool:
    """Tell if tensors of these names have the embeddings of a DiT."""
    return "x_embedder.proj.weight" in names and "y_embedder.embedding_table.weight" in names


def has_other_blocks(names: Collection[str]) -> bool:
    """Tell if tensors of these names have parts of blocks that a DiT does not have."""
    return any(part in name for part in OTHER_PARTS for name in names)


def is_of_sit(arguments: dict[str, Any]) -> bool:
    """Tell if these are arguments of SiT's train.py, by the path, which DiT's does not have, or the model's name."""
    return "path_type" in arguments or str(arguments.get("model")).startswith("SiT")


def is_of_dit(arguments: dict[str, Any]) -> bool:
    """Tell if these are arguments of DiT's train.py, whose networks predict noise, by the model's name."""
    return str(arguments.get("model")).startswith("DiT")


def channels_first(rows: Tensor, patch: int) -> Tensor:
    """Reorder rows of a last layer from (row, column, channel) inside a patch to our (channel, row, column).

    rows: (patch^2 C, ...).
    """
    split = rows.view(patch, patch, -1, *rows.shape[1:])
    return split.movedim(2, 0).reshape(rows.shape)


def original_objective() -> ObjectiveSettings:
    """Return the settings of the objective that the published networks were trained for."""
    schedule, times = {"name": "linear_beta_1000"}, {"name": "discrete"}
    return ObjectiveSettings.model_validate({"name": "epsilon", "schedule": schedule, "times": times})


def image_side(source: RemainingTensors, name: str, width: int, patch: int) -> int | None:
    """Return the side of the images from the table of positions `name`, None where there is none.

    Raises `UserError` unless it is the fixed table of sines and cosines: ours is computed and not stored.
    """
    if name not in source.remaining:
        return None
    table = source.take(name, 1, None, width)[0]
    grid = round(len(table) ** 0.5)
    if grid**2 != len(table) or not is_table(table, grid_positions(grid, width)):
        raise UserError(f"{source.place}: '{name}' is not the fixed table of sines and cosines of a square grid")
    return grid * patch


def is_table(table: Tensor, ours: Tensor) -> bool:
    """Tell if a table of sines and cosines in [-1, 1], perhaps in half precision, is ours."""
    return bool((table - ours).abs().max() <= TABLE_ERROR + _rounding(table))


def _rounding(values: Tensor) -> float:
    """Bound the error of values in [-1, 1] that were rounded to half precision, as the values themselves show it.

    It is half a unit in the last place below 1, where neighbours are eps / 2 apart: 2^-9 in bfloat16, 2^-12 in float16.
    """
    for dtype in (torch.bfloat16, torch.float16):
        if torch.equal(values, values.to(dtype).to(values.dtype)):
            return torch.finfo(dtype).eps / 4
    return 0.0


def _info(
    stored: CheckpointContent,
    values: dict[str, Any],
    stated: dict[str, Any],
    channels: int,
    num_classes: int,
    rows: int,
    image_size: int | None,
) -> CheckpointInfo:
    values = values | stated
    if values["heads"] is None:
        raise UserError(f"{stored.path}: width {values['width']} is not a published one; name the heads")
    outputs, rest = divmod(rows, values["patch"] ** 2 * channels)
    if rest or outputs not in (1, 2):
        raise UserError(f"{stored.path}: {rows} outputs are neither one nor two for every value of a patch")
    model = DenoiserModelSettings.model_validate({"name": "dit", "learned_sigma": outputs == 2, **values})
    notes: tuple[str, ...] = ("the last row of the class table is taken to be the null class",)
    published = HEADS.get(values["width"])
    if "heads" not in stated and values["heads"] != published:
        others = f"; published networks of this width have {published}" if published else ""
        notes += (f"no tensor tells the number of heads: taken to be {values['heads']}, as in the target{others}",)
    if not str(stored.arguments.get("model")).startswith("DiT"):
        notes += (ASSUMED_TO_BE_DIT,)
    return CheckpointInfo(model, channels, num_classes, original_objective(), image_size, notes=notes)
