"""Parquet and Arrow files as `hpcddm data` meets them: their splits, and what their columns may mean."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from glob import escape
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

from hpcddm.config.cross_checks import MIN_IMAGES
from hpcddm.config.sources import AUTO, HELDOUT_SHARE
from hpcddm.errors import UserError
from hpcddm.sources.folders.proposal import SamplePicture, SourceProposal, heldout_share
from hpcddm.sources.folders.survey import FolderSurvey
from hpcddm.sources.huggingface_columns import (
    ColumnKeys,
    caption_columns,
    class_names_of,
    find_roles,
    image_columns,
    label_columns,
)
from hpcddm.sources.huggingface_files import (
    ALL_FOLDERS,
    FORMATS,
    ONE_SET,
    DataFiles,
    Part,
    arrange_files,
    features_of,
)
from hpcddm.sources.parquet.row_files import ColumnRoles, Row, RowFile
from hpcddm.sources.picture_captions import TABLES
from hpcddm.sources.source_files import UnusableSample

MAX_FILES, MAX_PROPOSALS = 100, 4
"""Files of a split that are opened, and proposals."""
MAX_COLUMNS = 10
"""Most columns that a remark names."""
MAX_TEXTS = 1000
"""Most different texts that are taken for classes."""
FILES_SAMPLED, ROWS_SAMPLED = 10, 10
"""Files, and rows of each, whose pictures are looked at."""


class _SplitParts(NamedTuple):
    """Files of the training split and of the held-out one; empty where a share is held out."""

    train: Sequence[Part]
    heldout: Sequence[Part]


class _Rows(NamedTuple):
    """Rows of a split: number, or an estimate of it, and the numbers of rows by class where all were read."""

    number: int
    is_exact: bool
    classes: Counter[Any] | None


def propose(survey: FolderSurvey, usual_heldout: Sequence[str]) -> list[SourceProposal]:
    """Propose how to read the rows of files: one proposal for each meaning that the columns may have.

    usual_heldout: splits that are held out by default, in this order.
    """
    paths = [path for path in survey.paths(FORMATS) if path.name not in TABLES]
    if not paths:
        return []
    proposals = _of_files(survey, paths, None if survey.only is None else escape(survey.only), usual_heldout)
    tops = dict.fromkeys(path.relative_to(survey.root).parts[0] for path in paths if path.parent != survey.root)
    if ONE_SET in str(proposals[0].error) and len(tops) > 1:
        # Folders of several data sets, or of several versions of one.
        patterns = [f"{escape(name)}/**/*{paths[0].suffix}" for name in tops][: MAX_PROPOSALS - 1]
        patterns.append(f"{ALL_FOLDERS}{paths[0].suffix}")
        return [one for name in patterns for one in _of_files(survey, paths, name, usual_heldout)]
    return proposals


def _of_files(
    survey: FolderSurvey, paths: Sequence[Path], pattern: str | None, usual_heldout: Sequence[str]
) -> list[SourceProposal]:
    """Propose how to read the files that fit a pattern, or all."""
    whole = SourceProposal("a Hugging Face data set in parquet or Arrow files", {"folder": str(survey.root)})
    if pattern is not None:
        whole.source["files"] = pattern
    with whole.keep_error():
        data = arrange_files(survey.root, paths, pattern)
        splits = _choose_splits(whole, data, usual_heldout)
        schema, features = features_of(splits.train[0].path, data.features)
        return _by_columns(whole, splits, schema, features)
    return [whole]


def _choose_splits(proposal: SourceProposal, data: DataFiles, usual_heldout: Sequence[str]) -> _SplitParts:
    """Choose the splits, and add their keys where the defaults do not find them."""
    names = list(data.splits)
    train = "train" if "train" in names else next((name for name in names if name not in usual_heldout), names[0])
    heldout = next((name for name in usual_heldout if name in names and name != train), None)
    if train != "train":
        proposal.source["train"] = train
    if heldout is None and len(names) > 1:
        proposal.source["heldout"] = {"share": HELDOUT_SHARE}
    others = [name for name in names if name not in (train, heldout)]
    if others:
        proposal.remarks.append(f"not used: the split {', '.join(others)}")
    if train in usual_heldout:
        proposal.remarks.append(f"networks train on {train}, as the split train is missing")
    return _SplitParts(data.splits[train], [] if heldout is None else data.splits[heldout])


def _by_columns(whole: SourceProposal, splits: _SplitParts, schema: Any, features: Any) -> list[SourceProposal]:
    """Return a proposal for every choice of the columns; raises `UserError` for files without images."""
    first = splits.train[0].path
    images, labels, captions = image_columns(schema, features), label_columns(schema, features), caption_columns(schema)
    proposals = []
    choices: list[list[str | None]] = [list(names) or [None] for names in (images, labels, captions)]
    for image, label, caption in islice(product(*choices), MAX_PROPOSALS):
        proposal = SourceProposal(whole.layout, dict(whole.source), remarks=list(whole.remarks))
        chosen = {"image": (image, images), "label": (label, labels), "caption": (caption, captions)}
        proposal.source |= {key: name for key, (name, names) in chosen.items() if len(names) > 1}
        if caption is not None and captions[caption]:
            proposal.source["caption_item"] = 0
            proposal.remarks.append("lists of captions: the first of each is taken (caption_item)")
        with proposal.keep_error():
            keys = ColumnKeys(image or AUTO, label, caption, proposal.source.get("caption_item"))
            try:
                roles = find_roles(first, schema, features, keys)
            except UserError as error:
                if "data.source.label" not in str(error):
                    raise
                proposal.source["label"] = None
                proposal.remarks.append(str(error))
                roles = find_roles(first, schema, features, keys._replace(label=None))
            _describe(proposal, splits, roles, class_names_of(features, label))
        others = [name for name in schema.names if name not in (image, label, caption)]
        if others:
            some = f"{', '.join(others[:MAX_COLUMNS])}{', ...' * (len(others) > MAX_COLUMNS)}"
            proposal.remarks.append(f"not used: the columns {some}")
        proposals.append(proposal)
    return proposals


def _describe(proposal: SourceProposal, splits: _SplitParts, roles: ColumnRoles, names: list[str]) -> None:
    """Add numbers, classes, captions and pictures to a proposal."""
    train, heldout = ([_opened(part, roles) for part in parts] for parts in splits)
    rows = [_count(files, roles.label) for files in (train, heldout) if files]
    if len(rows) > 1 and (_has_hidden_classes(rows[1]) or rows[1].number < MIN_IMAGES):
        rows, proposal.source["heldout"] = rows[:1], {"share": heldout_share(rows[0].number)}
        proposal.remarks.append("the held-out split has too few rows, or class -1: a share of the others is held out")
    if _has_hidden_classes(rows[0]) or any(len(one.classes or ()) > MAX_TEXTS for one in rows):
        proposal.source["label"], names = None, []
        proposal.remarks.append(f"the column {roles.label} is not used: it has class -1, or too many texts")
        rows = [one._replace(classes=None) for one in rows]
    proposal.images, proposal.is_exact = sum(one.number for one in rows), all(one.is_exact for one in rows)
    proposal.class_names = names or _class_names(rows)
    if not proposal.class_names and roles.label is not None and not proposal.is_exact:
        proposal.remarks.append(f"too many files to count the classes in the column {roles.label}; name num_classes")
    if proposal.class_names:
        _count_heldout(proposal, rows)
    proposal.pictures = _pictures(train)
    if roles.caption is not None:
        proposal.captions = f"the column {roles.caption}"
        proposal.example = next((text for row in _some_rows(train[0]) if (text := _caption_in(train[0], row))), "")


def _has_hidden_classes(rows: _Rows) -> bool:
    """Tell if classes are negative, as in test splits whose classes are not published."""
    return any(isinstance(value, int) and value < 0 for value in rows.classes or ())


def _opened(part: Part, roles: ColumnRoles) -> RowFile:
    return part.kind(part.path, "", lambda key: True, False, part.path.parent, None, roles, part.stem)


def _count(files: Sequence[RowFile], label: str | None) -> _Rows:
    """Count the rows of a split, and those of each class, in its first files."""
    opened = files[:MAX_FILES]
    count = sum(file.row_count for file in opened)
    if len(opened) < len(files):
        return _Rows(round(count * len(files) / len(opened)), False, None)
    return _Rows(count, True, None if label is None else _count_classes(opened, label))


def _count_classes(files: Sequence[RowFile], label: str) -> Counter[Any]:
    """Count the rows of each class, a number or a text."""
    counts: Counter[Any] = Counter()
    for file in files:
        for value, count in map(dict.values, file.column(label).value_counts().to_pylist()):
            counts[value] += count
    counts.pop(None, None)
    return counts


def _class_names(rows: Collection[_Rows]) -> list[str]:
    """Return the texts or numbers of classes without names; empty where not all rows were read."""
    values = {value for one in rows if one.classes for value in one.classes}
    if any(isinstance(value, str) for value in values):
        return sorted(values)
    return [str(number) for number in range(max(values) + 1)] if values and min(values) >= 0 else []


def _count_heldout(proposal: SourceProposal, rows: Sequence[_Rows]) -> None:
    """Add the number of held-out images of the smallest class."""
    count, share = len(proposal.class_names), 1.0 if len(rows) > 1 else HELDOUT_SHARE
    # Half of an average class is a guess where the classes were not counted.
    fewest = [_fewest(one.classes, count) if one.classes else one.number // (2 * count) for one in rows]
    proposal.heldout_of_class = int(share * min(fewest))


def _fewest(classes: Counter[Any], count: int) -> int:
    """Return the number of rows of the smallest class; 0 where a class has none."""
    return min(classes.values()) if len(classes) == count else 0


def _some_rows(file: RowFile) -> Iterator[Row]:
    return islice(file.rows(file.roles.others), ROWS_SAMPLED)


def _caption_in(file: RowFile, row: Row) -> str | None:
    try:
        return file.caption(row)
    except UnusableSample:
        return None


def _pictures(files: Sequence[RowFile]) -> Iterator[SamplePicture]:
    """Read pictures of the first rows of some files."""
    for file in files[:: max(len(files) // FILES_SAMPLED, 1)][:FILES_SAMPLED]:
        try:
            for row in _some_rows(file):
                name = f"{file.path.name}, row {row.number}"
                try:
                    yield SamplePicture(name, file.content_of(row))
                except UnusableSample as error:
                    yield SamplePicture(name, None, str(error))
        except UserError as error:
            yield SamplePicture(file.path.name, None, str(error))
