"""hpcddm: decentralised diffusion models as Slurm batch jobs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpcddm.api import Run

__version__ = "0.1.0"


def open(root: Path | str, **evaluation: Any) -> "Run":  # noqa: A001  Read as hpcddm.open.
    """Open a run; evaluation: settings of its sampler to change, such as steps=50, guidance=2.0.

    Raises `ConfigError` when the folder holds no run, or a setting is wrong.
    """
    # Not at the top: the command line imports this package, and torch takes its seconds.
    from hpcddm.api import open_run

    return open_run(root, **evaluation)
