"""ImageNet (ILSVRC 2012) as it unpacks: train/n01440764/*.JPEG, and val with or without folders of synsets.

The classes of a flat val are in Kaggle's LOC_val_solution.csv, or in the devkit's
ILSVRC2012_validation_ground_truth.txt with its meta.mat; of a sorted one, they are its folders. Where several say what
an image is, they must agree. These files are in <folder>, in the devkit's folder there, or beside the images; in
Kaggle's layout train and val are in <folder>/ILSVRC/Data/CLS-LOC.

Classes are numbered in the order of the synsets of the training folders. Their names are from LOC_synset_mapping.txt,
words.txt or meta.mat, without them the synsets. The key of a validation image does not depend on the layout, nor does
the order of the images. `sources.picture_files` says what a list of images takes.
"""

import hashlib
import os
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from hpcddm.config.cross_checks import MIN_IMAGES
from hpcddm.config.sources import HELDOUT_SHARE, HeldoutFolder, PictureFolderSettings
from hpcddm.errors import UserError, require
from hpcddm.runs.passed_over import PassedOverItem
from hpcddm.sources import imagenet_files
from hpcddm.sources.base import SPLITS, Source
from hpcddm.sources.folders.proposal import SourceProposal, heldout_share, sample_of
from hpcddm.sources.folders.survey import FolderSurvey, SurveyedFolder
from hpcddm.sources.listing import list_folder, list_unused, require_folder
from hpcddm.sources.picture_files import PictureFiles, beside_classes, class_folders, file_sizes, list_classes

KAGGLE = ("ILSVRC", "Data", "CLS-LOC")
"""Folders above train and val in Kaggle's layout."""


class ImageNetFolderSettings(PictureFolderSettings):
    """Folder that holds `train` and `val`; `heldout` names other held-out images, or a share of the training images."""

    hashed_if_changed: ClassVar[frozenset[str]] = frozenset({"caption", "collection", "heldout"})

    in_place: bool = True
    caption: str | None = None
    """Caption of every image; {class} is replaced by the name of its class."""


class _Layout(NamedTuple):
    """Folders of a data set: those of both splits, and those that may have the files with labels and names."""

    train: Path
    val: Path
    places: list[Path]


class ImageNetSplit(PictureFiles):
    """Images of one split."""

    def __init__(self, settings: ImageNetFolderSettings, split: str) -> None:
        share = settings.heldout.share if settings.heldout else None
        layout, self.template = _find_layout(settings), settings.caption
        self.labels_by_name = split == "heldout" and share is None
        self.root = layout.val if self.labels_by_name else layout.train
        self.place = settings.place_of(self.root)
        self.passed_over = []
        folders = class_folders(layout.train) if self.labels_by_name else self._list_train()
        _check_synsets(layout.train, folders)
        if self.labels_by_name:
            self._list_validation(layout, folders)
        self.class_names = folders
        self.check_some()
        self.check_keys()
        self.class_names = imagenet_files.find_names(layout.places, folders)
        if split == "train":
            self.passed_over += _beside(settings, layout)
        self.divide(split, share)
        self.has_captions = self.template is not None
        self.check_template()

    def key_of(self, name: str) -> str:
        # A validation image has the same key in a folder of its synset and without one.
        return super().key_of(name.rpartition("/")[2] if self.labels_by_name else name)

    def _list_train(self) -> list[str]:
        """List the training images; return the folders of the classes."""
        listing = list_folder(self.root)
        folders, self.names, self.labels, items = list_classes(self.root, self.root, None, listing.folders)
        self.passed_over = [*listing.passed_over, *items, *beside_classes(listing.images)]
        return folders

    def _list_validation(self, layout: _Layout, folders: list[str]) -> None:
        """List the validation images by name, with the classes that their folders and the files say."""
        listing = list_folder(self.root, used=imagenet_files.NAMES)
        _, sorted_names, labels, items = list_classes(self.root, layout.train, folders, listing.folders)
        self.passed_over = [*listing.passed_over, *items]
        stems = [os.path.splitext(os.path.basename(name))[0] for name in [*sorted_names, *listing.images]]
        label_files = list(imagenet_files.read_labels(layout.places, stems))
        flat = listing.images
        if sorted_names and not label_files:
            self.passed_over += beside_classes(flat)
            flat = []
        self.names = [*sorted_names, *flat]
        numbers = np.concatenate([labels, np.full(len(flat), -1)])
        self._label(numbers, label_files, folders)
        order = sorted(range(len(self.names)), key=lambda number: os.path.basename(self.names[number]))
        self.names, self.labels = [self.names[number] for number in order], numbers[order]

    def _label(
        self, numbers: np.ndarray, label_files: list[imagenet_files.ValidationLabels], folders: list[str]
    ) -> None:
        """Fill in the classes that files say, -1 before; raise `UserError` for an image without, or with two."""
        number_of = {folder: number for number, folder in enumerate(folders)}
        files: dict[int, Path] = {}
        remove = f"bring them back, or remove such images from {self.root}"
        for file, synsets, passed_over in label_files:
            self.passed_over += passed_over
            for place, (name, synset) in enumerate(zip(self.names, synsets, strict=True)):
                if synset is None:
                    continue
                require(synset in number_of, f"{file}: {name} is {synset}, a class without training images; {remove}")
                if numbers[place] < 0:
                    numbers[place], files[place] = number_of[synset], file
                elif numbers[place] != number_of[synset]:
                    other = files.get(place, self.root / os.path.dirname(name))
                    both = f"{name} is {synset} in {file}, but {folders[numbers[place]]} in {other}"
                    raise UserError(f"{both}; remove the file that is wrong")
        lacking = [name for name, number in zip(self.names, numbers, strict=True) if number < 0]
        if lacking and label_files:
            all_files = " and ".join(str(file) for file, *_ in label_files)
            count = f"{len(lacking)} of {len(numbers)} images lack one"
            raise UserError(f"{all_files}: no class of {lacking[0]}, {count}; add them, or remove these images")
        if lacking:
            raise UserError(
                f"{self.root}: {len(lacking)} images without classes; put {imagenet_files.SOLUTION}, or"
                f" {imagenet_files.GROUND_TRUTH} and {imagenet_files.META}, into {self.root.parent}, or sort the images"
                " into folders of synsets"
            )


def _data_folder(folder: Path) -> Path:
    """Return the folder that holds train and val: the user's, or that of Kaggle's archive in it."""
    return folder if (folder / "train").is_dir() else folder.joinpath(*KAGGLE)


def _find_layout(settings: ImageNetFolderSettings) -> _Layout:
    """Find the folders; raises `UserError` naming one that is missing."""
    folder, heldout = Path(settings.folder), settings.heldout
    require_folder("folder", folder)
    data = _data_folder(folder)
    if not (data / "train").is_dir():
        advice = f"name the folder that holds train and val; {data / 'train'} is not one, either"
        raise UserError(f"data.source.folder: {folder / 'train'} is not a folder; {advice}")
    val = Path(heldout.folder) if heldout and heldout.folder is not None else data / "val"
    if not val.is_dir() and not (heldout and heldout.share):
        key = "heldout.folder" if heldout else "folder"
        advice = "put the validation images there, or hold out a share of the training images: heldout: {share: 0.05}"
        raise UserError(f"data.source.{key}: {val} is not a folder; {advice}")
    above = [data.parents[len(KAGGLE) - 1]] if data.parts[-len(KAGGLE) :] == KAGGLE else []
    return _Layout(data / "train", val, imagenet_files.validation_places([folder, data, *above, val, val.parent]))


def _check_synsets(train: Path, folders: list[str]) -> None:
    """Raise `UserError` naming a folder of training images that is not that of a synset."""
    other = next((name for name in folders if not imagenet_files.SYNSET.fullmatch(name)), None)
    advice = "move it elsewhere, or take the source image_folder"
    require(other is None, f"{train / (other or '')}: not the folder of a synset, such as n01440764; {advice}")


def _beside(settings: ImageNetFolderSettings, layout: _Layout) -> list[PassedOverItem]:
    """List what is beside the folders of the splits, and in Kaggle's layout beside those above them."""
    folder, used = Path(settings.folder), {"train", *imagenet_files.NAMES}
    used |= {"val"} if settings.heldout is None else set()
    devkits = [place for place in layout.places if imagenet_files.DEVKIT in place.parts]
    if any(imagenet_files.find_files(devkits, name) for name in imagenet_files.NAMES):
        used.add(imagenet_files.DEVKIT)
    what = "the folders of the splits"
    items = list_unused(layout.train.parent, used, what)
    for place in layout.train.parent.parents:
        if folder not in (place, *place.parents):
            break
        items += list_unused(place, used | set(KAGGLE), what)
    return items


class ImageNetFolder(Source[ImageNetFolderSettings]):
    """No image is opened until it is accessed."""

    @classmethod
    def propose(cls, survey: FolderSurvey) -> list[SourceProposal]:
        """Propose the layouts of ILSVRC, also that of Kaggle's archive, by the synsets in `train`."""
        inner = "/".join(KAGGLE)
        places = {"": survey.root, inner: survey.root}
        if survey.root.name == KAGGLE[0]:
            places["/".join(KAGGLE[1:])] = survey.root.parent
        for place, folder in places.items():
            train = survey.folders.get(f"{place}/train".lstrip("/"))
            if train is not None and train.folders and all(map(imagenet_files.SYNSET.fullmatch, train.folders)):
                return [_proposal(survey, f"{place}/".lstrip("/"), folder, train.folders)]
        return []

    def open_split(self, split: str) -> ImageNetSplit:
        return ImageNetSplit(self.settings, split)

    def has_heldout(self) -> bool:
        """Tell if a key names held-out images, or there is a folder of validation images."""
        return bool(self.settings.heldout) or _data_folder(Path(self.settings.folder)).joinpath("val").is_dir()

    def content_hash(self) -> str:
        """Hash the classes and their names, and the names and sizes of all images."""
        parts: list[object] = []
        for split in SPLITS:
            records = self.open_split(split)
            assert records.labels is not None
            parts += file_sizes(records.root, split, records.names)
            parts += [hashlib.sha256(records.labels.tobytes()).hexdigest(), records.class_names]
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def _proposal(survey: FolderSurvey, place: str, folder: Path, synsets: list[str]) -> SourceProposal:
    """Propose a folder with train and val; place: path of these in the survey, with a slash at its end."""
    layout = _find_layout(ImageNetFolderSettings(name="imagenet", folder=str(folder), heldout=HeldoutFolder(share=0.5)))
    proposal = SourceProposal("ImageNet (ILSVRC 2012)", {"folder": str(folder)}, is_specific=True)
    train_places, val_places = [f"{place}train/{synset}" for synset in synsets], list[str]()
    if f"{place}val" in survey.folders:
        val_places, reason = _validation_places(survey, survey.folders[f"{place}val"], layout)
        if reason:
            proposal.remarks.append(f"{layout.val} has {reason}; until then, a share of train is held out")
            proposal.source["heldout"] = {"share": heldout_share(sum(map(survey.picture_count, train_places)))}
    counted = [*train_places, *val_places]
    proposal.images, proposal.is_exact = sum(map(survey.picture_count, counted)), survey.is_whole
    proposal.pictures = sample_of(survey, counted)
    with_pictures = [name for name in synsets if survey.picture_count(f"{place}train/{name}")]
    with proposal.keep_error():
        proposal.class_names = imagenet_files.find_names(layout.places, with_pictures)
    # A flat folder of validation images is taken to have as many of each class as the training images.
    sorted_places = [one for one in val_places[1:] if survey.picture_count(one)] or train_places
    share = 1.0 if val_places else HELDOUT_SHARE
    proposal.heldout_of_class = int(share * min(map(survey.picture_count, sorted_places), default=0))
    if proposal.class_names == with_pictures:
        proposal.remarks.append(
            f"no names of classes: {imagenet_files.MAPPING} or {imagenet_files.WORDS} in {folder} would have them"
        )
    return proposal


def _validation_places(survey: FolderSurvey, val: SurveyedFolder, layout: _Layout) -> tuple[list[str], str]:
    """List the places of validation images; none, with the reason and what to do, if they cannot be held out."""
    places = [val.place, *map(val.path_of, val.folders)]
    labels = (imagenet_files.SOLUTION, imagenet_files.GROUND_TRUTH)
    is_labelled = any(imagenet_files.find_files(layout.places, name) for name in labels)
    if not is_labelled and not any(map(survey.picture_count, places[1:])):
        return [], f"no classes: put {labels[0]}, or {labels[1]} and {imagenet_files.META}, there"
    if sum(map(survey.picture_count, places)) < MIN_IMAGES:
        return [], f"fewer than {MIN_IMAGES} images: add some"
    return places, ""
