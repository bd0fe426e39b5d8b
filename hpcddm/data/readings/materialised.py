"""Materialised reading: an expert reads the tars that the stage materialise made of its list.

They lie together, where an indexed expert reads every tar of the run; who trains on all samples reads those.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, Literal

from hpcddm.config.data import ReadingSettings
from hpcddm.data.catalog import Catalog
from hpcddm.data.columns import Column
from hpcddm.data.copies import open_copy
from hpcddm.data.images import CopiedImages, Images, TarImages
from hpcddm.data.readings.base import Reading
from hpcddm.jobs.unit import Unit
from hpcddm.runs.files import CATALOG_FILE


class Settings(ReadingSettings):
    """Treatment of EXIF, XMP and comments in the pictures of the copies."""

    reads_copies: ClassVar[bool] = True

    exif: Literal["keep", "drop"] = "keep"

    @property
    def drops_exif(self) -> bool:
        """Tell if they are dropped."""
        return self.exif == "drop"


class MaterialisedReading(Reading[Settings]):
    """Reading from the copy of a list."""

    def opened(self, unit: Unit, catalog: Catalog, numbers: Column | None) -> AbstractContextManager[Images]:
        if numbers is None:
            return nullcontext(TarImages(catalog))
        folder = unit.input(f"materialise/{unit.name}", CATALOG_FILE).parent
        # The copy stays when another form is asked for: its files are the same.
        return nullcontext(CopiedImages(open_copy(folder).seen_in(catalog.form), numbers))
