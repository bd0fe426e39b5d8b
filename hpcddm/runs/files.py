"""Names of the files in units' folders, by the stage that writes them; docs/run-folder.md describes the contents."""

from typing import TYPE_CHECKING

from hpcddm.runs.unit_keys import expert_key, unit_name

if TYPE_CHECKING:
    from hpcddm.config.training import Expert

CONTRACT = "contract"
"""Folder in a run with the revisions of its contract; no unit's folder has this name."""

ENSEMBLE = "ensemble.json"
"""Description of a published ensemble, in its folder."""

# shard, catalog
COLUMNS = "columns.h5"
BROKEN = "broken.jsonl"
"""File with the samples of a range that cannot be used: tar, key and reason."""
PASSED_OVER = "passed_over.jsonl"
"""File that lists the items of a range that are not samples: name, reason, is_broken."""
CATALOG_FILE = "catalog.json"

# encode, cluster, assign, expert_lists, cluster_report
FEATURES = "features.h5"
PARTITION, PUBLISHED_PARTITION = "partition.h5", "partition.safetensors"
CLUSTERS = "clusters.h5"
LISTS_FILE = "lists.json"
CLUSTERS_PAGE, CLUSTERS_FILE = "clusters.html", "clusters.json"

# latents, encode_captions
LATENTS = "latents.h5"
SCALE_FILE = "latent_scale.json"
CAPTIONS_FILE, INDEX = "captions.h5", "captions.json"
"""Files with the distinct captions, and with their number and the ranges that have their own units."""
STATES_FILE = "states.h5"

# Trainings: train, distill, router, evaluators, autoencoder
WEIGHTS, CURVE = "weights.safetensors", "curve.json"
SNAPSHOTS = "snapshots"
"""Folder of the weights that a training keeps on its way; also a part of the settings' keys for them, and a results
key."""
CALIBRATION = "calibration.json"
"""File with the arguments of `CalibratedRouter`; missing if there is nothing to correct."""
ROUTER_SAMPLES, ROUTER_SAMPLES_INFO = "samples.npy", "samples.json"
"""Images that the experts generated to train a router, and the inputs that determine these images."""

# The stages of concepts
WORDS_FILE = "nouns.json"
VOCABULARY_FILE = "vocabulary.json"
MENTIONS_FILE = "mentions.h5"
TAGGER_FILE = "tagger.safetensors"
TAGS_FILE, THRESHOLDS_FILE = "tags.h5", "thresholds.json"
"""Concepts and scores of every image, and for each concept the lowest score at which an image counts as showing it."""
COUNTS_FILE, CHOSEN_FILE = "counts.h5", "selection.json"
"""Counts of all concepts, and the concepts to score with their real images."""
ALIGNMENT_FILE = "alignment.json"
SCORES_FILE, PICTURES_FILE = "scores.json", "images.h5"
"""Scores of each concept in each arm; some samples of each."""
CONCEPTS_FILE, CONCEPTS_PAGE, PROPOSAL_FILE = "concepts.json", "concepts.html", "proposal.csv"
"""Results of each concept with fits and advice, a page about them, and proposed clusters of all samples."""
CONCEPTS_TABLE, CONCEPTS_PARQUET = "concepts.csv", "concepts.parquet"
"""Tables with one row per concept, for other programs."""
SHOWN_FILE = "page_images.h5"
"""Pictures on the page, from which the report builds one of its sections."""

# probe, draw, measure_real and measure, neighbours, compare, reference_statistics, report
PROBE_FILE = "probe.json"
EVALUATION = "evaluation.h5"
MEASUREMENTS, COMPARISON, NEIGHBOURS = "measurements.h5", "comparison.json", "neighbours.h5"
FINISHED_ARMS, STATISTICS = "finished_arms.json", "statistics.npz"
KNOWN_METRICS = "known_metrics"
"""Key of the results of a comparison: the metrics that there were, computed or not."""
PAGE, METRICS = "index.html", "metrics.json"


def tar_file(number: int) -> str:
    """Return the name of the tar with this number in its split."""
    return f"images-{number:05d}.tar"


def list_name(expert: "Expert") -> str:
    """Return the name of an expert's list."""
    return unit_name(expert_key(expert))


def list_file(expert: "Expert") -> str:
    """Return the file of an expert's list."""
    return f"{list_name(expert)}.h5"


def training_file(expert: "Expert") -> str:
    """Return the file of the list that an expert is trained on if it includes samples of other clusters."""
    return f"{list_name(expert)}-training.h5"


def numbers_file(split: str) -> str:
    """Return the file with the caption's number for every sample of a split."""
    return f"{split}.h5"
