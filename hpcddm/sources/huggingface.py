"""Data sets of Hugging Face that are read where they are: parquet files, and the Arrow files of `save_to_disk`.

A row is a sample. Columns of images, classes and captions are found by the features that `datasets` stores in the
files, or by their types. The key of a row is the name of its file and its number, unless a column holds the keys; it
stays the same when files are added behind. Images that are only named by an address or a path are refused.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import ClassVar

from pydantic import NonNegativeInt

from hpcddm.config import class_names
from hpcddm.config.schema import PathSetting
from hpcddm.config.sources import AUTO, HeldoutSplit, SourceSettings
from hpcddm.data import image_decoding
from hpcddm.data.image_decoding import ImageError
from hpcddm.data.row_groups import readable
from hpcddm.data.sample_file import size_and_mtime
from hpcddm.data.tars.record import Record
from hpcddm.errors import UserError, require
from hpcddm.runs.passed_over import PassedOverItem
from hpcddm.sources import huggingface_proposals
from hpcddm.sources.base import KNOWN, SPLITS, InPlaceSource, Split
from hpcddm.sources.folders.proposal import SourceProposal
from hpcddm.sources.folders.survey import FolderSurvey
from hpcddm.sources.heldout_share import is_of_split, share_of
from hpcddm.sources.huggingface_columns import ColumnKeys, class_names_of, find_roles, is_text, scalar_columns
from hpcddm.sources.huggingface_files import DataFiles, features_in, features_of, find_files, split_name
from hpcddm.sources.parquet.row_files import RowFile, require_columns
from hpcddm.sources.source_files import UnusableSample

MAX_CLASSES = 10_000
"""Most classes whose labels are texts."""
HELDOUT_SPLITS = ("validation", "test")
"""Splits that are held out unless a key names another one."""


class HuggingFaceSettings(SourceSettings):
    """Folder of a data set, which of its files, and what its columns are."""

    uses_existing_tars: ClassVar[bool] = True
    not_hashed: ClassVar[frozenset[str]] = frozenset({"hash_files"})
    hashed_if_changed: ClassVar[frozenset[str]] = frozenset({"collection"})

    folder: PathSetting
    files: str | None = None
    """Pattern of the files' paths in the folder, such as `en/*.parquet`; by default all, and none may be missing."""
    train: str = "train"
    """Split of the training samples."""
    heldout: HeldoutSplit | None = None
    """By default the split `validation`, or else `test`."""
    image: str = AUTO
    """Column of the images; `auto` takes the only one."""
    label: str | None = AUTO
    """Column of the classes; `auto` takes the only ClassLabel, null none."""
    caption: str | None = AUTO
    """Column of the captions, such as `text` or `sentences.raw`; `auto` takes the only usual one, null none."""
    caption_item: NonNegativeInt | None = None
    """Number of the caption to take of a column of lists, 0 for the first."""
    key: str | None = None
    """Column of unique texts that are the keys of the samples."""

    def source_folders(self) -> dict[str | None, Path]:
        """Return the folder of the files."""
        return {self.collection: Path(self.folder)}


class RowSplit(Split):
    """Rows of one split.

    files: those that have the split's rows; share: the part of their rows that is of the split; class_names, known: of
    the columns.
    """

    is_exact = False
    labels = None

    def __init__(
        self, files: Sequence[RowFile], share: float, class_names: list[str], beside: list[PassedOverItem]
    ) -> None:
        self.class_names, self.passed_over, self.tar_count = class_names, beside, len(files)
        self._files, self._share = files, share
        self._ends = list(accumulate(file.row_count for file in files))
        self._roles = files[0].roles
        self.known = KNOWN | scalar_columns(features_of(files[0].path, {})[0])
        self.has_captions = self._roles.caption is not None
        if self._ends[-1] == 0:
            raise UserError(f"{files[0].path}: no rows, nor in the other files of its split; fetch the data set again")

    @property
    def has_labels(self) -> bool:
        return self._roles.label is not None

    def __len__(self) -> int:
        """Return the number of rows; of a share, the number to be expected."""
        return max(round(self._ends[-1] * self._share), 1)

    def keys(self, prefix: str, tars: int) -> list[str]:
        """List the keys of the first file's rows, or of more files; they have the prefix already."""
        spread = self._files[:: max(-(-len(self._files) // tars), 1)]
        keys = (f"{file.prefix}{key}" for file in spread for key in file.keys() if key)
        return [key for key in keys if self._files[0].is_of_split(key)]

    def __getitem__(self, number: int) -> Record:
        """Read a row, whatever its split where a share of the rows is held out."""
        row_number = int(number / self._share) if self._share < 1 else number
        place = bisect_right(self._ends, row_number)
        file = self._files[place]
        row = next(file.rows(file.roles.others, row_number - (self._ends[place - 1] if place else 0)))
        try:
            image = image_decoding.read_image(file.content_of(row))
            return Record(file.key_of(row), image, file.label(row), file.caption(row))
        except (UnusableSample, ImageError) as error:
            advice = "mend it, or choose other files and columns as keys of data.source"
            raise ImageError(f"{file.path}: row {row.number}: {error}; {advice}") from None


class HuggingFace(InPlaceSource[HuggingFaceSettings]):
    """Files in the order of their names."""

    @classmethod
    def propose(cls, survey: FolderSurvey) -> list[SourceProposal]:
        return huggingface_proposals.propose(survey, HELDOUT_SPLITS)

    def open_split(self, split: str) -> RowSplit:
        self._check_columns(split)
        beside = self.unused_files() if split == "train" else []
        return RowSplit(self.tars(split), share_of(split, self._share), self.class_names(), beside)

    def has_heldout(self) -> bool:
        """Tell if a key names held-out rows, or there are several splits."""
        return bool(self.settings.heldout) or len(self._files.splits) > 1

    def tars(self, split: str) -> Sequence[RowFile]:
        files = self._open(split)
        texts = self._class_texts
        return [replace(file, roles=file.roles._replace(class_texts=texts)) for file in files] if texts else files

    @cached_property
    def _class_texts(self) -> tuple[str, ...]:
        """Classes in their order where the label is a text; empty for other labels."""
        for split in SPLITS:
            self._check_columns(split)
        files = [file for split in SPLITS for file in self._open(split)]
        label = files[0].roles.label
        if label is None or not is_text(features_of(files[0].path, {})[0].field(label).type):
            return ()
        found: set[str | None] = set()
        for file in dict.fromkeys(files):
            with readable(file.path):
                found.update(file.column(label).unique().to_pylist())
        classes = sorted(value for value in found if value is not None)
        require(
            len(classes) <= MAX_CLASSES,
            f"data.source.label: {self.settings.folder}: {len(classes):,} different texts in {label} are not classes;"
            " name another column, or null",
        )
        try:
            class_names.checked_names(classes)
        except ValueError as error:
            advice = f"mend the texts in {label}, or name another column, or null"
            raise UserError(f"data.source.label: {self.settings.folder}: {error}; {advice}") from None
        return tuple(classes)

    def _check_columns(self, split: str) -> None:
        """Raise `UserError` for a file that lacks a column, or gives the numbers of the classes another meaning."""
        first = self._open("train")[0]
        for file in self._open(split):
            require_columns(file, [file.roles.image, *file.roles.others], file.schema.names)
            kind = file.schema.field(file.roles.image).type
            if str(kind).startswith("struct<") != file.roles.is_struct:
                advice = "leave it out by data.source.files, or write it as the other files"
                raise UserError(f"{file.path}: column {file.roles.image} has another type, {kind}; {advice}")
            if first.roles.label is None or file.roles.label is None:
                continue
            (are_texts, names), (are_texts_here, names_here) = map(self._classes_of, (first, file))
            if are_texts != are_texts_here or (names and names_here and names != names_here):
                advice = "name files with the same classes by data.source.files, or set data.source.label: null"
                raise UserError(
                    f"{file.path}: column {file.roles.label} has other classes than in {first.path}; {advice}"
                )

    def _classes_of(self, file: RowFile) -> tuple[bool, list[str]]:
        """Tell if the classes of a file are texts, and return the names of its ClassLabel."""
        schema, label = file.schema, str(file.roles.label)
        return is_text(schema.field(label).type), class_names_of(features_in(schema, self._files.features), label)

    def _open(self, split: str) -> list[RowFile]:
        own, prefix, folder = self.settings, self.prefix, Path(self.settings.folder)
        parts = self._files.splits[self._name_of(split)]
        schema, features = features_of(parts[0].path, self._files.features)
        keys = ColumnKeys(own.image, own.label, own.caption, own.caption_item, own.key)
        roles = find_roles(parts[0].path, schema, features, keys)
        is_of = partial(is_of_split, split, self._share)
        return [part.kind(part.path, prefix, is_of, False, folder, own.collection, roles, part.stem) for part in parts]

    def class_names(self) -> list[str]:
        path = self._files.splits[self._name_of("train")][0].path
        if self._class_texts:
            return list(self._class_texts)
        _, features = features_of(path, self._files.features)
        return class_names_of(features, self.tars("train")[0].roles.label)

    def unused_files(self) -> list[PassedOverItem]:
        """List the files beside those of the splits, and the splits that are not used."""
        used = {self._name_of(split) for split in SPLITS}
        others = [split for split in self._files.splits if split not in used]
        return [*self._files.beside, *(PassedOverItem(split, "splits that are not used") for split in others)]

    def content_hash(self) -> str:
        """Hash path, size and time of the last change of every file; their digest would take hours."""
        paths = [part.path for split in SPLITS for part in self._files.splits[self._name_of(split)]]
        folder = self.settings.folder
        seen = [(path.relative_to(folder).as_posix(), *size_and_mtime(path)) for path in dict.fromkeys(paths)]
        return hashlib.sha256(repr(seen).encode()).hexdigest()

    @cached_property
    def _files(self) -> DataFiles:
        return find_files(Path(self.settings.folder), self.settings.files)

    def _name_of(self, split: str) -> str:
        """Return the data set's name of a split; raises `UserError` for one that it lacks."""
        own, present = self.settings, self._files.splits
        if split == "train" or self._share is not None:
            key, names = "train", [split_name(own.train)]
        elif own.heldout is not None:
            key, names = "heldout.split", [split_name(str(own.heldout.split))]
        else:
            key, names = "heldout", list(HELDOUT_SPLITS)
        found = next((name for name in names if name in present), None)
        if found is None:
            advice = "name one of these" if key != "heldout" else "name one as heldout.split, or a heldout.share of all"
            raise UserError(
                f"data.source.{key}: {own.folder} has no split {' or '.join(names)}, but {', '.join(present)}; {advice}"
            )
        if split == "heldout" and key != "train" and found == split_name(own.train):
            raise UserError(f"data.source.{key}: {found} is the split of the training samples; name another one")
        return found

    @property
    def _share(self) -> float | None:
        return self.settings.heldout.share if self.settings.heldout else None
