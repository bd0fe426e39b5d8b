"""Activation checkpointing and compilation of a network's blocks, in place: weights keep their names and values."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from hpcddm.errors import UserError
from hpcddm.models.base import Network


def prepare_blocks(model: nn.Module, every: int, compiled: bool) -> str:
    """Make every so many-th block recompute its activations in the backward pass, and compile all of them.

    every: 0 for no block; a block that recomputes keeps only its inputs (arXiv 1604.06174). Returns a description of
    the changes, '' for none. A network without blocks is not changed: the keys apply to all trainings of a site. Raises
    `UserError` if blocks are to be compiled on a machine without a compiler.
    """
    blocks = list(model.stacked_blocks()) if isinstance(model, Network) else []
    if not blocks:
        return "no blocks: checkpoint_blocks and compile_blocks change nothing" if every or compiled else ""
    done = []
    if compiled:
        _require_compiler()
        for block in blocks:
            # All inputs of a training have one shape, and blocks of one class share what is compiled.
            block.forward = torch.compile(block.forward, dynamic=False)
        done.append(f"{len(blocks)} compiled blocks")
    if every:
        recomputed = blocks[::every]
        for block in recomputed:
            block.forward = partial(_checkpointed, block.forward)
        done.append(f"activations of {len(recomputed)} of {len(blocks)} blocks recomputed")
    return ", ".join(done)


def _checkpointed(forward: Callable[..., Any], *inputs: Any) -> Any:
    """Run a block and keep its inputs alone for the backward pass; without gradients, just run it."""
    return checkpoint(forward, *inputs, use_reentrant=False) if torch.is_grad_enabled() else forward(*inputs)


def _require_compiler() -> None:
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        advice = "load the module of one in the site's setup, or set compile_blocks: false"
        raise UserError(f"compile_blocks: this machine has no C++ compiler (g++); {advice}") from None
