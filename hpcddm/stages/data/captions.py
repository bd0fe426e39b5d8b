"""Stage captions: the distinct captions of all samples, numbered; only where their states are a column."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.pipeline.fingerprints import ALL
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.ranges import TRAIN, range_keys
from hpcddm.runs.unit_keys import CAPTIONS, CATALOG

CAPTION_BYTES, NUMBER_BYTES, SORTED_BYTES = 80, 4, 36
"""Bytes of a caption of some dozen words, of its number, and of what is sorted of one, beside its text."""


def texts_keys(experiment: Experiment) -> list[str]:
    """List the units of the stage texts: as many ranges of the distinct captions as of the training images."""
    ranges = range_keys(experiment, "texts", (TRAIN,)) if experiment.data.condition.reads_column else []
    return [f"texts/{number:03d}" for number in range(len(ranges))]


def captions_read(experiment: Experiment) -> list[str]:
    """List the units that a stage reads for the states of its samples' captions; none where they are no column.

    Of none anything counts in a fingerprint: the catalog says the captions, and settings how they are encoded.
    """
    return [CAPTIONS, *texts_keys(experiment)] if experiment.data.condition.reads_column else []


def uncounted_captions(experiment: Experiment) -> dict[str, str]:
    """Return `captions_read` as parts of which nothing counts."""
    return dict.fromkeys(captions_read(experiment), "")


class CaptionsStage(Stage):
    """Its one unit numbers the distinct captions."""

    name = "captions"
    reads = ("catalog",)
    is_made_everywhere = True

    def units(self, experiment: Experiment) -> list[str]:
        """Return the stage's only unit, or nothing where no column of states is wanted."""
        return [CAPTIONS] if experiment.data.condition.reads_column else []

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the catalog, which says where the captions lie."""
        return [CATALOG]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Count the samples, not where they lie."""
        return {CATALOG: ALL}

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover the number of ranges; the samples say all else."""
        return {"ranges": len(texts_keys(experiment))}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate captions that are all different, which are sorted on disk."""
        kept = sum(images.values()) * (CAPTION_BYTES + NUMBER_BYTES)
        return DiskSpace(kept, kept + sum(images.values()) * SORTED_BYTES, 4)
