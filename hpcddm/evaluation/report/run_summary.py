"""Summary of a run for its report: training, sampling and denoisers, as text."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import VariantSettings
from hpcddm.evaluation import training_costs
from hpcddm.evaluation.report.report_content import DenoiserContent
from hpcddm.evaluation.training_costs import TrainingCost
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.passed_over import describe_counts
from hpcddm.runs.ranges import TRAIN
from hpcddm.runs.stored_results import split_results
from hpcddm.runs.unit_keys import CATALOG, MONOLITH, ROUTER, STUDENT, expert_keys, probe_key
from hpcddm.runs.unit_training import ResolvedTraining, overridden_images, resolve_training


def rows(experiment: Experiment, metrics: dict[str, Any], inputs: dict[str, Manifest]) -> list[tuple[str, str]]:
    """List the summary as pairs of label and value, in the order of the pipeline."""
    router = experiment.router
    seconds = sum(map(_rank_seconds, inputs.values()))
    listed = [
        ("Training images", f"{split_results(inputs, TRAIN)['samples']:,}"),
        *_of_left_out(inputs[CATALOG].results),
        ("Experts (K)", str(experiment.cluster.experts)),
        ("Images seen by all experts together", _images_of_experts(experiment)),
        ("Student", _student(experiment) if STUDENT in inputs else ""),
        ("Start", _initial_weights(experiment, inputs)),
        ("Steps skipped, their gradients not finite", _listed(skipped_steps(inputs))),
        *_of_probes(experiment, inputs),
        ("Router", f"{describe_variant(router.model)}; {_training_of_router(experiment, inputs)}"),
        ("Experts become one velocity by", _combining(experiment)),
        ("Classifier", _classifier(metrics)),
        *[("Contradiction", line) for line in metrics.get("contradictions", ())],
        ("Process time of all units", f"{seconds / 60:.1f} minutes"),
    ]
    return [(label, value) for label, value in listed if value]


def trained_denoisers(experiment: Experiment, inputs: dict[str, Manifest]) -> list[DenoiserContent]:
    """List the monolith and the student, then the experts, leaving out missing ones."""
    own = training_costs.training_costs(experiment, inputs)
    keys = [key for key in (MONOLITH, STUDENT, *expert_keys(experiment)) if key in inputs]
    return [_denoiser(resolve_training(experiment, key), inputs[key], own[key]) for key in keys]


def describe_variant(settings: VariantSettings) -> str:
    """Describe a variant by its name and the settings that differ from their defaults."""
    changes = []
    for key, field in type(settings).model_fields.items():
        value, default = getattr(settings, key), field.default
        if isinstance(value, VariantSettings):
            # The default of such a field is a mapping with the variant's name.
            value, default = describe_variant(value), default["name"] if isinstance(default, dict) else None
        if key != "name" and value != default:
            changes.append(f"{key} {value}")
    return f"{settings.name} ({', '.join(changes)})" if changes else settings.name


def _denoiser(training: ResolvedTraining, unit: Manifest, spent: TrainingCost) -> DenoiserContent:
    return DenoiserContent(
        unit=training.key,
        model=describe_variant(training.network),
        parameters=training.parameters,
        objective=describe_variant(training.denoiser.objective),
        precision=training.settings.precision,
        images=spent.images,
        flops=spent.train_flops,
        passes=spent.passes,
        rank_hours=_rank_seconds(unit) / 3600,
    )


def _rank_seconds(unit: Manifest) -> float:
    """Return the seconds that all ranks of a unit took together; 0 if its record has no times."""
    return unit.record.get("seconds", 0.0) * unit.record.get("world_size", 1)


def _of_left_out(catalog: dict[str, Any]) -> list[tuple[str, str]]:
    broken, counts = catalog.get("broken", 0), catalog.get("passed_over", {})
    rows = [("Broken samples, left out", f"{broken:,}")] if broken else []
    return [*rows, ("Passed over", describe_counts(counts))] if counts else rows


def _initial_weights(experiment: Experiment, inputs: dict[str, Manifest]) -> str:
    lines, costs = [], training_costs.training_costs(experiment, inputs)
    for digest, start in training_costs.collect_initial_weights(experiment, inputs, costs).items():
        cost = "images unknown" if start.get("images") is None else f"{start['images']:,} images seen"
        is_counted = start.get("train_flops") is not None
        billed = "FLOPs counted for every arm that started from it" if is_counted else "FLOPs unknown, not counted"
        lines.append(f"{start['source']}, SHA-256 {digest[:16]}: {cost}, {billed}")
    return "; ".join(lines)


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{key} {count}" for key, count in counts.items())


def skipped_steps(inputs: dict[str, Manifest]) -> dict[str, int]:
    """Return the numbers of steps whose gradient was not finite, by the key of the training; without zeros."""
    return {key: count for key, unit in inputs.items() if (count := unit.results.get("skipped_steps", 0))}


def _of_probes(experiment: Experiment, inputs: dict[str, Manifest]) -> list[tuple[str, str]]:
    """List the experts of other sites: those that passed the probe, and why others are taken."""
    passed, accepted = [], []
    for number, key in enumerate(expert_keys(experiment)):
        if probe := inputs.get(probe_key(key)):
            name, faults = f"{key} of {experiment.experts.site_of(number)}", probe.results.get("faults", [])
            passed += [] if faults else [name]
            accepted += [f"{name}: {'; '.join(faults)}. Taken because: {probe.results['accepted']}"] if faults else []
    return [
        ("Experts of other sites that passed the probe", ", ".join(passed)),
        ("Experts of other sites that fail the probe", "; ".join(accepted)),
    ]


def _classifier(metrics: dict[str, Any]) -> str:
    own = metrics["classifier"]
    return f"right on {own['heldout_accuracy']:.1%} of the held-out images" if own else ""


def _images_of_experts(experiment: Experiment) -> str:
    training = experiment.experts.training
    if not overridden_images(experiment):
        return f"{training.images:,}, batches of {training.batch}"
    images = sum(resolve_training(experiment, key).settings.images for key in expert_keys(experiment))
    return f"{images:,}, some of them by numbers of their own"


def _student(experiment: Experiment) -> str:
    teacher = {"cluster": "the expert of the image's cluster", "router": "the expert that the router names"}
    return f"taught by {teacher[experiment.student.teacher]}; its FLOPs hold the teachers' part"


def _training_of_router(experiment: Experiment, inputs: dict[str, Manifest]) -> str:
    router = experiment.router
    if router.training is None:
        return "not trained"
    source = "samples of the experts" if router.samples else "all clusters"
    refit = ", only its last layer" if router.refit else ""
    trained_on = training_costs.training_costs(experiment, inputs)[ROUTER].images
    images = f"{trained_on:,} images of {source}{refit}, {router.frequency} frequency"
    return images if router.temperature == "none" else f"{images}, temperature {router.temperature}"


def _combining(experiment: Experiment) -> str:
    evaluate = experiment.evaluate
    frequency = "every step" if evaluate.route_every_steps == 1 else f"every {evaluate.route_every_steps} steps"
    sums = "sum to one" if evaluate.renormalise else "sum to less than one"
    return f"{describe_variant(evaluate.conversion)}; the router is asked {frequency}, the weights of the chosen {sums}"
