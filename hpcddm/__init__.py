"""hpcddm: decentralised diffusion models as Slurm batch jobs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpcddm.api import Run

__version__ = "0.2.0"


def __dir__() -> list[str]:
    """List the names for users; completion shows no names that are only imported here."""
    return [name for name in globals() if name not in ("Any", "Path", "TYPE_CHECKING")]


def open(root: Path | str, **evaluation: Any) -> "Run":  # noqa: A001  Read as hpcddm.open.
    """Open a run.

    Args:
        root: Folder of the run.
        **evaluation: Settings of the sampler that replace those of the run, such as steps=50 or guidance=2.0.

    Returns:
        The run. It loads networks when a method first needs them.

    Raises:
        ConfigError: The folder does not hold a run, or a setting is wrong.
    """
    # Not at the top: the command line imports this package, and torch takes its seconds.
    from hpcddm.api import open_run

    return open_run(root, **evaluation)
