"""DeepSpeed as it is used here: imported without compiling, with its defects corrected and its loops over tensors gone.

Beside masters.py the only file that knows names which are not DeepSpeed's public interface.
"""

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from hpcddm.errors import require
from hpcddm.training.fp32_master_weights import (
    base_optimizer,
    is_low_precision,
    is_zero1_bf16,
    loss_scaler,
    set_master_weights,
)

if TYPE_CHECKING:
    from deepspeed import DeepSpeedEngine
    from deepspeed.runtime.bf16_optimizer import BF16_Optimizer

DEVICES_WITHOUT_SYNC = ("cuda",)
"""Devices on which a step of ZeRO-1 in bf16 is made without waiting for them."""
CLIP_EPS = 1e-6
"""Term that DeepSpeed adds to a norm by which it divides."""
LOSS_SCALING = {"initial_scale_power": 16, "loss_scale_window": 1000, "hysteresis": 1, "min_loss_scale": 1}
"""Loss scale of fp16: from 2^16 halved in every step that overflows, doubled after 1000 that do not."""


def import_deepspeed(device: torch.device) -> ModuleType:
    """Import DeepSpeed for this device; on CPU without compiling anything."""
    if device.type == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed
    import deepspeed.ops

    if device.type == "cpu":
        # DeepSpeed would compile a shared-memory op at start (29 s, and it needs a compiler) that training never uses.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    _import_muon_uncompiled()
    _round_linear_layers_once()
    return deepspeed


def require_precision(precision: str) -> None:
    """Raise `UserError` for a precision in which DeepSpeed does not train on this device."""
    from deepspeed.accelerator import get_accelerator

    require(
        precision != "fp16" or get_accelerator().is_fp16_supported(),
        "precision: fp16 needs a GPU; set gpus_per_node of this stage in the site, or precision: bf16 or fp32",
    )


def _import_muon_uncompiled() -> None:
    """Import the optimiser Muon without torch's compiler.

    DeepSpeed imports it whatever the optimiser is, and it wraps its kernels for the compiler, whose import would make
    every start of every rank seconds longer. They are never called here.
    """
    from deepspeed.runtime import compiler

    wrap = compiler.compile
    compiler.compile = lambda: compiler.dummy_decorator
    try:
        # A DeepSpeed that has other names imports it later, as it would have done.
        with suppress(ImportError, AttributeError):
            import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: F401
    finally:
        compiler.compile = wrap


def _round_linear_layers_once() -> None:
    """Let the linear layers of ZeRO-3 add the bias before they round, as torch's do, which all other stages use.

    DeepSpeed's rounds the product of a batch of sequences to half precision, and the sum again. In fp32 it stays.
    """
    from deepspeed.runtime.zero.linear import LinearFunctionForZeroStage3

    of_deepspeed = LinearFunctionForZeroStage3.forward

    def forward(values: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        linear = of_deepspeed if values.dtype == torch.float32 else torch._C._nn.linear
        return linear(values, weight, bias)

    LinearFunctionForZeroStage3.forward = staticmethod(forward)


def patch_engine(engine: "DeepSpeedEngine", trained: Mapping[str, torch.Tensor]) -> None:
    """Correct what DeepSpeed does in some stages, and do what it does tensor by tensor for all tensors at once.

    In low precision it makes the fp32 weights of the rounded ones, and without ZeRO a step with zero gradients before
    the first one: the weights are set to those that the network had, and the moments are forgotten. In fp32 without
    ZeRO it makes steps that are not finite, which are left out. In ZeRO-1 and bf16 the loops over tensors took a tenth
    of the step of a small network on a CPU; all values are the same but the gradient's norm, which differs by rounding.
    In fp16 it divides gradients by the loss scale of the next step, which can be twice theirs; and without ZeRO by a
    scale that no loss was multiplied by.

    trained: trained parameters by name, before they were rounded.
    """
    if is_low_precision(engine):
        set_master_weights(engine, trained)
    if engine.zero_optimization_stage() == 0:
        if is_low_precision(engine):
            engine.optimizer.state.clear()
        else:
            engine.clip_fp32_gradients = partial(_clip, engine)
    if is_zero1_bf16(engine):
        _handle_tensors_together(engine)
    if engine.fp16_enabled():
        _scale_losses(engine)
        if engine.zero_optimization_stage() in (1, 2):
            # The norm is not finite either; a check of each gradient makes the host wait, and then launch the norms.
            engine.optimizer.check_grad_overflow = False
            engine.optimizer.get_grad_norm_direct = _norm_of_all


def discard_gradients(engine: "DeepSpeedEngine") -> None:
    """Forget the gradients of a step; ZeRO-3 would use those of parameters that get none in the next one again."""
    if engine.zero_optimization_stage() == 3:
        engine.optimizer.grad_partitions_flat_buffer.zero_()


def _handle_tensors_together(engine: "DeepSpeedEngine") -> None:
    """Replace loops over single tensors, and the messages of a single rank to itself."""
    optimizer = engine.optimizer
    optimizer.update_hp_grads = partial(_accumulate, optimizer, _shaped_gradients(optimizer))
    optimizer.get_grads_for_norm = partial(_flat_gradients, optimizer)
    optimizer.clear_hp_grads = partial(_discard_flat_gradients, optimizer)
    if optimizer.fp32_groups_gradients_flat[0].device.type in DEVICES_WITHOUT_SYNC:
        optimizer.step = partial(_step_without_sync, optimizer)
    if dist.get_world_size() == 1:
        engine.allreduce_gradients = _nothing
        optimizer.update_lp_params = partial(_round_weights, optimizer)


def _clip(engine: "DeepSpeedEngine") -> None:
    """Clip fp32 gradients without ZeRO, and take them away where they are not finite, which DeepSpeed does not do."""
    weights = [weight for group in engine.optimizer.param_groups for weight in group["params"]]
    norm = nn.utils.clip_grad_norm_(weights, engine.gradient_clipping(), foreach=True)
    engine.optimizer._global_grad_norm = norm
    engine.optimizer.overflow = not bool(norm.isfinite())
    if engine.optimizer.overflow:
        for weight in weights:
            weight.grad = None


def _shaped_gradients(optimizer: "BF16_Optimizer") -> list[list[torch.Tensor]]:
    """View the flat fp32 gradients of each group in the shapes of its parameters."""
    groups = zip(optimizer.fp32_groups_gradients, optimizer.bf16_groups, strict=True)
    return [
        [flat.view(weight.shape) for flat, weight in zip(gradients, weights, strict=True)]
        for gradients, weights in groups
    ]


@torch.no_grad()
def _accumulate(optimizer: "BF16_Optimizer", shaped: list[list[torch.Tensor]], clear_lp_grads: bool = False) -> None:
    """Add the bf16 gradients of a micro batch to the fp32 ones; those of the first one in a step replace them.

    shaped: views of the fp32 gradients by group, in the shapes of its parameters.
    """
    for group, (gradients, weights) in enumerate(zip(shaped, optimizer.bf16_groups, strict=True)):
        there = [
            (full, weight.grad) for full, weight in zip(gradients, weights, strict=True) if weight.grad is not None
        ]
        own, added = [full for full, _ in there], [gradient for _, gradient in there]
        is_first = not any(optimizer.fp32_groups_has_gradients[group])
        if is_first and len(added) == len(weights):
            torch._foreach_copy_(own, added)
        else:
            if is_first:
                optimizer.fp32_groups_gradients_flat[group].zero_()
            torch._foreach_add_(own, added)
        optimizer.fp32_groups_has_gradients[group] = [True] * len(weights)
        if clear_lp_grads:
            torch._foreach_zero_(added)


def _flat_gradients(optimizer: "BF16_Optimizer", for_clipping: bool = False) -> Any:
    """Return the flat gradients; for clipping also the gradients of mixture-of-experts layers, here always empty."""
    flat = optimizer.fp32_groups_actual_gradients_flat
    return flat if for_clipping else (flat, {})


def _discard_flat_gradients(optimizer: "BF16_Optimizer") -> None:
    """Have the next gradients replace those of this step, instead of adding them to zeros."""
    for group, gradients in enumerate(optimizer.fp32_groups_gradients):
        optimizer.fp32_groups_has_gradients[group] = [False] * len(gradients)


@torch.no_grad()
def _round_weights(optimizer: "BF16_Optimizer") -> None:
    """Copy the fp32 weights of a rank that has all of them to the bf16 ones."""
    for (rounded,), full in zip(optimizer.bf16_partitioned_groups, optimizer.fp32_groups_flat_partition, strict=True):
        rounded.copy_(full)


def _nothing(*_: object, **__: object) -> None:
    """Do nothing."""


def _norm_of_all(gradients: Sequence[torch.Tensor], *_: object) -> torch.Tensor:
    """Return the L2 norm of the gradients of a group over all ranks, (); -1 if it is not finite, as DeepSpeed does."""
    total = torch.stack(torch._foreach_norm(list(gradients), 2, dtype=torch.float64)).square().sum().float()
    dist.all_reduce(total)
    return torch.where(total.isfinite(), total.sqrt(), -1.0)


def _scale_losses(engine: "DeepSpeedEngine") -> None:
    """Scale losses without ZeRO as with it, and change the scale after a step; the loop knows when to give up."""
    optimizer, backward, without_zero = engine.optimizer, engine.backward, engine.zero_optimization_stage() == 0
    step, update = optimizer.step, optimizer._update_scale
    optimizer._update_scale = _nothing
    loss_scaler(engine).raise_error_at_min_scale = False

    def step_then_update(*arguments: object) -> None:
        step(*arguments)
        if without_zero:
            optimizer._global_grad_norm /= loss_scaler(engine).cur_scale
        update(optimizer.overflow)

    optimizer.step = step_then_update
    if without_zero:
        engine.backward = lambda loss: backward(loss * loss_scaler(engine).cur_scale)


@torch.no_grad()
def _step_without_sync(optimizer: "BF16_Optimizer") -> None:
    """Step without a transfer to the host: AdamW's kernel skips a step whose gradient is not finite.

    DeepSpeed's step waits for the GPU to read the gradient's norm before it launches the rest; the values are the same.
    """
    gradients, base = optimizer.fp32_groups_actual_gradients_flat, optimizer.optimizer
    norm = torch.stack([gradient.norm() for gradient in gradients]).pow(2).sum().pow(0.5)
    torch._foreach_mul_(gradients, (optimizer.clip_grad / (norm + CLIP_EPS)).clamp(max=1.0))
    base.found_inf = norm.isfinite().logical_not().float()
    partitions = zip(optimizer.fp32_groups_flat_partition, optimizer.fp32_groups_gradient_flat_partition, strict=True)
    for weights, gradient in partitions:
        weights.grad = gradient
    base.step()
    optimizer._global_grad_norm = norm
    optimizer.update_lp_params()
    optimizer.clear_hp_grads()


def step_was_applied(engine: "DeepSpeedEngine") -> bool | torch.Tensor:
    """Tell if the last step changed anything, as the gradients of all ranks were finite; unread on its device, ()."""
    found_inf = getattr(base_optimizer(engine), "found_inf", None)
    return not getattr(engine.optimizer, "overflow", False) if found_inf is None else found_inf == 0


def gradient_norm(engine: "DeepSpeedEngine") -> float | None:
    """Return the L2 norm of the last step's gradient over all ranks, before clipping; waits for the device.

    DeepSpeed computes it in every step to clip the gradient. None before the first step and after one that was skipped.
    """
    norm = engine.get_global_grad_norm()
    value = math.inf if norm is None else float(norm)
    return value if math.isfinite(value) else None
