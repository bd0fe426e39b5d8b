"""Stage cluster: the rule by which every sample gets one of K clusters."""

from functools import partial

import numpy as np

from hpcddm.clustering.base import Clustering, NotFinite, Workspace
from hpcddm.clustering.partition import write_arrays
from hpcddm.clustering.samples import Samples
from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.data import run_samples
from hpcddm.errors import require
from hpcddm.jobs.unit import Result, Unit
from hpcddm.randomness import keyed
from hpcddm.randomness.streams import FITTED_IMAGES
from hpcddm.runs.files import PARTITION
from hpcddm.runs.ranges import TRAIN
from hpcddm.runs.stored_results import check_numbers
from hpcddm.runs.unit_keys import CATALOG
from hpcddm.stages.data.cluster import MAX_FITTED
from hpcddm.stages.progress import advance


def run(experiment: Experiment, unit: Unit) -> Result:
    """Fit the partition to the training images, or take that of another run."""
    own = experiment.cluster.clustering
    check_numbers(experiment, unit.inputs[CATALOG].results["class_names"])
    catalog = run_samples.open_unit_catalog(unit, TRAIN)
    train = Samples(catalog, run_samples.features(catalog) if own.fits_features else None)
    numbers = fitted_numbers(len(train), experiment.seed)
    clustering = variants.create(Clustering, own)

    workspace = Workspace(unit.folder, partial(advance, unit))
    try:
        partition = clustering.fit(train, numbers, experiment.cluster.experts, experiment.seed, workspace)
    except NotFinite as error:
        key = train.keys([int(numbers[error.place])])[0]
        what = f"encode.encoder: {experiment.encode.encoder.name} gives {key} features that are NaN or infinite"
        require(False, f"{what}; look at its image, or take another encoder, then submit again")
    except ValueError as error:
        require(False, f"cluster.clustering: {error}")
    write_arrays(unit.folder / PARTITION, partition)
    if partition.figures:
        print(", ".join(f"{name} {value:.4g}" for name, value in partition.figures.items()), flush=True)
    return Result([PARTITION], {"images": len(train), "fitted": len(numbers) * own.is_fitted, **partition.figures})


def fitted_numbers(count: int, seed: int, most: int = MAX_FITTED) -> range | np.ndarray:
    """Choose the samples to which the partition is fitted: all, or at random one of each of `most` equal stretches."""
    if count <= most:
        return range(count)
    edges = np.arange(most + 1) * count // most
    places = keyed.uniform(seed, FITTED_IMAGES, range(most)).numpy() * np.diff(edges)
    return edges[:-1] + places.astype(np.int64)
