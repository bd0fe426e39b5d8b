"""Settings of an experiment that are valid one by one and not together."""

import fractions
import math
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, TypeAdapter, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from hpcddm.config.conditions import ConditionForm
from hpcddm.config.experiment import Experiment
from hpcddm.config.image_encoders import ImageEncoderSettings, figure_label
from hpcddm.config.sampling import EvaluateSettings
from hpcddm.config.schema import validate, variants_of
from hpcddm.config.strategies import is_strategy
from hpcddm.config.strategies import parse as parse_strategy
from hpcddm.config.training import MAX_SIGMA_REL, Training
from hpcddm.config.validation_errors import Origins
from hpcddm.errors import ConfigError, UserError

MIN_IMAGES = 20
"""Number of images of every arm that the report shows."""
MAX_CLASSES = 1000
"""Most classes that a data set has by default; with more, networks are unconditional unless a key says otherwise."""
RESERVED_NAMES = ("all", "monolith", "student", "router", "ensemble", "train", "heldout")
"""Names of units and of arms, which no expert that joins may have."""


def are_classes_sampled(classes: int, of_class: int) -> bool:
    """Tell if every class has images enough to be compared with samples; of_class: fewest of a class in a split."""
    return 2 <= classes <= MAX_CLASSES and of_class * classes >= max(2 * classes, MIN_IMAGES)


def validate_experiment(values: Any, origins: str | Origins) -> Experiment:
    """Validate an experiment with all that its settings say together: from a file, a sweep, a run or Python.

    Raises `ConfigError` with one line for every mistake, which names the place, the key and the valid values.
    """
    return validate(Experiment, values, origins, _CHECKED.validate_python)


def _together(experiment: Experiment) -> Experiment:
    problems = [
        PydanticCustomError("inner", "{text}", {"text": f"{key}: {text}"}) for key, text in find_conflicts(experiment)
    ]
    if problems:
        details = [InitErrorDetails(type=problem, input=None) for problem in problems]
        raise ValidationError.from_exception_data("Experiment", details)
    return experiment


_CHECKED: TypeAdapter[Experiment] = TypeAdapter(Annotated[Experiment, AfterValidator(_together)])


def find_conflicts(experiment: Experiment) -> list[tuple[str, str]]:
    """List combinations of settings that are valid one by one and not together: (key, problem)."""
    problems = [*_of_class_names(experiment), *_of_filter(experiment)]
    problems += [*_of_experts(experiment), *_of_joined(experiment), *_of_router(experiment)]
    problems += [*_of_evaluators(experiment), *_of_evaluation(experiment), *_of_kept_weights(experiment)]
    problems += _of_concepts(experiment)
    for place, settings in variants_of(experiment):
        try:
            settings.check(experiment)
        except ValueError as error:
            problems.append((place, str(error)))
    return problems


def _of_class_names(experiment: Experiment) -> list[tuple[str, str]]:
    names, num_classes = experiment.data.class_names, experiment.data.num_classes
    if names is None or len(names) == num_classes:
        return []
    if num_classes is None:
        text = f"{len(names)} names, but data.num_classes is not set; set it, or remove the names"
    else:
        text = f"{len(names)} names for the {num_classes} classes of data.num_classes; name every class once"
    return [("data.class_names", text)]


def _of_filter(experiment: Experiment) -> list[tuple[str, str]]:
    if experiment.data.filter is None:
        return []
    # Only a filter needs numpy here.
    from hpcddm.config.filter import predicate

    try:
        predicate.Predicate(experiment.data.filter)
    except UserError as error:
        return [(predicate.KEY, str(error).removeprefix(f"{predicate.KEY}: "))]
    return []


def _of_experts(experiment: Experiment) -> list[tuple[str, str]]:
    num_experts, experts, distill = experiment.cluster.experts, experiment.experts, experiment.distill
    batch, problems = experts.training.batch, []
    if batch % num_experts:
        text = f"{batch} images cannot be divided among {num_experts} experts; {_multiples(batch, num_experts)}"
        problems.append(("experts.training.batch", text))
    if experts.sites is not None and len(experts.sites) != num_experts:
        problems.append(("experts.sites", f"names {len(experts.sites)} sites for {num_experts} experts; name one each"))
    named = Counter(cluster for override in experts.overrides for cluster in override.clusters)
    for cluster, count in named.items():
        if cluster >= num_experts:
            problems.append(("experts.overrides", f"cluster {cluster}: there are {num_experts}, numbered from 0"))
        if count > 1:
            problems.append(("experts.overrides", f"cluster {cluster} is named {count} times"))
    if distill is not None and (fractions.Fraction(str(distill.share)) * batch).denominator != 1:
        problems.append(("distill.share", f"{distill.share:g} of a batch of {batch} is not a whole number of images"))
    return problems


def _of_joined(experiment: Experiment) -> list[tuple[str, str]]:
    extra, sites, problems = experiment.experts.extra, experiment.experts.sites, []
    names = Counter(entry.name for entry in extra)
    for number, entry in enumerate(extra):
        place = f"experts.extra.{number}"
        if (
            entry.name in RESERVED_NAMES
            or entry.name.startswith("expert-")
            or entry.name.isdecimal()
            or is_strategy(entry.name)
        ):
            problems.append((f"{place}.name", f"{entry.name} is taken already; choose another name"))
        if names[entry.name] > 1:
            problems.append((f"{place}.name", f"{entry.name} is listed {names[entry.name]} times"))
        if sites is not None and entry.site is None:
            problems.append((f"{place}.site", "this key is needed, as experts.sites names the sites of the others"))
    return problems


def _of_router(experiment: Experiment) -> list[tuple[str, str]]:
    router = experiment.router
    if router.model.trained and router.training is None:
        return [("router.training", f"this key is needed: {router.model.name} is trained")]
    if router.samples is not None and experiment.data.condition.reads_captions:
        return [("router.samples", "are drawn class by class, and a class does not determine a caption; remove it")]
    if not router.model.trained:
        useless = [key for key in ("training", "samples", "refit") if getattr(router, key) is not None]
        useless += ["frequency"] if router.frequency != "natural" else []
        return [(f"router.{key}", f"{router.model.name} is not trained; remove it") for key in useless]
    return []


def _of_kept_weights(experiment: Experiment) -> list[tuple[str, str]]:
    """List weights that are kept and nothing could name, or named and not kept."""
    experts, router, evaluators = experiment.experts.training, experiment.router.training, experiment.evaluators
    evaluate, problems = experiment.evaluate, []
    others = {"evaluators.extractor": evaluators.extractor, "evaluators.classifier": evaluators.classifier}
    for place, training in ((place, own.training) for place, own in others.items() if own is not None):
        text = "nothing reads them: it measures as it ended"
        problems += [(f"{place}.training.{key}", text) for key in training.extra_weights_keys]
    own, routed = experts.snapshots, router.snapshots if router else []
    if routed and len(routed) != len(own):
        text = f"{len(routed)} here, {len(own)} in experts.training; name one for each of those"
        problems.append(("router.training.snapshots", text))
    problems += [(f"evaluate.{key}", text) for key, text in weights_conflict(experts, evaluate).items()]
    return problems


def weights_conflict(training: Training, evaluate: EvaluateSettings) -> dict[str, str]:
    """Return what is wrong with the weights that an evaluation names, by its key: those that no training keeps."""
    problems = {}
    if evaluate.snapshot not in (None, *training.snapshots):
        listed = ", ".join(map(str, training.snapshots)) or "none, name some in experts.training.snapshots"
        problems["snapshot"] = f"{evaluate.snapshot} is not kept; valid numbers: {listed}"
    if evaluate.sigma_rel is None:
        return problems
    if not training.power_ema:
        problems["sigma_rel"] = "is made of averages that experts.training.power_ema names, and it names none"
    elif not 0 < evaluate.sigma_rel < MAX_SIGMA_REL:
        problems["sigma_rel"] = f"{evaluate.sigma_rel:g}: needs a length above 0 and below {MAX_SIGMA_REL}"
    return problems


def _of_concepts(experiment: Experiment) -> list[tuple[str, str]]:
    if experiment.concepts is None:
        return []
    problems = _of_strategies(experiment, "concepts.strategies", experiment.concepts.strategies)
    if experiment.data.condition.form is ConditionForm.NONE:
        problems.append(("concepts", "they need a condition, and data.condition is none; remove one of the two"))
    return problems


def _of_evaluators(experiment: Experiment) -> list[tuple[str, str]]:
    has_classes, classifier = experiment.data.num_classes is not None, experiment.evaluators.classifier
    if problems := [*_of_extractors(experiment)]:
        return problems
    if has_classes and classifier is None:
        return [("evaluators.classifier", "this key is needed: the images have classes")]
    if classifier is not None and not has_classes:
        return [
            ("evaluators.classifier", "names classes, and data.num_classes is not set; remove one or add the other")
        ]
    return []


def _of_extractors(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Find figures that nothing would compute, or that two evaluators would compute under one name."""
    evaluate, own = experiment.evaluate, experiment.evaluators.extractor
    if own is None and not evaluate.extractors and experiment.cluster.clustering.name != "agreed":
        yield "evaluators.extractor", "nothing compares samples with real images; set it, or evaluate.extractors"
    if own is None and experiment.concepts is not None:
        yield "evaluators.extractor", "this key is needed: concepts are scored in its features"
    labels: dict[str, int] = {}
    for number, encoder in enumerate(evaluate.extractors):
        if fault := _fault_of_extractor(encoder, number, labels):
            yield f"evaluate.extractors.{number}", fault
    if evaluate.perceptual is not None and experiment.data.num_classes is None:
        yield "evaluate.perceptual", "it compares samples of one class, and data.num_classes is not set; remove it"


def _fault_of_extractor(encoder: ImageEncoderSettings, number: int, labels: dict[str, int]) -> str | None:
    """Return what is wrong with an extractor; labels: those of the extractors before it, with their numbers.

    Where its weights are missing its label may not be known yet: submit needs them, and prefetch fetches them.
    """
    if not isinstance(encoder, ImageEncoderSettings):
        return f"{encoder.name} does not see images; take another encoder"
    try:
        first = labels.setdefault(figure_label(encoder), number)
    except UserError:
        return None
    if first != number:
        return f"its figures would have the name of those of evaluate.extractors.{first}; remove one"
    return None


def _of_evaluation(experiment: Experiment) -> list[tuple[str, str]]:
    evaluate, num_experts, problems = experiment.evaluate, experiment.cluster.experts, []
    if evaluate.min_experts is not None and evaluate.min_experts > num_experts:
        problems.append(("evaluate.min_experts", f"needs {evaluate.min_experts} experts, there are {num_experts}"))
    waiting = {"distill": experiment.distill, "router.samples": experiment.router.samples}
    if evaluate.min_experts is not None and evaluate.min_experts < num_experts:
        useless = [key for key, settings in waiting.items() if settings is not None]
        problems += [("evaluate.min_experts", f"{key} waits for all experts; remove one of the two") for key in useless]
    num_classes = experiment.data.num_classes or 1
    fewest = max(2 * num_classes, MIN_IMAGES)
    if evaluate.images < fewest:
        problems.append(("evaluate.images", f"{evaluate.images} are too few for the report; needs at least {fewest}"))
    step = math.lcm(num_classes, evaluate.batch)
    if evaluate.images % num_classes:
        text = f"{evaluate.images} cannot be balanced over {num_classes} classes; {_multiples(evaluate.images, step)}"
        problems.append(("evaluate.images", text))
    if evaluate.first_sample % num_classes or evaluate.first_sample % evaluate.batch:
        steps = f"the {num_classes} classes and of evaluate.batch {evaluate.batch}"
        text = f"{evaluate.first_sample} is not a multiple of {steps}; {_multiples(evaluate.first_sample, step)}"
        problems.append(("evaluate.first_sample", text))
    if evaluate.images % evaluate.batch:
        advice = _multiples(evaluate.images, step, evaluate.units * evaluate.batch)
        text = f"{evaluate.images} is not a multiple of evaluate.batch {evaluate.batch}; {advice}"
        problems.append(("evaluate.images", text))
    elif evaluate.units > (batches := evaluate.images // evaluate.batch):
        text = f"{evaluate.units} units for {batches} batches; take at most {batches}, or a smaller evaluate.batch"
        problems.append(("evaluate.units", text))
    if evaluate.guidance_interval != sorted(evaluate.guidance_interval):
        problems.append(
            ("evaluate.guidance_interval", f"{evaluate.guidance_interval}: from the smaller time to the larger")
        )
    return problems + _of_strategies(experiment, "evaluate.strategies", evaluate.strategies)


def _multiples(value: int, step: int, least: int = 1) -> str:
    """Name the multiples of a number next to a value, none below `least`."""
    below, first = value // step * step, -(-least // step) * step
    return f"take {below} or {below + step}" if below >= first else f"take {first}"


def _of_strategies(experiment: Experiment, place: str, names: list[str]) -> list[tuple[str, str]]:
    problems, labels = [], set()
    for name in names:
        try:
            strategy = parse_strategy(name)
            strategy.check(experiment)
            if strategy.label in labels:
                problems.append((place, f"{strategy.label} is listed twice"))
            labels.add(strategy.label)
        except (ConfigError, ValueError) as error:
            problems.append((place, str(error)))
    return problems
