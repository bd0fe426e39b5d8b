"""The schema of an experiment: an unknown key is an error that lists the valid ones."""

import fractions
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from hpcddm.clusterings.settings import ClusteringSettings
from hpcddm.data_settings import DataSettings
from hpcddm.encoders.image.settings import SampleEncoderSettings
from hpcddm.ensemble.settings import EvaluateSettings
from hpcddm.ensemble.strategies.settings import is_strategy
from hpcddm.ensemble.strategies.settings import parse as parse_strategy
from hpcddm.errors import ConfigError
from hpcddm.models.settings import ClassifierModelSettings, DenoiserModelSettings, RouterModelSettings
from hpcddm.objectives.settings import ObjectiveSettings
from hpcddm.schema import Fraction, Name, Positive, StrictModel, variants_of
from hpcddm.training.settings import (
    LONGEST,
    Expert,
    ExpertOverride,
    ExpertVariation,
    InitialWeights,
    JoinedExpert,
    Training,
)

FEWEST_IMAGES = 20
"""Number of images of every arm that the report shows."""
TAKEN = ("all", "monolith", "student", "router", "ensemble", "train", "heldout")
"""Names of units and of arms, which no expert that joins may have."""


class EncodeSettings(StrictModel):
    """The features that the clustering sees."""

    encoder: SampleEncoderSettings


class ClusterSettings(StrictModel):
    """Partition of the training set into clusters; `experts` is K of the papers."""

    experts: Positive
    clustering: ClusteringSettings


class ExpertSettings(StrictModel):
    """The experts and their training; `training.images` and `training.batch` count all experts together."""

    not_hashed: ClassVar[frozenset[str]] = frozenset({"sites", "probe_images"})

    model: DenoiserModelSettings
    objective: ObjectiveSettings
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
        for place, error in _impossible(self):
            raise PydanticCustomError("inner", "{text}", {"text": f"{place}: {error}"})
        return self


def _impossible(experiment: Experiment) -> list[tuple[str, str]]:
    """List combinations of settings that are valid one by one and not together: (key, problem)."""
    problems = [*_of_experts(experiment), *_of_joined(experiment), *_of_router(experiment), *_of_measuring(experiment)]
    problems += [*_of_evaluation(experiment), *_of_kept_weights(experiment)]
    for place, settings in variants_of(experiment):
        try:
            settings.check(experiment)
        except ValueError as error:
            problems.append((place, str(error)))
    return problems


def _of_experts(experiment: Experiment) -> list[tuple[str, str]]:
    num_experts, experts, distill = experiment.cluster.experts, experiment.experts, experiment.distill
    batch, problems = experts.training.batch, []
    if batch % num_experts:
        text = f"{batch} images cannot be divided among {num_experts} experts"
        problems.append(("experts.training.batch", text))
    if experts.sites is not None and len(experts.sites) != num_experts:
        problems.append(("experts.sites", f"names {len(experts.sites)} sites for {num_experts} experts"))
    named = [cluster for override in experts.overrides for cluster in override.clusters]
    for cluster in named:
        if cluster >= num_experts:
            problems.append(("experts.overrides", f"cluster {cluster}: there are {num_experts}, numbered from 0"))
        if named.count(cluster) > 1:
            problems.append(("experts.overrides", f"cluster {cluster} is named {named.count(cluster)} times"))
    if distill is not None and (fractions.Fraction(str(distill.share)) * batch).denominator != 1:
        problems.append(("distill.share", f"{distill.share:g} of a batch of {batch} is no whole number of images"))
    return problems


def _of_joined(experiment: Experiment) -> list[tuple[str, str]]:
    joined, sites, problems = experiment.experts.joined, experiment.experts.sites, []
    names = [entry.name for entry in joined]
    for number, entry in enumerate(joined):
        place = f"experts.joined.{number}"
        if entry.name in TAKEN or entry.name.startswith("expert-") or entry.name.isdecimal() or is_strategy(entry.name):
            problems.append((f"{place}.name", f"{entry.name} means something else already; take another name"))
        if names.count(entry.name) > 1:
            problems.append((f"{place}.name", f"{entry.name} stands there {names.count(entry.name)} times"))
        if sites is not None and entry.site is None:
            problems.append((f"{place}.site", "this key is needed, as experts.sites names the sites of the others"))
    return problems


def _of_router(experiment: Experiment) -> list[tuple[str, str]]:
    router = experiment.router
    if router.model.trained and router.training is None:
        return [("router.training", f"this key is needed: {router.model.name} is trained")]
    if router.samples is not None and experiment.data.condition.reads_captions:
        return [("router.samples", "are drawn class by class, and a class does not say an image's caption; remove it")]
    if not router.model.trained:
        useless = [key for key in ("training", "samples", "refit") if getattr(router, key) is not None]
        useless += ["frequency"] if router.frequency != "natural" else []
        return [(f"router.{key}", f"{router.model.name} is not trained; remove it") for key in useless]
    return []


def _of_kept_weights(experiment: Experiment) -> list[tuple[str, str]]:
    """List weights that are kept and nothing could name, or named and not kept."""
    experts, router, measuring = experiment.experts.training, experiment.router.training, experiment.measuring
    evaluate, problems = experiment.evaluate, []
    others = {"measuring.extractor": measuring.extractor.training}
    if measuring.classifier is not None:
        others["measuring.classifier"] = measuring.classifier.training
    for place, training in others.items():
        text = "nothing reads them: it measures as it ended"
        problems += [(f"{place}.training.{key}", text) for key in training.kept]
    for key in ("snapshots", "extra_ema_halflives_images"):
        own, routed = getattr(experts, key), getattr(router, key, [])
        if routed and len(routed) != len(own):
            text = f"go with those of experts.training one by one, of which there are {len(own)}; here {len(routed)}"
            problems.append((f"router.training.{key}", text))
    problems += [(f"evaluate.{key}", text) for key, text in not_kept(experts, evaluate).items()]
    return problems


def not_kept(training: Training, evaluate: EvaluateSettings) -> dict[str, str]:
    """Return what is wrong with the weights that an evaluation names, by its key: those that no training keeps."""
    problems = {}
    halflives = [training.ema_halflife_images, *training.extra_ema_halflives_images]
    for key, kept in (("snapshot", training.snapshots), ("ema_halflife_images", halflives)):
        if getattr(evaluate, key) not in (None, *kept):
            listed = ", ".join(map(str, kept)) or f"none, name some in experts.training.{key}s"
            problems[key] = f"{getattr(evaluate, key)} is not kept; valid numbers: {listed}"
    if evaluate.sigma_rel is None:
        return problems
    if not training.power_ema:
        problems["sigma_rel"] = "is made of averages that experts.training.power_ema names, and it names none"
    elif not 0 < evaluate.sigma_rel < LONGEST:
        problems["sigma_rel"] = f"{evaluate.sigma_rel:g}: needs a length above 0 and below {LONGEST}"
    elif evaluate.ema_halflife_images is not None:
        problems["sigma_rel"] = "and ema_halflife_images: an average has one length; remove one of the two"
    return problems


def _of_measuring(experiment: Experiment) -> list[tuple[str, str]]:
    has_classes, classifier = experiment.data.num_classes is not None, experiment.measuring.classifier
    if has_classes and classifier is None:
        return [("measuring.classifier", "this key is needed: the images have classes")]
    if classifier is not None and not has_classes:
        return [("measuring.classifier", "names classes, and data.num_classes is not set; remove one or add the other")]
    return []


def _of_evaluation(experiment: Experiment) -> list[tuple[str, str]]:
    evaluate, num_experts, problems = experiment.evaluate, experiment.cluster.experts, []
    if evaluate.min_experts is not None and evaluate.min_experts > num_experts:
        problems.append(("evaluate.min_experts", f"needs {evaluate.min_experts} experts, there are {num_experts}"))
    waiting = {"distill": experiment.distill, "router.samples": experiment.router.samples}
    if evaluate.min_experts is not None and evaluate.min_experts < num_experts:
        useless = [key for key, settings in waiting.items() if settings is not None]
        problems += [("evaluate.min_experts", f"{key} waits for all experts; remove one of the two") for key in useless]
    num_classes = experiment.data.num_classes or 1
    fewest = max(2 * num_classes, FEWEST_IMAGES)
    if evaluate.images < fewest:
        problems.append(
            ("evaluate.images", f"{evaluate.images} are too few to be measured and shown; at least {fewest}")
        )
    if evaluate.images % num_classes:
        text = f"{evaluate.images} cannot be balanced over {num_classes} classes"
        problems.append(("evaluate.images", text))
    if evaluate.images % evaluate.batch:
        problems.append(("evaluate.images", f"{evaluate.images} is no multiple of evaluate.batch {evaluate.batch}"))
    elif evaluate.units > evaluate.images // evaluate.batch:
        problems.append(("evaluate.units", f"{evaluate.units} units for {evaluate.images // evaluate.batch} batches"))
    if evaluate.guidance_interval != sorted(evaluate.guidance_interval):
        problems.append(
            ("evaluate.guidance_interval", f"{evaluate.guidance_interval}: from the smaller time to the larger")
        )
    return problems + _of_strategies(experiment)


def _of_strategies(experiment: Experiment) -> list[tuple[str, str]]:
    problems, labels = [], set()
    for name in experiment.evaluate.strategies:
        try:
            strategy = parse_strategy(name)
            strategy.check(experiment)
            if strategy.label in labels:
                problems.append(("evaluate.strategies", f"{strategy.label} stands there twice"))
            labels.add(strategy.label)
        except (ConfigError, ValueError) as error:
            problems.append(("evaluate.strategies", str(error)))
    return problems
