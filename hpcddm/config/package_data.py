"""Finds the data installed with the package: experiments, sites, the sbatch template."""

from collections.abc import Iterator
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from hpcddm.config import trusted_submissions
from hpcddm.errors import ConfigError
from hpcddm.files import guarded_writes

AROUND = Path(__file__).parents[2]
"""Folder that holds the package: a checkout, or site-packages."""


@cache
def find_data_folder() -> Path:
    """Find the folder that holds `experiments/` and `slurm/`: the checkout, or the installed package's data.

    In a snapshot of the code, from which jobs run, it holds the templates only.
    """
    for folder in (AROUND, AROUND / "share" / "hpcddm", *_installed()):
        if (folder / "slurm" / "job.sbatch.j2").is_file():
            return folder
    raise ConfigError("the package's experiments and sites are not installed; run 'pip install' on the project again")


def _installed() -> Iterator[Path]:
    """Yield the data folders by pip's records; with `--target` these are wrong, but the package folder has the data."""
    for distribution in distributions(name="hpcddm"):
        for file in distribution.files or []:
            if file.parts[-2:] == ("slurm", "job.sbatch.j2"):
                yield Path(file.locate()).resolve().parent.parent


def find_user_file(relative: str) -> Path | None:
    """Find the user's file of this path below the working directory; None if only the package has one, or neither."""
    local, package = Path(relative), find_data_folder() / relative
    is_own = (
        local.is_file()
        and not (package.is_file() and local.samefile(package))
        and trusted_submissions.belongs_to_user(local)
    )
    return local if is_own else None


def find_data_file(relative: str) -> Path:
    """Find a file of the package's data; a user's file with the same path takes precedence."""
    return find_user_file(relative) or find_data_folder() / relative


def is_file_path(name: str) -> bool:
    """Tell if the name of an experiment, a site or a sweep is the path of a file."""
    return name.endswith((".yaml", ".yml")) or "/" in name


def find_yaml(name: str, folder: str, kind: str) -> Path:
    """Find a YAML file by its path, or by its bare name in `./`, `./<folder>/` and the package's `<folder>/`.

    A path is the user's word, wherever it leads; of those that are looked for, what is inside a run is passed over.

    Raises `ConfigError` listing the names that exist.
    """
    if is_file_path(name):
        path = Path(name)
        if path.is_file():
            return path
        raise ConfigError(f"{name}: no such {kind} file")
    path = find_user_file(f"{name}.yaml") or find_data_file(f"{folder}/{name}.yaml")
    if path.is_file():
        return path
    places = [
        find_data_folder() / folder,
        *(place for place in [Path(folder)] if guarded_writes.enclosing_run(place) is None),
    ]
    valid = sorted({path.stem for place in places for path in place.glob("*.yaml")})
    raise ConfigError(f"no {kind} named '{name}'; valid names: {', '.join(valid)}, or the path of a YAML file")
