"""Files of a Hugging Face data set by split, and the features that they describe.

The names are those of `datasets`: `data/train-00000-of-00042.parquet` of the hub, `train/0000.parquet` of its
conversions, and the folders of `save_to_disk`, in which `state.json` lists the files.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from hpcddm.data.row_groups import open_parquet
from hpcddm.errors import UserError, require
from hpcddm.files import checked_reads
from hpcddm.files.checked_reads import Unreadable
from hpcddm.runs.passed_over import PassedOverItem, escape_name
from hpcddm.sources.listing import folders_below, is_hidden_or_junk, require_folder, split_pattern
from hpcddm.sources.parquet.arrow_files import ArrowFile, read_schema
from hpcddm.sources.parquet.parquet_files import ParquetFile
from hpcddm.sources.parquet.row_files import RowFile

FORMATS: dict[str, type[RowFile]] = {".parquet": ParquetFile, ".arrow": ArrowFile}
"""Kinds of files by their extensions."""
PART = re.compile(r"(?P<name>.+?)-(?P<number>\d{5})-of-(?P<total>\d{5})(?:-[0-9a-f]+)?")
"""Name of one of several files, without its extension."""
SPLITS = {"train": "train", "training": "train", "validation": "validation", "valid": "validation"}
SPLITS |= {"val": "validation", "dev": "validation", "test": "test", "testing": "test"}
SPLITS |= {"eval": "test", "evaluation": "test"}
"""Splits by the words that `datasets` looks for in the names of files and folders."""
DESCRIPTIONS = frozenset({"dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json", "README.md"})
DESCRIPTIONS |= {".gitattributes"}
"""Files beside the data that describe them."""
SPLIT_NAME = re.compile(r"\w+(\.\w+)*")
"""Names of splits, as `datasets` has them."""
ALL_FOLDERS = "**/*"
"""Beginning of a pattern for the files of all folders."""
ONE_SET = "name one set by data.source.folder, or by a pattern as data.source.files"
"""Advice for files of several data sets."""
UNNAMED = "files without the name of a split, as others have one; data.source.files names them"
"""Reason for which such a file is passed over: nothing says that it belongs to the training split."""
CACHE = "cache-"
"""Beginning of the names of files in which `datasets` keeps intermediate results."""


class Part(NamedTuple):
    """One file of a split; stem: its name without the number of all files, which changes when some are added."""

    path: Path
    stem: str

    @property
    def kind(self) -> type[RowFile]:
        """Class of the file by its extension."""
        return FORMATS[self.path.suffix.lower()]


@dataclass(frozen=True)
class DataFiles:
    """Files of a data set.

    splits: files by the name of their split; beside: the other files in the folder; features: description of the
    columns in a `dataset_info.json`.
    """

    splits: Mapping[str, Sequence[Part]]
    beside: list[PassedOverItem] = field(default_factory=list)
    features: Mapping[str, Any] = field(default_factory=dict)


def find_files(folder: Path, pattern: str | None) -> DataFiles:
    """Find the files of a data set in a folder and below it.

    Args:
        folder: Folder of the data set.
        pattern: Pattern of the paths of its files; None for all of one format, which must be complete.

    Raises:
        UserError: No file, or an incomplete or ambiguous set of files. The message names the folder and the files.
    """
    require_folder("folder", folder)
    there = [
        path for place in folders_below(folder) for path in place.iterdir() if not _is_hidden(path.relative_to(folder))
    ]
    # A link that leads nowhere is a file that is lost.
    every = sorted(path for path in there if path.is_file() or (path.is_symlink() and not path.exists()))
    return arrange_files(folder, every, pattern)


def arrange_files(folder: Path, every: Sequence[Path], pattern: str | None) -> DataFiles:
    """Arrange the files of a data set by their splits; every: all files, in order; otherwise as `find_files`."""
    chosen = [path for path in every if path.suffix.lower() in FORMATS and not path.name.startswith(CACHE)]
    if pattern is not None:
        fitting = _fitting(folder, pattern)
        chosen = [path for path in chosen if path in fitting]
    lost = next((path for path in chosen if not path.exists()), None)
    require(lost is None, f"{lost}: a link that leads nowhere; fetch the file again, or remove the link")
    if not chosen:
        what = f"no parquet or Arrow file fits {pattern}" if pattern else "no parquet or Arrow files"
        raise UserError(f"data.source.folder: {folder} has {what}; it has {_some(every, folder)}")
    chosen, strays = _saved(chosen)
    require(bool(chosen), f"data.source.folder: {folder}: its state.json lists no files; copy the data set again")
    found = {path: _split_of(path, folder) for path in chosen}
    unnamed = [path for path, split in found.items() if split is None] if any(found.values()) else []
    splits: dict[str, list[Part]] = {}
    for path, split in found.items():
        if path not in unnamed:
            splits.setdefault(split or "train", []).append(Part(path, _stem(path, folder)))
    for split, parts in splits.items():
        _check_one_set(folder, split, [part.path for part in parts], pattern)
        if pattern is None:
            _check_complete(folder, split, [part.path for part in parts])
    used = {*chosen, *(path for path in every if path.name in DESCRIPTIONS)}
    beside = [] if pattern else [_item(path, folder, path in strays) for path in every if path not in used]
    beside += [PassedOverItem(escape_name(path.relative_to(folder).as_posix()), UNNAMED) for path in unnamed]
    return DataFiles(splits, beside, _described_features(chosen[0]))


def _fitting(folder: Path, pattern: str) -> set[Path]:
    try:
        return set(folder.glob("/".join(split_pattern(pattern))))
    except (ValueError, NotImplementedError) as error:
        advice = "write paths relative to the folder, such as en/*.parquet"
        raise UserError(f"data.source.files: {pattern!r} is not a pattern ({error}); {advice}") from None


def split_name(name: str) -> str:
    """Return the name of a split as `datasets` knows it, such as 'validation' for 'val'."""
    return SPLITS.get(name.lower(), name)


def split_in_path(path: PurePath) -> str | None:
    """Return the split that the last known word says in the name of a file, or of a folder above it; None without one.

    Args:
        path: Path in the folder of the data set.
    """
    part = PART.fullmatch(path.stem)
    places = [part["name"] if part else path.stem, *reversed(path.parent.parts)]
    words = [word for place in places for word in reversed(re.split(r"[^a-z]+", place.lower()))]
    return next((SPLITS[word] for word in words if word in SPLITS), None)


def features_of(path: Path, described: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """Return the Arrow schema of a file, and the features that its metadata or `dataset_info.json` describe.

    Args:
        path: A parquet or Arrow file.
        described: Features from a `dataset_info.json`.

    Raises:
        UserError: The file is damaged; the message names it.
    """
    schema = open_parquet(path).schema_arrow if path.suffix.lower() == ".parquet" else read_schema(path)
    return schema, features_in(schema, described)


def features_in(schema: Any, described: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the features that the metadata of a schema describe, without them those from a `dataset_info.json`."""
    stored = (schema.metadata or {}).get(b"huggingface")
    try:
        features = json.loads(stored)["info"]["features"] if stored else described
    except (ValueError, KeyError, TypeError):
        features = described
    return features if isinstance(features, Mapping) else {}


def _saved(files: list[Path]) -> tuple[list[Path], set[Path]]:
    """Return the files that a `state.json` beside them lists, where there is one, and those that it omits.

    Raises `UserError` for one that is missing.
    """
    chosen, omitted = [], set()
    for parent in dict.fromkeys(path.parent for path in files):
        own = [path for path in files if path.parent == parent]
        state = _json(parent / "state.json")
        listed = state.get("_data_files")
        if isinstance(listed, list):
            names = [str(entry.get("filename")) for entry in listed if isinstance(entry, dict)]
            missing = next((name for name in names if parent / name not in own), None)
            require(missing is None, f"{parent}: {missing} of state.json is missing; copy the data set again")
            chosen += [parent / name for name in names]
            omitted |= {path for path in own if path.name not in names}
        else:
            chosen += own
    return chosen, omitted


def _split_of(path: Path, folder: Path) -> str | None:
    """Return the split that a file's description says, else the name before its number, else a word; or None."""
    state = _json(path.parent / "state.json")
    if "_data_files" in state:
        is_one_of_several = (path.parent.parent / "dataset_dict.json").is_file()
        return split_name(path.parent.name) if is_one_of_several else split_name(str(state.get("_split") or "train"))
    part, word = PART.fullmatch(path.stem), split_in_path(path.relative_to(folder))
    # A name such as `part` leaves the folder to say which split it is, and `cifar10-train` the word.
    is_whole = part and (SPLIT_NAME.fullmatch(part["name"]) or not word)
    is_named = is_whole and (split_in_path(PurePath(path.name)) or not word)
    return split_name(part["name"]) if part and is_named else word


def _stem(path: Path, folder: Path) -> str:
    """Return the part of the keys that names the file: without the number of all files, and without dots."""
    part = PART.fullmatch(path.stem)
    name = f"{part['name']}-{part['number']}" if part else path.stem
    return (path.relative_to(folder).parent / name).as_posix().replace(".", "_")


def _check_one_set(folder: Path, split: str, paths: Sequence[Path], pattern: str | None) -> None:
    """Raise `UserError` where a split has files of two data sets, of two formats or of two versions.

    Files of one name in two folders may be two data sets, unless a pattern says that they are one.
    """
    other_format = next((path for path in paths if path.suffix.lower() != paths[0].suffix.lower()), None)
    if other_format is not None:
        raise _two_sets(folder, split, paths[0], other_format)
    names: dict[str, Path] = {}
    for path in paths:
        name = _stem(path, path.parent if pattern is None else folder)
        other = names.setdefault(name, path)
        if other != path:
            raise _two_sets(folder, split, other, path, f"; '{ALL_FOLDERS}{path.suffix}' takes all as one")


def _two_sets(folder: Path, split: str, first: Path, second: Path, advice: str = "") -> UserError:
    both = f"{first.relative_to(folder)} and {second.relative_to(folder)} are both of the split {split}"
    return UserError(f"data.source.folder: {folder}: {both}; {ONE_SET}{advice}")


def _check_complete(folder: Path, split: str, paths: Sequence[Path]) -> None:
    """Raise `UserError` for a file beside a numbered set, or naming the first of such a set that is missing."""
    numbered = [path for path in paths if PART.fullmatch(path.stem)]
    if numbered and len(numbered) < len(paths):
        raise _two_sets(folder, split, numbered[0], next(path for path in paths if path not in numbered))
    numbers: dict[tuple[Path, str, int], set[int]] = {}
    for path in paths:
        part = PART.fullmatch(path.stem)
        if part:
            numbers.setdefault((path.parent, part["name"], int(part["total"])), set()).add(int(part["number"]))
    for (parent, name, total), present in numbers.items():
        missing = sorted(set(range(total)) - present)
        if missing:
            first = f"{parent / name}-{missing[0]:05d}-of-{total:05d}{paths[0].suffix}"
            advice = "fetch it, or name the files that are meant by a pattern as data.source.files"
            raise UserError(
                f"data.source.folder: {folder}: {len(present)} of {total} files of the split {split} are here;"
                f" {first} is missing; {advice}"
            )


def _described_features(path: Path) -> Mapping[str, Any]:
    features = _json(path.parent / "dataset_info.json").get("features")
    return features if isinstance(features, dict) else {}


def _json(path: Path) -> dict[str, Any]:
    """Read a description; empty for a file that is missing or is not a JSON object."""
    try:
        # A snapshot of the hub's cache has links.
        values = json.loads(checked_reads.read_bytes(path, checked_reads.MANIFEST_BYTES, follows_links=True))
    except (OSError, Unreadable, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _item(path: Path, folder: Path, is_omitted: bool) -> PassedOverItem:
    name, extension = escape_name(path.relative_to(folder).as_posix()), escape_name(path.suffix.lower())
    if path.is_symlink() and not path.exists():
        return PassedOverItem(name, "links that lead nowhere")
    if path.name.startswith(CACHE):
        return PassedOverItem(name, "caches of datasets")
    if is_omitted:
        return PassedOverItem(name, "files that state.json does not list")
    return PassedOverItem(name, f"files {extension}" if extension else "files without extension")


def _some(paths: Sequence[Path], folder: Path) -> str:
    names = [path.relative_to(folder).as_posix() for path in paths[:3]]
    return f"{', '.join(names)}{', ...' * (len(paths) > len(names))}" if names else "no files"


def _is_hidden(path: Path) -> bool:
    return any(map(is_hidden_or_junk, path.parts))
