"""Meaning of the columns of a data set: images, classes and captions, by its features or by their types."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcddm.config.sources import AUTO
from hpcddm.errors import UserError
from hpcddm.sources.parquet.row_files import ColumnRoles

CAPTIONS = ("caption", "text", "prompt", "captions", "texts", "prompts", "sentences")
"""Usual names of columns of captions."""
WITHOUT_BYTES = "struct<bytes: null"
"""Beginning of the type of images that have only paths."""
ADVICE_FOR_ADDRESSES = "fetch the images, for instance with img2dataset, and take webdataset"


def find_roles(
    path: Path,
    schema: Any,
    features: Mapping[str, Any],
    image: str,
    label: str | None,
    caption: str | None,
    caption_item: int | None,
    key: str | None,
) -> ColumnRoles:
    """Find out what the columns of a data set mean.

    Args:
        path: One of its files, for errors.
        schema: Arrow schema of that file.
        features: Descriptions of the columns by `datasets`; empty for files that others wrote.
        image: Column of the images, or 'auto'.
        label: Column of the classes, or 'auto'; None for none.
        caption: Column of the captions, or 'auto'; None for none.
        caption_item: Number of the caption to take of a list.
        key: Column of the keys; None to number the rows.

    Raises:
        UserError: A column is missing, ambiguous or of another type. The message names the file and the key.
    """
    repeated = next((name for name in schema.names if schema.names.count(name) > 1), None)
    if repeated is not None:
        raise UserError(f"{path}: has two columns called {repeated}; write it again with one of them")
    chosen = _image(path, schema, features) if image == AUTO else image
    own_caption = _caption(path, schema) if caption == AUTO else caption
    own_label = _label(path, schema, features) if label == AUTO else label
    for role, column in (("image", chosen), ("label", own_label), ("key", key)):
        if column is not None and (column not in schema.names or "." in column):
            raise _missing(path, role, column, schema)
    if not (_is_struct(schema.field(chosen).type) or _is_binary(schema.field(chosen).type)):
        raise _not_images(path, schema, chosen)
    kind = None if own_label is None else schema.field(own_label).type
    if kind is not None and not (_is_integer(kind) or is_text(kind)):
        valid = "classes are whole numbers or texts; name another column, or null"
        raise UserError(f"data.source.label: {path}: column {own_label} has the type {kind}; {valid}")
    if key is not None and not is_text(schema.field(key).type):
        valid = "keys are texts; name another column, or leave the key out to number the rows"
        raise UserError(f"data.source.key: {path}: column {key} has the type {schema.field(key).type}; {valid}")
    if own_caption is not None:
        _check_caption(path, schema, own_caption, caption_item)
    return ColumnRoles(chosen, _is_struct(schema.field(chosen).type), own_label, own_caption, caption_item, key)


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


def _image(path: Path, schema: Any, features: Mapping[str, Any]) -> str:
    names = image_columns(schema, features)
    if len(names) > 1:
        raise UserError(f"data.source.image: {path} has several columns of images, {', '.join(names)}; name one")
    if names:
        return names[0]
    pathless = [field.name for field in schema if str(field.type).startswith(WITHOUT_BYTES)]
    if pathless:
        raise _not_images(path, schema, pathless[0])
    texts = [field.name for field in schema if "url" in field.name.lower() or field.name in ("image", "path")]
    raise _not_images(path, schema, texts[0] if texts else None)


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


def _label(path: Path, schema: Any, features: Mapping[str, Any]) -> str | None:
    names = label_columns(schema, features)
    if len(names) > 1:
        raise UserError(f"data.source.label: {path} has several columns of classes, {', '.join(names)}; name one")
    return names[0] if names else None


def _caption(path: Path, schema: Any) -> str | None:
    usual = list(caption_columns(schema))
    if len(usual) > 1:
        raise UserError(
            f"data.source.caption: {path} has several columns of captions, {', '.join(usual)}; name one, or null"
        )
    return usual[0] if usual else None


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
