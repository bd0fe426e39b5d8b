"""Schema of an experiment; an unknown key is an error that lists the valid keys."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from hpcddm.config.clustering import ClusteringSettings
from hpcddm.config.concepts import ConceptSettings
from hpcddm.config.data import DataSettings
from hpcddm.config.image_encoders import SampleEncoderSettings
from hpcddm.config.models import ClassifierModelSettings, DenoiserModelSettings, RouterModelSettings
from hpcddm.config.objectives import ObjectiveSettings
from hpcddm.config.sampling import EvaluateSettings
from hpcddm.config.schema import Fraction, Name, Positive, StrictModel, default_variant
from hpcddm.config.training import (
    Expert,
    ExpertOverride,
    ExpertVariation,
    ExtraExpert,
    InitialWeights,
    Training,
    WeightsFile,
)


class EncodeSettings(StrictModel):
    """Settings of the features that are clustered."""

    encoder: SampleEncoderSettings = default_variant("pixels")


class ClusterSettings(StrictModel):
    """Settings of the partition of the training set; `experts` is the number K of clusters and experts."""

    experts: Positive = 4
    clustering: ClusteringSettings = default_variant("kmeans")


class ProbeRule(StrictModel):
    """Rule that an expert of another site must pass before others read it; the contract of a collaboration fixes it.

    docs/results/probe.md has what this rule and others refuse.
    """

    max_share: Annotated[float, Field(gt=0)] = 0.9
    """Largest share of an expert's loss in the best constant prediction's, on held-out images of its own cluster, at
    every noise level."""
    max_of_others: Annotated[float, Field(gt=0)] = 1.05
    """Largest geometric mean of that share over the levels, relative to the same on each other cluster."""


class ExpertSettings(StrictModel):
    """Settings of the experts; `training.images` and `training.batch` are totals over all experts."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"sites", "samples_every_images", "probe"})

    model: DenoiserModelSettings
    objective: ObjectiveSettings = default_variant("flow_matching")
    condition_dropout: Fraction = 0.1
    training: Training
    overrides: list[ExpertOverride] = []
    """Settings that differ for single clusters; they do not apply to monolith and student."""
    init_from: InitialWeights | None = None
    """Initial weights of experts, monolith and student; random by default."""
    other_clusters_share: Fraction = 0.0
    """Share of every expert's samples that come from the other clusters."""
    extra: list[ExtraExpert] = []
    """Additional experts, not counted in `cluster.experts`."""
    samples_every_images: Positive | None = None
    """Images of all experts between two probes of an expert or the monolith in TensorBoard: loss on held-out images by
    noise level, and samples. Probes do not change the weights. By default there are none."""
    sites: list[Name] | None = None
    """Sites of the experts, K names; by default every expert belongs to the site where the run is submitted."""
    probe: ProbeRule | None = None
    """Rule for the experts of other sites; by default there is none, except in a run with a contract."""

    def extra_expert(self, name: str) -> ExtraExpert:
        """Return the settings of an extra expert; raises `KeyError` for an unknown name."""
        return {entry.name: entry for entry in self.extra}[name]

    def site_of(self, expert: Expert) -> str | None:
        """Return the site of an expert; None for the site where the run is submitted."""
        if isinstance(expert, str):
            return self.extra_expert(expert).site
        return self.sites[expert] if self.sites else None

    def variation(self, expert: Expert | None) -> ExpertVariation | None:
        """Return the settings that differ for an expert; None if all are the common settings."""
        if isinstance(expert, str):
            return self.extra_expert(expert)
        return next((override for override in self.overrides if expert in override.clusters), None)


@dataclass(frozen=True)
class ExpertConfig:
    """Settings of one denoiser: the common settings of all experts, with its overrides applied."""

    model: DenoiserModelSettings
    objective: ObjectiveSettings
    precision: str
    init_from: InitialWeights | None


class MonolithSettings(StrictModel):
    """Settings of the monolith: one model of equal training FLOPs, with the experts' model, objective and training."""

    enabled: bool = True


class ClassifierSettings(StrictModel):
    """Settings of a classifier trained on real images, which extracts features or predicts the samples' classes."""

    hashed_if_changed: ClassVar[frozenset[str]] = frozenset({"pretrained"})

    model: ClassifierModelSettings
    training: Training
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the network, separate from the experiment's, so that one network evaluates all seeds of an experiment."""
    shift: Annotated[int, Field(ge=0)] = 0
    """Maximum random shift of training images, in pixels."""
    mirror: bool = False
    """True to mirror training images at random."""
    pretrained: WeightsFile | None = None
    """Weights of a network that was trained with the same settings, which replace the training: one metric for runs on
    machines whose trainings differ in their last bits."""


class ExpertSamples(StrictModel):
    """Settings of images sampled from the experts to train a router without real images (arXiv 2501.05450, sec. 5)."""

    images: Positive = 2000
    """Average number of images per expert; an expert's number is proportional to the size of its cluster."""
    steps: Positive = 20
    guidance: Annotated[float, Field(ge=0)] = 1.0


class RouterSettings(StrictModel):
    """Settings of the router p(cluster | x_t, t, class) and its training."""

    model: RouterModelSettings
    training: Training | None = None
    """Training of the router; required for trained routers, refused for others."""
    frequency: Literal["natural", "balanced"] = "natural"
    """Frequency of the clusters in training; 'balanced' is corrected by the natural prior after the training."""
    samples: ExpertSamples | None = None
    """Samples from the experts; if set, the router is trained on them alone."""
    refit: InitialWeights | None = None
    """Weights of another router whose head alone is trained again, after experts were added or removed."""
    temperature: Literal["none", "one", "by_level"] = "none"
    """Temperature scaling of the logits on held-out images (arXiv 1706.04599)."""


class EvaluatorSettings(StrictModel):
    """Settings of the two networks that evaluate samples; these must differ."""

    extractor: ClassifierSettings | None
    """Network whose features the distances compare; without classes it is trained to predict an image's rotation. None
    where `evaluate.extractors` alone compare."""
    classifier: ClassifierSettings | None = None
    """Network that predicts the classes of samples; required for images with classes, refused without."""


class DistillSettings(StrictModel):
    """Settings of the student, a dense model that learns the experts' velocities (arXiv 2501.05450, sec. 3.5)."""

    teacher: Literal["cluster", "router"] = "cluster"
    """Teacher: the expert of the image's cluster, or the router's most likely expert for the noisy image."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Images and batch as a share of the experts' totals; a quarter costs a third of the monolith's FLOPs."""


class Experiment(StrictModel):
    """Settings of one experiment: data, partition, experts, router, evaluation.

    `hpcddm.loading.experiment_defaults` fills in settings that a file may omit but that have no default here.

    Examples:
        >>> from hpcddm.loading.load_experiment import load_experiment
        >>> experiment = load_experiment("quickstart", ("cluster.experts=2", "seed=1"))
        >>> experiment.cluster.experts, experiment.seed, experiment.expert_config(0).objective.name
        (2, 1, 'flow_matching')
    """

    name: Name
    seed: Annotated[int, Field(ge=0)] = 0
    site: Name | None = None
    """Site of monolith, router, evaluators and evaluation; every site computes the data stages itself."""
    data: DataSettings
    encode: EncodeSettings = EncodeSettings()
    cluster: ClusterSettings = ClusterSettings()
    experts: ExpertSettings
    monolith: MonolithSettings = MonolithSettings()
    router: RouterSettings
    evaluators: EvaluatorSettings
    evaluate: EvaluateSettings = EvaluateSettings()
    distill: DistillSettings | None = None
    concepts: ConceptSettings | None = None
    """Analysis of concepts: their frequencies, and the quality of their samples; None for no analysis."""

    @property
    def student(self) -> DistillSettings:
        """Settings of the student; raises `ValueError` for an experiment without a student."""
        if self.distill is None:
            raise ValueError("distill: this experiment has no student")
        return self.distill

    @property
    def concept_settings(self) -> ConceptSettings:
        """Settings of the concepts; raises `ValueError` for an experiment without concepts."""
        if self.concepts is None:
            raise ValueError("concepts: this experiment counts none")
        return self.concepts

    def expert_config(self, expert: Expert | None = None) -> ExpertConfig:
        """Return the settings of one denoiser.

        Args:
            expert: Number of the cluster, or name of an extra expert; None for monolith and student.
        """
        common = self.experts
        own = common.variation(expert)
        if own is None:
            return ExpertConfig(common.model, common.objective, common.training.precision, common.init_from)
        # The common initial weights would not fit another network or objective.
        changed = own.model is not None or own.objective is not None
        return ExpertConfig(
            own.model or common.model,
            own.objective or common.objective,
            own.precision or common.training.precision,
            own.init_from or (None if changed else common.init_from),
        )
