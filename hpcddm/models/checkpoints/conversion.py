"""Convert the weights of one denoiser to initial weights of another, with a verdict for every tensor.

Everything that has an exact counterpart is converted exactly. The rest is chosen so that the new network starts close
to the old one, following PixArt-alpha (arXiv 2310.00426, sec. 2.3) and Heterogeneous Decentralized Diffusion Models.
Both networks embed 1000 t. If their paths differ, a time t has different log-SNRs on them; `hpcddm convert` reports the
difference.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hpcddm.config import variants
from hpcddm.config.conditions import ConditionForm
from hpcddm.config.models import BLOCK_VECTORS, LAST_VECTORS
from hpcddm.config.objectives import ObjectiveSettings
from hpcddm.errors import UserError
from hpcddm.models.base import Denoiser
from hpcddm.models.checkpoints.base import CheckpointInfo
from hpcddm.models.layers import time_waves
from hpcddm.runs.initial_weights import network_condition

VERDICTS = ("kept", "folded", "reset", "dropped")
REFERENCE_TIME = 0.5
"""Time at which adaLN-single reproduces the modulation of adaLN-zero; PixArt uses 500 of 1000."""
CLASSES = "trunk.embed_class.weight"
TIME, TEXT, POOLED = "trunk.embed_time", "trunk.embed_text", "trunk.embed_pooled.0"
TRUNK_MODULATION = "trunk.modulation"
PARAMETERS = ("weight", "bias")


@dataclass(frozen=True)
class Target:
    """Network to convert to: settings of the network, data and objective of its training."""

    model: Any
    data: Any
    objective: ObjectiveSettings
    settings_path: str = "experts.model"
    """Dotted key of `model`, for errors."""

    @property
    def condition(self) -> ConditionForm:
        """Form of the network's condition."""
        return self.model.condition_form(self.data)


@dataclass
class Converted:
    """Tensors of the new network, and (verdict, reason) for every tensor of either network by its name in hpcddm."""

    tensors: dict[str, Tensor]
    verdicts: dict[str, tuple[str, str]] = field(default_factory=dict)

    def table(self) -> list[tuple[str, int, str, str]]:
        """Return rows (name, number of tensors, verdict, reason), with equal rows of all blocks combined."""
        rows = Counter(
            (re.sub(r"blocks\.\d+\.", "blocks.*.", name), *verdict) for name, verdict in self.verdicts.items()
        )
        return [(name, count, verdict, reason) for (name, verdict, reason), count in rows.items()]

    def counts(self) -> dict[str, int]:
        """Count the tensors of each verdict."""
        counts = Counter(verdict for verdict, _ in self.verdicts.values())
        return {verdict: counts[verdict] for verdict in VERDICTS}


@dataclass
class _Conversion:
    """Tensors and verdicts during a conversion; the rules below change both."""

    tensors: dict[str, Tensor]
    source: CheckpointInfo
    target: Target
    verdicts: dict[str, tuple[str, str]] = field(default_factory=dict)

    def remove(self, name: str, verdict: str, reason: str) -> None:
        """Remove a tensor, if it exists, that the target does not have or initialises itself."""
        self.verdicts[name] = (verdict, reason)
        self.tensors.pop(name, None)

    def take(self, name: str, verdict: str, reason: str) -> Tensor:
        """Remove a tensor and return it, to compute other tensors from it."""
        self.verdicts[name] = (verdict, reason)
        return self.tensors.pop(name)

    def put(self, name: str, values: Tensor, like: Tensor, reason: str) -> None:
        """Set a tensor that was computed from others, in the dtype of `like`."""
        self.tensors[name] = values.to(like.dtype)
        self.verdicts[name] = ("folded", reason)

    def linear(self, name: str) -> tuple[Tensor, Tensor]:
        """Return weight and bias of a layer in float64."""
        return self.tensors[f"{name}.weight"].double(), self.tensors[f"{name}.bias"].double()


def convert(
    tensors: dict[str, Tensor], source: CheckpointInfo, target: Target, seed: int = 0, keep_head: bool = False
) -> Converted:
    """Convert the tensors of a network to those of another network.

    Args:
        tensors: Tensors of the source by name.
        source: Settings and training of the source network.
        target: Settings and training of the new network.
        seed: Seed of the tensors that are newly initialised.
        keep_head: True to keep the last linear layer even if the source predicts another quantity.

    Returns:
        Tensors of the new network, with a verdict for each.

    Raises:
        UserError: No rule can convert a difference between the networks.
    """
    _check(source, target)
    work = _Conversion(dict(tensors), source, target)
    if not keep_head:
        _reset_head(work)
    for rule in RULES:
        rule(work)
    return _complete(work, _fresh(target, seed))


def _check(source: CheckpointInfo, target: Target) -> None:
    # Blocks that share a layer have none of their own to begin with.
    single = ["modulation"] if source.model.modulation == "single" else []
    for key in ("name", "width", "depth", "heads", "time_spacing", *single):
        have, want = getattr(source.model, key), getattr(target.model, key)
        if have != want:
            raise UserError(
                f"{target.settings_path}.{key} is {want} and the source's is {have};"
                f" conversion keeps it: set {target.settings_path}.{key}={have}"
            )


def _reset_head(work: _Conversion) -> None:
    """Reset a head that predicted something else to zero; its modulation stays."""
    have, want = work.source.objective.name, work.target.objective.name
    if have != want:
        for kind in PARAMETERS:
            work.remove(f"head.{kind}", "reset", f"predicted {have}, shall predict {want}")


def _reset_patches(work: _Conversion) -> None:
    source, target = work.source, work.target
    pairs = {
        "patch": (source.model.patch, target.model.patch),
        "channels": (source.channels, target.data.x_shape.channels),
    }
    for what, (have, want) in pairs.items():
        if have != want:
            for name in ("trunk.embed_patch", "head"):
                for kind in PARAMETERS:
                    work.remove(f"{name}.{kind}", "reset", f"{what} {have} there, {want} here")


def _fold_null_class(work: _Conversion) -> None:
    """Fold the null class into the time embedding, exactly, if the target has no classes."""
    if work.source.condition is ConditionForm.CLASS and work.target.condition is not ConditionForm.CLASS:
        table = work.take(CLASSES, "folded", f"null class into {TIME}.2.bias, other classes dropped")
        bias = work.tensors[f"{TIME}.2.bias"]
        work.put(f"{TIME}.2.bias", bias.double() + table[-1].double(), bias, "plus the null class")


def _resize_classes(work: _Conversion) -> None:
    """Start every class from the null class's embedding if the number of classes differs; exact for the null class."""
    both = {work.source.condition, work.target.condition} == {ConditionForm.CLASS}
    have, want = work.source.num_classes, work.target.data.num_classes
    if both and have != want:
        reason = f"{have} classes there, {want} here: each begins as the null class"
        null = work.take(CLASSES, "reset", reason)[-1:]
        work.tensors[CLASSES] = null.repeat(want + 1, 1)


def _new_classes(work: _Conversion) -> None:
    """Initialise new classes with zero embeddings, so that every class starts with the network's former output."""
    want = work.target.data.num_classes
    if work.target.condition is ConditionForm.CLASS and work.source.condition is not ConditionForm.CLASS:
        like = work.tensors[f"{TIME}.2.bias"]
        work.tensors[CLASSES] = like.new_zeros(want + 1, len(like))
        work.verdicts[CLASSES] = ("reset", "new: each class begins as zero, as if there was none")


def _reset_text(work: _Conversion) -> None:
    """Reset the text embeddings if the target has a different text encoder."""
    have, want = work.source.encoder, network_condition(work.target.model, work.target.data)["encoder"]
    if None not in (have, want) and have != want:
        for name in (TEXT, *([POOLED] if f"{POOLED}.weight" in work.tensors else [])):
            for kind in PARAMETERS:
                work.remove(f"{name}.{kind}", "reset", f"text encoder {have} there, {want} here")


def _fold_modulation(work: _Conversion) -> None:
    """Convert adaLN-zero to adaLN-single: a shared layer, the mean over the blocks, and a table in each block.

    Let e be the embedding of time `REFERENCE_TIME` and the null class, and s = silu(e). There the vectors of block i
    stay the same: table_i = W_i s + b_i - (W s + b). The shared W and b are means over the blocks, which minimise the
    squared error at all other conditions. The last layer shares e itself: table = W_last s + b_last - e.
    """
    if (work.source.model.modulation, work.target.model.modulation) != ("zero", "single"):
        return
    names = [f"trunk.blocks.{block}.modulation" for block in range(work.source.model.depth)]
    if f"{names[0]}.weight" not in work.tensors:
        return
    embedding = reference_embedding(work.tensors, work.source.model.time_spacing)
    active = F.silu(embedding)
    layers = [work.linear(name) for name in names]
    like = work.tensors["modulation.weight"]
    shared = [torch.stack(each).mean(0) for each in zip(*layers, strict=True)]
    for kind, values in zip(PARAMETERS, shared, strict=True):
        work.put(f"{TRUNK_MODULATION}.{kind}", values, like, "mean over the blocks")
    common = F.linear(active, *shared)
    for name, layer in zip(names, layers, strict=True):
        table = (F.linear(active, *layer) - common).view(BLOCK_VECTORS, -1)
        work.put(name.replace("modulation", "table"), table, like, f"exact at t = {REFERENCE_TIME}, null class")
    last = F.linear(active, *work.linear("modulation")).view(LAST_VECTORS, -1) - embedding
    work.put("table", last, like, f"exact at t = {REFERENCE_TIME}, null class")
    for name in [*names, "modulation"]:
        for kind in PARAMETERS:
            work.remove(f"{name}.{kind}", "folded", "into what the blocks share, and tables")


def _fit_sigma(work: _Conversion) -> None:
    """Remove the head's rows of sigma, or append them as zeros; the rows of the prediction come first."""
    have, want = work.source.model.learned_sigma, work.target.model.learned_sigma
    if have == want or "head.weight" not in work.tensors:
        return
    rows = work.source.channels * work.source.model.patch**2
    for kind in PARAMETERS:
        values = work.tensors[f"head.{kind}"][:rows]
        if want:
            work.put(f"head.{kind}", torch.cat([values, torch.zeros_like(values)]), values, "rows of sigma are new")
        else:
            work.tensors[f"head.{kind}"] = values.clone()
            work.verdicts[f"head.{kind}"] = ("kept", "without the rows of sigma")


RULES: tuple[Callable[[_Conversion], None], ...] = (
    _reset_patches,
    _fold_null_class,
    _resize_classes,
    _new_classes,
    _reset_text,
    _fold_modulation,
    _fit_sigma,
)
"""Rules in order; the null class must be in the embedding before the modulation is folded."""


def reference_embedding(tensors: dict[str, Tensor], time_spacing: str = "original") -> Tensor:
    """Compute the embedding (D,) in float64 of `REFERENCE_TIME` plus, if there are classes, the null class."""
    t = torch.tensor([REFERENCE_TIME], dtype=torch.float64)
    first, second = ([tensors[f"{TIME}.{layer}.{kind}"].double() for kind in PARAMETERS] for layer in (0, 2))
    (embedding,) = F.linear(F.silu(F.linear(time_waves(t, time_spacing).double(), *first)), *second)
    return embedding + tensors[CLASSES][-1].double() if CLASSES in tensors else embedding


def _fresh(target: Target, seed: int) -> dict[str, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = variants.create(Denoiser, target.model, target.data)
    return model.state_dict()


def _complete(work: _Conversion, fresh: dict[str, Tensor]) -> Converted:
    """Collect the target's tensors: converted ones from the source, or else freshly initialised ones."""
    result = Converted({})
    for name, new in fresh.items():
        converted = work.tensors.pop(name, None)
        verdict = work.verdicts.pop(name, None)
        if converted is not None and converted.shape != new.shape:
            verdict, converted = ("reset", f"{tuple(converted.shape)} there, {tuple(new.shape)} here"), None
        result.verdicts[name] = verdict or (("reset", "new here") if converted is None else ("kept", ""))
        result.tensors[name] = new if converted is None else converted.contiguous()
    result.verdicts |= work.verdicts
    result.verdicts |= {name: ("dropped", "not needed here") for name in work.tensors if name not in work.verdicts}
    return result
