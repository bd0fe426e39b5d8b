"""The schema of an experiment: an unknown key is an error that lists the valid ones."""

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
    InitialWeights,
    JoinedExpert,
    Training,
)


class EncodeSettings(StrictModel):
    """The features that the clustering sees."""

    encoder: SampleEncoderSettings = default_variant("pixels")


class ClusterSettings(StrictModel):
    """Partition of the training set into clusters; `experts` is K of the papers."""

    experts: Positive = 4
    clustering: ClusteringSettings = default_variant("kmeans")


class ExpertSettings(StrictModel):
    """The experts and their training; `training.images` and `training.batch` count all experts together."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"sites", "probe_images"})

    model: DenoiserModelSettings
    objective: ObjectiveSettings = default_variant("flow_matching")
    condition_dropout: Fraction = 0.1
    training: Training
    overrides: list[ExpertOverride] = []
    """Exceptions, cluster by cluster; monolith and student have none."""
    init_from: InitialWeights | None = None
    """Initial weights of experts, monolith and student; without it they are random."""
    foreign_share: Fraction = 0.0
    """Share of the samples of every cluster's expert that are drawn from the other clusters."""
    joined: list[JoinedExpert] = []
    """Experts that come later, outside `cluster.experts`."""
    probe_images: Positive | None = None
    """Images of all experts between two looks at an expert, or at the monolith, in TensorBoard: its loss on held-out
    images by noise level, and samples. It changes no weight; by default there are none."""
    sites: list[Name] | None = None
    """Site of each expert, K names; without it every expert belongs to the site where the run is submitted."""

    def joined_expert(self, name: str) -> JoinedExpert:
        """Return the settings of an expert that joined; raises `KeyError` for one that did not."""
        return {entry.name: entry for entry in self.joined}[name]

    def site_of(self, expert: Expert) -> str | None:
        """Return the site that an expert is given to; None for wherever the run is submitted."""
        if isinstance(expert, str):
            return self.joined_expert(expert).site
        return self.sites[expert] if self.sites else None

    def variation(self, expert: Expert | None) -> ExpertVariation | None:
        """Return the settings in which an expert differs from the common ones; None for none."""
        if isinstance(expert, str):
            return self.joined_expert(expert)
        return next((override for override in self.overrides if expert in override.clusters), None)


@dataclass(frozen=True)
class ExpertConfig:
    """Settings of one denoiser: those of all experts, and those in which it differs."""

    model: DenoiserModelSettings
    objective: ObjectiveSettings
    precision: str
    init_from: InitialWeights | None


class MonolithSettings(StrictModel):
    """The K=1 model of the same training FLOPs; it takes model, objective and training from the experts."""

    enabled: bool = True


class ClassifierSettings(StrictModel):
    """A classifier trained on real images: the extractor of the distances, or the one that names samples' classes."""

    hashed_if_changed: ClassVar[frozenset[str]] = frozenset({"pretrained"})

    model: ClassifierModelSettings
    training: Training
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the network; not the experiment's, so that one network measures all seeds of an experiment."""
    shift: Annotated[int, Field(ge=0)] = 0
    """Most pixels by which training images are shifted at random; `mirror` also mirrors them at random."""
    mirror: bool = False
    pretrained: InitialWeights | None = None
    """Weights of a network that was trained so before, which are taken as they are: one ruler for runs on machines
    whose trainings differ in their last bits."""


class ExpertSamples(StrictModel):
    """Images sampled from the experts, to train a router without training images (arXiv 2501.05450, sec. 5)."""

    images: Positive = 2000
    """Images per expert on average; each expert gets a share by the size of its cluster."""
    steps: Positive = 20
    guidance: Annotated[float, Field(ge=0)] = 1.0


class RouterSettings(StrictModel):
    """The router p(cluster | x_t, t, class) and its training."""

    model: RouterModelSettings
    training: Training | None = None
    """Training of the router; needed by routers that are trained, refused for the others."""
    frequency: Literal["natural", "balanced"] = "natural"
    """Frequency of the clusters in training; 'balanced' is corrected by the natural prior afterwards."""
    samples: ExpertSamples | None = None
    """Samples of the experts, on which alone the router is trained if they are given."""
    refit: InitialWeights | None = None
    """Weights of another router, of which only the head is trained: for an added or removed expert."""
    temperature: Literal["none", "one", "by_level"] = "none"
    """Temperature scaling of the logits on held-out images (arXiv 1706.04599)."""


class MeasuringSettings(StrictModel):
    """The networks by which samples are measured; they must not be the same one."""

    extractor: ClassifierSettings
    """Network whose features the distances compare; without classes it learns how far an image is turned."""
    classifier: ClassifierSettings | None = None
    """Network that names the classes of samples; needed for images with classes, refused for those without."""


class DistillSettings(StrictModel):
    """One dense student that learns the experts' velocities (arXiv 2501.05450, sec. 3.5)."""

    teacher: Literal["cluster", "router"] = "cluster"
    """Teacher: the expert of the image's own cluster, or the likeliest one by the router for the noisy image."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Images and batch as a share of the experts' together: a quarter costs a third of the monolith's FLOPs."""


class Experiment(StrictModel):
    """One experiment: data, partition, experts, router, evaluation.

    What a file may leave out though it has no default here, `hpcddm.launch.experiment_defaults` fills in by the rest.
    """

    name: Name
    seed: Annotated[int, Field(ge=0)] = 0
    site: Name | None = None
    """The site of monolith, router, measuring networks and evaluation; every site makes the data stages itself."""
    data: DataSettings
    encode: EncodeSettings = EncodeSettings()
    cluster: ClusterSettings = ClusterSettings()
    experts: ExpertSettings
    monolith: MonolithSettings = MonolithSettings()
    router: RouterSettings
    measuring: MeasuringSettings
    evaluate: EvaluateSettings = EvaluateSettings()
    distill: DistillSettings | None = None
    concepts: ConceptSettings | None = None
    """Analysis of the frequency of concepts, and of how well they are drawn; without it there is none."""

    @property
    def student(self) -> DistillSettings:
        """Settings of the student; raises `ValueError` for an experiment without one."""
        if self.distill is None:
            raise ValueError("distill: this experiment has no student")
        return self.distill

    @property
    def concept_settings(self) -> ConceptSettings:
        """Settings of the concepts; raises `ValueError` for an experiment that counts none."""
        if self.concepts is None:
            raise ValueError("concepts: this experiment counts none")
        return self.concepts

    def expert_config(self, expert: Expert | None = None) -> ExpertConfig:
        """Return the settings of an expert; None stands for the monolith and the student."""
        common = self.experts
        own = common.variation(expert)
        if own is None:
            return ExpertConfig(common.model, common.objective, common.training.precision, common.init_from)
        # Weights for another network or objective would not fit this one.
        changed = own.model is not None or own.objective is not None
        return ExpertConfig(
            own.model or common.model,
            own.objective or common.objective,
            own.precision or common.training.precision,
            own.init_from or (None if changed else common.init_from),
        )
