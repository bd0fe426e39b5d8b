"""Paths that batch scripts hold: one that Slurm, a shell or Python would read as another is refused."""

import unicodedata
from pathlib import Path

from hpcddm.errors import ConfigError, require

SIGNS = {
    "%": "means something to Slurm",
    "\\": "is taken away by Slurm, in quotes, too",
    ":": "means something to Python, which finds the run's code by PYTHONPATH",
    **dict.fromkeys(("hetjob", "packjob"), "is taken away by sbatch, which looks for heterogeneous jobs"),
}
"""Texts that no path may hold that is in a flag of sbatch and in PYTHONPATH, and the reason against each."""
FIRST = {"-": "begins a flag", "~": "was not expanded by the shell: write $HOME"}
"""Characters with which no path may begin that is given on the command line, and the reason against each."""
REFUSED = {"Cc": "control characters", "Zl": "ends of lines", "Zp": "ends of lines", "Cs": "bytes that are not UTF-8"}
"""Categories of Unicode's characters that cannot be in a line of a script."""


def check_folder(folder: Path, option: str) -> None:
    """Refuse a folder for runs whose path would not reach its jobs as it is; raises `ConfigError` with the option."""
    for sign, reason in FIRST.items():
        if str(folder).startswith(sign):
            raise ConfigError(f"{option} {folder}: '{sign}' at the beginning {reason}; or write ./{folder}")
    check_path(folder.resolve(), f"{option} {folder}")


def check_path(path: Path, place: str) -> None:
    """Refuse a path with one of `SIGNS`, or one that cannot be in a script; raises `ConfigError` with `place`."""
    check_line(path, place)
    for sign, reason in SIGNS.items():
        require(sign not in str(path).lower(), f"{place}: '{sign}' in a path {reason}; take another name", ConfigError)


def check_line(path: Path | str, place: str) -> None:
    """Refuse a path that cannot be written in one line of a script; raises `ConfigError` with `place`."""
    for character in str(path):
        if (kind := REFUSED.get(unicodedata.category(character))) is not None:
            shown = ascii(str(place))[1:-1]
            raise ConfigError(f"{shown}: a path with {kind} cannot be in a batch script; take another name")
