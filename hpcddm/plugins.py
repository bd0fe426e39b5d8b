"""A variant's name is its file's name: `load("objectives", "flow_matching")`.

Every variant file holds a class `Settings` (a `VariantSettings`) beside its code. The login node
validates settings without importing the code, which may need torch: `settings_class` executes only
the `Settings` class of the file and its imports from the light modules in `LIGHT_MODULES`.
"""

import ast
import importlib
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from hpcddm.errors import ConfigError
from hpcddm.renamed import VARIANTS, hint

PACKAGE = Path(__file__).parent
LIGHT_MODULES = (
    "typing",
    "pydantic",
    "hpcddm.schema",
    "hpcddm.pretrained",
    "hpcddm.models.size",
    "hpcddm.objectives.settings",
)


def load(room: str, name: str) -> ModuleType:
    """Import the module of one variant.

    Raises `ConfigError` with the valid names when there is no such variant.
    """
    _variant_file(room, name)
    return importlib.import_module(f"hpcddm.{room.replace('/', '.')}.{name}")


@cache
def names(room: str, role: str | None = None) -> tuple[str, ...]:
    """List the variants in a room, in alphabetical order; `role` keeps those whose Settings name it."""
    files = sorted((PACKAGE / room).glob("*.py"))
    variants = [file.stem for file in files if _settings_definition(file) is not None]
    if role is None:
        return tuple(variants)
    return tuple(name for name in variants if settings_class(room, name).role == role)


@cache
def settings_class(room: str, name: str) -> Any:
    """Return the `Settings` class of one variant, without importing the variant's heavy modules."""
    file = _variant_file(room, name)
    tree = ast.parse(file.read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module in LIGHT_MODULES]
    module = ast.Module(body=[*imports, _settings_definition(file)], type_ignores=[])
    namespace: dict[str, Any] = {"__name__": f"hpcddm.{room.replace('/', '.')}.{name}"}
    exec(compile(module, str(file), "exec"), namespace)
    return namespace["Settings"]


def parse(room: str, text: str) -> Any:
    """Parse settings from a word such as 'top-2', in a room whose Settings have a `pattern` and a `usage`.

    Raises `ConfigError` with the valid words.
    """
    classes = {name: settings_class(room, name) for name in names(room)}
    for name, settings in classes.items():
        if match := re.fullmatch(settings.pattern, text):
            return settings(name=name, **match.groupdict())
    usage = ", ".join(settings.usage for settings in classes.values())
    raise ConfigError(f"unknown name '{text}'{hint(VARIANTS, text)}; valid names: {usage}")


def _variant_file(room: str, name: str) -> Path:
    if name not in names(room):
        raise ConfigError(f"unknown name '{name}'; valid names: {', '.join(names(room))}")
    return PACKAGE / room / f"{name}.py"


@cache
def _settings_definition(file: Path) -> ast.ClassDef | None:
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == "Settings":
            return node
    return None
