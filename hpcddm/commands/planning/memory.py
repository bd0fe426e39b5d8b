"""Memory of a rank in training: bytes of all tensors that live at once, predicted without any of them.

What ZeRO shares among ranks is counted by DeepSpeed's ways (arXiv 1910.02054, sec. 5, and what its release 0.19 does
with gradients); what lives in a forward and backward pass is counted in one on the meta device, so any network does.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hpcddm.commands.planning.live_memory import LiveBytes
from hpcddm.jobs.devices import DTYPES
from hpcddm.models.base import prepare_blocks
from hpcddm.models.compiled_blocks import Compilation
from hpcddm.models.flops import unallocated
from hpcddm.models.layers import attend_unfused
from hpcddm.training.engine import BUCKET

FLAT_BUCKET = 500_000_000
"""Largest number of values of a gradient that ranks reduce at once where DeepSpeed asks for no size."""
MAX_GATHERED = 1_000_000_000
"""Number of weights that a rank of ZeRO-3 keeps gathered between their uses."""

RESIDENT = 1.2
"""Bytes of a process for a byte of its tensors, with what allocator, oneDNN and gloo take: 1.10 to 1.34, measured by
`tests.benchmarks.memory`."""


@dataclass(frozen=True)
class RankDivision:
    """Division of a training among its ranks."""

    ranks: int
    zero_stage: int
    parts: int
    """Number of micro batches in which a rank's images of a step go through the network."""

    @property
    def keeps_gradients(self) -> bool:
        """Tell if gradients come beside the activations, and stay: in parts there are those of the part before."""
        return self.zero_stage < 2 and self.parts == 1


@dataclass(frozen=True)
class TensorMemory:
    """Bytes of a rank's tensors at the peak of a step, by what they are; the copy is made when a state is saved."""

    weights: int
    masters: int
    moments: int
    averages: int
    gradients: int
    buffers: int
    activations: int
    state_copy: int
    """On the host: the rank's part of the fp32 weights, moments and averages."""

    @property
    def peak(self) -> int:
        """Bytes on the device that trains."""
        return sum(asdict(self).values()) - self.state_copy

    @property
    def resident(self) -> int:
        """Bytes of a process that trains on a CPU, above one that has only imported everything."""
        return int(RESIDENT * self.peak)


@contextmanager
def _attention(fused: bool) -> Iterator[None]:
    """Have attention on the meta device be as a device computes it: fused, which keeps no scores, or unfused.

    A mode of torch would not reach what is recomputed in the backward pass.
    """
    original = F.scaled_dot_product_attention
    setattr(F, original.__name__, _fused if fused else _unfused)
    try:
        yield
    finally:
        setattr(F, original.__name__, original)


def _fused(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    return _Fused.apply(q, k, v)


def _unfused(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    return attend_unfused(q, k, v, attn_mask)


class _Fused(torch.autograd.Function):
    """Attention that keeps queries, keys, values, outputs, and a number per query (arXiv 2307.08691, sec. 3.1)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, logsumexp = torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(q, k, v, out, logsumexp)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.empty_like(one) for one in ctx.saved_tensors[:3])


def peak_of_pass(
    build: Callable[[], nn.Module], inputs: tuple[Tensor, ...], precision: str, every: int, keeps: bool, on_gpu: bool
) -> int:
    """Return the most bytes that live in a forward and backward pass of so many images beside weights and inputs.

    every: see `prepare_blocks`; keeps: all gradients are kept; otherwise each is freed as soon as it is
    computed.
    """
    model = unallocated(build).to(DTYPES[precision]).train()
    prepare_blocks(model, every, Compilation())
    own = [one.to("meta") for one in inputs]
    for parameter in model.parameters():
        if parameter.requires_grad and not keeps:
            parameter.register_post_accumulate_grad_hook(_forget_gradient)
    with _attention(on_gpu), LiveBytes([*model.parameters(), *model.buffers(), *own], of_meta=True) as live:
        before = live.now
        model(*own).float().square().mean().backward()
    return live.peak - before


def _forget_gradient(parameter: Tensor) -> None:
    parameter.grad = None


def predict_memory(
    model: nn.Module, passed: int, precision: str, sharing: RankDivision, averages: int = 1
) -> TensorMemory:
    """Predict a rank's memory.

    model: may be on the meta device; passed: `peak_of_pass` of a micro batch, with gradients where the sharing
    `keeps_gradients`; averages: number of EMAs.
    """
    trained = [parameter.numel() for parameter in model.parameters() if parameter.requires_grad]
    count, width = sum(trained), DTYPES[precision].itemsize
    fixed = sum(parameter.numel() for parameter in model.parameters()) - count
    part = count // (sharing.ranks if sharing.zero_stage else 1)
    kept, phases = _phases(count, max(trained), width, precision, sharing, passed)
    gradients, buffers, activations = max(phases, key=sum)
    has_masters = sharing.zero_stage > 0 or precision != "fp32"
    return TensorMemory(
        weights=width * (part if sharing.zero_stage == 3 else count) + width * fixed,
        masters=4 * part if has_masters else 0,
        moments=8 * part,
        averages=4 * part * averages,
        gradients=kept + gradients,
        buffers=buffers,
        activations=activations,
        state_copy=(4 + 8 + 4 * averages) * part,
    )


Phase = tuple[int, int, int]
"""Bytes of gradients, buffers and activations."""


def _phases(
    count: int, largest: int, width: int, precision: str, sharing: RankDivision, passed: int
) -> tuple[int, list[Phase]]:
    """Return the bytes of permanent gradients, and the further bytes of pass, reduction and step.

    count, largest: parameters in all, and in the largest tensor; width: bytes of a weight.
    """
    stage, part, bucket = sharing.zero_stage, count // sharing.ranks, min(count, BUCKET)
    low, flat = width < 4, min(count, FLAT_BUCKET)
    # Gradients of earlier micro batches, where a rank keeps whole ones.
    carried = 0 if sharing.parts == 1 else width * count
    if stage == 0:
        reduction = (width * count, width * flat + (4 * flat if low else 0), 0)
        return 0, [(carried, 0, passed), reduction, ((width + 4 if low else 4) * count, 0, 0)]
    if stage == 1 and precision == "bf16":
        return 4 * count, [(carried, 0, passed), (width * count, 4 * flat if sharing.ranks > 1 else 0, 0)]
    if stage == 1:
        carried *= 4 // width
        ends = (4 * count + 4 * part, 4 * bucket if low else 0, 0)
        return 0, [(carried, 4 * bucket, passed), (4 * count, 4 * bucket, 0), ends, (8 * part, 0, 0)]
    # The first bucket is full when this share of the activations is still there.
    left = int(passed * (1 - bucket / count))
    if stage == 2:
        carried, parts = (4 * part if sharing.parts > 1 else 0), (2 if sharing.parts > 1 and not low else 1)
        reducing = (width + 4 if low else 4) * bucket + (8 if low else 4) * largest
        begun = carried + 4 * part * bucket // count
        passing = [(carried, width * bucket, passed), (begun, reducing, left)]
        return 0, [*passing, (4 * part * parts, reducing, 0), (8 * part, 0, 0)]
    gathered = width * min(count, MAX_GATHERED) if sharing.ranks > 1 else 0
    reducing = (6 if low else 12 if sharing.ranks > 1 else 8) * bucket + 4 * largest
    buffers = gathered + 4 * bucket
    return 4 * part, [(0, buffers, passed), (0, buffers + reducing, left), (4 * part, 4 * bucket, 0)]
