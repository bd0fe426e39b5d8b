"""Stage encode_captions: the distinct captions and their encoder states, if trainings read stored states."""

from typing import Any, ClassVar

from hpcddm.config.data_shapes import text_states_settings
from hpcddm.config.experiment import Experiment
from hpcddm.pipeline.fingerprints import ALL
from hpcddm.pipeline.stage import DiskSpace, GpuUse, Stage, UnitKind
from hpcddm.runs.ranges import TRAIN, range_keys
from hpcddm.runs.unit_keys import CAPTIONS, CATALOG, caption_states_key

CAPTION_BYTES, NUMBER_BYTES, SORTED_BYTES = 80, 4, 36
"""Bytes of a caption of a dozen words, of its number, and of its entry (without the text) in the sort on disk."""
CAPTIONS_AT_ONCE = 512
"""Captions that are tokenised together; captions of similar length among them are encoded together."""
STATE_BYTES, OFFSET_BYTES = 2, 8
"""Bytes of one value of a state (float16), and of the offset of a caption's states."""


def states_keys(experiment: Experiment) -> list[str]:
    """List the units that encode the distinct captions, as many as there are ranges of training images."""
    ranges = range_keys(experiment, "encode_captions", (TRAIN,)) if experiment.data.condition.reads_column else []
    return [caption_states_key(f"{number:03d}") for number in range(len(ranges))]


def captions_read(experiment: Experiment) -> list[str]:
    """List the units with the states of captions; empty if trainings do not read stored states.

    These units do not count in fingerprints: the catalog identifies the captions, and settings identify their encoding.
    """
    return [CAPTIONS, *states_keys(experiment)] if experiment.data.condition.reads_column else []


def uncounted_captions(experiment: Experiment) -> dict[str, str]:
    """Return `captions_read` as inputs that do not count in a fingerprint."""
    return dict.fromkeys(captions_read(experiment), "")


def captions_of_unit(experiment: Experiment, images: dict[str, int]) -> int:
    """Return the maximum number of captions of one unit, if every sample has a different caption."""
    return -(-sum(images.values()) // len(states_keys(experiment)))


class DistinctCaptions(UnitKind):
    """Unit that numbers the distinct captions."""

    runs_at_every_site = True

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the catalog, which gives the location of the captions."""
        return [CATALOG]

    def parts(self, experiment: Experiment, key: str) -> dict[str, str]:
        """Include the samples, not their locations."""
        return {CATALOG: ALL}

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the number of ranges; the samples determine all else."""
        return {"ranges": len(states_keys(experiment))}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate captions that are all different, which are sorted on disk."""
        kept = sum(images.values()) * (CAPTION_BYTES + NUMBER_BYTES)
        return DiskSpace(kept, kept + sum(images.values()) * SORTED_BYTES, 4)


class EncodeCaptionsStage(Stage):
    """Stage whose usual units encode the captions of one range."""

    name = "encode_captions"
    reads = ("catalog",)
    gpus = GpuUse.ONE
    runs_at_every_site = True
    other_kinds: ClassVar = {CAPTIONS: DistinctCaptions()}

    def units(self, experiment: Experiment) -> list[str]:
        """List the distinct captions, then the ranges of them; nothing where no column of states is wanted."""
        return captions_read(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the distinct captions."""
        return [CAPTIONS]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the encoder, and where it is cut."""
        return text_states_settings(experiment.data)

    def usable_gpus(self, experiment: Experiment) -> GpuUse:
        """Return `GpuUse.NONE` for an encoder that needs no GPU."""
        encoder = experiment.data.condition.text_encoder
        return GpuUse.ONE if encoder is not None and encoder.uses_gpu else GpuUse.NONE

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the states of captions that are all different and as long as they may be.

        They wait on disk before they are written.
        """
        tokens, width = experiment.data.condition.shape
        size = captions_of_unit(experiment, images) * (tokens * width * STATE_BYTES + OFFSET_BYTES)
        return DiskSpace(size, size, 1)
