"""The name of every random stream, frozen: another name draws other numbers, and old results could not be reproduced.

A stream is one use of randomness. A training draws from the stream of its unit: each use in it has a part of that
stream, so that no two uses share numbers. Stages, units and settings may be renamed; their streams may not.
"""

TRAINING_STAGES = {"train": "train", "distill": "distill", "autoencoder": "autoencoder"}
"""First part of a training unit's stream, by its stage; the second is the unit's name in the stage."""
TRAINING_UNITS = {
    "router/all": "route/router",
    "evaluators/extractor": "critics/extractor",
    "evaluators/classifier": "critics/judge",
}
"""Streams of the training units that have another one, by the unit's key."""

# Parts of a training's stream: each follows it and a slash.
NOISE, LATENT, TIME, DROPOUT = "noise", "latent", "time", "dropout"
MIRROR, TURN, SHIFT_DOWN, SHIFT_RIGHT = "mirror", "turn", "down", "right"
CROP_SIDE, CROP_TOP, CROP_LEFT = "crop/side", "crop/top", "crop/left"
CLUSTER_ORDER = "cluster-{cluster}"
EPOCH, WINDOW, BLOCKS, ROTATION = "order/{epoch}", "window/{number}", "blocks", "rotation"
PAIR_CONCEPT, PAIR_IMAGE, MAP_SCALE = "concept", "image", "scale"

KMEANS_STARTS = "cluster/starts/{attempt}"
FITTED_IMAGES, RANDOM_CLUSTERS = "cluster/fitted", "cluster/random"
OTHER_CLUSTERS = "lists/foreign/cluster-{cluster}"
EXAMPLE_IMAGES = "shown/{list_name}"
PLANNED_ORDER = "plan"

PROBE_IMAGES, PROBE_NOISE = "probe", "probe/{level:g}"
ROUTER_IMAGES, ROUTER_NOISE = "route/heldout", "route/accuracy"
EVALUATED_IMAGES, INITIAL_NOISE, SAMPLE_CLASSES = "evaluation", "initial", "evaluation/classes"
STRATEGY, ANCESTRAL_NOISE = "strategy/{step}/{draw}", "ancestral/{step}"

CONCEPTS_OF_BIN, REAL_IMAGES, TRAINED_IMAGES = "concepts/{bin}", "concepts/real/{concept}", "concepts/seen/{concept}"
OTHER_IMAGES, NEAREST_IMAGES = "concepts/others", "nearest"
ALIGNMENT_IMAGES, ALIGNMENT_NOISE = "concept_alignment/all", "alignment/{level:g}"
TAGGER_IMAGES, HELD_FEATURES, THRESHOLD_IMAGES = "concept tagger", "lit/held", "lit/thresholds"
TAGGER_HALF = "lit/{half}"


def of_training(unit: str) -> str:
    """Return the stream of a unit that trains a network.

    Args:
        unit: Key of the unit, such as "train/expert-00".
    """
    stage, name = unit.split("/")
    return TRAINING_UNITS.get(unit) or f"{TRAINING_STAGES[stage]}/{name}"
