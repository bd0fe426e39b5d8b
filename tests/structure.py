"""Picture of the package by its imports: python -m tests.structure

Prints the layers (floors) of rooms that their imports make, or a circle that prevents them. Imports inside functions
and for type checkers alone do not count.
"""

import ast
from collections.abc import Collection, Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TypeVar

T = TypeVar("T", str, Path)
CHECKOUT = Path(__file__).parents[1]


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


def modules_of(node: ast.AST) -> Iterator[str]:
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
            for imported in self._files_of(node, file):
                yield imported
                yield from self._packages_around(imported)

    def _files_of(self, node: ast.AST, file: Path) -> Iterator[Path]:
        """Yield the other files of the package that a statement of a file imports."""
        for module in modules_of(node):
            path = self.folder.parent / module.replace(".", "/")
            for place in (path.with_suffix(".py"), path / "__init__.py"):
                if module.startswith("hpcddm.") and place.is_file() and place != file:
                    yield place

    def named(self) -> dict[Path, set[Path]]:
        """Return the files that each file imports anywhere, also in functions and for types alone."""
        nodes = {file: [*ast.walk(ast.parse(file.read_text()))] for file in self.files}
        return {file: {path for node in own for path in self._files_of(node, file)} for file, own in nodes.items()}

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


def floors(rooms: Mapping[T, Collection[T]]) -> list[list[T]]:
    """Return the rooms, or files, of each floor, the lowest first; raises `CycleError` with a circle of them."""
    sorter, found = TopologicalSorter(rooms), []
    sorter.prepare()
    while sorter.is_active():
        found.append(sorted(sorter.get_ready()))
        sorter.done(*found[-1])
    return found


if __name__ == "__main__":
    for number, floor in enumerate(floors(Package(CHECKOUT).rooms())):
        print(f"{number:2}  {', '.join(floor)}")
