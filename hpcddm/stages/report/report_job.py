"""Stage report: merges the comparisons of all arms into metrics.json and one self-contained page."""

from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from hpcddm.config.conditions import ConditionForm
from hpcddm.config.experiment import Experiment
from hpcddm.config.image_encoders import ImageEncoderSettings
from hpcddm.config.sampling import parse_strategy
from hpcddm.config.weights import SettingsWithWeights
from hpcddm.data import evaluation_set, run_samples
from hpcddm.errors import require
from hpcddm.evaluation import comparisons, training_costs
from hpcddm.evaluation.comparisons import ArmComparison
from hpcddm.evaluation.report import concept_images, page, protocol, run_summary
from hpcddm.evaluation.report.cluster_facts import RANDOM, PartitionFacts
from hpcddm.evaluation.report.concept_facts import ConceptFacts
from hpcddm.evaluation.report.report_content import (
    ClusterContent,
    ReportContent,
    RouterContent,
)
from hpcddm.evaluation.result_warnings import result_warnings
from hpcddm.files import atomic, checked_reads, hdf5
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs import manifest
from hpcddm.runs.files import (
    CLUSTERS_FILE,
    COMPARISON,
    CONCEPTS_FILE,
    CURVE,
    EVALUATION,
    METRICS,
    PAGE,
    SHOWN_FILE,
    WEIGHTS,
)
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.ranges import HELDOUT, TRAIN
from hpcddm.runs.stored_results import EVALUATIONS, class_names, list_results, split_results
from hpcddm.runs.unit_keys import (
    CLASSIFIER,
    CLUSTER_REPORT,
    CONCEPT_ANALYSIS,
    EXTRACTOR,
    MONOLITH,
    MONOLITH_ARM,
    PROBE,
    ROUTER,
    STUDENT,
    expert_keys,
    stage_of,
    unit_name,
)
from hpcddm.sampling import nfe
from hpcddm.sampling.decisions import Decisions
from hpcddm.sampling.ensemble import NetworkEvaluations
from hpcddm.stages.data.cluster_report import RANDOM_IMAGES
from hpcddm.stages.evaluation.compare import compare_keys
from hpcddm.stages.evaluation.draw import arm_names, draw_range
from hpcddm.stages.evaluation.measure_real import OWN, encoders_by_label
from hpcddm.stages.report.gallery_job import SharedSamples, gallery_samples
from hpcddm.stages.report.report import GALLERY_ESTIMATES, GALLERY_IMAGES
from hpcddm.stages.training.train import missing_experts
from hpcddm.stages.workload import DECODE_LATENTS, Work, Workload

ENSEMBLE = "ensemble"
"""Name for all arms except the dense models; these arms share one training and its FLOPs."""
NOT_FINITE = "the samples, or the networks that drew them, have values that are too large or not numbers"
"""Reason why a figure is null."""
ACCURACY_LABELS = {"accuracy": "with condition", "accuracy_without_class": "without condition"}
CALIBRATION = {"calibration_error": "without temperature", "scaled_calibration_error": "with temperature"}
NLL_LABELS = {"nll": "without temperature", "scaled_nll": "with temperature"}
"""Lists by noise level among the results of the router's unit, and the labels of their lines on the page."""


def run(experiment: Experiment, unit: Unit) -> Result:
    """Write metrics.json and index.html."""
    shown = SharedSamples(experiment, unit)
    places: list[str] = []
    metrics = atomic.finite_json(_metrics(experiment, unit) | {"diagnostics": shown.diagnostics()}, places)
    metrics |= {"not_finite": dict.fromkeys(places, NOT_FINITE)} if places else {}
    costs = training_costs.training_costs(experiment, unit.inputs)
    metrics["protocol"] = protocol.describe(experiment, metrics)
    metrics["warnings"] = result_warnings(experiment, metrics, costs, run_summary.skipped_steps(unit.inputs))
    atomic.write_json(unit.folder / METRICS, metrics)
    galleries = shown.galleries()
    content = _content(experiment, unit, metrics, galleries, shown.decisions(galleries))
    atomic.write_text(unit.folder / PAGE, page.render(content))
    kept = ("arms", "floor", "missing_experts", "remark", "leading_metric", "few_images", "warnings")
    results = {key: metrics[key] for key in kept}
    results["arms"] = {arm: _finite(values) for arm, values in metrics["arms"].items()}
    return Result([METRICS, PAGE], results | {"floor": _finite(metrics["floor"])})


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Leave out the figures of an arm that are not finite."""
    return {key: value for key, value in values.items() if value is not None}


def work(workload: Workload, key: str) -> list[Work]:
    """List the gallery of all arms and of every expert alone, and the diagnostics of the ensemble."""
    evaluate, experts = workload.experiment.evaluate, workload.experiment.cluster.experts
    arms = arm_names(workload.experiment)
    shown = workload.sampling(arms, GALLERY_IMAGES, GALLERY_IMAGES, nfe.of_arm)
    inside = workload.sampling(arms, GALLERY_IMAGES, GALLERY_IMAGES, nfe.of_diagnostics)
    alone = NetworkEvaluations(experts * nfe.of_arm(MONOLITH_ARM, evaluate, experts).experts)
    pictures = (len(arms) + experts + min(GALLERY_ESTIMATES, evaluate.steps)) * GALLERY_IMAGES
    decoded = workload.through_autoencoder(DECODE_LATENTS, pictures, GALLERY_IMAGES)
    return [*shown, *inside, *workload.expert_work(GALLERY_IMAGES, GALLERY_IMAGES, alone), *decoded]


def _usage(unit: Unit, arm: str) -> np.ndarray:
    """Compute each expert's share of an ensemble arm's samples at every step, over all units: (steps, K)."""
    used = sum(group["usage"][:] for group in _parts(unit, arm))
    return used / used.sum(1, keepdims=True)


def _parts(unit: Unit, arm: str) -> Iterator[h5py.Group]:
    """Yield what each unit stored of one arm, in the samples' order."""
    for key in sorted(unit.inputs_of("draw"), key=draw_range):
        with hdf5.open_checked(unit.input(key, EVALUATION)) as file:
            yield file[arm]


def _metrics(experiment: Experiment, unit: Unit) -> dict[str, Any]:
    flops, classes = _train_flops(experiment, unit.inputs), experiment.data.num_classes
    # Without a condition nobody has requested the classes.
    chance = {"chance": 1 / classes} if classes and experiment.data.condition.form is not ConditionForm.NONE else {}
    contradictions = training_costs.contradictions(experiment, unit.inputs)
    compared = {
        unit_name(key): manifest.read_verified_json(unit.run.unit(key), COMPARISON, ArmComparison)
        for key in compare_keys(experiment)
    }
    figures = comparisons.summarise(compared)
    for name, arm in figures["arms"].items():
        arm["train_flops"] = flops.get(name, flops[ENSEMBLE])
        arm[EVALUATIONS] = nfe.of_arm(name, experiment.evaluate, experiment.cluster.experts).experts
    figures |= {
        "unavailable_metrics": comparisons.unavailable(list(compared.values()), classes is not None),
        "missing_experts": missing_experts(experiment, unit.inputs),
        "remark": _remark(experiment, unit),
        "extractors": _extractors(experiment, unit),
        "classifier": _evaluator(experiment, unit, CLASSIFIER) | chance if classes else None,
        "steps": experiment.evaluate.steps,
        "guidance": experiment.evaluate.guidance,
    }
    return figures | ({"contradictions": contradictions} if contradictions else {}) | _probes(unit)


def _probes(unit: Unit) -> dict[str, Any]:
    """Return the verdict on every expert of another site, by its unit; empty without any."""
    verdicts = {
        key: {name: made.results.get(name) for name in ("faults", "accepted")}
        for key, made in unit.inputs_of(stage_of(PROBE)).items()
    }
    return {"probes": verdicts} if verdicts else {}


def _remark(experiment: Experiment, unit: Unit) -> str:
    """Return a remark on the experts that are missing, for every reader of the results; '' when none is."""
    missing, num_experts = missing_experts(experiment, unit.inputs), experiment.cluster.experts
    if not missing:
        return ""
    text = (
        f"{num_experts - len(missing)} of {num_experts} experts, without {', '.join(missing)}: the weights are shared"
        " among the other experts, and the FLOPs are theirs and the router's"
    )
    parsed = map(parse_strategy, experiment.evaluate.strategies)
    unrouted = [strategy.label for strategy in parsed if not strategy.needs_router]
    if not unrouted:
        return text
    own = evaluation_set.evaluation_samples(unit, experiment)[experiment.evaluate.first_sample :]
    clusters = run_samples.open_reader(unit, HELDOUT).clusters(own).numpy()
    orphans = np.isin(clusters, [expert_keys(experiment).index(key) for key in missing]).mean()
    return f"{text}; {', '.join(unrouted)} leaves to the router the {orphans:.1%} of the samples whose own is missing"


def _weights_digest(encoder: ImageEncoderSettings) -> str | None:
    """Return the hash of an encoder's weights; None for an encoder without any."""
    if isinstance(encoder, SettingsWithWeights):
        return encoder.weights.content_hash
    return next((file.sha256 for file in encoder.pretrained), None)


def _train_flops(experiment: Experiment, inputs: dict[str, Manifest]) -> dict[str, int]:
    """Sum the training FLOPs by arm: of each dense model, and of the present experts with the router.

    The FLOPs of initial weights count for every arm that started from them, but once.
    """
    dense = {
        key.split("/")[1]: _sum_train_flops(experiment, inputs, [key]) for key in (MONOLITH, STUDENT) if key in inputs
    }
    experts = [key for key in expert_keys(experiment) if key in inputs]
    return dense | {ENSEMBLE: _sum_train_flops(experiment, inputs, [*experts, ROUTER])}


def _sum_train_flops(experiment: Experiment, inputs: dict[str, Manifest], keys: list[str]) -> int:
    own = training_costs.training_costs(experiment, inputs)
    starts = training_costs.collect_initial_weights(experiment, inputs, keys)
    return sum(own[key].train_flops for key in keys) + sum(start.get("train_flops") or 0 for start in starts.values())


def _extractors(experiment: Experiment, unit: Unit) -> dict[str, dict[str, Any]]:
    """Describe the extractors by label, the run's own first: name, hash of the weights, and what its training gave."""
    own = {OWN: _evaluator(experiment, unit, EXTRACTOR)} if EXTRACTOR in unit.inputs else {}
    return own | {
        label: {"name": encoder.name, "sha256": _weights_digest(encoder)}
        for label, encoder in encoders_by_label(experiment).items()
    }


def _evaluator(experiment: Experiment, unit: Unit, key: str) -> dict[str, Any]:
    digests = {file.path: file.sha256 for file in unit.inputs[key].outputs}
    require(
        WEIGHTS in digests, f"{key}: its manifest lists no {WEIGHTS}; fetch it again, or submit with --redo evaluators"
    )
    name = getattr(experiment.evaluators, key.split("/")[1]).model.name
    return {"name": name, "sha256": digests[WEIGHTS], "heldout_accuracy": unit.inputs[key].results["heldout_accuracy"]}


def _content(
    experiment: Experiment,
    unit: Unit,
    metrics: dict[str, Any],
    galleries: dict[str, np.ndarray],
    decisions: Decisions | None,
) -> ReportContent:
    dense, (asked_for, gallery_texts) = _train_flops(experiment, unit.inputs), _asked(experiment, unit)
    facts = _facts(experiment, unit)
    return ReportContent(
        name=experiment.name,
        summary=run_summary.rows(experiment, metrics, unit.inputs),
        metrics=metrics,
        denoisers=run_summary.trained_denoisers(experiment, unit.inputs),
        clusters=_clusters(experiment, unit, facts),
        facts=facts,
        asked_for=asked_for,
        gallery_texts=gallery_texts,
        galleries=galleries,
        curves=_curves(unit),
        router=_router(unit.inputs[ROUTER].results),
        usage={arm: _usage(unit, arm) for arm in arm_names(experiment) if arm not in dense},
        decisions=decisions,
        concepts=_concepts(unit),
    )


def _asked(experiment: Experiment, unit: Unit) -> tuple[str, list[str]]:
    """Return the kind of condition of the gallery's pictures, '' for none, and the text of each picture."""
    reference = run_samples.open_reader(unit, HELDOUT)
    places = gallery_samples(experiment)
    numbers = evaluation_set.condition_samples(unit, experiment)[places]
    if experiment.data.condition.reads_captions:
        return "caption", reference.captions(numbers)
    if experiment.data.num_classes is None:
        return "", [""] * len(numbers)
    names = class_names(experiment, unit.inputs)
    return "class", [names[label] for label in run_samples.read_labels(experiment, reference, numbers)]


def _curves(unit: Unit) -> dict[str, list[tuple[int, float]]]:
    """Read the loss curves of all units that trained something."""
    trained = [key for key, made in unit.inputs.items() if any(output.path == CURVE for output in made.outputs)]
    return {key: manifest.read_verified_json(unit.run.unit(key), CURVE, list[tuple[int, float]]) for key in trained}


def _router(results: dict[str, Any]) -> RouterContent | None:
    """Collect the router's measurements on held-out images by noise level; None without measurements."""
    if "noise_levels" not in results:
        return None
    lines = [
        {label: results[key] for key, label in kind.items() if key in results}
        for kind in (ACCURACY_LABELS, CALIBRATION, NLL_LABELS)
    ]
    return RouterContent(results["noise_levels"], *lines)


def _facts(experiment: Experiment, unit: Unit) -> PartitionFacts | None:
    """Read the facts about the clusters; None if the stage cluster_report is not complete."""
    if CLUSTER_REPORT not in unit.inputs:
        return None
    file, samples = unit.input(CLUSTER_REPORT, CLUSTERS_FILE), split_results(unit.inputs, TRAIN)["samples"]
    facts: PartitionFacts = checked_reads.read_required_json(file, PartitionFacts)
    is_of_run = (len(facts.clusters), facts.images) == (experiment.cluster.experts, samples)
    require(is_of_run, f"{file}: is about other clusters or images; submit again with --redo cluster_report")
    return facts


def _concepts(unit: Unit) -> tuple[ConceptFacts, concept_images.ConceptImages] | None:
    """Read the facts about the concepts; None without concepts, or if their stage is not complete."""
    if CONCEPT_ANALYSIS not in unit.inputs:
        return None
    facts = ConceptFacts.read(unit.input(CONCEPT_ANALYSIS, CONCEPTS_FILE))
    return facts, concept_images.read(unit.input(CONCEPT_ANALYSIS, SHOWN_FILE))


def _clusters(experiment: Experiment, unit: Unit, facts: PartitionFacts | None) -> list[ClusterContent]:
    clusters, reader = [], run_samples.open_reader(unit, TRAIN)
    for index in range(experiment.cluster.experts):
        shown = facts.clusters[index].shown if facts else _at_random(experiment, unit, index)
        size = list_results(unit.inputs, index)["samples"]
        clusters.append(ClusterContent.read(index, size, shown, reader.images))
    return clusters


def _at_random(experiment: Experiment, unit: Unit, index: int) -> dict[str, list[int]]:
    return {RANDOM: run_samples.sample_expert_list(unit, index, experiment.seed, RANDOM_IMAGES).tolist()}
