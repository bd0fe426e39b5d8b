"""Files of arrays as `hpcddm data` meets them: which arrays are images, and which have their classes and captions."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from hpcddm.config.sources import HELDOUT_SHARE
from hpcddm.errors import UserError
from hpcddm.sources import array_files
from hpcddm.sources.array_files import ArrayRows
from hpcddm.sources.folders.proposal import SamplePicture, SourceProposal, heldout_share
from hpcddm.sources.folders.survey import FolderSurvey
from hpcddm.sources.huggingface_files import split_in_path

EXTENSIONS = (".npz", ".h5", ".hdf5")
MAX_FILES, MAX_PROPOSALS, MAX_SAMPLES = 10, 3, 50
"""Files that are opened, proposals, and images that are looked at."""


def propose(survey: FolderSurvey) -> list[SourceProposal]:
    """Propose every array of images in the files of a folder, up to a limit."""
    paths = survey.paths(EXTENSIONS, most=MAX_FILES)
    files = {path: _arrays(path) for path in paths}
    errors = [error for error in files.values() if isinstance(error, str)]
    by_path = {path: arrays for path, arrays in files.items() if not isinstance(arrays, str)}
    heldout = [path for path in by_path if split_in_path(PurePath(path.name)) not in (None, "train")]
    train = [path for path in by_path if path not in heldout] or list(by_path)
    proposals = [proposal for path in train for proposal in _proposals(path, by_path[path], heldout)]
    if not proposals and errors:
        return [SourceProposal("arrays", {"file": str(paths[0])}, error=errors[0])]
    return proposals[:MAX_PROPOSALS]


def _arrays(path: Path) -> dict[str, ArrayRows] | str:
    """Open the arrays of a file that have rows, or return the reason why it cannot be read."""
    arrays: dict[str, ArrayRows] = {}
    try:
        names = array_files.array_names(path)
    except UserError as error:
        return str(error)
    for name in names:
        try:
            arrays[name] = array_files.open_rows(path, name)
        except UserError:
            # Python objects and scalars are not images.
            continue
    return arrays


def _proposals(path: Path, arrays: dict[str, ArrayRows], heldout: Sequence[Path]) -> Iterator[SourceProposal]:
    """Propose the arrays of images in a file, only those of the training if there are such.

    heldout: files of other splits.
    """
    images = [name for name, rows in arrays.items() if array_files.are_channels_first(rows) is not None]
    images.sort(key=lambda name: -arrays[name].shape[0])
    for name in [one for one in images if "train" in one] or images:
        source: dict[str, Any] = {"file": str(path), "images": name}
        count = arrays[name].shape[0]
        if heldout and path not in heldout:
            source["heldout"] = {"file": str(heldout[0])}
        elif heldout_share(count) != HELDOUT_SHARE:
            source["heldout"] = {"share": heldout_share(count)}
        yield _proposal(source, arrays)
    yield from _no_images(path, arrays, bool(images))


def _proposal(source: dict[str, Any], arrays: dict[str, ArrayRows]) -> SourceProposal:
    """Propose an array of images with its classes and captions; source: file, array and what is held out."""
    name = source["images"]
    rows, is_first = arrays[name], bool(array_files.are_channels_first(arrays[name]))
    count = rows.shape[0]
    proposal = SourceProposal("arrays in a file", source, count, pictures=_pictures(rows, is_first))
    if is_first:
        source["channels_first"] = True
    labels = _first(arrays, name, lambda one: one.dtype.kind in "iu" and one.shape == (count,))
    texts = _first(arrays, name, lambda one: one.shape == (count,) and isinstance(one.row(0), str))
    with proposal.keep_error():
        if labels is not None:
            source["labels"] = labels
            proposal.class_names = _class_numbers(arrays[labels], proposal)
        if texts is not None:
            source["captions"] = texts
            proposal.captions, proposal.example = f"the array {texts}", arrays[texts].row(0)
    others = [one for one in arrays if one not in (name, labels, texts)]
    if others:
        proposal.remarks.append(f"not used: the arrays {', '.join(others[:5])}{', ...' * (len(others) > 5)}")
    return proposal


def _no_images(path: Path, arrays: dict[str, ArrayRows], has_images: bool) -> Iterator[SourceProposal]:
    """Say of a file without images of unsigned bytes what its arrays are, if one could be converted to images."""
    stated = [f"{name} ({rows.dtype}, {rows.shape})" for name, rows in arrays.items() if len(rows.shape) in (3, 4)]
    if stated and not has_images:
        error = (
            f"{path}: no images of type uint8, 0 for black and 255 for white, but {', '.join(stated[:3])}; convert them"
        )
        yield SourceProposal("arrays in a file", {"file": str(path)}, error=error)


def _first(arrays: dict[str, ArrayRows], images: str, fits: Callable[[ArrayRows], bool]) -> str | None:
    """Return the array that fits and whose name shares most characters with that of the images; None without one."""
    names = [name for name, rows in arrays.items() if name != images and fits(rows)]
    return max(names, key=lambda name: len(set(name.split("_")) & set(images.split("_"))), default=None)


def _class_numbers(rows: ArrayRows, proposal: SourceProposal) -> list[str]:
    """Return the numbers of the classes as texts; none, with a remark, for negative numbers."""
    values = rows.whole()
    if values.min(initial=0) < 0:
        proposal.remarks.append(f"{rows.place}: {values.min()} is not a class; classes are numbered from 0")
        del proposal.source["labels"]
        return []
    counts = np.bincount(values)
    proposal.heldout_of_class = int(HELDOUT_SHARE * counts.min(initial=len(values)))
    return [str(number) for number in range(len(counts))]


def _pictures(rows: ArrayRows, channels_first: bool) -> Iterator[SamplePicture]:
    """Read the first images of an array."""
    for number in range(min(rows.shape[0], MAX_SAMPLES)):
        name = f"{rows.place}, row {number}"
        try:
            yield SamplePicture(name, array_files.picture_of(rows, number, channels_first))
        except UserError as error:
            yield SamplePicture(name, None, str(error))
