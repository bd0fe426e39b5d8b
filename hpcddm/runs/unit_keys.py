"""Keys of units, `stage/unit`, which the login node and the jobs share."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Batch scripts wait for processes that need keys but not settings, so these start faster without this import.
    from hpcddm.config.experiment import Experiment
    from hpcddm.config.training import Expert

CATALOG = "catalog/all"
CAPTIONS = "encode_captions/all"
AUTOENCODER = "autoencoder/all"
LATENT_SCALE = "latents/scale"
CLUSTER = "cluster/all"
EXPERT_LISTS = "expert_lists/all"
CLUSTER_REPORT = "cluster_report/all"
ROUTER = "router/all"
EXTRACTOR, CLASSIFIER = "evaluators/extractor", "evaluators/classifier"
MONOLITH = "train/monolith"
EXPERT = "train/expert-"
"""Prefix of the keys of the clusters' experts; the number follows."""
STUDENT = "distill/student"
PROBE = "probe/"
"""Prefix of the units that probe experts of other sites; the name of the expert's unit follows."""
CONCEPT_VOCABULARY, CONCEPT_TAGGER = "concept_vocabulary/all", "concept_tags/tagger"
CONCEPT_COUNTS, CONCEPT_ALIGNMENT = "concept_counts/all", "concept_scores/alignment"
CONCEPT_ANALYSIS = "concept_analysis/all"
REPORT = "report/all"

MONOLITH_ARM, STUDENT_ARM = "monolith", "student"
"""Arms that consist of one dense model; all other arms are strategies of the ensemble."""
HOME_ARM = "home"
"""Arm that samples from a concept's home expert alone: the expert in whose cluster the concept is most frequent."""

UNIT_STAGES, WHOLE_STAGES = ("train", "evaluators", "distill"), ("router", "autoencoder")
"""Stages that train networks: those with a folder for each unit, and those with one unit."""

TABLE = "table/all"
"""Key of the last job of a sweep, which compares the complete settings; it is not a unit of any run."""
CONTINUATION = "submission/all"
"""Key of the last job of a submission that exceeds the queue's limits: it submits the rest and is not a unit."""


def stage_of(key: str) -> str:
    """Return the stage of a unit.

    Examples:
        >>> stage_of("train/expert-03"), unit_name("train/expert-03")
        ('train', 'expert-03')
    """
    return key.split("/")[0]


def unit_name(key: str) -> str:
    """Return the name of a unit within its stage."""
    return key.split("/")[1]


def key_in_run(name: str) -> str:
    """Return the key of a unit from its name in a journal, which in a sweep begins with the setting."""
    return "/".join(name.split("/")[-2:])


def caption_states_key(name: str) -> str:
    """Return the key of the unit that encodes the range `name` of the distinct captions."""
    return f"{stage_of(CAPTIONS)}/{name}"


def expert_key(expert: "Expert") -> str:
    """Return the key of the unit that trains an expert.

    Args:
        expert: Number of the expert's cluster, or the name of an extra expert.

    Examples:
        >>> expert_key(3), expert_key("portraits")
        ('train/expert-03', 'train/portraits')
        >>> expert_of("train/expert-03"), expert_of(MONOLITH)
        (3, None)
    """
    return f"train/{expert}" if isinstance(expert, str) else f"{EXPERT}{expert:02d}"


def expert_of(key: str) -> "Expert | None":
    """Return the expert that a unit of the stage `train` trains.

    Args:
        key: The unit, as `train/unit`.

    Returns:
        The number of the expert's cluster, the name of an extra expert, or None for the monolith.
    """
    if key == MONOLITH:
        return None
    return int(key.removeprefix(EXPERT)) if key.startswith(EXPERT) else unit_name(key)


def probe_key(key: str) -> str:
    """Return the key of the unit that probes an expert; one exists only for some experts of other sites.

    Args:
        key: The expert, as `stage/unit`.

    Examples:
        >>> probe_key("train/expert-03")
        'probe/expert-03'
    """
    return f"{PROBE}{unit_name(key)}"


OTHER_STAGES = (stage_of(TABLE), stage_of(CONTINUATION))
"""Stages of jobs that are not units of the pipeline."""


def all_experts(experiment: "Experiment") -> "list[Expert]":
    """List all experts: first the experts of the clusters, by number, then the extra experts."""
    return [*range(experiment.cluster.experts), *(extra.name for extra in experiment.experts.extra)]


def list_key(expert: "Expert") -> str:
    """Return the key of the unit that writes an expert's list of samples.

    Args:
        expert: Number of the expert's cluster, or the name of an extra expert.
    """
    return f"expert_lists/{expert}" if isinstance(expert, str) else EXPERT_LISTS


def expert_keys(experiment: "Experiment") -> list[str]:
    """List the units that train the experts of the clusters, by number."""
    return [expert_key(expert) for expert in range(experiment.cluster.experts)]


def extra_expert_keys(experiment: "Experiment") -> list[str]:
    """List the units that train the extra experts."""
    return [expert_key(extra.name) for extra in experiment.experts.extra]


def monolith_keys(experiment: "Experiment") -> list[str]:
    """List the unit that trains the monolith; empty if the experiment disables the monolith."""
    return [MONOLITH] if experiment.monolith.enabled else []


def train_keys(experiment: "Experiment") -> list[str]:
    """List the units of the stage `train`: the monolith, which takes longest, then all experts.

    Examples:
        >>> from hpcddm.loading.load_experiment import load_experiment
        >>> train_keys(load_experiment("quickstart", ("cluster.experts=2",)))
        ['train/monolith', 'train/expert-00', 'train/expert-01']
    """
    return [*monolith_keys(experiment), *map(expert_key, all_experts(experiment))]


def student_keys(experiment: "Experiment") -> list[str]:
    """List the unit that trains the student; empty if the experiment has no `distill`."""
    return [STUDENT] if experiment.distill else []


def trained_unit(folder: Path) -> tuple[Path, str] | None:
    """Return run and key of a unit that trains a network, by the names of its folder; None for other folders.

    Examples:
        >>> trained_unit(Path("/runs/digits/train/expert-00"))
        (PosixPath('/runs/digits'), 'train/expert-00')
        >>> trained_unit(Path("/runs/digits/catalog")) is None
        True
    """
    if folder.parent.name in UNIT_STAGES:
        return folder.parent.parent, f"{folder.parent.name}/{folder.name}"
    return (folder.parent, f"{folder.name}/all") if folder.name in WHOLE_STAGES else None
