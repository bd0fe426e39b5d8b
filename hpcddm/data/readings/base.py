"""Base of the readings: the ways in which a training reads the images of its samples."""

from abc import abstractmethod
from contextlib import AbstractContextManager

from hpcddm.config.variants import S, Variant
from hpcddm.data.catalog import Catalog
from hpcddm.data.columns import Column
from hpcddm.data.images import Images
from hpcddm.jobs.unit import Unit


class Reading(Variant[S]):
    """Way to the images of a training; another one gives the same images, and no bit of the weights changes."""

    @abstractmethod
    def opened(self, unit: Unit, catalog: Catalog, numbers: Column | None) -> AbstractContextManager[Images]:
        """Return the images of a training, by sample number, for as long as the context is open.

        catalog: of the samples in the run's own tars; numbers: of the unit's list, None for a training on all samples.
        """
