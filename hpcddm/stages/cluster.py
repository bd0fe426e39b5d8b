"""Stage cluster: every image gets one of K clusters, every expert the list of its samples."""

import h5py
import numpy as np

from hpcddm import plugins
from hpcddm.clusterings.base import Clustering
from hpcddm.config import Experiment
from hpcddm.data import samples as sample_lists
from hpcddm.errors import require
from hpcddm.pipeline.cluster import PARTITION
from hpcddm.pipeline.encode import FEATURES
from hpcddm.pipeline.shard import class_names
from hpcddm.rundir import atomic
from hpcddm.runtime.unit import Result, Unit


def run(settings: Experiment, unit: Unit) -> Result:
    """Fit on the training features, assign training and held-out images, write one sample list per expert."""
    num_experts = settings.cluster.experts
    heldout = sample_lists.indices(unit, "heldout")
    sample_lists.evaluation_samples(heldout, settings, class_names(settings, unit.inputs))
    training = sample_lists.indices(unit, "train")
    features = _features(unit, "train")
    clustering = plugins.create(Clustering, settings.cluster.clustering)
    try:
        partition = clustering.fit(features, num_experts, settings.seed)
    except ValueError as error:
        require(False, f"cluster.clustering: {error}")
    training["cluster"] = partition.assign(features)
    heldout["cluster"] = partition.assign(_features(unit, "heldout"))
    outputs = {"train.npy": training, "heldout.npy": heldout}
    for expert in range(num_experts):
        outputs[f"expert-{expert:02d}.npy"] = training[training["cluster"] == expert]
    for name, rows in outputs.items():
        with atomic.replacing(unit.folder / name, durable=False) as staged, open(staged, "wb") as file:
            np.save(file, rows)
    with atomic.replacing(unit.folder / PARTITION, durable=False) as staged, h5py.File(staged, "w") as file:
        for name, values in partition.arrays().items():
            file.create_dataset(name, data=values)
    sizes = np.bincount(training["cluster"], minlength=num_experts)
    print(f"cluster sizes {sizes.tolist()}, largest / mean {sizes.max() / sizes.mean():.2f}", flush=True)
    return Result([*outputs, PARTITION], {"sizes": sizes.tolist(), "images": len(training)})


def _features(unit: Unit, split: str) -> np.ndarray:
    blocks = []
    for key in sample_lists.keys_of(unit, "encode", split):
        with h5py.File(unit.input(key, FEATURES)) as file:
            blocks.append(file["features"][:])
    return np.concatenate(blocks)
