"""Choice of a training to compile its network's blocks: that of its site, or by device, length and earlier states."""

import torch.distributed as dist

from hpcddm.config.job_resources import JobResources
from hpcddm.errors import UserError
from hpcddm.models.compiled_blocks import Compilation, has_cpp_compiler

DEVICES = ("cuda",)
"""Types of devices on which `auto` compiles blocks."""
GPU_FLOPS_PER_SECOND = 1e14
"""Assumed speed of a GPU, about 10 % of the peak of an H100 in bf16, by which a training's length is estimated."""
MIN_MINUTES = 10
"""Shortest estimated training that is compiled: each start may take a minute longer, and steps a sixth less time."""


def choose(resources: JobResources, device: str, flops: float, kept: bool | None = None) -> Compilation:
    """Choose if a training compiles the blocks of its network; the same on all ranks.

    Args:
        resources: Resources of the unit.
        device: Type of the device, 'cuda' or 'cpu'.
        flops: FLOPs of the whole training.
        kept: True if the state from which the training continues is one of compiled blocks; None without a state.
    """
    if resources.compile_blocks != "auto":
        return Compilation(resources.compile_blocks)
    if device not in DEVICES:
        return Compilation()
    if resources.zero_stage == 3:
        return Compilation(False, "compile_blocks: auto, zero_stage: 3")
    if kept is not None:
        # A compiled step rounds otherwise, so that the weights would depend on the interruption.
        return Compilation(kept, "compile_blocks: auto, as in the attempt before")
    minutes = flops / resources.ranks / GPU_FLOPS_PER_SECOND / 60
    speed = f"{GPU_FLOPS_PER_SECOND / 1e12:g} TFLOP/s per GPU"
    estimate = f"compile_blocks: auto, about {minutes:.0f} minutes at {speed}"
    if minutes < MIN_MINUTES:
        return Compilation(False, f"{estimate} are less than {MIN_MINUTES}")
    return Compilation(True, estimate)


def agree(resources: JobResources, device: str, flops: float, kept: bool | None) -> Compilation:
    """Choose as `choose` does, with the compilers of all ranks; collective.

    Args:
        resources: Resources of the unit.
        device: Type of the device, 'cuda' or 'cpu'.
        flops: FLOPs of the whole training.
        kept: True if the state from which the training continues is one of compiled blocks; None without a state.

    Raises:
        UserError: The site says `compile_blocks: true`, and the machine of a rank has no C++ compiler.
    """
    chosen = choose(resources, device, flops, kept)
    if not chosen.active:
        return chosen
    found = [False] * dist.get_world_size()
    dist.all_gather_object(found, has_cpp_compiler())
    if all(found):
        return chosen
    lacking = f"the machine of rank {found.index(False)} has no C++ compiler (g++)"
    if resources.compile_blocks == "auto":
        return Compilation(False, f"compile_blocks: auto, {lacking}")
    advice = "load the module of one in the site's setup, or set compile_blocks: auto"
    raise UserError(f"compile_blocks: true: {lacking}; {advice}")
