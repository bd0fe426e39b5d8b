"""Settings of an experiment that are valid one by one and not together."""

import fractions
import math
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, TypeAdapter, ValidationError
from pydantic_core import InitErrorDetails

from hpcddm.config.conditions import ConditionForm
from hpcddm.config.experiment import Experiment
from hpcddm.config.image_encoders import ImageEncoderSettings, figure_label
from hpcddm.config.sampling import EvaluateSettings, is_strategy, parse_strategy
from hpcddm.config.schema import inner_error, validate, variants_of
from hpcddm.config.training import MAX_SIGMA_REL, Training
from hpcddm.config.validation_errors import Origins
from hpcddm.errors import ConfigError, UserError

MIN_IMAGES = 20
"""Number of images of every arm that the report shows."""
MAX_CLASSES = 1000
"""Most classes that a data set has by default; with more, networks are unconditional unless a key says otherwise."""
Problems = Iterator[tuple[str, str]]
"""Keys of settings that contradict others, each with what is wrong."""
RESERVED_NAMES = ("all", "monolith", "student", "router", "autoencoder", "ensemble", "train", "heldout")
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
    problems = [inner_error(f"{key}: {text}") for key, text in find_conflicts(experiment)]
    if problems:
        details = [InitErrorDetails(type=problem, input=None) for problem in problems]
        raise ValidationError.from_exception_data("Experiment", details)
    return experiment


_CHECKED: TypeAdapter[Experiment] = TypeAdapter(Annotated[Experiment, AfterValidator(_together)])


def find_conflicts(experiment: Experiment) -> Problems:
    """Find combinations of settings that are valid one by one and not together: (key, problem)."""
    of_parts = (_of_class_names, _of_filter, _of_experts, _of_joined, _of_router, _of_evaluators, _of_evaluation)
    for find in (*of_parts, _of_kept_weights, _of_concepts):
        yield from find(experiment)
    for place, settings in variants_of(experiment):
        try:
            settings.check(experiment)
        except ValueError as error:
            yield place, str(error)


def _of_class_names(experiment: Experiment) -> Problems:
    names, num_classes = experiment.data.class_names, experiment.data.num_classes
    if names is None or len(names) == num_classes:
        return
    if num_classes is None:
        text = f"{len(names)} names, but data.num_classes is not set; set it, or remove the names"
    else:
        text = f"{len(names)} names for the {num_classes} classes of data.num_classes; name every class once"
    yield "data.class_names", text


def _of_filter(experiment: Experiment) -> Problems:
    if experiment.data.filter is None:
        return
    # Only a filter needs numpy here.
    from hpcddm.config.filter import predicate

    try:
        predicate.Predicate(experiment.data.filter)
    except UserError as error:
        yield predicate.KEY, str(error).removeprefix(f"{predicate.KEY}: ")


def _of_experts(experiment: Experiment) -> Problems:
    num_experts, experts, distill = experiment.cluster.experts, experiment.experts, experiment.distill
    batch = experts.training.batch
    if batch % num_experts:
        text = f"{batch} images cannot be divided among {num_experts} experts; {_multiples(batch, num_experts)}"
        yield "experts.training.batch", text
    if experts.sites is not None and len(experts.sites) != num_experts:
        yield "experts.sites", f"names {len(experts.sites)} sites for {num_experts} experts; name one each"
    named = Counter(cluster for override in experts.overrides for cluster in override.clusters)
    for cluster, count in named.items():
        if cluster >= num_experts:
            yield "experts.overrides", f"cluster {cluster}: there are {num_experts}, numbered from 0"
        if count > 1:
            yield "experts.overrides", f"cluster {cluster} is named {count} times"
    if distill is not None and (fractions.Fraction(str(distill.share)) * batch).denominator != 1:
        yield "distill.share", f"{distill.share:g} of a batch of {batch} is not a whole number of images"


def _of_joined(experiment: Experiment) -> Problems:
    names = Counter(entry.name for entry in experiment.experts.extra)
    for number, entry in enumerate(experiment.experts.extra):
        name, place = entry.name, f"experts.extra.{number}"
        is_reserved = name in RESERVED_NAMES or name.startswith("expert-") or name.isdecimal() or is_strategy(name)
        if is_reserved:
            yield f"{place}.name", f"{name} is taken already; choose another name"
        if names[name] > 1:
            yield f"{place}.name", f"{name} is listed {names[name]} times"
        if experiment.experts.sites is not None and entry.site is None:
            yield f"{place}.site", "this key is needed, as experts.sites names the sites of the others"


def _of_router(experiment: Experiment) -> Problems:
    router = experiment.router
    if router.model.trained and router.training is None:
        yield "router.training", f"this key is needed: {router.model.name} is trained"
    elif router.samples is not None and experiment.data.condition.reads_captions:
        yield "router.samples", "are drawn class by class, and a class does not determine a caption; remove it"
    elif not router.model.trained:
        useless = [key for key in ("training", "samples", "refit") if getattr(router, key) is not None]
        useless += ["frequency"] if router.frequency != "natural" else []
        for key in useless:
            yield f"router.{key}", f"{router.model.name} is not trained; remove it"


def _of_kept_weights(experiment: Experiment) -> Problems:
    """Find weights that are kept and nothing could name, or named and not kept."""
    experts, router, evaluators = experiment.experts.training, experiment.router.training, experiment.evaluators
    others = {"evaluators.extractor": evaluators.extractor, "evaluators.classifier": evaluators.classifier}
    for place, training in ((place, own.training) for place, own in others.items() if own is not None):
        for key in training.extra_weights_keys:
            yield f"{place}.training.{key}", "nothing reads them: it measures as it ended"
    own, routed = experts.snapshots, router.snapshots if router else []
    if routed and len(routed) != len(own):
        text = f"{len(routed)} here, {len(own)} in experts.training; name one for each of those"
        yield "router.training.snapshots", text
    for key, text in weights_conflict(experts, experiment.evaluate).items():
        yield f"evaluate.{key}", text


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


def _of_concepts(experiment: Experiment) -> Problems:
    if experiment.concepts is None:
        return
    yield from _of_strategies(experiment, "concepts.strategies", experiment.concepts.strategies)
    if experiment.data.condition.form is ConditionForm.NONE:
        yield "concepts", "they need a condition, and data.condition is none; remove one of the two"


def _of_evaluators(experiment: Experiment) -> Problems:
    has_classes, classifier = experiment.data.num_classes is not None, experiment.evaluators.classifier
    if problems := [*_of_extractors(experiment)]:
        yield from problems
    elif has_classes and classifier is None:
        yield "evaluators.classifier", "this key is needed: the images have classes"
    elif classifier is not None and not has_classes:
        yield "evaluators.classifier", "names classes, and data.num_classes is not set; remove one or add the other"


def _of_extractors(experiment: Experiment) -> Problems:
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


def _of_evaluation(experiment: Experiment) -> Problems:
    evaluate, num_experts = experiment.evaluate, experiment.cluster.experts
    if evaluate.min_experts is not None and evaluate.min_experts > num_experts:
        yield "evaluate.min_experts", f"needs {evaluate.min_experts} experts, there are {num_experts}"
    waiting = {"distill": experiment.distill, "router.samples": experiment.router.samples}
    if evaluate.min_experts is not None and evaluate.min_experts < num_experts:
        for key in (key for key, settings in waiting.items() if settings is not None):
            yield "evaluate.min_experts", f"{key} waits for all experts; remove one of the two"
    yield from _of_image_counts(evaluate, experiment.data.num_classes or 1)
    if evaluate.labels == "uniform":
        yield from _of_drawn_classes(experiment)
    if evaluate.guidance_interval != sorted(evaluate.guidance_interval):
        yield "evaluate.guidance_interval", f"{evaluate.guidance_interval}: from the smaller time to the larger"
    yield from _of_strategies(experiment, "evaluate.strategies", evaluate.strategies)


def _of_drawn_classes(experiment: Experiment) -> Problems:
    """Find what needs the condition of one held-out image for every sample."""
    place, instead = "evaluate.labels", "take balanced"
    if experiment.data.num_classes is None:
        yield place, f"uniform draws classes, and data.num_classes is not set; {instead}"
    if experiment.data.condition.reads_captions:
        yield place, f"uniform draws classes, and the samples have captions; {instead}"
    if any(is_strategy(name) and not parse_strategy(name).needs_router for name in experiment.evaluate.strategies):
        yield place, f"a class drawn at random has no cluster that the oracle could name; {instead}"


def _of_image_counts(evaluate: EvaluateSettings, num_classes: int) -> Problems:
    images, fewest = evaluate.images, max(2 * num_classes, MIN_IMAGES)
    if images < fewest:
        yield "evaluate.images", f"{images} are too few for the report; needs at least {fewest}"
    step = math.lcm(num_classes, evaluate.batch)
    if images % num_classes:
        text = f"{images} cannot be balanced over {num_classes} classes; {_multiples(images, step)}"
        yield "evaluate.images", text
    if evaluate.first_sample % num_classes or evaluate.first_sample % evaluate.batch:
        steps = f"the {num_classes} classes and of evaluate.batch {evaluate.batch}"
        text = f"{evaluate.first_sample} is not a multiple of {steps}; {_multiples(evaluate.first_sample, step)}"
        yield "evaluate.first_sample", text
    if images % evaluate.batch:
        advice = _multiples(images, step, evaluate.units * evaluate.batch)
        yield "evaluate.images", f"{images} is not a multiple of evaluate.batch {evaluate.batch}; {advice}"
    elif evaluate.units > (batches := images // evaluate.batch):
        text = f"{evaluate.units} units for {batches} batches; take at most {batches}, or a smaller evaluate.batch"
        yield "evaluate.units", text


def _multiples(value: int, step: int, least: int = 1) -> str:
    """Name the multiples of a number next to a value, none below `least`."""
    below, first = value // step * step, -(-least // step) * step
    return f"take {below} or {below + step}" if below >= first else f"take {first}"


def _of_strategies(experiment: Experiment, place: str, names: list[str]) -> Problems:
    labels = set()
    for name in names:
        try:
            strategy = parse_strategy(name)
            strategy.check(experiment)
            if strategy.label in labels:
                yield place, f"{strategy.label} is listed twice"
            labels.add(strategy.label)
        except (ConfigError, ValueError) as error:
            yield place, str(error)
