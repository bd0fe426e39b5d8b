"""Stage shard: writes images to WebDataset tars, or uses existing tars in place, and writes their columns."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import settings_to_hash
from hpcddm.pipeline.disk_sizes import sample_bytes
from hpcddm.pipeline.fingerprints import class_name_settings
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import images_of_range, range_keys, tars_of

COLUMN_BYTES = 300
"""Bytes of the columns of one sample whose tar is adopted, most of them of its caption."""


class ShardStage(Stage):
    """Stage whose units write a range of tars with training or held-out images."""

    name = "shard"
    reads = ()
    runs_at_every_site = True

    def units(self, experiment: Experiment) -> list[str]:
        """List the ranges."""
        return range_keys(experiment, self.name)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return no unit: the source is outside the run."""
        return []

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include all settings of the data; the names of classes only if captions contain them."""
        names = class_name_settings(experiment) if experiment.data.source.captions_name_classes else {}
        return {"data": settings_to_hash(experiment.data)} | names

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the tars and their columns, which wait on disk before they are written."""
        count = images_of_range(experiment, key, images)
        columns = count * COLUMN_BYTES
        if experiment.data.source.reads_in_place:
            return DiskSpace(columns, columns, 2)
        return DiskSpace(count * sample_bytes(experiment), columns, 1 + len(tars_of(experiment, key)))
