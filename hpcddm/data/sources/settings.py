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


class Heldout(StrictModel):
    """Held-out images: those in a folder of their own, or a share of all."""

    folder: PathSetting | None = None
    share: Share | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "Heldout":
        if (self.folder is None) == (self.share is None):
            raise ValueError("needs either 'folder' or 'share'")
        return self
