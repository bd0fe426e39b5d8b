"""Files of the package's rooms, and of the user's own folder, whose tree mirrors the package's."""

import importlib
import os
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from hpcddm.config import trusted_submissions
from hpcddm.errors import ConfigError

PACKAGE_ROOT = Path(__file__).parents[1]
VARIANTS_VARIABLE = "HPCDDM_VARIANTS"
"""Environment variable that names the user's folder."""

C = TypeVar("C")


def list_files(package: str) -> list[Path]:
    """List the Python files of a package, such as 'sampling/solvers', by name: the package's and the user's own."""
    listed = sorted((PACKAGE_ROOT / package).glob("*.py"))
    return listed + [user_files()[place] for place in user_files() if Path(place).parent == Path(package)]


def list_subpackages(package: str) -> list[str]:
    """List the package's folders inside a package, such as 'stages/training'."""
    return [f"{package}/{path.parent.name}" for path in sorted((PACKAGE_ROOT / package).glob("*/__init__.py"))]


def import_from_subpackages(package: str, name: str) -> ModuleType:
    """Import the file of this name from a package, or from one of its folders; raises `ConfigError` without one."""
    for place in (package, *list_subpackages(package)):
        if any(file.stem == name for file in list_files(place)):
            return import_file(place, name)
    raise ConfigError(f"neither the package nor {VARIANTS_VARIABLE} has a file {package}/.../{name}.py")


def import_file(package_path: str, name: str) -> ModuleType:
    """Import a file of a package, the user's own under the name that it would have in the package."""
    package = importlib.import_module(dotted(package_path))
    folder = user_folder()
    if folder is not None and str(folder / package_path) not in package.__path__:
        package.__path__.append(str(folder / package_path))
    return importlib.import_module(f"{dotted(package_path)}.{name}")


def classes_defined_in(module: ModuleType, base: type[C]) -> list[type[C]]:
    """List the classes that a file itself defines and that derive from `base`."""
    classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, base)]
    return [item for item in classes if item is not base and item.__module__ == module.__name__]


def user_folder() -> Path | None:
    """Return the user's folder; None without one. Raises `ConfigError` if it does not exist or is inside a run."""
    named = os.environ.get(VARIANTS_VARIABLE)
    if not named:
        return None
    folder = Path(named).resolve()
    if not folder.is_dir():
        raise ConfigError(f"{VARIANTS_VARIABLE}: {folder} is not a folder")
    run = trusted_submissions.enclosing_run(Path(named))
    if run:
        raise ConfigError(
            f"{VARIANTS_VARIABLE}: {folder} is inside the run {run}, where others may have written it;"
            " keep it outside of runs"
        )
    return folder


def user_files() -> dict[str, Path]:
    """Return the user's own files by their place in the package, such as 'sampling/solvers/mine.py'.

    Raises `ConfigError` naming the file when its folder is not one of the package, has the name of one of the
    package's, or is a stage that would not be found or would be found twice.
    """
    return _own_files(user_folder())


@cache
def _own_files(folder: Path | None) -> dict[str, Path]:
    if folder is None:
        return {}
    places = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*.py"))}
    for place, path in places.items():
        if not (PACKAGE_ROOT / place).parent.joinpath("__init__.py").is_file() or "/" not in place:
            raise ConfigError(f"{VARIANTS_VARIABLE}: {path}: hpcddm has no package {Path(place).parent}/")
        if (PACKAGE_ROOT / place).exists():
            raise ConfigError(
                f"{VARIANTS_VARIABLE}: {path}: the package has a file of this name, too; take another one"
            )
    _require_findable_stages(places)
    return places


def _require_findable_stages(places: dict[str, Path]) -> None:
    """Refuse a user's stage outside stages/GROUP/, or with the name of another stage."""
    names = {path.stem: str(path.relative_to(PACKAGE_ROOT)) for path in (PACKAGE_ROOT / "stages").rglob("*.py")}
    for place, path in places.items():
        package, *groups, _ = Path(place).parts
        if package == "pipeline" or (package == "stages" and not groups):
            raise ConfigError(
                f"{VARIANTS_VARIABLE}: {path}: a stage needs stages/GROUP/NAME.py and stages/GROUP/NAME_job.py"
            )
        if package == "stages" and names.setdefault(path.stem, place) != place:
            raise ConfigError(f"{VARIANTS_VARIABLE}: {path}: {names[path.stem]} has this name, too; take another one")


def dotted(package: str) -> str:
    """Return the name by which Python imports a package, whose path is relative to `hpcddm/`."""
    return f"hpcddm.{package.replace('/', '.')}"
