"""Blocks of a network compiled with `torch.compile`, which run uncompiled if one of them cannot be compiled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.hooks import RemovableHandle


@dataclass
class Compilation:
    """Compilation of the blocks of one network; blocks run compiled only if gradients are computed.

    Args:
        active: True if blocks run compiled; false again as soon as one of them could not be compiled.
        reason: Reason for a choice that the user left to hpcddm; '' otherwise.
    """

    active: bool = False
    reason: str = ""
    _untried: dict[type[nn.Module], RemovableHandle] = field(default_factory=dict)

    def wrap(self, blocks: Sequence[nn.Module]) -> None:
        """Compile blocks; the first one of each class is tried with the inputs of its first step.

        Args:
            blocks: Blocks of the network.
        """
        for block in blocks:
            # All inputs of a training have one shape, and blocks of one class share what is compiled.
            plain, compiled = block.forward, torch.compile(block.forward, dynamic=False)
            block.forward = partial(self._run, plain, compiled)
            if type(block) not in self._untried:
                # A hook runs before a forward pass that recomputes, in which a trial could not use autograd.
                self._untried[type(block)] = block.register_forward_pre_hook(partial(self._try, compiled))

    def describe(self, count: int) -> str:
        """Return what happens to `count` blocks, and why; '' if the user decided to compile none.

        Args:
            count: Number of blocks.
        """
        text = f"{count} compiled blocks" if self.active else "blocks not compiled" if self.reason else ""
        return f"{text} ({self.reason})" if self.reason else text

    def _run(self, plain: Callable[..., Any], compiled: Callable[..., Any], *inputs: Any) -> Any:
        return (compiled if self.active and torch.is_grad_enabled() else plain)(*inputs)

    def _try(self, compiled: Callable[..., Any], block: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Try to compile a block before its first step; if any rank cannot, all ranks go on uncompiled."""
        if not torch.is_grad_enabled():
            return
        self._untried.pop(type(block)).remove()
        if not self.active:
            return
        faults = [_compile_fault(compiled, inputs)]
        if dist.is_initialized():
            own, faults = faults[0], [None] * dist.get_world_size()
            dist.all_gather_object(faults, own)
        fault = next(filter(None, faults), None)
        if fault is None:
            return
        self.active = False
        if not dist.is_initialized() or dist.get_rank() == 0:
            print(
                f"compile_blocks: {type(block).__name__} cannot be compiled ({fault}); continuing uncompiled",
                flush=True,
            )


def has_cpp_compiler() -> bool:
    """Tell if torch finds a C++ compiler on this machine."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return False
    return True


def _compile_fault(compiled: Callable[..., Any], inputs: tuple[Any, ...]) -> str | None:
    """Run a compiled block forward and backward, which compiles both; return the error in a line, None without one.

    The backward pass stops at copies of the inputs: it adds nothing to any gradient and runs no hook of a parameter.
    """
    copies = tree_map_only(Tensor, lambda one: one.detach().requires_grad_(one.requires_grad), inputs)
    try:
        outputs, sources = (
            [one for one in tree_leaves(tree) if isinstance(one, Tensor) and one.requires_grad]
            for tree in (compiled(*copies), copies)
        )
        if outputs and sources:
            torch.autograd.grad(outputs, sources, [torch.zeros_like(one) for one in outputs], allow_unused=True)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        # Compilers may raise anything; torch wraps their errors.
        cause = getattr(error, "inner_exception", error)
        return f"{type(cause).__name__}: {(str(cause).splitlines() or [''])[0]}"
    return None
