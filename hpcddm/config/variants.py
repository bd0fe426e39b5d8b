"""Variants: each file of a variant package defines one of its name, as diffusion/objectives/flow_matching.py does.

A variant file defines two classes. The name of one ends in `Settings`; it derives from the settings base of the
package. The other has the code and derives from the package's `Variant`. The login node validates settings without
importing the code, which may need torch: `settings_class` executes only the settings class and the definitions that
this class mentions.
"""

import ast
import importlib
import os
from abc import ABC
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from hpcddm.errors import ConfigError, require
from hpcddm.files import guarded_writes

PACKAGE_ROOT = Path(__file__).parents[1]
VARIANTS_VARIABLE = "HPCDDM_VARIANTS"
"""Environment variable that names the user's folder."""


class VariantIdentity(Protocol):
    """Settings that identify a variant by package and name; those read from YAML are `schema.VariantSettings`."""

    package: ClassVar[str]

    @property
    def name(self) -> str:
        """Name of the variant, which is that of its file."""

    def __iter__(self) -> Iterator[tuple[str, Any]]: ...


C = TypeVar("C")
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
    derived = classes_defined_in(module, base)
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
    return import_file(package, name)


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
    variants = tuple(file.stem for file in list_files(package) if _settings_names(file))
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
    namespace: dict[str, Any] = {"__name__": f"{dotted(package)}.{name}"}
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
    return next(file for file in list_files(package) if file.stem == name)


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
    require(folder.is_dir(), f"{VARIANTS_VARIABLE}: {folder} is not a folder", ConfigError)
    run = guarded_writes.enclosing_run(Path(named))
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
