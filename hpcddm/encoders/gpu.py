"""Check for encoders that would take weeks on a CPU: without a GPU they end at once."""

from typing import Any

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
