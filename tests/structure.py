"""Picture of the package by its imports: python -m tests.structure [CHECKOUT]

Prints the rooms, the layers (floors) that their imports make, or a circle that prevents them, the loose modules, and
how many of the package's own files the import of some modules pulls in. Imports inside functions and for type checkers
alone do not count.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
REACHED = {
    "the reader": ("data/reader.py",),
    "a training job": ("stages/training/train_job.py", "stages/train.py"),
    "the report": ("stages/report/report_job.py", "stages/report.py"),
    "submit": ("commands/submit.py",),
}
"""Files whose imports are followed, each by its place now and in earlier commits."""


def imported_when_loaded(nodes: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the import statements that run when a module is imported."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from imported_when_loaded(node.orelse)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef):
            for part in ("body", "handlers", "orelse", "finalbody"):
                yield from imported_when_loaded(getattr(node, part, []))
        elif isinstance(node, ast.ExceptHandler):
            yield from imported_when_loaded(node.body)


def modules_of(node: ast.stmt) -> Iterator[str]:
    """Yield the names in an import statement that may be modules, such as 'hpcddm.data.reader'."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield node.module


class Package:
    """Files of the package in a checkout, and which of them each imports."""

    def __init__(self, checkout: Path) -> None:
        self.folder = checkout / "hpcddm"
        self.files = sorted(self.folder.rglob("*.py"))
        self.imports = {file: set(self._imports(file)) for file in self.files}

    def _imports(self, file: Path) -> Iterator[Path]:
        for node in imported_when_loaded(ast.parse(file.read_text()).body):
            for module in modules_of(node):
                path = self.folder.parent / module.replace(".", "/")
                for place in (path.with_suffix(".py"), path / "__init__.py"):
                    if module.startswith("hpcddm.") and place.is_file() and place != file:
                        yield place
                        yield from self._packages_around(place)

    def _packages_around(self, file: Path) -> Iterator[Path]:
        """Yield the `__init__.py` of the folders around a file below the package, which Python runs first."""
        for folder in file.relative_to(self.folder).parents:
            if folder.name:
                yield self.folder / folder / "__init__.py"

    def room(self, file: Path) -> str:
        """Name the room of a file: its first folder below the package, or its own name."""
        return file.relative_to(self.folder).parts[0].removesuffix(".py")

    def reached(self, file: Path) -> set[Path]:
        """Return the other files that are imported when a file is; empty files do not count."""
        found, left = {file}, [file]
        while left:
            new = self.imports[left.pop()] - found
            found |= new
            left += new
        return {one for one in found - {file} if one.stat().st_size}

    def rooms(self) -> dict[str, set[str]]:
        """Return the rooms that each room imports."""
        below: dict[str, set[str]] = {}
        for file, imported in self.imports.items():
            own = below.setdefault(self.room(file), set())
            own |= {self.room(other) for other in imported} - {self.room(file), "__init__"}
        below.pop("__init__", None)
        return below

    def loose(self) -> list[str]:
        """List the modules that are in no room."""
        return [file.stem for file in self.files if file.parent == self.folder and file.name != "__init__.py"]


def floors(rooms: dict[str, set[str]]) -> list[list[str]]:
    """Return the rooms of each floor, the lowest first; raises `CycleError` with a circle of rooms."""
    sorter, found = TopologicalSorter(rooms), []
    sorter.prepare()
    while sorter.is_active():
        found.append(sorted(sorter.get_ready()))
        sorter.done(*found[-1])
    return found


def homonyms(folder: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """List classes of one name in several files, unless one derives from another, and modules of one name."""
    classes, modules = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for file in sorted(folder.rglob("*.py")):
        place = str(file.relative_to(folder))
        if file.name != "__init__.py":
            modules[file.stem].append(place)
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name not in map(ast.unparse, node.bases):
                classes[node.name].append(place)
    return tuple({name: found for name, found in names.items() if len(found) > 1} for names in (classes, modules))


def main() -> None:
    """Print the picture."""
    checkout = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else CHECKOUT
    package = Package(checkout)
    rooms = package.rooms()
    print(f"rooms            {len(rooms)}, of which loose modules {len(package.loose())}: {', '.join(package.loose())}")
    print(f"arrows of rooms  {sum(map(len, rooms.values()))}")
    try:
        listed = floors(rooms)
        print(f"floors           {len(listed)}, no circle")
        for number, floor in enumerate(listed):
            print(f"  {number:2}  {', '.join(floor)}")
    except CycleError as error:
        print(f"floors           none: {' -> '.join(error.args[1])} is a circle")
    for name, places in REACHED.items():
        file = next(package.folder / place for place in places if (package.folder / place).is_file())
        reached = package.reached(file)
        print(f"{name + ' reaches':24} {len(reached)} own files, of {len(set(map(package.room, reached)))} rooms")
    classes, modules = homonyms(package.folder)
    print(f"classes of one name  {len(classes)} {', '.join(classes)}")
    print(f"modules of one name  {len(modules)}: {', '.join(f'{name} ({len(modules[name])})' for name in modules)}")


if __name__ == "__main__":
    main()
