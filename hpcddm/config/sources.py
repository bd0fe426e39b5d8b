"""Settings that all sources of images have in common in an experiment's YAML."""

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from hpcddm.config.schema import Name, PathSetting, Positive, StrictModel, VariantSettings

Share = Annotated[float, Field(gt=0, lt=1)]
HELDOUT_SHARE = 0.2
"""Share of the images that is held out where nothing says which ones are; a few hundred images leave enough."""


class SourceSettings(VariantSettings):
    """Settings of a source of images; the files and folders that hold it are of the type `PathSetting`."""

    room: ClassVar[str] = "data/sources"
    adopts_tars: ClassVar[bool] = False
    """True for tars that are read where they lie; submit fills in how many of them there are."""
    hashed_if_changed: ClassVar[frozenset[str]] = frozenset({"collection"})

    collection: Name | None = None
    """Name that stands before every key: COLLECTION/KEY."""


class SeveralSettings(SourceSettings):
    """A list of collections, each a source with a name of its own as `collection`."""

    of: list[SourceSettings] = Field(min_length=1)

    def check(self, experiment: object) -> None:
        """Raise ValueError for collections without a name of their own, nested lists, and pictures among tars."""
        names = [source.collection for source in self.of]
        if None in names or len(set(names)) < len(names):
            raise ValueError("every collection needs a name of its own, as its key 'collection'")
        nested = [source.collection for source in self.of if isinstance(source, SeveralSettings)]
        if nested:
            raise ValueError(f"{nested[0]}: a list within a list; name its sources in one")
        other = next((source.collection for source in self.of if source.adopts_tars != self.adopts_tars), None)
        if other is not None:
            command = f"tar --sort=name --transform='s,^\\./,,' -cf {other}.tar -C FOLDER ."
            pack = f"pack them ({command}) and name the tar as webdataset, where folders are no classes"
            what = f"its pictures cannot stand among tars; {pack}" if self.adopts_tars else "tars are tar_collections"
            raise ValueError(f"{other}: {what}")


class OneKey(StrictModel):
    """Settings of which exactly one key is given; all are None without a value."""

    @model_validator(mode="after")
    def _has_one(self) -> "OneKey":
        if sum(value is not None for _, value in self) != 1:
            raise ValueError(f"needs one of {', '.join(type(self).model_fields)}")
        return self


class HeldoutFolder(OneKey):
    """Held-out images: those in a folder of their own, or a share of all."""

    folder: PathSetting | None = None
    share: Share | None = None


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
