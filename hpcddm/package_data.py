"""Finds what travels beside the package: experiments, sites, the sbatch template."""

from collections.abc import Iterator
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from hpcddm.errors import ConfigError

AROUND = Path(__file__).parent.parent
"""Folder that holds the package: a checkout, or site-packages."""


@cache
def share_folder() -> Path:
    """Find the folder that holds `experiments/` and `slurm/`: the checkout, or the installed package's data.

    In a snapshot of the code, from which jobs run, it holds the templates only.
    """
    for folder in (AROUND, AROUND / "share" / "hpcddm", *_installed()):
        if (folder / "slurm" / "job.sbatch.j2").is_file():
            return folder
    raise ConfigError("the package's experiments and sites are not installed; run 'pip install' on the project again")


def _installed() -> Iterator[Path]:
    """Yield the data folders by pip's records; with `--target` these are wrong, and the data lie beside the package."""
    for distribution in distributions(name="hpcddm"):
        for file in distribution.files or []:
            if file.parts[-2:] == ("slurm", "job.sbatch.j2"):
                yield Path(file.locate()).resolve().parent.parent


def share_file(relative: str) -> Path:
    """Find a file of the package's data; one of the same path below the working directory comes first."""
    local = Path(relative)
    return local if local.is_file() else share_folder() / relative


def find_yaml(name: str, folder: str, kind: str) -> Path:
    """Find a YAML file by its path, or by its bare name in `./`, `./<folder>/` and the package's `<folder>/`.

    Raises `ConfigError` listing the names that exist.
    """
    if name.endswith((".yaml", ".yml")) or "/" in name:
        path = Path(name)
        if path.is_file():
            return path
        raise ConfigError(f"{name}: no such {kind} file")
    candidates = [Path(f"{name}.yaml"), Path(folder) / f"{name}.yaml", share_folder() / folder / f"{name}.yaml"]
    for path in candidates:
        if path.is_file():
            return path
    valid = sorted({path.stem for place in (Path(folder), share_folder() / folder) for path in place.glob("*.yaml")})
    raise ConfigError(f"no {kind} named '{name}'; valid names: {', '.join(valid)}, or the path of a YAML file")
