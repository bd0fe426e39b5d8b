"""Stage report: merges the evaluation's units into metrics.json and one self-contained page."""

from collections.abc import Container, Iterator
from functools import partial
from typing import Any

import h5py
import numpy as np

from hpcddm.config.experiment import Experiment
from hpcddm.config.strategies import parse as parse_strategy
from hpcddm.data import samples as sample_lists
from hpcddm.errors import require
from hpcddm.evaluation import training_costs
from hpcddm.evaluation.metrics import all_metrics, left_out
from hpcddm.evaluation.metrics.evaluation import NO_LABELS, Evaluation, ImageSet
from hpcddm.evaluation.metrics.neighbours import DENSITY_NEIGHBOURS, NEIGHBOURS
from hpcddm.evaluation.report import concept_pictures, page, run_summary
from hpcddm.evaluation.report.cluster_facts import RANDOM, Facts
from hpcddm.evaluation.report.concept_facts import ConceptFacts
from hpcddm.evaluation.report.content import Cluster, Concepts, Content, Gallery, Router
from hpcddm.files import atomic, hdf5, reading
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs import manifest
from hpcddm.runs.files import CLUSTERS_FILE, CONCEPTS_FILE, CURVE, EVALUATION, METRICS, PAGE, SHOWN_FILE, WEIGHTS
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.ranges import HELDOUT, TRAIN
from hpcddm.runs.stored_results import class_names, list_results, split_results
from hpcddm.runs.unit_keys import (
    CLASSIFIER,
    CONCEPTS,
    EXTRACTOR,
    INSPECT,
    MONOLITH,
    MONOLITH_ARM,
    ROUTER,
    STUDENT,
    expert_keys,
)
from hpcddm.sampling import nfe
from hpcddm.sampling.diagnostics import diagnose
from hpcddm.sampling.draw_images import UnitDrawing
from hpcddm.sampling.sampler import sample
from hpcddm.stages.data.inspect import RANDOM_PICTURES
from hpcddm.stages.evaluation.evaluate import REAL, REFERENCE, arm_names, evaluate_range
from hpcddm.stages.report.report import GALLERY_PICTURES
from hpcddm.stages.training.train import missing_experts
from hpcddm.stages.workload import DECODE_LATENTS, Work, Workload

ENSEMBLE = "ensemble"
"""Name for all arms that are no dense model, which share one training and its FLOPs."""
WAYS = {"accuracy": "with condition", "accuracy_without_class": "without condition"}
CALIBRATION = {"calibration_error": "as made", "scaled_calibration_error": "with temperature"}
SURPRISE = {"nll": "as made", "scaled_nll": "with temperature"}
"""Lists by noise level among the results of the router's unit, and the labels of their lines on the page."""


def run(settings: Experiment, unit: Unit) -> Result:
    """Write metrics.json and index.html."""
    shown = Shown(settings, unit)
    metrics = _metrics(settings, unit) | {"diagnostics": shown.diagnostics()}
    atomic.write_json(unit.folder / METRICS, metrics)
    page.write(_content(settings, unit, metrics, shown.galleries()), unit.folder / PAGE)
    return Result([METRICS, PAGE], {key: metrics[key] for key in ("arms", "floor", "missing_experts", "remark")})


def work(workload: Workload, key: str) -> list[Work]:
    """List the gallery of all arms and of every expert alone, and the diagnostics of the ensemble."""
    evaluate, experts = workload.settings.evaluate, workload.settings.cluster.experts
    arms = arm_names(workload.settings)
    shown = workload.sampling(arms, GALLERY_PICTURES, GALLERY_PICTURES)
    inside = workload.sampling(arms, GALLERY_PICTURES, GALLERY_PICTURES, nfe.of_diagnostics)
    alone = nfe.NetworkEvaluations(experts * nfe.of_arm(MONOLITH_ARM, evaluate, experts).experts)
    decoded = workload.through_autoencoder(DECODE_LATENTS, (len(arms) + experts) * GALLERY_PICTURES, GALLERY_PICTURES)
    return [*shown, *inside, *workload.of_experts(GALLERY_PICTURES, GALLERY_PICTURES, alone), *decoded]


def _merge(unit: Unit, arm: str, labels: np.ndarray) -> ImageSet:
    """Merge one arm over all units; labels: those asked for, of all images and the same in every arm."""
    return ImageSet.merged(
        [ImageSet.from_arrays(group, labels[start:stop]) for start, stop, group in _parts(unit, arm)]
    )


def _usage(unit: Unit, arm: str) -> np.ndarray:
    """Compute each expert's share of an ensemble arm's samples at every step, over all units: (steps, K)."""
    used = sum(group["usage"][:] for _, _, group in _parts(unit, arm))
    return used / used.sum(1, keepdims=True)


def _parts(unit: Unit, arm: str) -> Iterator[tuple[int, int, h5py.Group]]:
    """Yield what each unit stored of one arm, in the samples' order, with its range of samples."""
    for key in sorted(unit.inputs_of("evaluate"), key=evaluate_range):
        with hdf5.opened(unit.input(key, EVALUATION)) as file:
            yield *evaluate_range(key), file[arm]


def _metrics(settings: Experiment, unit: Unit) -> dict[str, Any]:
    flops, has_classes = _train_flops(settings, unit.inputs), settings.data.num_classes is not None
    labels, contradictions = _labels(settings, unit), training_costs.contradictions(settings, unit.inputs)
    real, impossible = _merge(unit, REFERENCE, labels), left_out(has_classes)
    measured = {arm: _measures(_merge(unit, arm, labels), real, impossible) for arm in (*arm_names(settings), REAL)}
    floor = measured.pop(REAL)
    return {
        "arms": {name: arm | {"train_flops": flops.get(name, flops[ENSEMBLE])} for name, arm in measured.items()},
        "floor": floor,
        "left_out": impossible,
        "missing_experts": missing_experts(settings, unit.inputs),
        "remark": _remark(settings, unit),
        "extractor": _measuring_network(settings, unit, EXTRACTOR),
        "classifier": _measuring_network(settings, unit, CLASSIFIER) if has_classes else None,
        "neighbours": [NEIGHBOURS, DENSITY_NEIGHBOURS],
        "steps": settings.evaluate.steps,
        "guidance": settings.evaluate.guidance,
    } | ({"contradictions": contradictions} if contradictions else {})


def _labels(settings: Experiment, unit: Unit) -> np.ndarray:
    """Read the classes of the samples from place 0 on, (N,); none where the images have no classes."""
    if settings.data.num_classes is None:
        return NO_LABELS
    return sample_lists.reader(unit, HELDOUT).labels(sample_lists.evaluated(unit, settings)).numpy()


def _remark(settings: Experiment, unit: Unit) -> str:
    """Return a remark on the experts that are missing, for every reader of the results; '' when none is."""
    missing, num_experts = missing_experts(settings, unit.inputs), settings.cluster.experts
    if not missing:
        return ""
    text = (
        f"{num_experts - len(missing)} of {num_experts} experts, without {', '.join(missing)}: the weights are shared"
        " among those that are there, and the FLOPs are theirs and the router's"
    )
    parsed = map(parse_strategy, settings.evaluate.strategies)
    unrouted = [strategy.label for strategy in parsed if not strategy.needs_router]
    if not unrouted:
        return text
    own = sample_lists.evaluated(unit, settings)[settings.evaluate.first :]
    clusters = sample_lists.reader(unit, HELDOUT).clusters(own).numpy()
    orphans = np.isin(clusters, [expert_keys(settings).index(key) for key in missing]).mean()
    return f"{text}; {', '.join(unrouted)} leaves to the router the {orphans:.1%} of the samples whose own is missing"


def _measures(samples: ImageSet, real: ImageSet, impossible: Container[str] = ()) -> dict[str, float]:
    """Measure an arm against the held-out images."""
    evaluation = Evaluation(samples, real)
    possible = [metric for metric in all_metrics() if metric.key not in impossible]
    return {metric.key: metric.compute(evaluation) for metric in possible} | {"images": samples.statistics.count}


def _train_flops(settings: Experiment, inputs: dict[str, Manifest]) -> dict[str, int]:
    """Sum the training FLOPs by arm: of each dense model, and of the experts with the router, as far as they are there.

    The FLOPs of initial weights count for every arm that started from them, but once.
    """
    dense = {key.split("/")[1]: _bill(settings, inputs, [key]) for key in (MONOLITH, STUDENT) if key in inputs}
    experts = [key for key in expert_keys(settings) if key in inputs]
    return dense | {ENSEMBLE: _bill(settings, inputs, [*experts, ROUTER])}


def _bill(settings: Experiment, inputs: dict[str, Manifest], keys: list[str]) -> int:
    own = training_costs.spent(settings, inputs)
    starts = training_costs.starts(settings, inputs, keys)
    return sum(own[key].train_flops for key in keys) + sum(start.get("train_flops") or 0 for start in starts.values())


def _measuring_network(settings: Experiment, unit: Unit, key: str) -> dict[str, Any]:
    digests = {file.path: file.sha256 for file in unit.inputs[key].outputs}
    require(
        WEIGHTS in digests, f"{key}: its manifest lists no {WEIGHTS}; fetch it again, or submit with --redo measuring"
    )
    name = getattr(settings.measuring, key.split("/")[1]).model.name
    return {"name": name, "sha256": digests[WEIGHTS], "heldout_accuracy": unit.inputs[key].results["heldout_accuracy"]}


def _content(
    settings: Experiment,
    unit: Unit,
    metrics: dict[str, Any],
    galleries: list[Gallery],
) -> Content:
    dense, (asked_for, gallery_texts) = _train_flops(settings, unit.inputs), _asked(settings, unit)
    facts = _facts(settings, unit)
    return Content(
        name=settings.name,
        summary=run_summary.rows(settings, metrics, unit.inputs),
        metrics=metrics,
        denoisers=run_summary.trained_denoisers(settings, unit.inputs),
        clusters=_clusters(settings, unit, facts),
        facts=facts,
        asked_for=asked_for,
        gallery_texts=gallery_texts,
        galleries=galleries,
        curves=_curves(unit),
        router=_router(unit.inputs[ROUTER].results),
        usage={arm: _usage(unit, arm) for arm in arm_names(settings) if arm not in dense},
        concepts=_concepts(unit),
    )


def _gallery(settings: Experiment) -> range:
    """Return the numbers of the samples that the gallery shows: the first ones of the evaluation."""
    return range(settings.evaluate.first, settings.evaluate.first + GALLERY_PICTURES)


def _asked(settings: Experiment, unit: Unit) -> tuple[str, list[str]]:
    """Return the word for what the gallery's pictures were asked for, '' for nothing, and its text for each of them."""
    reference = sample_lists.reader(unit, REFERENCE)
    places = _gallery(settings)
    numbers = sample_lists.evaluated(unit, settings)[places]
    if settings.data.condition.reads_captions:
        return "caption", reference.captions(numbers)
    if settings.data.num_classes is None:
        return "", [""] * len(numbers)
    names = class_names(settings, unit.inputs)
    return "class", [names[label] for label in _labels(settings, unit)[places]]


def _curves(unit: Unit) -> dict[str, list[tuple[int, float]]]:
    """Read the loss curves of all units that trained something."""
    trained = [key for key, made in unit.inputs.items() if any(output.path == CURVE for output in made.outputs)]
    return {key: manifest.intact_json(unit.run.unit(key), CURVE, list[tuple[int, float]]) for key in trained}


def _router(results: dict[str, Any]) -> Router | None:
    """Collect what the router's unit measured on held-out images by noise level; None where it measured nothing."""
    if "noise_levels" not in results:
        return None
    lines = [
        {label: results[key] for key, label in kind.items() if key in results} for kind in (WAYS, CALIBRATION, SURPRISE)
    ]
    return Router(results["noise_levels"], *lines)


def _facts(settings: Experiment, unit: Unit) -> Facts | None:
    """Read what is known of the clusters; None where the stage inspect is not complete."""
    if INSPECT not in unit.inputs:
        return None
    file, samples = unit.input(INSPECT, CLUSTERS_FILE), split_results(unit.inputs, TRAIN)["samples"]
    facts: Facts = reading.need_json(file, Facts)
    is_of_run = (len(facts.clusters), facts.images) == (settings.cluster.experts, samples)
    require(is_of_run, f"{file}: is about other clusters or images; submit again with --redo inspect")
    return facts


def _concepts(unit: Unit) -> Concepts | None:
    """Read what is known of the concepts; None where there are none, or their stage is not complete."""
    if CONCEPTS not in unit.inputs:
        return None
    facts = ConceptFacts.read(unit.input(CONCEPTS, CONCEPTS_FILE))
    return Concepts(facts, concept_pictures.read(unit.input(CONCEPTS, SHOWN_FILE)))


def _clusters(settings: Experiment, unit: Unit, facts: Facts | None) -> list[Cluster]:
    clusters, reader = [], sample_lists.reader(unit, TRAIN)
    for index in range(settings.cluster.experts):
        shown = facts.clusters[index].shown if facts else _at_random(settings, unit, index)
        size = list_results(unit.inputs, index)["samples"]
        clusters.append(Cluster.read(index, size, shown, reader.images))
    return clusters


def _at_random(settings: Experiment, unit: Unit, index: int) -> dict[str, list[int]]:
    return {RANDOM: sample_lists.drawn_from(unit, index, settings.seed, RANDOM_PICTURES).tolist()}


class Shown:
    """Samples of the gallery and of the diagnostics: the same noise and classes in every arm."""

    def __init__(self, settings: Experiment, unit: Unit):
        self.settings, self.unit = settings, unit
        self.rows, drawing = _gallery(settings), UnitDrawing(settings, unit)
        self.ensemble, self.space = drawing.ensemble, drawing.space
        shown = sample_lists.evaluated(unit, settings)[self.rows]
        self.condition, self.clusters = drawing.conditions_and_clusters(shown)
        self.arms = arm_names(settings)
        self.alone = [f"expert-{index}" for index, expert in enumerate(self.ensemble.experts) if expert is not None]
        self.done = 0

    def galleries(self) -> list[Gallery]:
        """Draw the gallery of every arm and of every expert alone, all from the same noise."""
        evaluate, galleries = self.settings.evaluate, []
        for arm in (*self.arms, *self.alone):
            self._go_on()
            field = self.ensemble.field(arm, evaluate, self.clusters)
            drawn = sample(field, self.settings.seed, self.rows, self.condition, self.space, evaluate)
            galleries.append(Gallery(arm, self.space.to_images(drawn)))
        return galleries

    def diagnostics(self) -> dict[str, dict[str, Any]]:
        """Measure the router's entropy, the experts' disagreement and the step-refinement gap of every arm."""
        evaluate, by_arm = self.settings.evaluate, {}
        for arm in self.arms:
            self._go_on()
            by_arm[arm] = diagnose(
                partial(self.ensemble.field, arm, evaluate, self.clusters),
                self.settings.seed,
                self.rows,
                self.condition,
                self.space,
                evaluate,
            )
        return by_arm

    def _go_on(self) -> None:
        self.unit.stop_if_requested()
        self.unit.heartbeat.beat(self.done, 2 * len(self.arms) + len(self.alone))
        self.done += 1
