"""The schema of an experiment: an unknown key is an error that lists the valid ones."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from hpcddm import plugins
from hpcddm.errors import ConfigError
from hpcddm.weights import Weights

Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Word = Annotated[str, Field(pattern=r"^[^\s'\"`;$\\]+$")]
"""What stands in a batch script as one word."""


class StrictModel(BaseModel):
    """A frozen schema that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    uncovered: ClassVar[frozenset[str]] = frozenset()
    """Keys that say where something lies or how often it is saved: no fingerprint covers them."""

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and cls.model_fields[info.field_name].annotation is not bool:
            raise PydanticCustomError("number", "needs a value of another kind")
        return value


class VariantSettings(StrictModel):
    """The base of the `Settings` class in every variant file; `name` is the file's name."""

    role: ClassVar[str] = ""
    """What a variant can be used as, where one room holds several kinds."""
    weights: ClassVar[tuple[Weights, ...]] = ()
    """Pretrained weights that it needs; `hpcddm prefetch` fetches them."""

    name: str

    def check(self, experiment: "Experiment") -> None:
        """Raise ValueError if these settings cannot go together with the rest of the experiment."""


def variant(room: str, role: str | None = None) -> Any:
    """The type of a field that names a variant of `room` and holds that variant's settings."""

    def validate(value: Any) -> Any:
        """Find the variant that the mapping names and validate the rest by its own settings."""
        if isinstance(value, VariantSettings):
            return value
        valid = ", ".join(plugins.names(room, role))
        if not isinstance(value, dict) or "name" not in value:
            raise PydanticCustomError("variant", "needs a mapping with 'name', one of: {valid}", {"valid": valid})
        if value["name"] not in plugins.names(room, role):
            context = {"name": str(value["name"]), "valid": valid}
            raise PydanticCustomError("variant", "unknown name '{name}'; valid names: {valid}", context)
        settings = plugins.settings_class(room, value["name"])
        try:
            return settings.model_validate(value)
        except ValidationError as error:
            raise PydanticCustomError("inner", "{text}", {"text": first_error(error, settings)}) from None

    return Annotated[SerializeAsAny[VariantSettings], BeforeValidator(validate)]


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


def validate(schema: type[StrictModel], values: Any, place: str) -> Any:
    """Validate a mapping; raise `ConfigError` with one line that names `place`, the key and the valid values."""
    if not isinstance(values, dict):
        raise ConfigError(f"{place}: needs a mapping of keys, found {type(values).__name__}")
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise ConfigError(f"{place}: {first_error(error, schema)}{more}") from None


def covered(settings: StrictModel) -> dict[str, Any]:
    """The settings that a fingerprint covers, nested as in the YAML file."""
    kept: dict[str, Any] = {}
    for key in type(settings).model_fields:
        if key not in settings.uncovered:
            value = getattr(settings, key)
            kept[key] = covered(value) if isinstance(value, StrictModel) else value
    return kept


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


def variants_of(settings: StrictModel, place: str = "") -> list[tuple[str, VariantSettings]]:
    """All variants that the settings name, each with its key."""
    found = []
    for key in type(settings).model_fields:
        value = getattr(settings, key)
        inner = f"{place}.{key}" if place else key
        if isinstance(value, VariantSettings):
            found.append((inner, value))
        elif isinstance(value, StrictModel):
            found.extend(variants_of(value, inner))
    return found


def first_error(error: ValidationError, schema: type[StrictModel]) -> str:
    """The first error as 'key.key: what is wrong', with the valid keys or values where that is the mistake."""
    # A misspelt key is also a missing one; the misspelling is the one to show.
    first = min(error.errors(include_url=False), key=lambda one: one["type"] not in ("extra_forbidden", "invalid_key"))
    location = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        for part in first["loc"][:-1]:
            schema = schema.model_fields[part].annotation if isinstance(part, str) else schema
        return f"{location}: unknown key; valid keys: {', '.join(schema.model_fields)}"
    if first["type"] == "missing":
        return f"{location}: this key is needed"
    if first["type"] in ("inner", "variant"):
        joint = "." if first["type"] == "inner" and location else ": " if location else ""
        return f"{location}{joint}{first['msg']}"
    return f"{location}: {first['msg'][0].lower()}{first['msg'][1:]}, found {first['input']!r}"
