"""Mistakes in settings, each as one line that names where it was written, the key and what would do."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import ValidationError

from hpcddm.config import variants
from hpcddm.errors.printing import printable

Location = tuple[str | int, ...]
"""Keys and positions that lead to a value in nested settings."""
MAX_LINES = 20
"""Number of mistakes that have a line each."""
MIN_SIMILARITY = 0.7
"""Likeness of two words, by difflib, from which one is taken for the other misspelt."""
MAX_VALUE_LENGTH = 80
"""Number of characters of a wrong value that a message shows."""
EMPTY = ("model_type", "model_attributes_type", "dict_type")
"""Types of errors about a value that should hold others."""
_ORDER = {"missing": 0, "extra_forbidden": 1}
"""Types of errors that come first: the other mistakes often follow from these."""


@dataclass(frozen=True)
class Origins:
    """Places where nested settings were written: lines of a file, and what was changed since."""

    file: str
    lines: dict[Location, int] = field(default_factory=dict)
    """Line of every key and every item of a list in the file."""
    changes: dict[Location, str] = field(default_factory=dict)
    """Text that names who changed a value, such as an override of the command line, by the value's location."""

    def with_change(self, key: str, text: str) -> "Origins":
        """Return the origins after a change of a dotted key that `text` names."""
        location: Location = tuple(key.split("."))
        below = {place for place in self.changes if place[: len(location)] == location}
        kept = {place: change for place, change in self.changes.items() if place not in below}
        return replace(self, changes=kept | {location: text})

    def below(self, key: str) -> "Origins":
        """Return the origins of the values at a key of the file."""
        return Origins(self.file, {place[1:]: line for place, line in self.lines.items() if place[:1] == (key,)})

    def line(self, location: Location) -> str:
        """Return file and line of a value, or of what it is part of."""
        number = _nearest(self.lines, location)
        return self.file if number is None else f"{self.file}:{number}"

    def describe_cause(self, error: "_SettingError") -> str:
        """Return where a mistake was written: by the change of its value, else in the file with the related changes."""
        # A variant's name that is not known is a mistake of the mapping that holds it.
        of_name = self.changes.get((*error.location, "name")) if error.type == "value" else None
        change = of_name or _nearest(self.changes, error.location)
        if change is not None:
            return change
        below = error.location if error.model is None else error.model
        names = {(*error.location[:length], "name") for length in range(len(error.location))}
        related = [text for place, text in self.changes.items() if place[: len(below)] == below or place in names]
        changes = ", ".join(dict.fromkeys(related))
        if not changes or not self.lines:
            return self.line(error.location)
        return f"{self.line(error.location)} (with {changes})" if error.location in self.lines else changes


def _nearest(places: dict[Location, Any], location: Location) -> Any:
    return next((places[location[:end]] for end in range(len(location), 0, -1) if location[:end] in places), None)


@dataclass(frozen=True)
class KeysOfSchema:
    """Mark of the type of a mapping that is kept as it is, and whose keys are those of a schema."""

    schema: type[Any]


@dataclass(frozen=True)
class _SettingError:
    """One mistake: its place, its type, and the message about it."""

    location: Location
    type: str
    text: str
    model: Location | None = None
    """Location of the settings that do not go together; None for a mistake in one value."""
    keys: tuple[str, ...] = ()
    """Valid keys in the place of an unknown one."""

    @property
    def key(self) -> str:
        """Dotted key."""
        return ".".join(map(str, self.location))


def format_errors(error: ValidationError, schema: type[Any], values: Any, origins: Origins) -> list[str]:
    """Format all errors of a validation, one line each, with the valid keys where a key is unknown.

    A key that is missing because it is misspelt has one line.
    """
    mistakes = list(_setting_errors(error, schema, values))
    misspelt = {(*mistake.location[:-1], near) for mistake in mistakes for near in _near(mistake)}
    mistakes = [mistake for mistake in mistakes if mistake.type != "missing" or mistake.location not in misspelt]
    lines: dict[str, None] = {}
    told: set[Location] = set()
    for mistake in sorted(mistakes, key=lambda mistake: _ORDER.get(mistake.type, 2)):
        parent, text = mistake.location[:-1], f"{mistake.key}: {mistake.text}" if mistake.key else mistake.text
        if mistake.keys and parent not in told:
            # The valid keys of a mapping stand in the first line about it.
            text += f"; valid keys: {', '.join(mistake.keys)}"
            told.add(parent)
        text += "".join(f"; did you mean '{near}'?" for near in _near(mistake))
        lines[f"{origins.describe_cause(mistake)}: {text}"] = None
    more = len(lines) - MAX_LINES
    return [*lines][:MAX_LINES] + ([f"{origins.file}: and {more} more"] if more > 0 else [])


def _near(mistake: _SettingError) -> list[str]:
    """Return the valid key that an unknown one resembles most; empty for none, and for other mistakes."""
    return get_close_matches(str(mistake.location[-1]), mistake.keys, 1, MIN_SIMILARITY) if mistake.keys else []


def _setting_errors(error: ValidationError, schema: type[Any], values: Any) -> Iterator[_SettingError]:
    """Yield the mistakes of a validation; those about the same value become one."""
    merged: dict[tuple[Location, str], list[str]] = {}
    for item in error.errors(include_url=False):
        location, owner = _located(item["loc"], schema, values)
        if item["type"] == "inner":
            # Its text begins with a key of the settings that do not go together.
            key, colon, text = item["msg"].partition(": ")
            parts = [int(part) if part.isdecimal() else part for part in key.split(".")] if colon else []
            yield _SettingError((*location, *parts), "inner", text if colon else item["msg"], location)
        elif item["type"] == "missing":
            field = getattr(owner, "model_fields", {}).get(location[-1])
            example = getattr(unwrap_schema(field.annotation), "example", "") if field else ""
            yield _SettingError(location, "missing", "this key is needed" + f": {example}" * bool(example))
        elif item["type"] == "extra_forbidden":
            yield _SettingError(location, "extra_forbidden", "unknown key", keys=tuple(owner.model_fields))
        else:
            if item["input"] is None and item["type"] in EMPTY:
                yield _SettingError(location, "value", "is empty; remove it, or write its keys below it")
                continue
            message = item["msg"] if item["type"] == "variant" else f"{item['msg'][0].lower()}{item['msg'][1:]}"
            found = "" if item["type"] == "variant" else f", found {printable(repr(item['input']), MAX_VALUE_LENGTH)}"
            hint = "; put it in quotes" if item["type"] == "string_type" and _is_scalar(item["input"]) else ""
            merged.setdefault((location, found + hint), []).append(message)
    for (location, ending), messages in merged.items():
        yield _SettingError(location, "value", f"{', or '.join(dict.fromkeys(messages))}{ending}")


def _located(loc: Location, schema: Any, values: Any) -> tuple[Location, Any]:
    """Return an error's location as it is written, without names of pydantic's, and the schema that it belongs to."""
    location: list[str | int] = []
    owner = schema
    for part in loc:
        # A list may end before a position that its type needs.
        is_position = isinstance(values, list) and isinstance(part, int)
        is_there = part in values if isinstance(values, dict) else is_position and int(part) < len(values)
        picked = variants.resolve_schema(schema, values)
        is_key = isinstance(part, str) and part in getattr(picked, "model_fields", {})
        # An alternative of a type has a name in pydantic's locations; a missing key is one of the schema.
        if not (is_there or is_position or (isinstance(values, dict) and is_key)):
            continue
        location.append(part)
        owner = picked
        schema = unwrap_schema(picked.model_fields[part].annotation) if is_key else schema
        values = values[part] if is_there else None
    return tuple(location), owner


def unwrap_schema(annotation: Any) -> Any:
    """Return the schema inside 'Schema | None', 'list[Schema]' and the like; the type itself where there is none."""
    if isinstance(annotation, KeysOfSchema):
        return annotation.schema
    inner = [unwrap_schema(item) for item in get_args(annotation)]
    return next((item for item in inner if hasattr(item, "model_fields")), annotation)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, bool | int | float)
