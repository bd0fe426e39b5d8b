"""Folders of pictures as a survey shows them: where their splits, classes and captions are.

Nothing here lists the pictures one by one; the source does when it opens a split.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple

from hpcddm.config.cross_checks import MIN_IMAGES
from hpcddm.config.sources import HELDOUT_SHARE
from hpcddm.data.image_decoding import ImageError
from hpcddm.errors import UserError
from hpcddm.errors.printing import printable
from hpcddm.files.text_files import is_blank
from hpcddm.sources import class_file, picture_captions
from hpcddm.sources.folders.proposal import SourceProposal, sample_of
from hpcddm.sources.folders.survey import FolderSurvey
from hpcddm.sources.huggingface_files import split_in_path
from hpcddm.sources.listing import is_inner_images

HELDOUT_SPLITS = ("validation", "test", "train")
"""Splits in the order in which they are taken for the held-out one."""
MAX_IMBALANCE = 10
"""Largest ratio of the sizes of two classes that is not mentioned."""
MAX_TABLE_BYTES = 1 << 28
"""Largest table that is read for a proposal."""
NAMED = 3
"""Most files that one remark names."""
NOT_CLASSES = frozenset(
    {"annotation", "annotations", "label", "labels", "mask", "masks", "segmentation", "segmentations"}
)
"""Words in the names of folders whose pictures say something of others."""
OTHER_CAPTIONS = re.compile(r"caption.*\.(json|txt|csv|tsv)$|\.token(\.txt)?$|^results\.csv$|^dataset_\w+\.json$")
"""Names of files with all captions that other programs read, such as those of COCO and Flickr."""
CAPTIONS_READ = 50
"""Captions beside pictures that are read for a proposal."""


BROKEN = "they count as broken samples (data.max_broken_share allows 0.1 %)"


class _SplitFolders(NamedTuple):
    """Folders of the pictures by their places, the keys that name them, and the names of unused splits."""

    train: str
    heldout: str | None
    source: dict[str, Any]
    others: list[str]

    @property
    def places(self) -> list[str]:
        """Places of the folders of both splits."""
        return [self.train] if self.heldout is None else [self.train, self.heldout]


def propose(survey: FolderSurvey) -> list[SourceProposal]:
    """Propose how to read the pictures of a folder: one proposal for each place that may have their captions."""
    if survey.only:
        return []
    splits = _find_splits(survey, _descend(survey, ""))
    classes = _classes(survey, splits.train)
    if not classes and not survey.picture_count(splits.train):
        return _too_deep(survey, splits.train)
    places = [place for split in splits.places for place in ([split] if not classes else _of_classes(survey, split))]
    with_pictures = [place for place in places if survey.picture_count(place)]
    proposal = SourceProposal(
        "images in one folder per class" if classes else "images in one folder",
        splits.source,
        sum(survey.picture_count(place) for place in with_pictures),
        survey.is_whole,
        pictures=sample_of(survey, with_pictures),
    )
    if splits.others:
        which = f"the folder {', '.join(splits.others)} is not used"
        proposal.remarks.append(f"{which}: another split is held out, or it has other classes or too few images")
    proposal.remarks += _other_captions(survey)
    with proposal.keep_error():
        _check_folders(survey, splits)
        proposal.class_names = _class_names(survey, splits, classes)
        if classes:
            proposal.remarks += [*_odd_classes(classes), *_beside_classes(survey, splits)]
            _count_classes(proposal, survey, splits, classes)
        captioned = list(_Captions(proposal, survey, splits, with_pictures).proposals())
        if len(captioned) == 1:
            # The key that names their place is needed only where there are several.
            del captioned[0].source["caption_from"]
        return captioned or [proposal]
    return [proposal]


def _too_deep(survey: FolderSurvey, place: str) -> list[SourceProposal]:
    """Say where the pictures are that are further down than the source reads; nothing without pictures."""
    deep = next((one for one in survey.folders if survey.picture_count(one)), None)
    if deep is None:
        return []
    advice = f"name the folder that holds those of the classes, such as {survey.root / os.path.dirname(deep)}"
    error = f"{survey.root / deep}: images in folders inside folders; {advice}"
    return [SourceProposal("images in folders", {"folder": str(survey.root / place)}, error=error)]


def _descend(survey: FolderSurvey, place: str) -> str:
    """Return the first place with pictures, or with several folders that have some, on the way down from a place."""
    while not survey.picture_count(place):
        inner = [one for one in _inner(survey, place) if one in survey.places_with_pictures]
        if len(inner) != 1 or any(survey.has_file(os.path.join(place, name)) for name in picture_captions.TABLES):
            break
        place = inner[0]
    return place


def _find_splits(survey: FolderSurvey, place: str) -> _SplitFolders:
    """Find the folders of training and held-out pictures by their names."""
    root, folder = survey.root / place, survey.folders[place]
    names = [name for name in folder.folders if folder.path_of(name) in survey.places_with_pictures]
    named = {name: split for name in names if (split := _split_name(name)) is not None}
    train = next((name for name, split in named.items() if split == "train"), None)
    is_class = len(named) == 1 < len(names)
    if train is None or is_class or survey.picture_count(place):
        # Without the key, the source would take a class of such a name for a split.
        is_taken = any(name in folder.folders for name in ("train", "val", "heldout"))
        source: dict[str, Any] = {"folder": str(root)} | ({"heldout": {"share": HELDOUT_SHARE}} if is_taken else {})
        return _SplitFolders(place, None, source, [])
    places = {name: _descend(survey, folder.path_of(name)) for name in named}
    held_out = sorted((name for name in named if name != train), key=lambda name: HELDOUT_SPLITS.index(named[name]))
    heldout = next((name for name in held_out if _fits(survey, places[name], places[train])), None)
    others = [name for name in names if name not in (train, heldout)]
    used = [name for name in (train, heldout) if name is not None]
    is_usual = train == "train" and heldout in ("heldout", "val") and not {"heldout", "val"}.issubset(folder.folders)
    if is_usual and all(places[name] == folder.path_of(name) for name in used):
        source = {"folder": str(root)}
    else:
        source = {"folder": str(survey.root / places[train])}
        source |= {} if heldout is None else {"heldout": {"folder": str(survey.root / places[heldout])}}
    return _SplitFolders(places[train], None if heldout is None else places[heldout], source, others)


def _split_name(name: str) -> str | None:
    """Return the split of a folder by its name, such as 'train' for train2017; None for another name."""
    return "validation" if name.lower() == "heldout" else split_in_path(PurePath(name))


def _fits(survey: FolderSurvey, heldout: str, train: str) -> bool:
    """Tell if held-out pictures are enough, and have classes of the training pictures or, like these, none."""
    some, every = _classes(survey, heldout), _classes(survey, train)
    count = sum(map(survey.picture_count, _of_classes(survey, heldout) if some else [heldout]))
    return set(some).issubset(every) and bool(some) == bool(every) and count >= MIN_IMAGES


def _inner(survey: FolderSurvey, place: str) -> list[str]:
    """List the places of the folders in a folder."""
    folder = survey.folders.get(place)
    return [folder.path_of(name) for name in folder.folders] if folder else []


def _of_classes(survey: FolderSurvey, place: str) -> list[str]:
    """List the places of the pictures of the folders in a folder: these, or the folder images in one."""
    return [_with_images(survey, inner) for inner in _inner(survey, place)]


def _with_images(survey: FolderSurvey, place: str) -> str:
    inner = _inner(survey, place)
    return inner[0] if is_inner_images([*map(os.path.basename, inner)], survey.picture_count(place)) else place


def _classes(survey: FolderSurvey, place: str) -> list[str]:
    """List the folders of classes, those with pictures, by name."""
    return [os.path.basename(one) for one in _inner(survey, place) if survey.picture_count(_with_images(survey, one))]


def _check_folders(survey: FolderSurvey, splits: _SplitFolders) -> None:
    """Raise `UserError` for folders that the source refuses."""
    inner = [one for place in splits.places for one in _of_classes(survey, place)]
    deeper = next((deep for one in inner for deep in _inner(survey, one)), None)
    if deeper is not None:
        advice = "move its images up, or name the folder that holds the folders of the classes"
        raise UserError(f"{survey.root / deeper}: a folder in that of a class; {advice}")
    if survey.unreadable:
        raise UserError(f"{survey.root / survey.unreadable[0]}: cannot be read; mend its permissions, or remove it")


def _class_names(survey: FolderSurvey, splits: _SplitFolders, classes: list[str]) -> list[str]:
    """Return the names of the classes, from a file where there is one."""
    root = survey.root / splits.train
    places = [root, root.parent] if splits.heldout and "heldout" not in splits.source else [root]
    file = class_file.find(places) if classes else None
    return class_file.read(file, classes) if file else classes


def _count_classes(
    proposal: SourceProposal, survey: FolderSurvey, splits: _SplitFolders, classes: Sequence[str]
) -> None:
    """Add the number of held-out images of the smallest class, and say where classes differ much in size."""

    def count(split: str, name: str) -> int:
        return survey.picture_count(_with_images(survey, os.path.join(split, name)))

    counts = {name: count(splits.train, name) for name in classes}
    heldout = [count(splits.heldout, name) for name in classes] if splits.heldout else []
    fewest = min([*heldout, *counts.values()])
    proposal.heldout_of_class = fewest if heldout else int(HELDOUT_SHARE * fewest)
    small, large = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
    if counts[large] > MAX_IMBALANCE * counts[small]:
        proposal.remarks.append(f"class {small} has {counts[small]:,} images, class {large} {counts[large]:,}")


def _other_captions(survey: FolderSurvey) -> list[str]:
    """Name files that may have the captions, and are not read."""
    files = [
        folder.path_of(name) for folder in survey.folders.values() for some in folder.names.values() for name in some
    ]
    names = [name for name in files if OTHER_CAPTIONS.search(os.path.basename(name).lower())]
    names = [printable(name) for name in names if os.path.basename(name) not in picture_captions.TABLES]
    advice = "write a table metadata.csv with the columns file_name and text beside the images"
    more = ", ..." * (len(names) > NAMED)
    return [f"not used: {', '.join(names[:NAMED])}{more}, which may have captions; {advice}"] if names else []


def _odd_classes(classes: Sequence[str]) -> Iterator[str]:
    """Describe classes whose folders have names that seem to mean something else."""
    for name in classes:
        words = re.split(r"[^a-z]+", name.lower())
        what = "of a split" if _split_name(name) else "of annotations" if NOT_CLASSES.intersection(words) else ""
        if what:
            yield f"the folder {printable(name)} has the name {what}, and is taken for a class; if it is not, move it"


def _beside_classes(survey: FolderSurvey, splits: _SplitFolders) -> Iterator[str]:
    """Describe pictures beside the folders of classes, and folders without pictures."""
    for place in splits.places:
        count = survey.picture_count(place)
        if count:
            where = f"{survey.root / place}, beside the folders of the classes"
            yield f"pictures without a class: {count:,} in {where}; {BROKEN}, so move them"
    empty = [inner for inner in _of_classes(survey, splits.train) if not survey.picture_count(inner)]
    if empty:
        yield f"{len(empty):,} folders without a picture, such as {empty[0]}, are not classes"


@dataclass(frozen=True)
class _Captions:
    """Places that may have the captions of a proposal's pictures; places: folders with pictures."""

    proposal: SourceProposal
    survey: FolderSurvey
    splits: _SplitFolders
    places: Sequence[str]

    def proposals(self) -> Iterator[SourceProposal]:
        """Yield the proposal with the captions of each place; raises `UserError` where pictures lack one."""
        sample = self.survey.sample_pictures(self.places, CAPTIONS_READ)
        tables = self._tables()
        for table in tables:
            yield self._from_table(table, sample, tables)
        for extension in picture_captions.EXTENSIONS:
            count = sum(self.survey.folders[place].counts[extension] for place in self.places)
            if 2 * count < self._pictures:
                # The source takes so few for notes.
                continue
            beside = [name for name in sample if self.survey.has_file(os.path.splitext(name)[0] + extension)]
            if beside:
                yield self._from_files(extension, count, beside)

    @property
    def _pictures(self) -> int:
        return sum(map(self.survey.picture_count, self.places))

    def _tables(self) -> list[picture_captions.CaptionTable]:
        """List the tables of the training pictures and their columns of captions."""
        root, places = self.survey.root / self.splits.train, {}
        if self.splits.heldout and "heldout" not in self.splits.source:
            places = {root.parent: f"{root.name}/"}
        there = picture_captions.tables_in({root: "", **places})
        return [table for path, place in there.items() for table in picture_captions.caption_tables(path, place)]

    def _from_table(
        self,
        table: picture_captions.CaptionTable,
        sample: Sequence[str],
        tables: Sequence[picture_captions.CaptionTable],
    ) -> SourceProposal:
        """Look up captions of some pictures in a table; raises `UserError` where pictures lack one."""
        place = f"{table.path.name}, column {table.column}"
        source: dict[str, Any] = {"caption_from": f"{picture_captions.FROM_TABLE}{table.column}"}
        same = next((one for one in tables if one is not table and one.column == table.column), None)
        if same is not None:
            raise UserError(f"{table.path} and {same.path}: two tables of captions; remove one of them")
        if table.path.stat().st_size > MAX_TABLE_BYTES:
            return self.proposal.with_captions(place, source, "", [f"{table.path.name} is too large to be read here"])
        train = self.splits.train
        names = [os.path.relpath(name, train or ".") for name in sample if not train or name.startswith(f"{train}/")]
        try:
            captions, remarks = table.captions(names, None), list[str]()
        except UserError as error:
            if "caption_item" not in str(error):
                raise
            source["caption_item"] = 0
            remarks = ["lists of captions: the first of each is taken (caption_item)"]
            captions = table.captions(names, 0)
        usable = [text for text in captions if text is not None and not is_blank(text)]
        if len(usable) < len(captions):
            remarks.append(f"{len(captions) - len(usable)} of {len(captions)} captions are missing or empty; {BROKEN}")
        return self.proposal.with_captions(place, source, next(iter(usable), ""), remarks)

    def _from_files(self, extension: str, count: int, beside: Sequence[str]) -> SourceProposal:
        """Read some captions in files beside pictures."""
        source: dict[str, Any] = {"caption_from": extension[1:]}
        remarks, captions, pictures = list[str](), list[str](), self._pictures
        if count < pictures:
            remarks.append(f"{pictures - count:,} of {pictures:,} pictures have no {extension} file; {BROKEN}")
        for name in beside:
            try:
                captions.append(picture_captions.read_beside(self.survey.root / name, extension, None))
            except ImageError as error:
                remarks.append(str(error))
        if any("\n" in text for text in captions):
            source["caption_item"], captions = 0, [text.partition("\n")[0] for text in captions]
            whole = "without this key a text is taken whole"
            remarks.insert(0, f"several lines in files {extension}: the first is taken (caption_item); {whole}")
        place = f"a {extension} file beside each picture"
        return self.proposal.with_captions(place, source, next(iter(captions), ""), remarks[:3])
