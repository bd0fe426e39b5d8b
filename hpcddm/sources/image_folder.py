"""A folder of images: with a folder per class, or the images alone.

The training images lie in <folder>/train and the held-out ones in <folder>/heldout, or <folder>/val. Where `heldout`
names another folder, or a share, <folder> itself holds the images; of a share, a hash of an image's key says in which
split it is (`sources.heldout_share`).

Pictures are known by their content (`sources.listing`). Classes are numbered in alphabetical order of their folders; a
folder without a picture is not a class. A file classes.txt, beside the folders of the training classes or in <folder>,
gives the classes other names (`sources.class_file`). Images of a class are directly in its folder: a folder inside it
is refused, lest its images be missed. Any other file is passed over and counted.

Captions are in a table or in files beside the images (`sources.picture_captions`). The table is beside the classes or
images, with names relative to it; it may also be in <folder>, with names such as train/ant/1.png.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from hpcddm.config.sources import PictureFolderSettings
from hpcddm.data.image_decoding import ImageError
from hpcddm.errors import UserError
from hpcddm.files import atomic
from hpcddm.runs.passed_over import PassedOverItem
from hpcddm.sources import class_file, image_folder_proposals, picture_captions
from hpcddm.sources.base import SPLITS, Source
from hpcddm.sources.folders.proposal import SourceProposal
from hpcddm.sources.folders.survey import FolderSurvey
from hpcddm.sources.listing import CaptionFiles, Listing, list_folder, list_unused, require_folder
from hpcddm.sources.picture_files import PictureFiles, beside_classes, class_folders, file_sizes, list_classes

FOLDERS = {"train": ("train",), "heldout": ("heldout", "val")}
"""Valid names for the folder of each split."""


class ImageFolderSettings(PictureFolderSettings):
    """Folder that holds `train` and `heldout`, or `val`; with the key `heldout`, the images themselves."""

    hashed_if_changed: ClassVar[frozenset[str]] = frozenset(
        {"caption", "caption_from", "caption_item", "collection", "heldout", "in_place"}
    )

    caption: str | None = None
    """Caption of every image without a table; {class} is replaced by the name of its class."""
    caption_from: Annotated[str, Field(pattern=r"^(table:.+|\.?[A-Za-z0-9_]{1,20})$")] | None = None
    """Place of the captions: `table:COLUMN`, or the extension of a file beside each image, such as `txt`."""
    caption_item: Annotated[int, Field(ge=0)] | None = None
    """Number of the caption to take where an image has several: of a line, or of an item in a list; 0 is the first."""

    @model_validator(mode="after")
    def _has_one_caption(self) -> "ImageFolderSettings":
        if self.caption is not None and self.caption_from is not None:
            raise ValueError("caption and caption_from both say what the captions are; remove one of them")
        return self


class FolderSplit(PictureFiles):
    """Images of one split."""

    def __init__(self, settings: ImageFolderSettings, split: str) -> None:
        self._settings, self.template = settings, settings.caption
        train, self.root = _root(settings, "train"), _root(settings, split)
        self.place = settings.place_of(self.root)
        self.class_file = class_file.find([train] if settings.heldout else [train, Path(settings.folder)])
        extensions = picture_captions.extensions(settings.caption_from, settings.caption is not None)
        self._list_images(train, extensions)
        if settings.caption_from is None:
            usual = picture_captions.usual_extensions(self._beside, len(self.names))
            if sum(listed.count > 0 for listed in self._beside.values()) > len(usual):
                self._list_images(train, usual)
        self.check_some()
        self.check_keys()
        self._find_captions(split)
        if split == "train":
            self.passed_over += _beside(settings, self.class_file)
        self.divide(split, settings.heldout.share if settings.heldout else None)
        self.has_captions = any((self.table, self.caption_extension, self.template is not None))
        item = settings.caption_item
        self._captions = self.table.captions(self.names, item) if self.table else None
        self.check_template()

    def caption(self, number: int) -> str | None:
        if self.table is not None and self._captions is not None:
            caption = self._captions[number]
            if caption is None:
                raise ImageError(f"{self.table.path}: no caption of {self.names[number]}; write one")
            return caption
        if self.caption_extension is not None:
            picture = self.root / self.names[number]
            return picture_captions.read_beside(picture, self.caption_extension, self._settings.caption_item)
        return super().caption(number)

    def _list_images(self, train: Path, extensions: Sequence[str]) -> None:
        """List the images, with their classes if there are any, and what is passed over.

        extensions: those of captions beside the images.
        """
        beside, beside_others = ({extension: CaptionFiles() for extension in extensions} for _ in range(2))
        listing = self._list_root(beside_others)
        # The training folders number the classes of both splits: a class may have no held-out images.
        classes = None if train == self.root else class_folders(train)
        folders, names, labels, items = list_classes(self.root, train, classes, listing.folders, beside)
        if folders:
            # Captions of images beside the classes are passed over like these images.
            listing = self._list_root({}) if any(listed.count for listed in beside_others.values()) else listing
            self.names, self.labels, self._beside = names, labels, beside
            self.passed_over = [*listing.passed_over, *map(_name_tables, items), *beside_classes(listing.images)]
            self.class_names = class_file.read(self.class_file, folders) if self.class_file else folders
        else:
            self.names, self.labels, self._beside = listing.images, None, beside_others
            unused = [PassedOverItem(class_file.NAME, "files .txt")] * self._has_class_file()
            self.passed_over = [*listing.passed_over, *items, *unused]
            self.class_names, self.class_file = [], None

    def _list_root(self, captions: Mapping[str, CaptionFiles]) -> Listing:
        """List the split's folder without the tables; captions: as for `list_folder`."""
        used = [*picture_captions.TABLES, *([class_file.NAME] * self._has_class_file())]
        return list_folder(self.root, used=used, captions=captions)

    def _has_class_file(self) -> bool:
        return self.class_file is not None and self.class_file.parent == self.root

    def _find_captions(self, split: str) -> None:
        """Find the table, or the extension of the files, that has the captions; list what is not used of tables."""
        settings, root = self._settings, self.root
        places = {root: ""} if settings.heldout else {root: "", Path(settings.folder): f"{root.name}/"}
        has_template = self.template is not None
        self.table, others = picture_captions.find_table(places, settings.caption_from, has_template)
        self.passed_over += [
            PassedOverItem(path.name, "tables that are not read")
            for path in others
            if path.parent == root or split == "train"
        ]
        self.caption_extension = picture_captions.find_extension(root, self._beside, settings.caption_from)
        if self.table and self.caption_extension:
            first, column = root / self._beside[self.caption_extension].first, self.table.column
            both = f"{self.table.path} and files such as {first} may both have the captions"
            advice = f"data.source.caption_from: table:{column} or {self.caption_extension[1:]}"
            raise UserError(f"{both}; choose one with {advice}")
        if self.table:
            is_shared = self.table.path.parent != root
            other = f"{_root(settings, 'heldout').name}/" if is_shared and split == "train" else None
            self.passed_over += self.table.passed_over(self.names, other)


def _root(settings: ImageFolderSettings, split: str) -> Path:
    """Return the folder with the classes of a split, or with its images alone."""
    folder, heldout = Path(settings.folder), settings.heldout
    if heldout is None:
        return _split_folder(folder, split)
    key = "folder"
    if split == "heldout" and heldout.folder is not None:
        folder, key = Path(heldout.folder), "heldout.folder"
    require_folder(key, folder)
    return folder


def _split_folder(folder: Path, split: str) -> Path:
    require_folder("folder", folder)
    candidates = [folder / name for name in FOLDERS[split]]
    there = [path for path in candidates if path.is_dir()]
    if len(there) > 1:
        names = " and ".join(str(path) for path in there)
        raise UserError(f"data.source.folder: {names} both hold {split} images; rename or remove one of them")
    if not there:
        names = " or ".join(FOLDERS["heldout"])
        raise UserError(
            f"data.source.folder: {candidates[0]} is not a folder; needs {folder}/train and {folder}/{names}, or the"
            " key data.source.heldout"
        )
    return there[0]


def _beside(settings: ImageFolderSettings, names_of_classes: Path | None) -> list[PassedOverItem]:
    """List the files next to the folders of the splits, if these share a parent folder."""
    if settings.heldout is not None:
        return []
    folder, used = Path(settings.folder), {name for names in FOLDERS.values() for name in names}
    used.update(picture_captions.TABLES)
    if names_of_classes is not None and names_of_classes.parent == folder:
        used.add(names_of_classes.name)
    return list_unused(folder, used, "the folders of the splits")


def _name_tables(item: PassedOverItem) -> PassedOverItem:
    """Give tables in the folders of classes a reason of their own: other programs read them."""
    is_table = item.name.rpartition("/")[2] in picture_captions.TABLES
    return item._replace(reason="tables in the folder of one class, which are not read") if is_table else item


class ImageFolder(Source[ImageFolderSettings]):
    """No image is opened until it is accessed."""

    @classmethod
    def propose(cls, survey: FolderSurvey) -> list[SourceProposal]:
        return image_folder_proposals.propose(survey)

    def open_split(self, split: str) -> FolderSplit:
        return FolderSplit(self.settings, split)

    def has_heldout(self) -> bool:
        """Tell if a key names held-out images, or a folder is that of a split."""
        folder = Path(self.settings.folder)
        names = [name for several in FOLDERS.values() for name in several]
        return bool(self.settings.heldout) or not folder.is_dir() or any((folder / name).is_dir() for name in names)

    def content_hash(self) -> str:
        """Hash names and sizes of all images, and of captions beside them: reading a million of them takes too long.

        Tables of captions and names of classes are hashed whole.
        """
        files, tables = [], []
        for split in SPLITS:
            records = self.open_split(split)
            place = split if self.settings.heldout else records.root.name
            files += file_sizes(records.root, place, records.names)
            if records.caption_extension:
                files += picture_captions.sizes(records.root, place, records.names, records.caption_extension)
            tables += [
                atomic.sha256(file) for file in (records.table and records.table.path, records.class_file) if file
            ]
        return hashlib.sha256(repr([*files, *tables]).encode()).hexdigest()
