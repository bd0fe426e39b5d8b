"""Stage encode: the features of one tar, as HDF5."""

import h5py
import numpy as np

from hpcddm import plugins
from hpcddm.config import Experiment
from hpcddm.data.reader import TarReader
from hpcddm.devices import own_device
from hpcddm.encoders.base import ImageEncoder
from hpcddm.networks.workload import ENCODER, Work, Workload
from hpcddm.pipeline.encode import FEATURES
from hpcddm.pipeline.shard import INDEX, TAR
from hpcddm.rundir import atomic
from hpcddm.runtime.unit import Result, Unit

IMAGES_AT_ONCE = 256


def run(settings: Experiment, unit: Unit) -> Result:
    """Encode the images of the shard of the same name; row i of `features` belongs to row i of its index."""
    shard = unit.key.replace("encode/", "shard/")
    samples = np.load(unit.input(shard, INDEX))
    samples["shard"] = 0
    reader = TarReader([unit.input(shard, TAR)], samples)
    encoder = settings.encode.encoder
    if encoder.uses_gpu:
        own_device(unit)
    encode = plugins.create(ImageEncoder, encoder).encode
    blocks = []
    for start in range(0, len(samples), IMAGES_AT_ONCE):
        unit.leave_if_told()
        rows = range(start, min(start + IMAGES_AT_ONCE, len(samples)))
        blocks.append(encode(reader.images(rows)))
        unit.heartbeat.beat(rows.stop, len(samples))
    features = np.concatenate(blocks)
    with atomic.replacing(unit.folder / FEATURES, durable=False) as staged, h5py.File(staged, "w") as file:
        file.create_dataset("features", data=features)
        file.attrs["encoder"] = settings.encode.encoder.name
    return Result([FEATURES], {"images": len(features), "dimensions": features.shape[1]})


def work(workload: Workload, key: str) -> list[Work]:
    """List the encoder's run on one tar."""
    return [Work(ENCODER, False, workload.images_of(key), IMAGES_AT_ONCE)]
