"""Stage shard: images from a source become WebDataset tars, or tars are adopted where they lie; columns of both."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import hashed
from hpcddm.pipeline.disk import sample_bytes
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import images_of_range, range_keys, tars_of

COLUMN_BYTES = 300
"""Bytes of the columns of one sample whose tar is adopted, most of them of its caption."""


class ShardStage(Stage):
    """A unit is a range of tars of the training or of the held-out images."""

    name = "shard"
    reads = ()
    is_made_everywhere = True

    def units(self, experiment: Experiment) -> list[str]:
        """List the ranges."""
        return range_keys(experiment, self.name)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return no unit: the source is outside the run."""
        return []

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover all that is said of the data."""
        return {"data": hashed(experiment.data)}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the tars and their columns, which wait on disk before they are written."""
        count = images_of_range(experiment, key, images)
        columns = count * COLUMN_BYTES
        if experiment.data.source.adopts_tars:
            return DiskSpace(columns, columns, 2)
        return DiskSpace(count * sample_bytes(experiment), columns, 1 + len(tars_of(experiment, key)))
