"""Keys of units, `stage/unit`, by which the two sides of the house meet."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Batch scripts wait for those who need keys and no settings.
    from hpcddm.config.training import Expert

CATALOG = "catalog/all"
CAPTIONS = "captions/all"
AUTOENCODER = "autoencoder/all"
LATENT_SCALE = "latent_scale/all"
CLUSTER = "cluster/all"
LISTS = "lists/all"
INSPECT = "inspect/all"
ROUTER = "route/router"
EXTRACTOR, CLASSIFIER = "measuring/extractor", "measuring/classifier"
MONOLITH = "train/monolith"
EXPERT = "train/expert-"
"""Key of an expert without its number."""
STUDENT = "distill/student"
CONCEPT_VOCABULARY, CONCEPT_TAGGER = "concept_vocabulary/all", "concept_tagger/all"
CONCEPT_COUNTS, CONCEPT_ALIGNMENT, CONCEPTS = "concept_counts/all", "concept_alignment/all", "concepts/all"
REPORT = "report/all"

TABLE = "table/all"
"""The last job of a sweep, which is no unit of any run: it compares what is complete by then."""
CONTINUATION = "submission/all"
"""The last job of a submission for which the queue had no room, which is no unit either: it submits the rest."""


def stage_of(key: str) -> str:
    """Return the name of the stage of a unit."""
    return key.split("/")[0]


def name_of(key: str) -> str:
    """Return the name of a unit inside its stage."""
    return key.split("/")[1]


def expert_key(expert: "Expert") -> str:
    """Return the key of the unit that trains an expert."""
    return f"train/{expert}" if isinstance(expert, str) else f"{EXPERT}{expert:02d}"


def expert_of(key: str) -> "Expert | None":
    """Return the expert that a unit of the stage train trains; None for the monolith."""
    if key == MONOLITH:
        return None
    return int(key.removeprefix(EXPERT)) if key.startswith(EXPERT) else name_of(key)


OTHER_STAGES = (stage_of(TABLE), stage_of(CONTINUATION))
"""Stages of jobs that are no units of the pipeline."""
