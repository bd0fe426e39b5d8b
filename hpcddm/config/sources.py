"""Settings that all sources of images have in common in an experiment's YAML."""

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from hpcddm.config.schema import Name, PathSetting, Positive, StrictModel, VariantSettings

Share = Annotated[float, Field(gt=0, lt=1)]
AUTO = "auto"
"""Value of a key that names a column, for the column to be found."""
HELDOUT_FOLDER = "@heldout"
"""Name of the folder of held-out pictures, if it is another one, in the column `file` of a catalog."""
HELDOUT_SHARE = 0.2
"""Share of the images that is held out where nothing says which ones are; a few hundred images leave enough."""


class SourceSettings(VariantSettings):
    """Settings of a source of images; the files and folders that hold it are of the type `PathSetting`."""

    package: ClassVar[str] = "sources"
    uses_existing_tars: ClassVar[bool] = False
    """True for tars that are read where they lie; submit fills in how many of them there are."""
    hashed_if_changed: ClassVar[frozenset[str]] = frozenset({"collection"})

    collection: Name | None = None
    """Name that begins every key: COLLECTION/KEY."""

    @property
    def captions_name_classes(self) -> bool:
        """True if the source's key `caption` contains {class}, the name of an image's class."""
        return "{class}" in (getattr(self, "caption", None) or "")

    @property
    def each(self) -> "list[SourceSettings]":
        """The source itself, or the sources of a list."""
        return [self]

    @property
    def reads_in_place(self) -> bool:
        """True if pictures are read where they are, in tars or as files; False if they are written to tars."""
        return self.uses_existing_tars

    def source_folders(self) -> dict[str | None, Path]:
        """Return the folder of what is read where it is, by collection; None for files without one."""
        return {}


class CombinedSettings(SourceSettings):
    """A list of collections, each a source with a name of its own as `collection`."""

    sources: list[SourceSettings] = Field(min_length=1)

    @property
    def captions_name_classes(self) -> bool:
        """True if one of the collections does."""
        return any(source.captions_name_classes for source in self.sources)

    @property
    def each(self) -> list[SourceSettings]:
        """The sources."""
        return self.sources

    @property
    def reads_in_place(self) -> bool:
        """True if all collections are read where they are."""
        return all(source.reads_in_place for source in self.sources)

    def source_folders(self) -> dict[str | None, Path]:
        """Return the folders of all collections."""
        return {name: folder for source in self.sources for name, folder in source.source_folders().items()}

    def check(self, experiment: object) -> None:
        """Raise ValueError for collections without a name of their own, nested lists, and pictures among tars."""
        names = [source.collection for source in self.sources]
        if None in names or len(set(names)) < len(names):
            raise ValueError("every collection needs a name of its own, as its key 'collection'")
        nested = [source.collection for source in self.sources if isinstance(source, CombinedSettings)]
        if nested:
            raise ValueError(f"{nested[0]}: a list within a list; name its sources in one")
        other = next(
            (source.collection for source in self.sources if source.uses_existing_tars != self.uses_existing_tars), None
        )
        if other is not None:
            command = f"tar --sort=name --transform='s,^\\./,,' -cf {other}.tar -C FOLDER ."
            pack = f"pack them ({command}) and name the tar as webdataset, where folders are not classes"
            what = (
                f"its pictures cannot be mixed with tars; {pack}"
                if self.uses_existing_tars
                else "tars are tar_collections"
            )
            raise ValueError(f"{other}: {what}")


class OneKey(StrictModel):
    """Settings with exactly one key given; the others are None."""

    @model_validator(mode="after")
    def _has_one(self) -> "OneKey":
        if sum(value is not None for _, value in self) != 1:
            raise ValueError(f"needs one of {', '.join(type(self).model_fields)}")
        return self


class HeldoutFolder(OneKey):
    """Held-out images: those in a folder of their own, or a share of all."""

    folder: PathSetting | None = None
    share: Share | None = None


class PictureFolderSettings(SourceSettings):
    """Folder of pictures that are files of their own."""

    folder: PathSetting
    heldout: HeldoutFolder | None = None
    in_place: bool = False
    """True to read the pictures where they are; False to write them once to tars, as squares of `data.image_size`."""

    @property
    def reads_in_place(self) -> bool:
        """True if the pictures are read where they are."""
        return self.in_place

    def source_folders(self) -> dict[str | None, Path]:
        """Return the folder, and that of the held-out pictures if it is another one."""
        folders: dict[str | None, Path] = {self.collection: Path(self.folder)}
        if self.heldout is not None and self.heldout.folder is not None:
            folders[f"{self.collection or ''}{HELDOUT_FOLDER}"] = Path(self.heldout.folder)
        return folders

    def place_of(self, root: Path) -> str:
        """Return the text that `Catalog.source_file` expects before the names of files in one of the folders."""
        for name, folder in reversed(self.source_folders().items()):
            if root.is_relative_to(folder):
                parts = [*([name] if name else []), *root.relative_to(folder).parts]
                return "".join(f"{part}/" for part in parts)
        raise ValueError(f"{root} is not in a folder of the source")


class HeldoutFile(OneKey):
    """Held-out images: those in a file of their own, or a share of all."""

    file: PathSetting | None = None
    share: Share | None = None


class HeldoutTars(OneKey):
    """Held-out samples, in one of three ways: the last tars, the tars of a pattern, or a share of all samples."""

    shards: Positive | None = None
    tars: str | None = None
    """Pattern of their paths, such as `val/*.tar`."""
    share: Share | None = None
    """Share by a hash of the key: the same ones whatever tars are added."""


class HeldoutSplit(OneKey):
    """Held-out samples: those of a split of the data set, or a share of the training split."""

    split: str | None = None
    share: Share | None = None
