"""GPUs of encoders: those that need one, and the precision of their convolutions."""

from contextlib import AbstractContextManager
from typing import Any

import torch

from hpcddm.errors import require
from hpcddm.jobs.devices import visible_gpus


def require_gpu(settings: Any) -> None:
    """Raise `UserError` naming the encoder, for settings with `needs_gpu` in a process without a GPU."""
    precision = getattr(settings, "precision", "fp32")
    remedy = "set gpus_per_node of its stage in the site" + (", or precision: fp32" if precision != "fp32" else "")
    why = f" with precision {precision}" if precision != "fp32" else ""
    require(
        not getattr(settings, "needs_gpu", False) or visible_gpus() > 0,
        f"encoder {settings.name} needs a GPU{why}, and this unit has none; {remedy}",
    )


def full_precision() -> AbstractContextManager[None]:
    """Return a context without TF32, to whose 10 bits a GPU would else round convolutions in fp32."""
    flags: AbstractContextManager[None] = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    return flags
