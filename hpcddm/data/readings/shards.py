"""Reading from the shards: every image comes from the run's own tars, by its place in them."""

from contextlib import AbstractContextManager, nullcontext

from hpcddm.config.data_variants import ReadingSettings
from hpcddm.data.catalog import Catalog
from hpcddm.data.columns import Column
from hpcddm.data.images import CatalogImages, ImageStore
from hpcddm.data.readings.base import Reading
from hpcddm.jobs.unit import Unit


class IndexedReadingSettings(ReadingSettings):
    """Settings of the indexed reading: only its name."""


class ShardReading(Reading[IndexedReadingSettings]):
    """Reading from shared tars, which needs neither time before a training nor space."""

    def open_images(self, unit: Unit, catalog: Catalog, numbers: Column | None) -> AbstractContextManager[ImageStore]:
        return nullcontext(CatalogImages(catalog))
