"""Count floating-point operations of a network from its operators (a multiply-add counts as 2)."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def unallocated(build: Callable[[], nn.Module]) -> nn.Module:
    """Build a network without memory for its weights, to count its operations."""
    with torch.device("meta"):
        return build()


def forward_flops(model: nn.Module, *inputs: Tensor) -> int:
    """Count the operations of one forward pass: matrix products, convolutions and attention.

    Args:
        model: Network to count; it is copied and stays unchanged.
        inputs: Arguments of the network; only their shapes and dtypes matter.
    """
    return _count(model, inputs, backward=False)


def training_flops(model: nn.Module, *inputs: Tensor) -> int:
    """Count the operations of one forward and backward pass, without the optimiser.

    Args:
        model: Network to count; it is copied and stays unchanged.
        inputs: Arguments of the network; only their shapes and dtypes matter.
    """
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
