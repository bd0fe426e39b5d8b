"""Files of the package's rooms, and of the user's own folder, whose tree mirrors the package's."""

import importlib
import os
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from hpcddm.config import vouching
from hpcddm.errors import ConfigError

PACKAGE = Path(__file__).parents[1]
VARIABLE = "HPCDDM_VARIANTS"
"""Environment variable that names the user's folder."""

C = TypeVar("C")


def files(room: str) -> list[Path]:
    """List the Python files of a room, such as 'sampling/solvers', by name: the package's and the user's own."""
    listed = sorted((PACKAGE / room).glob("*.py"))
    return listed + [own_files()[place] for place in own_files() if Path(place).parent == Path(room)]


def folders(room: str) -> list[str]:
    """List the package's folders inside a room, such as 'stages/training'."""
    return [f"{room}/{path.parent.name}" for path in sorted((PACKAGE / room).glob("*/__init__.py"))]


def module_below(room: str, name: str) -> ModuleType:
    """Import the file of this name from a room, or from one of its folders; raises `ConfigError` without one."""
    for place in (room, *folders(room)):
        if any(file.stem == name for file in files(place)):
            return module(place, name)
    raise ConfigError(f"neither the package nor {VARIABLE} has a file {room}/.../{name}.py")


def module(room: str, name: str) -> ModuleType:
    """Import a file of a room, the user's own under the name that it would have in the package."""
    package = importlib.import_module(_dotted(room))
    folder = own_folder()
    if folder is not None and str(folder / room) not in package.__path__:
        package.__path__.append(str(folder / room))
    return importlib.import_module(f"{_dotted(room)}.{name}")


def defined(module: ModuleType, base: type[C]) -> list[type[C]]:
    """List the classes that a file itself defines and that derive from `base`."""
    classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, base)]
    return [item for item in classes if item is not base and item.__module__ == module.__name__]


def own_folder() -> Path | None:
    """Return the user's folder; None without one. Raises `ConfigError` when it is not there, or inside a run."""
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    folder = Path(named).resolve()
    if not folder.is_dir():
        raise ConfigError(f"{VARIABLE}: {folder} is no folder")
    run = vouching.run_around(Path(named))
    if run:
        raise ConfigError(
            f"{VARIABLE}: {folder} is inside the run {run}, where others may have written it; keep it outside of runs"
        )
    return folder


def own_files() -> dict[str, Path]:
    """Return the user's own files by their place in the package, such as 'sampling/solvers/mine.py'.

    Raises `ConfigError` naming the file when it is in no room, has the name of one of the package's, or is a stage that
    would not be found or would be found twice.
    """
    return _own_files(own_folder())


@cache
def _own_files(folder: Path | None) -> dict[str, Path]:
    if folder is None:
        return {}
    places = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*.py"))}
    for place, path in places.items():
        if not (PACKAGE / place).parent.joinpath("__init__.py").is_file() or "/" not in place:
            raise ConfigError(f"{VARIABLE}: {path}: the package has no room {Path(place).parent}/")
        if (PACKAGE / place).exists():
            raise ConfigError(f"{VARIABLE}: {path}: the package has a file of this name, too; take another one")
    _require_findable_stages(places)
    return places


def _require_findable_stages(places: dict[str, Path]) -> None:
    """Refuse own stages in other places than stages/GROUP/, and of a name that any group has."""
    names = {path.stem: str(path.relative_to(PACKAGE)) for path in (PACKAGE / "stages").rglob("*.py")}
    for place, path in places.items():
        room, *groups, _ = Path(place).parts
        if room == "pipeline" or (room == "stages" and not groups):
            raise ConfigError(f"{VARIABLE}: {path}: a stage of your own is stages/GROUP/NAME.py beside NAME_job.py")
        if room == "stages" and names.setdefault(path.stem, place) != place:
            raise ConfigError(f"{VARIABLE}: {path}: {names[path.stem]} has this name, too; take another one")


def _dotted(room: str) -> str:
    return f"hpcddm.{room.replace('/', '.')}"
