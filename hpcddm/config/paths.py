"""Finds and changes the paths among settings, every field of the type `PathSetting`, and finds values by their keys."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

from hpcddm.config import variants
from hpcddm.config.schema import PATH, StrictModel

M = TypeVar("M", bound=StrictModel)
PathPosition = tuple[Any, Any]
"""A mapping and a key, or a list and a position."""


def find_paths(values: dict[str, Any], schema: type[StrictModel]) -> Iterator[PathPosition]:
    """Yield the places of paths in a mapping that need not be valid; values that do not fit the schema are skipped."""
    schema = variants.resolve_schema(schema, values)
    for key, field in schema.model_fields.items():
        if key in values:
            yield from _places_at(values, key, field.annotation, field.metadata)


def _places_at(holder: Any, key: Any, annotation: Any, metadata: list[Any]) -> Iterator[PathPosition]:
    value, origin, inner = holder[key], get_origin(annotation), get_args(annotation)
    if PATH in metadata:
        if isinstance(value, str):
            yield holder, key
    elif isinstance(annotation, type) and issubclass(annotation, StrictModel):
        # A list of sources may take the place of one.
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                yield from find_paths(item, annotation)
    elif origin is Annotated:
        yield from _places_at(holder, key, inner[0], list(inner[1:]))
    elif origin is list:
        for number in range(len(value) if isinstance(value, list) else 0):
            yield from _places_at(value, number, inner[0], [])
    else:
        for alternative in inner:
            yield from _places_at(holder, key, alternative, [])


def map_paths(settings: M, change: Callable[[str], str]) -> M:
    """Return the settings with every path changed."""
    values = settings.model_dump()
    for holder, key in find_paths(values, type(settings)):
        holder[key] = change(holder[key])
    return type(settings).model_validate(values)


def make_absolute(settings: M, root: Path) -> M:
    """Return the settings with all paths, which are relative to `root`, made absolute."""
    return map_paths(settings, lambda path: str((root / path).resolve()))


def value_at(values: Any, place: str) -> Any:
    """Return the value at a dotted key of nested mappings and lists; None where there is none."""
    for part in place.split("."):
        if isinstance(values, list):
            values = dict(enumerate(values)).get(int(part)) if part.isdecimal() else None
        else:
            values = values.get(part) if isinstance(values, dict) else None
    return values
