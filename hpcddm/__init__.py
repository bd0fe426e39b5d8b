"""hpcddm: decentralised diffusion models as Slurm batch jobs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpcddm.api import PublishedEnsemble, Run

__version__ = "0.2.0"


def __dir__() -> list[str]:
    """List the names for users; completion shows no names that are only imported here."""
    return [name for name in globals() if name not in ("Any", "Path", "TYPE_CHECKING")]


def open(root: Path | str, **evaluation: Any) -> "Run | PublishedEnsemble":  # noqa: A001  Read as hpcddm.open.
    """Open a run, or a published ensemble.

    Args:
        root: Folder of the run, or of the ensemble.
        **evaluation: Settings of the sampler that replace its own, such as steps=50 or guidance=2.0.

    Returns:
        The run or the ensemble. It loads networks when a method first needs them.

    Raises:
        ConfigError: The folder holds neither, or a setting is wrong.
    """
    # Not at the top: the command line imports this package, and torch takes its seconds.
    from hpcddm.api import open_model

    return open_model(root, **evaluation)
