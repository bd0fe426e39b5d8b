"""Base of the readings: methods by which a training reads the images of its samples."""

from abc import abstractmethod
from contextlib import AbstractContextManager

from hpcddm.config.variants import S, Variant
from hpcddm.data.catalog import Catalog
from hpcddm.data.columns import Column
from hpcddm.data.images import ImageStore
from hpcddm.jobs.unit import Unit


class Reading(Variant[S]):
    """Method by which a training reads its images; all methods give the same pixels and therefore the same weights."""

    @abstractmethod
    def open_images(self, unit: Unit, catalog: Catalog, numbers: Column | None) -> AbstractContextManager[ImageStore]:
        """Open the images of a training.

        Args:
            unit: Unit that trains.
            catalog: Catalog of the samples in the run's own tars.
            numbers: Numbers of the samples on the unit's list; None for a training on all samples.

        Returns:
            Context manager that yields the images, by sample number.
        """
