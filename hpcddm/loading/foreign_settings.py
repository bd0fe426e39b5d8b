"""Settings that somebody else wrote: what they may name and how large they may be, before anything is made of them."""

import math
import re
from collections.abc import Iterator
from typing import Any

from hpcddm.config import paths, variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import variants_of
from hpcddm.errors import UserError
from hpcddm.errors.printing import printable

CLASS_NAMES = "data.class_names"
MAX_VALUES = 50_000
"""Most values among the settings, besides the names of the classes."""
LIMITS = {"depth": 1000, "image_size": 8192, "units": 10_000}
"""Largest numbers by the last part of their keys: by these, units are listed, and networks built to be counted."""
LARGE_KEYS = re.compile(r"(.*_)?images|batch|snapshots|first_sample|seed")
"""Keys whose numbers are as large as trainings are long; nothing is listed by them."""
TEXT_KEYS = re.compile(r"name|site|sites|prompts|hub|revision|content_hash")
"""Keys whose texts are never taken for numbers."""
MAX_LARGE, MAX_OTHER = 10**15, 10**6
"""Largest numbers of these keys, and of all others."""


def check_values(document: str, experiment: dict[str, Any]) -> None:
    """Check settings of an experiment before they are used.

    Args:
        document: Name of the file that has them, for errors.
        experiment: The settings, nested as in the YAML file.

    Raises:
        UserError: A text leads out of a folder, or there are more or larger values than any experiment needs. The
            message names the key.
    """
    for number, (place, value) in enumerate(leaves(experiment)):
        if number == MAX_VALUES:
            raise UserError(f"{document}: experiment: has more than {MAX_VALUES:,} values; refused")
        key = _last_key(place)
        if leads_outside(value) and key != "prompts":
            raise UserError(f"{document}: {printable(place)} leads out of a folder; refused")
        most = MAX_LARGE if LARGE_KEYS.fullmatch(key) else LIMITS.get(key, MAX_OTHER)
        if abs(_number(value)) > most and not (isinstance(value, str) and TEXT_KEYS.fullmatch(key)):
            raise UserError(f"{document}: {printable(place)}: is not a number up to {most:,}; refused")


def check_variants(document: str, experiment: Experiment) -> None:
    """Raise `UserError` for an experiment with a variant that is not in the package."""
    own = variants.user_files()
    for place, variant in variants_of(experiment):
        if f"{variant.package}/{variant.name}.py" in own:
            reason = f"{document}: {place}: '{variant.name}' is a variant of yours, not of the package"
            raise UserError(f"{reason}; refused, rename yours")


def find_paths(values: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield every path among settings: dotted key, the mapping that holds it, and its key there."""
    places = {id(holder): place for place, holder in _holders(values, "")}
    for holder, key in paths.find_paths(values, Experiment):
        place = places[id(holder)]
        yield f"{place}.{key}".lstrip("."), holder, key


def _holders(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | list):
        yield place, value
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _holders(inner, f"{place}.{key}".lstrip("."))


def leaves(experiment: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield all settings that are not mappings or lists, and empty ones, with their places; no names of classes."""
    for place, holder in _holders(experiment, ""):
        if place != CLASS_NAMES:
            for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
                if not isinstance(value, dict | list) or not value:
                    yield f"{place}.{key}".lstrip("."), value


def leads_outside(value: Any) -> bool:
    """Return True for a text, such as a pattern of tars, that leads out of the folder to which it is relative."""
    return isinstance(value, str) and (value.startswith(("/", "~")) or ".." in value.split("/"))


def _last_key(place: str) -> str:
    return next((part for part in reversed(place.split(".")) if not part.isdecimal()), "")


def _number(value: Any) -> float:
    """Return a value as the schema takes it for a number, which may be written as a text; 0 for one that is not."""
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return 0.0
