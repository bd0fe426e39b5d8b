"""The names of random streams are frozen: every number that was ever drawn follows from them."""

from hpcddm.randomness import streams

NAMES = """
NOISE=noise; LATENT=latent; TIME=time; DROPOUT=dropout; MIRROR=mirror; TURN=turn; SHIFT_DOWN=down; SHIFT_RIGHT=right
CROP_SIDE=crop/side; CROP_TOP=crop/top; CROP_LEFT=crop/left; CLUSTER_ORDER=cluster-{cluster}; EPOCH=order/{epoch}
WINDOW=window/{number}; BLOCKS=blocks; ROTATION=rotation; PAIR_CONCEPT=concept; PAIR_IMAGE=image; MAP_SCALE=scale
KMEANS_STARTS=cluster/starts/{attempt}; FITTED_IMAGES=cluster/fitted; RANDOM_CLUSTERS=cluster/random
OTHER_CLUSTERS=lists/foreign/cluster-{cluster}; EXAMPLE_IMAGES=shown/{list_name}; PLANNED_ORDER=plan
PROBE_IMAGES=probe; PROBE_NOISE=probe/{level:g}; ROUTER_IMAGES=route/heldout; ROUTER_NOISE=route/accuracy
EVALUATED_IMAGES=evaluation; SAMPLE_CLASSES=evaluation/classes; INITIAL_NOISE=initial
STRATEGY=strategy/{step}/{draw}; ANCESTRAL_NOISE=ancestral/{step}
CONCEPTS_OF_BIN=concepts/{bin}; REAL_IMAGES=concepts/real/{concept}; TRAINED_IMAGES=concepts/seen/{concept}
OTHER_IMAGES=concepts/others; NEAREST_IMAGES=nearest; ALIGNMENT_IMAGES=concept_alignment/all
ALIGNMENT_NOISE=alignment/{level:g}; TAGGER_IMAGES=concept tagger; HELD_FEATURES=lit/held
THRESHOLD_IMAGES=lit/thresholds; TAGGER_HALF=lit/{half}
"""
"""Streams by their use. A new stream is a new entry; an entry never changes, but for the name of a stage or unit."""
FROZEN: dict[str, object] = dict(entry.split("=") for line in NAMES.split("\n") for entry in line.split("; ") if entry)
FROZEN["TRAINING_STAGES"] = {name: name for name in ("train", "distill", "autoencoder")}
FROZEN["TRAINING_UNITS"] = {
    "router/all": "route/router",
    "evaluators/extractor": "critics/extractor",
    "evaluators/classifier": "critics/judge",
}


def test_no_stream_was_renamed():
    assert {name: value for name, value in vars(streams).items() if name.isupper()} == FROZEN


def test_the_stream_of_a_training():
    named = ("train/expert-00", "train/monolith", "train/late", "distill/student", "autoencoder/all")
    expected = dict(zip(named, named, strict=True)) | {"router/all": "route/router"}
    expected |= {"evaluators/extractor": "critics/extractor", "evaluators/classifier": "critics/judge"}
    assert {unit: streams.of_training(unit) for unit in expected} == expected
