"""DeepSpeed's names that are not its public interface; no other file of hpcddm knows them."""

import math
import os
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from deepspeed import DeepSpeedEngine


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
    return deepspeed


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


def master_weights(engine: "DeepSpeedEngine") -> list[torch.Tensor]:
    """Return this rank's shards of the flat fp32 weights, one per parameter group."""
    return engine.optimizer.single_partition_of_fp32_groups


def parameter_groups(engine: "DeepSpeedEngine") -> list[list[nn.Parameter]]:
    """Return the trained parameters of each group in the order in which the flat weights hold them."""
    return engine.optimizer.bit16_groups


def was_skipped(engine: "DeepSpeedEngine") -> bool:
    """Tell if the last step changed nothing, because the gradient of some rank was not finite."""
    return engine.optimizer.overflow


def gradient_norm(engine: "DeepSpeedEngine") -> float | None:
    """Return the L2 norm of the last step's gradient over all ranks, before clipping; waits for the device.

    DeepSpeed computes it in every step to clip the gradient. None before the first step and after one that was skipped.
    """
    norm = engine.get_global_grad_norm()
    value = math.inf if norm is None else float(norm)
    return value if math.isfinite(value) else None


def state_files(engine: "DeepSpeedEngine", folder: Path, tag: str) -> list[Path]:
    """Return the files that this rank writes in `save_checkpoint`."""
    files = [engine._get_zero_ckpt_name(str(folder), tag)]
    if engine.save_non_zero_checkpoint:
        files.append(engine._get_ckpt_name(str(folder), tag))
    return [Path(file) for file in files]
