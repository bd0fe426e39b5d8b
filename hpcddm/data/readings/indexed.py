"""Indexed reading: every image comes from the run's own tars, by its place in them."""

from contextlib import AbstractContextManager, nullcontext

from hpcddm.config.data import ReadingSettings
from hpcddm.data.catalog import Catalog
from hpcddm.data.columns import Column
from hpcddm.data.images import Images, TarImages
from hpcddm.data.readings.base import Reading
from hpcddm.jobs.unit import Unit


class Settings(ReadingSettings):
    """Settings of the indexed reading, which has none."""


class IndexedReading(Reading[Settings]):
    """Reading from shared tars, which needs neither time before a training nor space."""

    def opened(self, unit: Unit, catalog: Catalog, numbers: Column | None) -> AbstractContextManager[Images]:
        return nullcontext(TarImages(catalog))
