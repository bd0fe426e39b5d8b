"""The schema of an experiment: an unknown key is an error that lists the valid ones."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from hpcddm import combinations
from hpcddm.clusterings.settings import ClusteringSettings
from hpcddm.conditions.settings import ConditionSettings
from hpcddm.data.orders.settings import OrderSettings
from hpcddm.data.readings.settings import ReadingSettings
from hpcddm.data.settings import Shape
from hpcddm.data.sources.settings import SourceSettings
from hpcddm.encoders.settings import ImageEncoderSettings
from hpcddm.ensemble.placements.settings import PlacementSettings
from hpcddm.ensemble.settings import SamplerSettings
from hpcddm.models.settings import ClassifierModelSettings, DenoiserModelSettings, RouterModelSettings
from hpcddm.objectives.settings import ObjectiveSettings
from hpcddm.schema import Fraction, Name, Positive, StrictModel, default_variant
from hpcddm.spaces.settings import SpaceSettings
from hpcddm.training.settings import Expert, ExpertOverride, ExpertVariation, InitialWeights, JoinedExpert, Training


class DataSettings(StrictModel):
    """Source of the images, and their form for a model."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"condition", "order", "reading", "space"})

    source: SourceSettings
    image_size: Positive
    channels: Literal[1, 3] = 3
    num_classes: Positive | None = None
    """Number of classes; without it the images have no labels, or nothing looks at them."""
    shards: Positive = 4
    """Tars that hold the training images; units of the stages shard, encode and assign are ranges of them."""
    heldout_shards: Positive = 1
    content: str | None = None
    """Hash of the source's content; filled in by submit, so that other images are never taken for these."""
    condition: ConditionSettings = default_variant("class_label")
    """Condition of the networks: nothing, the class of an image, or text."""
    order: OrderSettings = default_variant("uniform")
    """Order in which every training sees its samples, each once in an epoch."""
    reading: ReadingSettings = default_variant("indexed")
    """Way in which trainings read their images; it changes no bit, and makes nothing stale."""
    space: SpaceSettings = default_variant("pixels")
    """Space in which denoisers, routers and samplers see the images; clustering and measures always see pixels."""

    @property
    def x_shape(self) -> Shape:
        """Shape (C, H, W) of x in the space."""
        return self.space.shape(self.channels, self.image_size)


class EncodeSettings(StrictModel):
    """The features that the clustering sees."""

    encoder: ImageEncoderSettings


class ClusterSettings(StrictModel):
    """Partition of the training set into clusters; `experts` is K of the papers."""

    experts: Positive
    clustering: ClusteringSettings


class ExpertSettings(StrictModel):
    """The experts and their training; `training.images` and `training.batch` count all experts together."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"sites"})

    model: DenoiserModelSettings
    objective: ObjectiveSettings
    condition_dropout: Fraction = 0.1
    training: Training
    overrides: list[ExpertOverride] = []
    """Exceptions, cluster by cluster; monolith and student have none."""
    init_from: InitialWeights | None = None
    """Initial weights of experts, monolith and student; without it they are random."""
    joined: list[JoinedExpert] = []
    """Experts that come later, outside `cluster.experts`."""
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

    model: ClassifierModelSettings
    training: Training
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the network; not the experiment's, so that one network measures all seeds of an experiment."""
    shift: Annotated[int, Field(ge=0)] = 0
    """Most pixels by which training images are shifted at random; `mirror` also mirrors them at random."""
    mirror: bool = False


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


class EvaluateSettings(SamplerSettings):
    """Settings of sampling and comparison; every arm has the same number of images, steps and guidance scale."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"units", "min_experts", "placement"})

    images: Positive = 2000
    batch: Positive = 100
    """Images sampled together: a unit is whole batches, so the number of units changes no bit."""
    strategies: Annotated[list[str], Field(min_length=1)] = ["top-1", "top-2"]
    placement: PlacementSettings = default_variant("resident")
    """Placement of the experts' weights while sampling; changes no bit of the samples."""
    units: Positive = 1
    min_experts: Positive | None = None
    """Number of experts that evaluation and report need; they name missing ones. By default they need all."""


class DistillSettings(StrictModel):
    """One dense student that learns the experts' velocities (arXiv 2501.05450, sec. 3.5)."""

    teacher: Literal["cluster", "router"] = "cluster"
    """Teacher: the expert of the image's own cluster, or the likeliest one by the router for the noisy image."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Images and batch as a share of the experts' together: a quarter costs a third of the monolith's FLOPs."""


class Experiment(StrictModel):
    """One experiment: data, partition, experts, router, evaluation."""

    name: Name
    seed: Annotated[int, Field(ge=0)] = 0
    site: Name | None = None
    """The site of monolith, router, measuring networks and evaluation; every site makes the data stages itself."""
    data: DataSettings
    encode: EncodeSettings
    cluster: ClusterSettings
    experts: ExpertSettings
    monolith: MonolithSettings = MonolithSettings()
    router: RouterSettings
    measuring: MeasuringSettings
    evaluate: EvaluateSettings = EvaluateSettings()
    distill: DistillSettings | None = None

    @property
    def student(self) -> DistillSettings:
        """Settings of the student; raises `ValueError` for an experiment without one."""
        if self.distill is None:
            raise ValueError("distill: this experiment has no student")
        return self.distill

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

    @model_validator(mode="after")
    def _combinations(self) -> "Experiment":
        for place, error in combinations.problems_of(self):
            raise PydanticCustomError("inner", "{text}", {"text": f"{place}: {error}"})
        return self
