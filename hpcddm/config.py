"""The schema of an experiment: an unknown key is an error that lists the valid ones."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from hpcddm import plugins
from hpcddm.errors import ConfigError
from hpcddm.schema import Fraction, Name, Positive, StrictModel, variant, variants_of


class DataSettings(StrictModel):
    """Where the images come from and what they look like to a model."""

    source: variant("data/sources")
    image_size: Positive
    channels: Literal[1, 3] = 3
    num_classes: Positive
    shards: Positive = 4
    """Tars that hold the training images; also the number of units of the stages shard and encode."""
    heldout_shards: Positive = 1
    content: str | None = None
    """A hash of what the source holds; filled in by submit, so that other images are never taken for these."""


class EncodeSettings(StrictModel):
    """The features that the clustering sees."""

    encoder: variant("encoders")


class ClusterSettings(StrictModel):
    """How the training set is split; `experts` is K of the papers."""

    experts: Positive
    clustering: variant("clusterings")


class Training(StrictModel):
    """What one run of the training loop needs to know; everything is counted in images."""

    uncovered: ClassVar[frozenset[str]] = frozenset({"checkpoint_minutes", "log_images"})

    images: Positive
    batch: Positive
    learning_rate: Annotated[float, Field(gt=0)]
    warmup_images: Annotated[int, Field(ge=0)] = 0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    gradient_clip: Annotated[float, Field(gt=0)] = 1.0
    ema_halflife_images: Positive
    precision: Literal["fp32", "bf16"] = "bf16"
    zero_stage: Literal[1] = 1
    checkpoint_minutes: Annotated[float, Field(gt=0)] = 5.0
    log_images: Positive = 1024


class ExpertSettings(StrictModel):
    """The experts and their training; `training.images` and `training.batch` count all experts together."""

    uncovered: ClassVar[frozenset[str]] = frozenset({"sites"})

    model: variant("models", "denoiser")
    objective: variant("objectives")
    condition_dropout: Fraction = 0.1
    training: Training
    sites: list[Name] | None = None
    """The site of each expert, K names; without it every expert belongs to where the run is submitted."""


class MonolithSettings(StrictModel):
    """The K=1 model of the same training FLOPs; it takes model, objective and training from the experts."""

    enabled: bool = True


class ClassifierSettings(StrictModel):
    """A classifier trained on real images: the extractor of the distances, or the judge."""

    model: variant("models", "classifier")
    training: Training
    shift: Annotated[int, Field(ge=0)] = 0
    """Training images are shifted by up to so many pixels, and mirrored at random if `mirror` says so."""
    mirror: bool = False


class RouterSettings(StrictModel):
    """The router p(cluster | x_t, t, class) and its training."""

    model: variant("models", "router")
    training: Training


class CriticSettings(StrictModel):
    """The two networks that look at samples; they must not be the same one."""

    extractor: ClassifierSettings
    judge: ClassifierSettings


class EvaluateSettings(StrictModel):
    """What is sampled and compared; every arm has the same images, steps and guidance."""

    uncovered: ClassVar[frozenset[str]] = frozenset({"units", "min_experts"})

    images: Positive = 2000
    batch: Positive = 100
    """Images sampled together: a unit is whole batches, so the number of units changes no bit."""
    steps: Positive = 20
    guidance: Annotated[float, Field(ge=0)] = 1.0
    strategies: Annotated[list[str], Field(min_length=1)] = ["top-1", "top-2"]
    units: Positive = 1
    min_experts: Positive | None = None
    """The final step goes ahead when so many experts are there, and names the missing ones; by default it needs all."""


class Experiment(StrictModel):
    """One experiment: data, partition, experts, router, evaluation."""

    name: Name
    seed: Annotated[int, Field(ge=0)] = 0
    site: Name | None = None
    """The site of the monolith, the router, the critics and the evaluation; every site makes the data stages itself."""
    data: DataSettings
    encode: EncodeSettings
    cluster: ClusterSettings
    experts: ExpertSettings
    monolith: MonolithSettings = MonolithSettings()
    router: RouterSettings
    critics: CriticSettings
    evaluate: EvaluateSettings = EvaluateSettings()

    @model_validator(mode="after")
    def _combinations(self) -> "Experiment":
        for place, error in _impossible(self):
            raise PydanticCustomError("inner", "{text}", {"text": f"{place}: {error}"})
        return self


def _impossible(experiment: Experiment) -> list[tuple[str, str]]:
    """Settings that are right one by one and cannot go together: (key, what is wrong)."""
    num_experts, training, evaluate = experiment.cluster.experts, experiment.experts.training, experiment.evaluate
    sites = experiment.experts.sites
    found = []
    if training.batch % num_experts:
        text = f"{training.batch} images cannot be divided among {num_experts} experts"
        found.append(("experts.training.batch", text))
    if sites is not None and len(sites) != num_experts:
        found.append(("experts.sites", f"names {len(sites)} sites for {num_experts} experts"))
    if evaluate.min_experts is not None and evaluate.min_experts > num_experts:
        found.append(("evaluate.min_experts", f"needs {evaluate.min_experts} experts, there are {num_experts}"))
    if evaluate.images % experiment.data.num_classes:
        text = f"{evaluate.images} cannot be balanced over {experiment.data.num_classes} classes"
        found.append(("evaluate.images", text))
    if evaluate.images % evaluate.batch:
        found.append(("evaluate.images", f"{evaluate.images} is no multiple of evaluate.batch {evaluate.batch}"))
    elif evaluate.units > evaluate.images // evaluate.batch:
        text = f"{evaluate.units} units for {evaluate.images // evaluate.batch} batches"
        found.append(("evaluate.units", text))
    for strategy in evaluate.strategies:
        try:
            plugins.parse("ensemble/strategies", strategy).check(experiment)
        except (ConfigError, ValueError) as error:
            found.append(("evaluate.strategies", str(error)))
    for place, settings in variants_of(experiment):
        try:
            settings.check(experiment)
        except ValueError as error:
            found.append((place, str(error)))
    return found
