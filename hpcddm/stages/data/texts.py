"""Stage texts: the states of a range of the distinct captions; only where they are a column."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.shapes import texts_settings
from hpcddm.pipeline.stage import DiskSpace, Gpus, Stage
from hpcddm.runs.unit_keys import CAPTIONS
from hpcddm.stages.data.captions import texts_keys

CAPTIONS_AT_ONCE = 512
"""Captions that are tokenised together, from which those of like length are encoded together."""
STATE_BYTES, OFFSET_BYTES = 2, 8
"""Bytes of one value of a state, float16, and of the place where a caption's states begin."""


def captions_of_unit(experiment: Experiment, images: dict[str, int]) -> int:
    """Count the captions of one unit, at most: where every sample has another one."""
    return -(-sum(images.values()) // len(texts_keys(experiment)))


class TextsStage(Stage):
    """A unit encodes the captions of one range."""

    name = "texts"
    reads = ("captions",)
    gpus = Gpus.ONE
    is_made_everywhere = True

    def units(self, experiment: Experiment) -> list[str]:
        """List the ranges, or nothing where no column of states is wanted."""
        return texts_keys(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the distinct captions."""
        return [CAPTIONS]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover the encoder, and where it is cut."""
        return texts_settings(experiment.data)

    def gpus_in(self, experiment: Experiment) -> Gpus:
        """Return no GPU for an encoder that computes next to nothing."""
        encoder = experiment.data.condition.text_encoder
        return Gpus.ONE if encoder is not None and encoder.uses_gpu else Gpus.NONE

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the states of captions that are all different and as long as they may be.

        They wait on disk before they are written.
        """
        tokens, width = experiment.data.condition.shape
        size = captions_of_unit(experiment, images) * (tokens * width * STATE_BYTES + OFFSET_BYTES)
        return DiskSpace(size, size, 1)
