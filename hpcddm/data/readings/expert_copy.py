"""Reading from an expert's copy: an expert reads the tars that the stage copy_lists made of its list.

The copies are few whole tars; from the shards an expert reads every tar of the run. A training on all samples reads the
shards.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, Literal

from hpcddm.config.data_variants import ReadingSettings
from hpcddm.data.catalog import Catalog
from hpcddm.data.columns import Column
from hpcddm.data.copies import open_copy
from hpcddm.data.images import CatalogImages, CopiedImages, ImageStore
from hpcddm.data.readings.base import Reading
from hpcddm.jobs.unit import Unit
from hpcddm.runs.files import CATALOG_FILE


class MaterialisedReadingSettings(ReadingSettings):
    """Treatment of EXIF, XMP and comments in the pictures of the copies."""

    reads_copies: ClassVar[bool] = True

    exif: Literal["keep", "drop"] = "keep"

    @property
    def drops_exif(self) -> bool:
        """Tell if they are dropped."""
        return self.exif == "drop"


class ExpertCopyReading(Reading[MaterialisedReadingSettings]):
    """Reading from the copy of a list."""

    def open_images(self, unit: Unit, catalog: Catalog, numbers: Column | None) -> AbstractContextManager[ImageStore]:
        if numbers is None:
            return nullcontext(CatalogImages(catalog))
        folder = unit.input(f"copy_lists/{unit.name}", CATALOG_FILE).parent
        # The copy stays valid for another form: its files are the same.
        return nullcontext(CopiedImages(open_copy(folder).with_image_format(catalog.image_format), numbers))
