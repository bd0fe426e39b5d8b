"""The layout of LightningDiT's checkpoints (arXiv 2501.01423, github.com/hustvl/LightningDiT): SiT's with other blocks.

Time and sign are SiT's. SwiGLU, RMS norms, QK norm and rotary positions are options, which the names of the tensors
tell. A rotary plane there is a pair of neighbouring values of a head and here the values i and D / 2 + i, so the rows
of queries and keys change their order. The tables of the rotation are computed here and only compared.
"""

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from hpcddm.config.models import SWIGLU_RATIO, DenoiserModelSettings, LayoutSettings
from hpcddm.errors import UserError
from hpcddm.models.checkpoints.base import CheckpointContent, CheckpointInfo, RemainingTensors
from hpcddm.models.checkpoints.original_dit import has_embeddings, has_other_blocks, is_of_dit, is_table
from hpcddm.models.checkpoints.sit import SiT
from hpcddm.models.layers import grid_rotation

ROTATION = "feat_rope.freqs_"
NORMS = {"norm_attention": "norm1", "norm_mlp": "norm2"}
HEAD_NORMS = {"attention.norm_q": "attn.q_norm", "attention.norm_k": "attn.k_norm"}
"""Our name of a norm in a block -> theirs."""
DIRECTION_LOSS = "use_cosine_loss"
"""Setting of the training for a further loss on the direction of the velocity."""
DIRECTION_NOTE = (
    "also with a loss on the direction of the velocity, as the published ones: its minimiser is not the conditional"
    " mean, so train on before experts are combined"
)


class LightningDiTSettings(LayoutSettings):
    """Variant without settings."""


class LightningDiT(SiT):
    """Tensors of a SiT with the blocks of arXiv 2501.01423."""

    code: ClassVar[str] = "LightningDiT"

    def recognises(self, stored: CheckpointContent) -> bool:
        """Tell if these are the tensors of a DiT with other blocks; without them, SiT has the same tensors."""
        is_other = has_other_blocks(stored.tensors) and not is_of_dit(stored.arguments)
        return has_embeddings(stored.tensors) and is_other

    def load(self, stored: CheckpointContent, like: Any) -> tuple[dict[str, Tensor], CheckpointInfo]:
        """Convert the tensors to our names and convention and describe their network.

        `like` gives the heads and the positions where no tensor shows them.
        """
        tensors, info = super().load(stored, like)
        notes, model = info.notes, info.model
        if "pos_embed" not in stored.tensors:
            raise UserError(f"{stored.path}: lacks 'pos_embed'; LightningDiT adds this table beside the rotation")
        if (table := stored.tensors.get(f"{ROTATION}cos")) is not None:
            if info.image_size not in (None, model.patch * round(len(table) ** 0.5)):
                raise UserError(f"{stored.path}: '{ROTATION}cos' and 'pos_embed' are of different grids")
        else:
            positions = getattr(like, "positions", "sinusoidal")
            model = DenoiserModelSettings.model_validate(model.model_dump() | {"positions": positions})
            notes += (f"no tensor tells if queries and keys are rotated: positions are {positions}, as in the target",)
        if stored.arguments.get(DIRECTION_LOSS, True):
            trained = "trained" if DIRECTION_LOSS in stored.arguments else "taken to be trained"
            notes += (f"{trained} {DIRECTION_NOTE}",)
        if model.positions == "rotary":
            _reorder_planes(tensors, model)
        return tensors, replace(info, model=model, notes=notes)

    def take_block_parts(
        self, source: RemainingTensors, width: int, depth: int
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Take SwiGLU, RMS norms, QK norm and the tables of the rotation, each if any block has it."""
        ours: dict[str, Tensor] = {}
        stated: dict[str, Any] = {}
        names = " ".join(source.remaining)
        if ROTATION in names:
            stated |= {"positions": "rotary", "heads": width // _take_rotation(source, width)}
        if ".q_norm." in names:
            stated = {"heads": width // _head_of_norm(source, width), "qk_norm": True} | stated
            ours |= _take_norms(source, HEAD_NORMS, width // stated["heads"], depth)
        if ".norm1." in names:
            stated["norm"] = "rms"
            ours |= _take_norms(source, NORMS, width, depth)
            ours["norm.weight"] = source.take("final_layer.norm_final.weight", width)
        if ".mlp.w12." in names:
            stated["mlp"], hidden = "swiglu", int(SWIGLU_RATIO * width)
            for block in range(depth):
                own, theirs = f"trunk.blocks.{block}.mlp", f"blocks.{block}.mlp"
                ours |= source.take_linear(f"{own}.w12", f"{theirs}.w12", 2 * hidden, width)
                ours |= source.take_linear(f"{own}.w3", f"{theirs}.w3", width, hidden)
        return ours, stated


def _take_norms(source: RemainingTensors, names: dict[str, str], width: int, depth: int) -> dict[str, Tensor]:
    return {
        f"trunk.blocks.{block}.{ours}.weight": source.take(f"blocks.{block}.{theirs}.weight", width)
        for block in range(depth)
        for ours, theirs in names.items()
    }


def _head_of_norm(source: RemainingTensors, width: int) -> int:
    """Return the width of a head by its first norm; that of the network, which is then refused, for no such width."""
    norm = source.remaining.get("blocks.0.attn.q_norm.weight")
    head = 0 if norm is None else norm.numel()
    return head if head and width % head == 0 else width


def _take_rotation(source: RemainingTensors, width: int) -> int:
    """Take the tables (T, D) of the rotation and return the width D of a head.

    Raises `UserError` unless they are those of a square grid.
    """
    cosines = source.take(f"{ROTATION}cos", None, None)
    tables = {"cos": cosines, "sin": source.take(f"{ROTATION}sin", *cosines.shape)}
    grid, head = round(len(cosines) ** 0.5), cosines.shape[1]
    if grid and grid**2 == len(cosines) and head and head % 4 == 0 and width % head == 0:
        # Both values of a plane have its angle.
        rotation = dict(zip(tables, grid_rotation(grid, head).repeat_interleave(2, dim=2), strict=True))
        wrong = [name for name, table in tables.items() if not is_table(table, rotation[name])]
    else:
        wrong = ["cos"]
    if wrong:
        raise UserError(f"{source.place}: '{ROTATION}{wrong[0]}' is not the table of a square grid with base 10000")
    return head


def _reorder_planes(tensors: dict[str, Tensor], model: Any) -> None:
    """Put the two values of every rotary plane of queries and keys D / 2 apart."""
    head = model.width // model.heads
    for block in range(model.depth):
        name = f"trunk.blocks.{block}.attention"
        for kind in ("weight", "bias"):
            q, k, v = tensors[f"{name}.qkv.{kind}"].chunk(3)
            tensors[f"{name}.qkv.{kind}"] = torch.cat([_halves(q, head), _halves(k, head), v])
        for norm in ("norm_q", "norm_k") if model.qk_norm else ():
            tensors[f"{name}.{norm}.weight"] = _halves(tensors[f"{name}.{norm}.weight"], head)


def _halves(rows: Tensor, head: int) -> Tensor:
    """Reorder rows (heads D, ...) from (plane, value) inside a head to (value, plane)."""
    return rows.unflatten(0, (-1, head // 2, 2)).transpose(1, 2).flatten(0, 2)
