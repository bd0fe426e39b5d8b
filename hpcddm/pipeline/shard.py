"""Stage shard: images from a source become WebDataset tars, each with its byte-offset index."""

from collections.abc import Mapping
from typing import Any

from hpcddm.config import Experiment
from hpcddm.pipeline.disk import INDEX_ROW_BYTES, images_of_shard, values_per_image
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.rundir import manifest
from hpcddm.rundir.layout import RunDir
from hpcddm.rundir.manifest import Manifest
from hpcddm.schema import hashed

TAR, INDEX, KEYS = "images.tar", "index.npy", "keys.txt"
TAR_BLOCK_BYTES, PNG_CHUNK_BYTES, KEY_BYTES = 512, 80, 48


def shard_keys(experiment: Experiment) -> list[str]:
    """List the units that write the tars: training images first, then held-out ones."""
    training = [f"shard/train-{part:03d}" for part in range(experiment.data.shards)]
    return training + [f"shard/heldout-{part:03d}" for part in range(experiment.data.heldout_shards)]


def class_names(experiment: Experiment, shards: Mapping[str, Manifest]) -> list[str]:
    """List the classes' names, by the manifests of the shards; numbers where the images came without names.

    There are none where the experiment has no classes.
    """
    names: list[str] = next(
        (shards[key].results.get("class_names", []) for key in shard_keys(experiment) if key in shards), []
    )
    numbers = range(experiment.data.num_classes or 0)
    return [names[number] if number < len(names) else str(number) for number in numbers]


def stored_class_names(experiment: Experiment, run: RunDir) -> list[str]:
    """List the class names of a run, by the first shard's manifest; numbers where it is missing."""
    shards = {key: manifest.read(run.unit(key)) for key in shard_keys(experiment)[:1]}
    return class_names(experiment, {key: shard for key, shard in shards.items() if shard is not None})


class ShardStage(Stage):
    """A unit is one tar of the training or of the held-out images."""

    name = "shard"
    reads = ()
    is_made_everywhere = True

    def units(self, experiment: Experiment) -> list[str]:
        """List one unit per tar."""
        return shard_keys(experiment)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return no unit: the source is outside the run."""
        return []

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Cover all that is said of the data."""
        return {"data": hashed(experiment.data)}

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate a PNG of pure noise: a byte more per row, and its chunks."""
        largest = values_per_image(experiment) + experiment.data.image_size + PNG_CHUNK_BYTES
        # Image and class are an entry each, in whole blocks.
        entry_bytes = -(-largest // TAR_BLOCK_BYTES) * TAR_BLOCK_BYTES
        per_image = entry_bytes + 3 * TAR_BLOCK_BYTES + INDEX_ROW_BYTES + KEY_BYTES
        return DiskSpace(images_of_shard(experiment, key, images) * per_image, 0, 3)
