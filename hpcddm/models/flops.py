"""Floating-point operations of a network, counted from its operators (multiply-add = 2)."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def unallocated(build: Callable[[], nn.Module]) -> nn.Module:
    """Build a network without memory and numbers for its weights, to count its operations."""
    with torch.device("meta"):
        return build()


def forward_flops(model: nn.Module, *inputs: Tensor) -> int:
    """Count the operations of one forward pass on inputs of these shapes: matrix products, convolutions, attention."""
    return _count(model, inputs, backward=False)


def training_flops(model: nn.Module, *inputs: Tensor) -> int:
    """Count the operations of one forward and backward pass on inputs of these shapes, without the optimiser."""
    return _count(model, inputs, backward=True)


def _count(model: nn.Module, inputs: tuple[Tensor, ...], backward: bool) -> int:
    # On the meta device nothing is computed. The counter has no formula for the fused attention of CPUs;
    # the unfused one is made of matrix products, so it counts the same everywhere.
    model = copy.deepcopy(model).to("meta").train()
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        outputs = model(*(x.to("meta") for x in inputs))
        if backward:
            outputs.sum().backward()
    return counter.get_total_flops()
