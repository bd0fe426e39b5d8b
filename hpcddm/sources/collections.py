"""Several collections as one: what is training image or held out in each is so in all.

In an experiment `data.source` is the list of them. The classes of all are those of each by their names, in alphabetical
order; where one has no classes, or no names for them, all together have none, and likewise with captions.
"""

from hpcddm.config.sources import CombinedSettings
from hpcddm.sources.combined import CombinedSource


class CollectionsSettings(CombinedSettings):
    """The collections; none of them adopts tars."""


class Collections(CombinedSource[CollectionsSettings]):
    """Sources of records."""
