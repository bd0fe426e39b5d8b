"""Variants: each file of a variant package defines one of its name, as diffusion/objectives/flow_matching.py does.

A variant file defines two classes. The name of one ends in `Settings`; it derives from the settings base of the
package. The other has the code and derives from the package's `Variant`. The login node validates settings without
importing the code, which may need torch: `settings_class` executes only the settings class and the definitions that
this class mentions.
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


class VariantIdentity(Protocol):
    """Settings that identify a variant by package and name; those read from YAML are `schema.VariantSettings`."""

    package: ClassVar[str]

    @property
    def name(self) -> str:
        """Name of the variant, which is that of its file."""

    def __iter__(self) -> Iterator[tuple[str, Any]]: ...


S = TypeVar("S", covariant=True)
B = TypeVar("B", bound=VariantIdentity)
V = TypeVar("V", bound="Variant[Any]")


class Variant(ABC, Generic[S]):
    """Code of a variant; the abstract base of each package derives from it and states the interface.

    Args:
        settings: Settings of the variant, an instance of the settings class in its file.
    """

    def __init__(self, settings: S):
        self.settings = settings


def create(base: type[V], settings: VariantIdentity, *arguments: Any) -> V:
    """Create the variant that the settings name.

    Args:
        base: Abstract base of the package; one class in the variant's file derives from it.
        settings: Settings that name the variant. It receives them as an instance of the settings class of its file.
        *arguments: Further arguments of the constructor, described by `base`.

    Raises:
        ConfigError: No variant has this name, or its file does not have exactly one class derived from `base`.

    Examples:
        >>> from hpcddm.config.data_variants import OrderSettings
        >>> from hpcddm.data.orders.base import EpochOrder
        >>> order = create(EpochOrder, OrderSettings.model_validate({"name": "uniform"}), 0, "train/expert-0", 10)
        >>> type(order).__name__, order.size
        ('UniformOrder', 10)
    """
    module = import_variant(settings.package, settings.name)
    settings_type = getattr(module, _settings_name(variant_file(settings.package, settings.name)))
    return _implementation(base, module)(settings_type.model_validate(dict(settings)), *arguments)


def implementation(base: type[V], package: str, name: str) -> type[V]:
    """Return the class with the code of a variant; the arguments are those of `create` and `import_variant`."""
    return _implementation(base, import_variant(package, name))


@cache
def _implementation(base: type[V], module: ModuleType) -> type[V]:
    derived = variant_files.classes_defined_in(module, base)
    if len(derived) != 1:
        raise ConfigError(f"{module.__file__}: has {len(derived)} classes derived from {base.__name__}, needs one")
    missing = sorted(getattr(derived[0], "__abstractmethods__", ()))
    if missing:
        raise ConfigError(f"{module.__file__}: {derived[0].__name__} lacks {', '.join(missing)}")
    return derived[0]


def import_variant(package: str, name: str) -> ModuleType:
    """Import the module of one variant.

    Args:
        package: Package of the variants, such as 'sampling/solvers'.
        name: Name of the variant.

    Raises:
        ConfigError: No variant has this name; the message lists the valid names.
    """
    variant_file(package, name)
    return variant_files.import_file(package, name)


@cache
def list_variants(package: str, base: type[VariantIdentity] | None = None) -> tuple[str, ...]:
    """List the variants of a package in alphabetical order.

    Args:
        package: Package of the variants, such as 'sampling/solvers'.
        base: If given, list only variants whose settings derive from this class.

    Examples:
        >>> "uniform" in list_variants("data/orders")
        True
    """
    variants = tuple(file.stem for file in variant_files.list_files(package) if _settings_names(file))
    if base is None:
        return variants
    return tuple(name for name in variants if issubclass(settings_class(package, name), base))


def settings_classes(base: type[B]) -> dict[str, type[B]]:
    """Return the settings classes of a package's variants, by name, that derive from `base`."""
    classes = {name: settings_class(base.package, name) for name in list_variants(base.package)}
    return {name: settings for name, settings in classes.items() if issubclass(settings, base)}


def resolve_schema(schema: Any, values: Any) -> Any:
    """Return the settings class of the variant that a mapping names.

    Args:
        schema: Schema of a field.
        values: Values of the field.

    Returns:
        The settings class of the named variant if `schema` is the base of a variant package; otherwise `schema`.
    """
    if "package" not in getattr(schema, "__dict__", {}):
        return schema
    name = values.get("name") if isinstance(values, dict) else None
    return settings_class(schema.package, name) if name in list_variants(schema.package, schema) else schema


@cache
def settings_class(package: str, name: str) -> type[Any]:
    """Return the settings class of one variant without importing what only its code needs.

    Args:
        package: Package of the variant, such as 'sampling/solvers'.
        name: Name of the variant.

    Raises:
        ConfigError: No variant has this name, or its file does not have exactly one settings class.
    """
    file = variant_file(package, name)
    class_name = _settings_name(file)
    module = ast.Module(body=_needed_for(class_name, ast.parse(file.read_text())), type_ignores=[])
    namespace: dict[str, Any] = {"__name__": f"{variant_files.dotted(package)}.{name}"}
    exec(compile(module, str(file), "exec"), namespace)
    settings: type[Any] = namespace[class_name]
    return settings


def variant_file(package: str, name: str) -> Path:
    """Return the file of a variant.

    Args:
        package: Package of the variant, such as 'sampling/solvers'.
        name: Name of the variant.

    Raises:
        ConfigError: No variant has this name; the message lists the valid names.
    """
    if name not in list_variants(package):
        raise ConfigError(f"unknown name '{name}'; valid names: {', '.join(list_variants(package))}")
    return next(file for file in variant_files.list_files(package) if file.stem == name)


@cache
def _settings_names(file: Path) -> list[str]:
    """List the classes of a file whose names end in `Settings`: a variant has one, other files none."""
    classes = [node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)]
    return [name for name in classes if name.endswith("Settings")] if file.stem != "base" else []


def _settings_name(file: Path) -> str:
    names = _settings_names(file)
    if len(names) != 1:
        raise ConfigError(f"{file}: has {len(names)} classes of settings, {', '.join(names)}; a variant needs one")
    return names[0]


def _needed_for(name: str, tree: ast.Module) -> list[ast.stmt]:
    """Return the definition of a class and the statements of its file that it needs, in the file's order."""
    mentioned, needed = {name}, set[ast.stmt]()
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
