"""Names of the files in the folders of units, by the stage that writes them; docs/run-folder.md says what they hold."""

from typing import TYPE_CHECKING

from hpcddm.runs.unit_keys import expert_key, name_of

if TYPE_CHECKING:
    from hpcddm.config.training import Expert

# shard, catalog
COLUMNS = "columns.h5"
BROKEN = "broken.jsonl"
"""File with the samples of a range that cannot be used: tar, key and reason."""
PASSED_OVER = "passed_over.jsonl"
"""File with what lies beside the samples of a range and is none of them: name, reason, is_broken."""
CATALOG_FILE = "catalog.json"

# encode, cluster, assign, lists, inspect
FEATURES = "features.h5"
PARTITION = "partition.h5"
CLUSTERS = "clusters.h5"
LISTS_FILE = "lists.json"
CLUSTERS_PAGE, CLUSTERS_FILE = "clusters.html", "clusters.json"

# latents, latent_scale, captions, texts
LATENTS = "latents.h5"
SCALE_FILE = "latent_scale.json"
CAPTIONS_FILE, INDEX = "captions.h5", "captions.json"
"""The distinct captions; and their number, with the ranges of them that are units of the stage texts."""
STATES_FILE = "states.h5"

# Trainings: train, distill, route, measuring, autoencoder
WEIGHTS, CURVE = "weights.safetensors", "curve.json"
CALIBRATION = "calibration.json"
"""File with the arguments of `CalibratedRouter`; missing where there is nothing to correct."""
ROUTER_SAMPLES, DRAWN = "samples.npy", "samples.json"
"""Images that the experts drew for a router's training; and what they are a function of."""

# The stages of concepts
WORDS_FILE = "words.json"
VOCABULARY_FILE = "vocabulary.json"
MENTIONS_FILE = "mentions.h5"
TAGGER_FILE = "tagger.safetensors"
TAGS_FILE, THRESHOLDS_FILE = "tags.h5", "thresholds.json"
"""Concepts and scores of every image; score of each concept from which on an image counts as showing it."""
COUNTS_FILE, CHOSEN_FILE = "counts.h5", "chosen.json"
"""Counts of all concepts; the concepts that are scored, and their real images."""
ALIGNMENT_FILE = "alignment.json"
SCORES_FILE, PICTURES_FILE = "scores.json", "pictures.h5"
"""Scores of each concept in each arm; some samples of each."""
CONCEPTS_FILE, CONCEPTS_PAGE, PROPOSAL_FILE = "concepts.json", "concepts.html", "proposal.csv"
"""All that is known of each concept, with fits and advice; a page about them; proposed clusters of all samples."""
CONCEPTS_TABLE, CONCEPTS_PARQUET = "concepts.csv", "concepts.parquet"
"""A row of each concept, for other programs."""
SHOWN_FILE = "shown.h5"
"""Pictures on the page, from which the report makes a part of its own."""

# evaluate, report
EVALUATION = "evaluation.h5"
PAGE, METRICS = "index.html", "metrics.json"


def tar_file(number: int) -> str:
    """Return the name of a tar by its number within the split."""
    return f"images-{number:05d}.tar"


def list_name(expert: "Expert") -> str:
    """Return the name of an expert's list."""
    return name_of(expert_key(expert))


def list_file(expert: "Expert") -> str:
    """Return the file of an expert's list."""
    return f"{list_name(expert)}.h5"


def training_file(expert: "Expert") -> str:
    """Return the file of the list that an expert is trained on where that has samples of other clusters."""
    return f"{list_name(expert)}-training.h5"


def numbers_file(split: str) -> str:
    """Return the file with the number of the caption of every sample of a split."""
    return f"{split}.h5"
