"""Captions of pictures in folders: in a file beside each picture, or in a table of all.

A file beside a picture has its name and another extension, as kohya, OneTrainer and SimpleTuner write them: pic.txt
belongs to pic.png. Tables are captions.csv, .jsonl or .parquet with the columns `file` and `caption`, and
metadata.csv, .jsonl or .parquet with the columns `file_name`, and `text` or `caption`, as Hugging Face's imagefolder
reads them.
"""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from hpcddm.data.image_decoding import ImageError
from hpcddm.errors import UserError, require
from hpcddm.files import checked_reads, text_files
from hpcddm.runs.passed_over import PassedOverItem, escape_name
from hpcddm.sources.listing import CaptionFiles
from hpcddm.sources.tables.tables import FORMATS, Table

EXTENSIONS = (".txt", ".caption")
"""Extensions of files beside pictures that may be captions where none is named."""
COLUMNS = {"captions": ("file", ("caption",)), "metadata": ("file_name", ("text", "caption"))}
"""Columns of tables by their names: the column with the files, and those that may have the captions."""
TABLES = [f"{stem}{end}" for stem in COLUMNS for end in FORMATS]
FROM_TABLE = "table:"
"""Beginning of the key `caption_from` for a column of a table."""
MAX_CAPTION_BYTES = 1 << 20
"""Largest size of a file with the caption of one picture."""


class CaptionTable(NamedTuple):
    """Table with captions.

    place: text before the names of a split's pictures in the table, such as 'train/' in one beside the splits' folders;
    other_columns: columns that are not read, as far as they are known.
    """

    path: Path
    file_column: str
    column: str
    place: str
    other_columns: list[str]

    def captions(self, names: Sequence[str], item: int | None) -> list[str | None]:
        """Return the captions of pictures, None where one is missing; raises `UserError` where no picture has one.

        item: number of the caption to take, where the column has lists.
        """
        opened = Table(self.path, self.file_column)
        captions = opened.texts(self.column, self._rows_of(names), partial(_pick_of_list, item))
        if names and all(caption is None for caption in captions):
            count = f"{len(names)} of {len(names)} lack one; the first file in the table is {opened.first_key()}"
            raise UserError(f"{self.path}: no caption of {self.place}{names[0]}; every image needs one, and {count}")
        return captions

    def passed_over(self, names: Sequence[str], other_place: str | None) -> list[PassedOverItem]:
        """List the rows without a picture, and the columns that are not read.

        other_place: beginning of the rows of the other split, which are not listed; with None, neither are rows that
        belong to no split.
        """
        rows = [
            row
            for row in Table(self.path, self.file_column).other_keys(self._rows_of(names))
            if row.startswith(self.place) or not (other_place is None or row.startswith(other_place))
        ]
        name, columns = self.path.name, self.other_columns
        return [
            *(PassedOverItem(escape_name(row), f"rows of {name} without an image") for row in rows),
            *(PassedOverItem(escape_name(column), f"columns of {name} that are not read") for column in columns),
        ]

    def _rows_of(self, names: Sequence[str]) -> Sequence[str]:
        return [f"{self.place}{name}" for name in names] if self.place else names


def find_table(
    places: dict[Path, str], caption_from: str | None, has_template: bool
) -> tuple[CaptionTable | None, list[Path]]:
    """Find the table of captions, and other tables of these names.

    Args:
        places: Folders that may have the table, with the text before the names of pictures in it.
        caption_from: The key `caption_from`.
        has_template: Whether the key `caption` has the captions, unless a table is named captions.

    Raises:
        UserError: Several tables or columns may have the captions, or none has the named column.
    """
    there = tables_in(places)
    tables: list[CaptionTable] = []
    if caption_from is None or caption_from.startswith(FROM_TABLE):
        named = caption_from and caption_from.removeprefix(FROM_TABLE)
        tables = [
            table
            for path, place in there.items()
            if named or path.stem == "captions" or not has_template
            if (table := _caption_table(path, place, named))
        ]
        if named and not tables:
            has = "; ".join(f"{path} has {', '.join(sorted(Table(path).column_names))}" for path in there)
            none = f"{' or '.join(map(str, places))} has none of {', '.join(TABLES)}"
            raise UserError(f"data.source.caption_from: {caption_from}: no table with this column; {has or none}")
    if len(tables) > 1:
        raise UserError(f"{tables[0].path} and {tables[1].path}: two tables of captions; remove one of them")
    table = tables[0] if tables else None
    return table, [path for path in there if table is None or path != table.path]


def tables_in(places: Mapping[Path, str]) -> dict[Path, str]:
    """Return the tables in some folders, with the text before the names of pictures in each."""
    return {folder / name: place for folder, place in places.items() for name in TABLES if (folder / name).is_file()}


def _caption_table(path: Path, place: str, named: str | None) -> CaptionTable | None:
    """Return a table with its column of captions; None for one without."""
    tables = caption_tables(path, place, named)
    if len(tables) > 1:
        columns = [table.column for table in tables]
        advice = " or ".join(f"{FROM_TABLE}{column}" for column in columns)
        both = f"the columns {' and '.join(columns)} may both have the captions"
        raise UserError(f"{path}: {both}; choose one with data.source.caption_from: {advice}")
    return tables[0] if tables else None


def caption_tables(path: Path, place: str, named: str | None = None) -> list[CaptionTable]:
    """List the columns of a table that may have the captions.

    place: as for `CaptionTable`; named: the only column that may. Raises `UserError` for an unreadable table.
    """
    file_column, candidates = COLUMNS[path.stem]
    if named is None and path.stem == "captions":
        # It can be nothing else: what it lacks is an error when it is read.
        return [CaptionTable(path, file_column, candidates[0], place, [])]
    names = Table(path).column_names
    columns = [column for column in ([named] if named else candidates) if column in names and file_column in names]
    return [CaptionTable(path, file_column, column, place, sorted(names - {file_column, column})) for column in columns]


def extensions(caption_from: str | None, has_template: bool) -> Sequence[str]:
    """Return the extensions of files beside pictures that may be captions; the arguments are those of `find_table`."""
    if caption_from is None:
        return () if has_template else EXTENSIONS
    return () if caption_from.startswith(FROM_TABLE) else (f".{caption_from.removeprefix('.')}",)


def usual_extensions(files: Mapping[str, CaptionFiles], pictures: int) -> list[str]:
    """Return the extensions of files that at least half of the pictures have: a few notes make no captions."""
    return [extension for extension, listed in files.items() if listed.count and 2 * listed.count >= pictures]


def find_extension(root: Path, files: Mapping[str, CaptionFiles], caption_from: str | None) -> str | None:
    """Return the extension of the captions beside pictures; None without such captions.

    Raises:
        UserError: There are files with two extensions, or none with the one that `caption_from` names.
    """
    there = {extension: listed.first for extension, listed in files.items() if listed.count}
    if files and caption_from is not None and not there:
        raise UserError(f"data.source.caption_from: {caption_from}: no image in {root} has such a file beside it")
    if len(there) > 1:
        both = " and ".join(str(root / name) for name in there.values())
        advice = " or ".join(extension[1:] for extension in there)
        raise UserError(f"{both} may both be captions; choose one extension with data.source.caption_from: {advice}")
    return next(iter(there), None)


def sizes(root: Path, place: str, names: Sequence[str], extension: str) -> list[tuple[str, int]]:
    """Return the captions beside pictures with their sizes in bytes, -1 where one is missing, to notice changed ones.

    place: name of `root` in the result.
    """
    files = (f"{os.path.splitext(name)[0]}{extension}" for name in names)
    return [(f"{place}/{file}", _size(f"{root}/{file}")) for file in files]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def read_beside(picture: Path, extension: str, item: int | None) -> str:
    """Return the caption in the file beside a picture.

    Args:
        picture: File of the picture.
        extension: Extension of the caption's file, with its dot.
        item: Number of the line to take, from 0 and without empty lines; None for the whole text.

    Raises:
        ImageError: No caption can be read there, or not so many; the message names the file.
    """
    path = Path(os.path.splitext(picture)[0] + extension)
    try:
        content = checked_reads.read_bytes(path, MAX_CAPTION_BYTES, follows_links=True)
        text = text_files.decode(content).strip()
    except FileNotFoundError:
        raise ImageError(f"{path}: no such file, which would be the picture's caption; write it") from None
    except checked_reads.Unreadable as error:
        raise ImageError(f"{path}: no readable caption ({error.reason}); mend or replace it") from None
    except ValueError as error:
        raise ImageError(f"{path}: no readable caption ({error}); save it as UTF-8") from None
    require(not text_files.is_blank(text), f"{path}: empty, where a picture needs a caption; write one", ImageError)
    if item is None:
        return text
    captions = [line.strip() for line in text.split("\n") if not text_files.is_blank(line)]
    if item >= len(captions):
        raise ImageError(f"{path}: {len(captions)} captions, and data.source.caption_item is {item}, counted from 0")
    return captions[item]


def _pick_of_list(item: int | None, values: Sequence[object], place: str) -> object:
    """Return one value of a list in a table; None where it has fewer."""
    if item is None:
        raise UserError(
            f"{place}: a list of {len(values)}; choose one of its items with data.source.caption_item, 0 the first"
        )
    return values[item] if item < len(values) else None
