"""Variants: a file of a room is a variant, named by the file's name, such as diffusion/objectives/flow_matching.py.

Every variant file holds a class `Settings`, derived from its room's base of settings, and one class with its code,
derived from the room's `Variant`. The login node validates settings without importing the code, which may need torch:
`settings_class` executes only the `Settings` class and the definitions of the file that it mentions.
"""

import ast
from abc import ABC
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from hpcddm.config import variant_files
from hpcddm.errors import ConfigError


class RoomSettings(Protocol):
    """Settings of a variant, as far as they say which one it is; those of YAML are `schema.VariantSettings`."""

    room: ClassVar[str]

    @property
    def name(self) -> str: ...

    def __iter__(self) -> Iterator[tuple[str, Any]]: ...


S = TypeVar("S", covariant=True)
B = TypeVar("B", bound=RoomSettings)
V = TypeVar("V", bound="Variant[Any]")


class Variant(ABC, Generic[S]):
    """The code of a variant; a room's abstract base derives from it and states the contract."""

    def __init__(self, settings: S):
        self.settings = settings


def create(base: type[V], settings: RoomSettings, *arguments: Any) -> V:
    """Create the variant that the settings name: of the class in its file that derives from the room's base.

    Its own settings are of the `Settings` class of its file; the room's base says what other arguments it takes.
    Raises `ConfigError` when the file has no such class, or several.
    """
    module = load(settings.room, settings.name)
    return _implementation(base, module)(module.Settings.model_validate(dict(settings)), *arguments)


@cache
def _implementation(base: type[V], module: ModuleType) -> type[V]:
    derived = variant_files.defined(module, base)
    if len(derived) != 1:
        raise ConfigError(f"{module.__file__}: has {len(derived)} classes derived from {base.__name__}, needs one")
    missing = sorted(getattr(derived[0], "__abstractmethods__", ()))
    if missing:
        raise ConfigError(f"{module.__file__}: {derived[0].__name__} lacks {', '.join(missing)}")
    return derived[0]


def load(room: str, name: str) -> ModuleType:
    """Import the module of one variant.

    Raises `ConfigError` with the valid names when there is no such variant.
    """
    _variant_file(room, name)
    return variant_files.module(room, name)


@cache
def names(room: str, base: type[RoomSettings] | None = None) -> tuple[str, ...]:
    """List the variants in a room, in alphabetical order; `base` keeps those whose Settings derive from it."""
    variants = tuple(file.stem for file in variant_files.files(room) if _definition(file) is not None)
    if base is None:
        return variants
    return tuple(name for name in variants if issubclass(settings_class(room, name), base))


def settings_classes(base: type[B]) -> dict[str, type[B]]:
    """Return the `Settings` classes of a room base by their variants' names."""
    classes = {name: settings_class(base.room, name) for name in names(base.room)}
    return {name: settings for name, settings in classes.items() if issubclass(settings, base)}


def picked(schema: Any, values: Any) -> Any:
    """Return the settings of the variant that a mapping names, where the schema is the base of a room; else itself."""
    if "room" not in getattr(schema, "__dict__", {}):
        return schema
    name = values.get("name") if isinstance(values, dict) else None
    return settings_class(schema.room, name) if name in names(schema.room, schema) else schema


@cache
def settings_class(room: str, name: str) -> type[Any]:
    """Return the `Settings` class of one variant, without importing what its code alone needs."""
    file = _variant_file(room, name)
    module = ast.Module(body=_settings_and_mentioned(ast.parse(file.read_text())), type_ignores=[])
    namespace: dict[str, Any] = {"__name__": _module_name(room, name)}
    exec(compile(module, str(file), "exec"), namespace)
    settings: type[Any] = namespace["Settings"]
    return settings


def _module_name(room: str, name: str) -> str:
    return f"hpcddm.{room.replace('/', '.')}.{name}"


def _variant_file(room: str, name: str) -> Path:
    if name not in names(room):
        raise ConfigError(f"unknown name '{name}'; valid names: {', '.join(names(room))}")
    return next(file for file in variant_files.files(room) if file.stem == name)


@cache
def _definition(file: Path) -> ast.ClassDef | None:
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == "Settings":
            return node
    return None


def _settings_and_mentioned(tree: ast.Module) -> list[ast.stmt]:
    """Return the definition of Settings and, of a file's other statements, those that it needs, in the file's order."""
    mentioned, needed = {"Settings"}, set[ast.stmt]()
    while more := {node for node in tree.body if node not in needed and mentioned.intersection(_bound(node))}:
        needed |= more
        mentioned |= {name.id for node in more for name in ast.walk(node) if isinstance(name, ast.Name)}
    return [node for node in tree.body if node in needed]


def _bound(statement: ast.stmt) -> Iterator[str]:
    """List the names that a statement defines in its module."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        for alias in statement.names:
            yield alias.asname or alias.name.partition(".")[0]
    elif isinstance(statement, ast.ClassDef | ast.FunctionDef):
        yield statement.name
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
