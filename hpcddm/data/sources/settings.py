"""Settings that all sources of images have in common in an experiment's YAML."""

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from hpcddm.schema import PathSetting, StrictModel, VariantSettings

Share = Annotated[float, Field(gt=0, lt=1)]


class SourceSettings(VariantSettings):
    """Settings of a source of images; the files and folders that hold it are of the type `PathSetting`."""

    room: ClassVar[str] = "data/sources"


class HeldoutShare(StrictModel):
    """Held-out images: a share of all, chosen by a hash of their keys (`sources.shares`)."""

    share: Share


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
