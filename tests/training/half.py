"""Training in fp16 on a CPU, which DeepSpeed refuses on most: its accelerator's answer is given, all else is real."""

from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

from hpcddm.training import deepspeed_patches


def allow_fp16(window: int, allowed: bool = True) -> None:
    """Allow it in this process, or refuse it, and double the loss scale after so many steps."""
    CPU_Accelerator.is_fp16_supported = lambda self: allowed
    deepspeed_patches.LOSS_SCALING["loss_scale_window"] = window
