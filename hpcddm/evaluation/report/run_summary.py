"""Summary of a run for its report: training, sampling and denoisers, as text."""

from typing import Any

import torch

from hpcddm.config.experiment import Experiment, ExpertConfig
from hpcddm.config.schema import VariantSettings
from hpcddm.evaluation import training_costs
from hpcddm.evaluation.report.content import Denoiser
from hpcddm.evaluation.training_costs import Spent
from hpcddm.models import build_denoiser
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.passed_over import described
from hpcddm.runs.ranges import TRAIN
from hpcddm.runs.stored_results import split_results
from hpcddm.runs.unit_keys import CATALOG, MONOLITH, ROUTER, STUDENT, expert_key
from hpcddm.runs.unit_settings import expert_training, overridden_images
from hpcddm.runs.weights_files import chosen


def rows(settings: Experiment, metrics: dict[str, Any], inputs: dict[str, Manifest]) -> list[tuple[str, str]]:
    """List the summary as pairs of label and value, in the order of the pipeline."""
    evaluate, router = settings.evaluate, settings.router
    seconds = sum(map(_rank_seconds, inputs.values()))
    return [
        ("Training images", f"{split_results(inputs, TRAIN)['samples']:,}"),
        *_of_left_out(inputs[CATALOG].results),
        ("Experts (K)", str(settings.cluster.experts)),
        ("Images seen by all experts together", _images_of_experts(settings)),
        *_of_weights(settings),
        *_of_student(settings, inputs),
        *_of_starts(settings, inputs),
        *_of_skipped(inputs),
        ("Router", f"{brief(router.model)}; {_training_of_router(settings, inputs)}"),
        ("Sampled images per arm", f"{evaluate.images:,}"),
        ("Solver", f"{brief(evaluate.solver)}, {evaluate.steps} steps{_spacing(evaluate.shift)}"),
        ("Guidance", _guidance(settings)),
        ("Experts become one velocity by", _combining(settings)),
        ("Extractor", f"{metrics['extractor']['name']}, SHA-256 {metrics['extractor']['sha256'][:16]}"),
        *_of_classifier(metrics),
        *[("Contradiction", line) for line in metrics.get("contradictions", ())],
        ("Process time of all units", f"{seconds / 60:.1f} minutes"),
    ]


def trained_denoisers(settings: Experiment, inputs: dict[str, Manifest]) -> list[Denoiser]:
    """List monolith and student, where they are there, then the experts that are there."""
    dense = {key: settings.expert_config() for key in (MONOLITH, STUDENT) if key in inputs}
    configs = dense | {expert_key(index): settings.expert_config(index) for index in range(settings.cluster.experts)}
    own = training_costs.spent(settings, inputs)
    return [_denoiser(settings, key, config, inputs[key], own[key]) for key, config in configs.items() if key in inputs]


def brief(settings: VariantSettings) -> str:
    """Describe a variant by its name and the settings that differ from their defaults."""
    changes = []
    for key, field in type(settings).model_fields.items():
        value, default = getattr(settings, key), field.default
        if isinstance(value, VariantSettings):
            # The default of such a field is a mapping with the variant's name.
            value, default = brief(value), default["name"] if isinstance(default, dict) else None
        if key != "name" and value != default:
            changes.append(f"{key} {value}")
    return f"{settings.name} ({', '.join(changes)})" if changes else settings.name


def _denoiser(settings: Experiment, key: str, config: ExpertConfig, unit: Manifest, spent: Spent) -> Denoiser:
    own = 0 if spent.samples is None else spent.samples + spent.foreign
    with torch.device("meta"):
        model = build_denoiser.build(settings, config)
    return Denoiser(
        unit=key,
        model=brief(config.model),
        parameters=sum(values.numel() for values in model.parameters()),
        objective=brief(config.objective),
        precision=config.precision,
        images=spent.images,
        flops=spent.train_flops,
        passes=spent.images / own if own else None,
        rank_hours=_rank_seconds(unit) / 3600,
    )


def _rank_seconds(unit: Manifest) -> float:
    """Return the seconds that all ranks of a unit took together; 0 where its record does not tell."""
    return unit.record.get("seconds", 0.0) * unit.record.get("world_size", 1)


def _of_left_out(catalog: dict[str, Any]) -> list[tuple[str, str]]:
    broken, counts = catalog.get("broken", 0), catalog.get("passed_over", {})
    rows = [("Broken samples, left out", f"{broken:,}")] if broken else []
    return [*rows, ("Passed over", described(counts))] if counts else rows


def _of_starts(settings: Experiment, inputs: dict[str, Manifest]) -> list[tuple[str, str]]:
    lines = []
    for digest, start in training_costs.starts(settings, inputs, training_costs.spent(settings, inputs)).items():
        cost = "images unknown" if start.get("images") is None else f"{start['images']:,} images seen"
        billed = (
            "which no bill holds" if start.get("train_flops") is None else "on the bill of every arm that began there"
        )
        lines.append(f"{start['source']}, SHA-256 {digest[:16]}: {cost}, {billed}")
    return [("Start", "; ".join(lines))] if lines else []


def _of_skipped(inputs: dict[str, Manifest]) -> list[tuple[str, str]]:
    """List the trainings in which a gradient was not finite, with their skipped steps."""
    skipped = {key: unit.results.get("skipped_steps", 0) for key, unit in inputs.items()}
    text = ", ".join(f"{key} {count}" for key, count in skipped.items() if count)
    return [("Steps skipped, their gradients not finite", text)] if text else []


def _of_classifier(metrics: dict[str, Any]) -> list[tuple[str, str]]:
    own = metrics["classifier"]
    return [("Classifier", f"right on {own['heldout_accuracy']:.1%} of the held-out images")] if own else []


def _images_of_experts(settings: Experiment) -> str:
    training = settings.experts.training
    if not overridden_images(settings):
        return f"{training.images:,}, batches of {training.batch}"
    images = sum(expert_training(settings, expert).images for expert in range(settings.cluster.experts))
    return f"{images:,}, some of them by numbers of their own"


def _of_weights(settings: Experiment) -> list[tuple[str, str]]:
    text = str(chosen(settings))
    return [("Weights", text)] if text else []


def _of_student(settings: Experiment, inputs: dict[str, Manifest]) -> list[tuple[str, str]]:
    if STUDENT not in inputs:
        return []
    teacher = {"cluster": "the expert of the image's cluster", "router": "the expert that the router names"}
    return [("Student", f"taught by {teacher[settings.student.teacher]}; its FLOPs hold the teachers' part")]


def _training_of_router(settings: Experiment, inputs: dict[str, Manifest]) -> str:
    router = settings.router
    if router.training is None:
        return "not trained"
    source = "samples of the experts" if router.samples else "all clusters"
    refit = ", only its last layer" if router.refit else ""
    trained_on = training_costs.spent(settings, inputs)[ROUTER].images
    images = f"{trained_on:,} images of {source}{refit}, {router.frequency} frequency"
    return images if router.temperature == "none" else f"{images}, temperature {router.temperature}"


def _spacing(shift: float) -> str:
    return "" if shift == 1 else f" with shift {shift:g}"


def _guidance(settings: Experiment) -> str:
    evaluate = settings.evaluate
    low, high = evaluate.guidance_interval
    where = "" if (low, high) == (0, 1) else f" at times from {low:g} to {high:g}"
    return f"scale {evaluate.guidance:g}{where}, {evaluate.posteriors} posteriors of its two halves"


def _combining(settings: Experiment) -> str:
    evaluate = settings.evaluate
    frequency = "every step" if evaluate.route_every == 1 else f"every {evaluate.route_every} steps"
    sums = "sum to one" if evaluate.renormalise else "sum to less than one"
    return f"{brief(evaluate.conversion)}; the router is asked {frequency}, the weights of the chosen {sums}"
