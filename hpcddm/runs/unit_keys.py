"""Keys of units, `stage/unit`, which the login node and the jobs have in common."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Batch scripts wait for those who need keys and no settings.
    from hpcddm.config.experiment import Experiment
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

MONOLITH_ARM, STUDENT_ARM = "monolith", "student"
"""Arms that are one dense model; all others are strategies of the ensemble."""
HOME_ARM = "home"
"""Arm of a concept's home expert, alone: the one whose cluster has it most often."""

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


def experts_of(experiment: "Experiment") -> "list[Expert]":
    """List all experts, in the order of their clusters, then those that joined."""
    return [*range(experiment.cluster.experts), *(joined.name for joined in experiment.experts.joined)]


def list_key(expert: "Expert") -> str:
    """Return the key of the unit that writes an expert's list."""
    return f"lists/{expert}" if isinstance(expert, str) else LISTS


def expert_keys(experiment: "Experiment") -> list[str]:
    """List the units that train the experts of the clusters, in the order of their numbers."""
    return [expert_key(expert) for expert in range(experiment.cluster.experts)]


def joined_keys(experiment: "Experiment") -> list[str]:
    """List the units that train the experts that joined."""
    return [expert_key(joined.name) for joined in experiment.experts.joined]


def monolith_keys(experiment: "Experiment") -> list[str]:
    """List the monolith's unit, where there is one."""
    return [MONOLITH] if experiment.monolith.enabled else []


def train_keys(experiment: "Experiment") -> list[str]:
    """List the training units: the monolith, which takes longest, then the experts."""
    return [*monolith_keys(experiment), *map(expert_key, experts_of(experiment))]


def student_keys(experiment: "Experiment") -> list[str]:
    """List the student's unit, where there is one."""
    return [STUDENT] if experiment.distill else []
