"""Which keys and mappings of YAML the schemas accept, for whoever reads texts that name some."""

import re
import sys
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic.fields import FieldInfo

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import StrictModel, VariantSettings
from hpcddm.config.site import Site
from hpcddm.config.sweep import SweepFile
from hpcddm.config.validation_errors import KeysOfSchema

ROOTS = (Experiment, Site, SweepFile)
DOTTED = re.compile(r"(?<![\w./$@:-])[a-z_]\w*(?:\[[^]]*\])?(?:\.[a-z_]\w*(?:\[[^]]*\])?)+(?![\w(/]|\.[a-zA-Z])")
FILES = {
    *"cfg csv done exit failed h5 html j2 json jsonl md noun npz parquet py safetensors said sig tar txt yaml".split()
}
"""What follows the last dot of a file's name."""
MAPPING = re.compile(r"\{[a-z_]+: (?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}")


def schemas_in(annotation: Any) -> Iterator[type[StrictModel]]:
    """List the schemas in the type of a field; of a package of variants, the settings of each."""
    if isinstance(annotation, KeysOfSchema):
        yield from schemas_in(annotation.schema)
    elif not (isinstance(annotation, type) and issubclass(annotation, StrictModel)):
        for inner in get_args(annotation):
            yield from schemas_in(inner)
    elif "package" in vars(annotation):
        yield from variants.settings_classes(annotation).values()
    else:
        yield annotation


@cache
def all_schemas() -> frozenset[type[StrictModel]]:
    """List the schemas of everything that YAML files may hold."""
    found, new = set[type[StrictModel]](), list(ROOTS)
    while new:
        schema = new.pop()
        if schema not in found:
            found.add(schema)
            new += [inner for field in schema.model_fields.values() for inner in schemas_in(field.annotation)]
    return frozenset(found)


def variant_name(schema: type[StrictModel]) -> str | None:
    """Return the name by which YAML selects a variant; None for any other schema."""
    if not issubclass(schema, VariantSettings):
        return None
    module = sys.modules.get(schema.__module__)
    return Path(module.__file__).stem if module and module.__file__ else schema.__module__.rpartition(".")[2]


@cache
def all_words() -> frozenset[str]:
    """List keys, names of variants, and the words that keys accept."""
    words = {key for schema in all_schemas() for key in schema.model_fields}
    words |= {name for schema in all_schemas() if (name := variant_name(schema))}
    return frozenset(words.union(*(literals(f.annotation) for s in all_schemas() for f in s.model_fields.values())))


def literals(annotation: Any) -> set[str]:
    if get_origin(annotation) is Literal:
        return {*map(str, get_args(annotation))}
    return {word for inner in get_args(annotation) for word in literals(inner)}


def leads(schemas: Iterable[type[StrictModel]], keys: list[str]) -> bool:
    """Tell if keys lead from one of some schemas to a value, each key one level deeper."""
    fields = [schema.model_fields[keys[0]] for schema in schemas if keys and keys[0] in schema.model_fields]
    return not keys or any(is_mapping(field) or leads(schemas_in(field.annotation), keys[1:]) for field in fields)


def is_mapping(field: FieldInfo) -> bool:
    """Tell if the keys of a field's value are any."""
    return get_origin(field.annotation) is dict


def fits(value: Any, schemas: Collection[type[StrictModel]]) -> bool:
    """Tell if the keys of a value, at any depth, are those of one of some schemas."""
    if isinstance(value, list):
        return all(fits(item, schemas) for item in value)
    return not (isinstance(value, dict) and schemas) or any(_takes(schema, value) for schema in schemas)


def _takes(schema: type[StrictModel], value: dict[str, Any]) -> bool:
    name = variant_name(schema)
    return name in (None, value.get("name", name)) and all(_has(schema, *item) for item in value.items())


def _has(schema: type[StrictModel], key: str, value: Any) -> bool:
    field = schema.model_fields.get(key)
    inner = (*schemas_in(field.annotation),) if field else ()
    return field is not None and fits([*value.values()] if is_mapping(field) else value, inner)


def wrong_keys(text: str) -> set[str]:
    """List the keys with dots in a text that lead nowhere."""
    first = {key for root in ROOTS[:2] for key in root.model_fields}
    found = {name: re.sub(r"\[[^]]*\]", "", name).split(".") for name in DOTTED.findall(text)}
    keys = {name: parts for name, parts in found.items() if parts[0] in first and parts[-1] not in FILES}
    return {name for name, parts in keys.items() if not leads(ROOTS, parts)}


def wrong_mappings(text: str, own: set[str]) -> set[str]:
    """List the mappings in a text, such as {name: flip}, that no schema accepts, and no variant of its reader."""
    return {found for found in MAPPING.findall(text) if not accepted(found, own)}


def accepted(text: str, own: set[str]) -> bool:
    """Tell if YAML is accepted by a schema; `own` are names of variants that readers write."""
    value = yaml.safe_load(text.replace("...", "x"))
    return fits(value, all_schemas()) or any(re.search(rf"\bname: {name}\b", text) for name in own)
