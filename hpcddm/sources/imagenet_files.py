"""Files beside the images of ILSVRC: the classes of the validation images, and the names of the classes.

A class is a synset of WordNet, such as n01440764. Kaggle's files name it; the devkit's ground truth has its number
ILSVRC2012_ID, which meta.mat explains and which does not follow the order of the synsets.
"""

import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hpcddm.errors import UserError, require
from hpcddm.files import text_files
from hpcddm.runs.passed_over import PassedOverItem, escape_name
from hpcddm.sources import class_file
from hpcddm.sources.tables.tables import Table

SOLUTION, GROUND_TRUTH, META = "LOC_val_solution.csv", "ILSVRC2012_validation_ground_truth.txt", "meta.mat"
MAPPING, WORDS = "LOC_synset_mapping.txt", "words.txt"
NAMES = (SOLUTION, GROUND_TRUTH, META, MAPPING, WORDS)
DEVKIT = "ILSVRC2012_devkit_t12"
VALIDATION_IMAGES = 50_000
"""Number of validation images, and of lines of the ground truth."""
BOX_WORDS = 5
"""Words that describe an object in Kaggle's solution: its synset and a box."""
NUMBER = re.compile(r"_(\d{1,9})$")
"""Number at the end of an image's name, counted from 1: its line in the ground truth."""
NAMED_SYNSET = re.compile(r"(n\d{8})\s+(\S.*)")
SYNSET = re.compile(r"n\d{8}")


class ValidationLabels(NamedTuple):
    """Classes of the validation images in one file: the synset of each, None for an image without; and unused rows."""

    file: Path
    synsets: list[str | None]
    passed_over: list[PassedOverItem]


def read_labels(places: Sequence[Path], stems: Sequence[str]) -> Iterator[ValidationLabels]:
    """Read all files with classes of validation images.

    Args:
        places: Folders that may have the files.
        stems: Names of the images without extensions.

    Raises:
        UserError: A file is wrong; the message names it.
    """
    for path in find_files(places, SOLUTION):
        yield _read_solution(path, stems)
    for path in find_files(places, GROUND_TRUTH):
        metas = find_files([path.parent, *places], META)
        require(bool(metas), f"{path}: its numbers need {META}, which the devkit has beside it; put it there")
        yield _read_ground_truth(path, metas[0], stems)


def find_files(places: Sequence[Path], name: str) -> list[Path]:
    """List the files of a name in some folders."""
    return [path for path in dict.fromkeys(place / name for place in places) if path.is_file()]


def _read_solution(path: Path, stems: Sequence[str]) -> ValidationLabels:
    """Read Kaggle's table: ImageId, and PredictionString with synset and box of every object."""
    table = Table(path, key="ImageId")
    synsets: list[str | None] = []
    for stem, text in zip(stems, table.texts("PredictionString", stems), strict=True):
        named = None if text is None else dict.fromkeys(text.split()[::BOX_WORDS])
        if named is not None and (len(named) != 1 or not SYNSET.fullmatch(next(iter(named)))):
            raise UserError(f"{path}: {stem}: {text!r:.60} does not have one synset such as n01440764; mend the row")
        synsets.append(None if named is None else next(iter(named)))
    reason = f"rows of {path.name} without an image"
    return ValidationLabels(
        path, synsets, [PassedOverItem(escape_name(key), reason) for key in table.other_keys(stems)]
    )


def _read_ground_truth(path: Path, meta: Path, stems: Sequence[str]) -> ValidationLabels:
    """Read the devkit's list: line N has the ILSVRC2012_ID of the image whose name ends in the number N."""
    try:
        lines = text_files.decode(path.read_bytes()).split()
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); bring it back from the devkit") from None
    numbers = [int(match[1]) if (match := NUMBER.search(stem)) else 0 for stem in stems]
    _check_count(path, len(lines), numbers, stems)
    synset_of = {number: synset for number, (synset, _) in read_meta(meta).items()}
    synsets: list[str | None] = []
    for number in numbers:
        text = lines[number - 1] if number else None
        is_number = text is not None and text.isdecimal() and len(text) < 10
        synset = synset_of.get(int(str(text))) if is_number else None
        if text is not None and synset is None:
            valid = f"is not an ILSVRC2012_ID of a class in {meta}"
            raise UserError(f"{path}: line {number}: {text!r:.40} {valid}; bring both back from the devkit")
        synsets.append(synset)
    named = set(numbers)
    unused = [f"ILSVRC2012_val_{number:08d}" for number in range(1, len(lines) + 1) if number not in named]
    reason = f"lines of {path.name} without an image"
    return ValidationLabels(path, synsets, [PassedOverItem(name, reason) for name in unused])


def _check_count(path: Path, lines: int, numbers: Sequence[int], stems: Sequence[str]) -> None:
    """Raise `UserError` for lines too few or too many: one that is lost or repeated would shift all after it."""
    largest = max(numbers, default=0)
    if largest > lines:
        stem = stems[numbers.index(largest)]
        raise UserError(f"{path}: {lines} lines, but {stem} needs line {largest}; bring it back from the devkit")
    if lines not in (len(stems), VALIDATION_IMAGES):
        expected = f"{len(stems)} images, or {VALIDATION_IMAGES:,} in the whole data set"
        raise UserError(f"{path}: {lines} lines for {expected}; bring it back from the devkit")


def read_meta(path: Path) -> dict[int, tuple[str, str]]:
    """Read the synset and the words of every class of ILSVRC by its ILSVRC2012_ID, from the devkit's meta.mat.

    Raises:
        UserError: The file is not the devkit's; the message names it.
    """
    from scipy.io.matlab import MatReadError, loadmat

    failures = (OSError, ValueError, TypeError, LookupError, AttributeError, NotImplementedError, zlib.error)
    try:
        rows = loadmat(path, squeeze_me=True, variable_names=["synsets"])["synsets"].reshape(-1)
        return {
            int(row["ILSVRC2012_ID"]): (str(row["WNID"]).strip(), str(row["words"]).strip())
            for row in rows
            # The others are groups of classes.
            if int(row["num_children"]) == 0
        }
    except (*failures, MatReadError) as error:
        raise UserError(f"{path}: not the devkit's list of synsets ({error!s:.100}); bring it back") from None


def find_names(places: Sequence[Path], synsets: Sequence[str]) -> list[str]:
    """Return readable names of classes: that of the first file that names each one, else the synset itself.

    Args:
        places: Folders that may have the files.
        synsets: The classes.

    Raises:
        UserError: A file is wrong; the message names it.
    """
    words: dict[str, str] = {}
    for path in (path for name in (MAPPING, WORDS, META) for path in find_files(places, name)):
        if all(synset in words for synset in synsets):
            break
        words = (dict(read_meta(path).values()) if path.name == META else _read_words(path)) | words
    return distinct_names({synset: words.get(synset) or synset for synset in synsets})


def _read_words(path: Path) -> dict[str, str]:
    """Read lines with a synset, a space or tab, and its words."""
    words: dict[str, str] = {}
    for number, line in enumerate(class_file.read_lines(path), 1):
        match = NAMED_SYNSET.fullmatch(line)
        if match is None and line:
            raise UserError(f"{path}: line {number}: {line!r:.60} is not a synset and its words; mend or remove it")
        if match is not None:
            words[match[1]] = match[2]
    return words


def distinct_names(words: Mapping[str, str]) -> list[str]:
    """Return a short name for each synset: as many of its words as distinguish it, or its first one and the synset.

    Names that differ in upper and lower case only are not distinct.

    Args:
        words: Words of each synset, separated by commas.

    Examples:
        >>> distinct_names({"n01440764": "tench, Tinca tinca", "n02012849": "crane", "n03126707": "crane"})
        ['tench', 'crane (n02012849)', 'crane (n03126707)']
        >>> distinct_names({"n03710637": "maillot", "n03710721": "maillot, tank suit"})
        ['maillot', 'maillot, tank suit']
    """
    parts = {
        synset: [part.strip() for part in text.split(",") if part.strip()] or [synset] for synset, text in words.items()
    }
    counts = dict.fromkeys(words, 1)
    most = max(map(len, parts.values()), default=0)
    while True:
        names = {
            synset: ", ".join(own[: counts[synset]]) if counts[synset] <= most else f"{own[0]} ({synset})"
            for synset, own in parts.items()
        }
        frequency = Counter(name.casefold() for name in names.values())
        repeated = [synset for synset in words if frequency[names[synset].casefold()] > 1 and counts[synset] <= most]
        if not repeated:
            return list(names.values())
        for synset in repeated:
            counts[synset] += 1


def validation_places(folders: Sequence[Path]) -> list[Path]:
    """List the folders that may have the files: some folders, and the devkit in them."""
    return [place / inner for place in folders for inner in ("", DEVKIT, os.path.join(DEVKIT, "data"))]
