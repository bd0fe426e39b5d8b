"""Meaning of the columns of a data set: images, classes and captions, by its features or by their types."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from hpcddm.config.sources import AUTO
from hpcddm.errors import UserError, require
from hpcddm.sources.parquet.row_files import ColumnRoles

CAPTIONS = ("caption", "text", "prompt", "captions", "texts", "prompts", "sentences")
"""Usual names of columns of captions."""
WITHOUT_BYTES = "struct<bytes: null"
"""Beginning of the type of images that have only paths."""
ADVICE_FOR_ADDRESSES = "fetch the images, for instance with img2dataset, and take webdataset"


class ColumnKeys(NamedTuple):
    """Keys of `data.source` that name columns; `AUTO` for one to be found, None for none.

    image, label, caption, key: columns of the images, classes, captions and keys; without the last, rows are numbered;
    caption_item: number of the caption to take of a list.
    """

    image: str = AUTO
    label: str | None = AUTO
    caption: str | None = AUTO
    caption_item: int | None = None
    key: str | None = None


def find_roles(path: Path, schema: Any, features: Mapping[str, Any], keys: ColumnKeys) -> ColumnRoles:
    """Find out what the columns of a data set mean.

    Args:
        path: One of its files, for errors.
        schema: Arrow schema of that file.
        features: Descriptions of the columns by `datasets`; empty for files that others wrote.
        keys: What the experiment says of the columns.

    Raises:
        UserError: A column is missing, ambiguous or of another type. The message names the file and the key.
    """
    repeated = next((name for name in schema.names if schema.names.count(name) > 1), None)
    require(repeated is None, f"{path}: has two columns called {repeated}; write it again with one of them")
    image, label, caption, item, key = keys
    if image == AUTO:
        image = _only(path, "image", "images", image_columns(schema, features)) or _refuse_images(path, schema)
    if caption == AUTO:
        caption = _only(path, "caption", "captions", list(caption_columns(schema)), ", or null")
    if label == AUTO:
        label = _only(path, "label", "classes", label_columns(schema, features))
    for role, column in (("image", image), ("label", label), ("key", key)):
        if column is not None and (column not in schema.names or "." in column):
            raise _missing(path, role, column, schema)
    is_struct = _is_struct(schema.field(image).type)
    if not (is_struct or _is_binary(schema.field(image).type)):
        raise _not_images(path, schema, image)
    kind = None if label is None else schema.field(label).type
    if kind is not None and not (_is_integer(kind) or is_text(kind)):
        valid = "classes are whole numbers or texts; name another column, or null"
        raise UserError(f"data.source.label: {path}: column {label} has the type {kind}; {valid}")
    if key is not None and not is_text(schema.field(key).type):
        valid = "keys are texts; name another column, or leave the key out to number the rows"
        raise UserError(f"data.source.key: {path}: column {key} has the type {schema.field(key).type}; {valid}")
    if caption is not None:
        _check_caption(path, schema, caption, item)
    return ColumnRoles(image, is_struct, label, caption, item, key)


def _only(path: Path, role: str, what: str, names: Sequence[str], advice: str = "") -> str | None:
    """Return the only column that may have a role, None without one; raise `UserError` for several."""
    if len(names) > 1:
        several = f"several columns of {what}, {', '.join(names)}; name one{advice}"
        raise UserError(f"data.source.{role}: {path} has {several}")
    return names[0] if names else None


def _missing(path: Path, role: str, column: str, schema: Any) -> UserError:
    has = f"it has {', '.join(schema.names)}"
    if column in schema.names:
        return UserError(
            f"data.source.{role}: {path}: the name of column {column} has a dot; write it with another name"
        )
    return UserError(f"data.source.{role}: {path} has no column {column}; {has}")


def _check_caption(path: Path, schema: Any, caption: str, item: int | None) -> None:
    """Raise `UserError` for a column, or a field inside it, that is missing or does not have one caption."""
    first, *fields = caption.split(".")
    if first not in schema.names:
        raise _missing(path, "caption", caption, schema)
    kind = schema.field(first).type
    if item is None and _is_list(kind):
        number = "data.source.caption_item names the one to take, 0 the first"
        raise UserError(f"data.source.caption: {path}: column {caption} has lists of captions; {number}")
    for name in fields:
        while _is_list(kind):
            kind = kind.value_type
        inner = {own.name: own.type for own in kind} if str(kind).startswith("struct<") else {}
        if name not in inner:
            raise UserError(
                f"data.source.caption: {path}: {caption}: {kind} has no field {name}; name another one, or null"
            )
        kind = inner[name]
    if not _has_texts(kind) and str(kind) != "null":
        valid = "captions are texts; name another column, or null"
        raise UserError(f"data.source.caption: {path}: {caption} has the type {kind}; {valid}")


def class_names_of(features: Mapping[str, Any], label: str | None) -> list[str]:
    """Return the names of a ClassLabel; empty for a column without names."""
    feature = features.get(label) if label is not None else None
    names = feature.get("names") if isinstance(feature, dict) else None
    return [str(name) for name in names] if isinstance(names, list) else []


def scalar_columns(schema: Any) -> frozenset[str]:
    """Return the names of the columns that a filter can use: numbers, texts and truth values."""
    return frozenset(
        field.name for field in schema if not _is_list(field.type) and not _is_nested_or_binary(field.type)
    )


def image_columns(schema: Any, features: Mapping[str, Any]) -> list[str]:
    """List the columns that may have the images: those described as images, else structs with bytes, else bytes."""
    described = [name for name in schema.names if _type_of(features.get(name)) == "Image"]
    structs = [field.name for field in schema if _is_struct(field.type)]
    return described or structs or [field.name for field in schema if _is_binary(field.type)]


def label_columns(schema: Any, features: Mapping[str, Any]) -> list[str]:
    """List the columns that may have the classes: those described as such, else the one called `label`."""
    described = [name for name in schema.names if _type_of(features.get(name)) == "ClassLabel"]
    return described or [name for name in schema.names if name == "label"]


def caption_columns(schema: Any) -> dict[str, bool]:
    """Return the columns that may have the captions, each with True if it has lists of them."""
    usual = [name for name in schema.names if name in CAPTIONS and _has_texts(schema.field(name).type)]
    return {name: _is_list(schema.field(name).type) for name in usual}


def _refuse_images(path: Path, schema: Any) -> NoReturn:
    """Raise `UserError` naming a column that only says where the images are, or all columns."""
    pathless = [field.name for field in schema if str(field.type).startswith(WITHOUT_BYTES)]
    texts = [field.name for field in schema if "url" in field.name.lower() or field.name in ("image", "path")]
    raise _not_images(path, schema, next(iter([*pathless, *texts]), None))


def _not_images(path: Path, schema: Any, column: str | None) -> UserError:
    kind = None if column is None else schema.field(column).type
    if kind is not None and is_text(kind):
        advice = f"of addresses or paths, {ADVICE_FOR_ADDRESSES}; of base64, decode it into a column of bytes"
        return UserError(f"data.source.image: {path}: column {column} has texts and not the bytes of images; {advice}")
    if kind is not None and str(kind).startswith(WITHOUT_BYTES):
        reason = f"column {column} has the paths of images and not the images"
        return UserError(f"data.source.image: {path}: {reason}; {ADVICE_FOR_ADDRESSES}")
    if column is not None:
        return UserError(f"data.source.image: {path}: column {column} has the type {kind}, not bytes")
    columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
    return UserError(f"data.source.image: {path} has no column of images; it has {columns}")


def _type_of(feature: Any) -> str | None:
    return feature.get("_type") if isinstance(feature, dict) else None


def _is_struct(kind: Any) -> bool:
    return str(kind).startswith("struct<") and any(own.name == "bytes" and _is_binary(own.type) for own in kind)


def _is_binary(kind: Any) -> bool:
    return str(kind) in ("binary", "large_binary", "binary_view")


def _is_integer(kind: Any) -> bool:
    return str(kind).lstrip("u").startswith("int")


def _is_list(kind: Any) -> bool:
    return str(kind).startswith(("list<", "large_list<", "fixed_size_list<", "list_view<"))


def is_text(kind: Any) -> bool:
    """Tell if a type is that of texts, which may be stored by a dictionary."""
    texts = ("string", "large_string", "string_view")
    return str(kind).startswith(tuple(f"dictionary<values={text}," for text in texts)) or str(kind) in texts


def _has_texts(kind: Any) -> bool:
    return is_text(kind) or (_is_list(kind) and _has_texts(kind.value_type))


def _is_nested_or_binary(kind: Any) -> bool:
    return str(kind).startswith(("struct<", "map<")) or _is_binary(kind)
