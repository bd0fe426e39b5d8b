"""Bytes of all tensors that live, and the most of them at once, by the storages that operators return."""

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts each storage once, from the operator that makes it to its end.

    also: tensors from before; of_meta: count tensors on the meta device, and no others, instead of those with memory.
    """

    def __init__(self, also: Iterable[torch.Tensor] = (), of_meta: bool = False) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._of_meta = of_meta
        self._sizes: dict[int, int] = {}
        for tensor in also:
            self._count(tensor)

    def restart(self) -> None:
        """Forget the peak so far."""
        self.peak = self.now

    def _count(self, tensor: torch.Tensor) -> None:
        if tensor.is_meta != self._of_meta:
            return
        storage = tensor.untyped_storage()
        key, size = id(storage), storage.nbytes()
        if key not in self._sizes:
            weakref.finalize(storage, self._forget, key)
        self.now += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        self.peak = max(self.peak, self.now)

    def _forget(self, key: int) -> None:
        self.now -= self._sizes.pop(key)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(returned):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor)
        return returned
