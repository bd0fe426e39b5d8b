"""Stage report: merges the evaluation's units into metrics.json and one self-contained page."""

from typing import Any

import h5py
import numpy as np
import torch

from hpcddm.config import Experiment
from hpcddm.data.reader import to_images
from hpcddm.ensemble import strategies
from hpcddm.ensemble.members import MONOLITH_ARM
from hpcddm.ensemble.sampler import sample
from hpcddm.metrics.frechet import frechet_distance
from hpcddm.metrics.kernel import kernel_distance
from hpcddm.metrics.statistics import Statistics
from hpcddm.pipeline import (
    CLUSTER,
    EXTRACTOR,
    JUDGE,
    MONOLITH,
    ROUTER,
    evaluate_range,
    expert_keys,
    missing_experts,
)
from hpcddm.report import page
from hpcddm.report.content import Cluster, Content, Gallery
from hpcddm.rundir import atomic
from hpcddm.rundir.manifest import Manifest
from hpcddm.runtime.unit import Result, Unit
from hpcddm.stages import networks
from hpcddm.stages import samples as sample_lists
from hpcddm.stages.evaluate import EVALUATION, REAL, REFERENCE, arm_names
from hpcddm.training.loop import CURVE, WEIGHTS

PAGE, METRICS = "index.html", "metrics.json"
PICTURES_PER_CLUSTER = 48
GALLERY_PICTURES = 20


def run(settings: Experiment, unit: Unit, num_units: int) -> Result:
    """Write metrics.json and index.html."""
    merged = {name: _merge(unit, name) for name in (*arm_names(settings), REFERENCE, REAL)}
    metrics = _metrics(settings, unit, merged)
    atomic.write_json(unit.folder / METRICS, metrics)
    page.write(_content(settings, unit, metrics, merged), unit.folder / PAGE)
    return Result([METRICS, PAGE], {key: metrics[key] for key in ("arms", "floor", "missing_experts", "remark")})


def _merge(unit: Unit, arm: str) -> dict[str, Any]:
    """One arm over all units, in the samples' order: statistics in float64, features, agreement, usage."""
    statistics, features, agreed, usage = None, [], [], 0
    for key in sorted(unit.inputs_of("evaluate"), key=evaluate_range):
        with h5py.File(unit.input(key, EVALUATION)) as file:
            group = file[arm]
            part = Statistics.from_arrays({name: group[name][()] for name in ("count", "mean", "scatter")})
            statistics = part if statistics is None else statistics.merge(part)
            features.append(group["features"][:])
            agreed.append(group["agreed"][:])
            usage = usage + group["usage"][:] if "usage" in group else usage
    return {
        "statistics": statistics,
        "features": np.concatenate(features),
        "agreed": np.concatenate(agreed),
        "usage": usage,
    }


def _metrics(settings: Experiment, unit: Unit, merged: dict[str, dict[str, Any]]) -> dict[str, Any]:
    flops = _train_flops(unit.inputs)
    arms = {}
    for name in arm_names(settings):
        arms[name] = _distances(merged[name], merged[REFERENCE]) | {"train_flops": flops[name == MONOLITH_ARM]}
    return {
        "arms": arms,
        "floor": _distances(merged[REAL], merged[REFERENCE]),
        "missing_experts": missing_experts(settings, unit.inputs),
        "remark": _remark(settings, unit),
        "extractor": _critic(settings, unit, EXTRACTOR),
        "judge": _critic(settings, unit, JUDGE),
        "steps": settings.evaluate.steps,
        "guidance": settings.evaluate.guidance,
    }


def _remark(settings: Experiment, unit: Unit) -> str:
    """What everybody who reads the results has to know of the experts that are missing; '' when none is."""
    missing, num_experts = missing_experts(settings, unit.inputs), settings.cluster.experts
    if not missing:
        return ""
    text = (
        f"{num_experts - len(missing)} of {num_experts} experts, without {', '.join(missing)}: the weights are shared"
        " among those that are there, and the FLOPs are theirs and the router's"
    )
    parsed = map(strategies.parse, settings.evaluate.strategies)
    unrouted = [strategy.label for strategy in parsed if not strategy.needs_router]
    if not unrouted:
        return text
    clusters = sample_lists.evaluated(unit, settings)["cluster"]
    orphans = np.isin(clusters, [expert_keys(settings).index(key) for key in missing]).mean()
    return f"{text}; {', '.join(unrouted)} leaves to the router the {orphans:.1%} of the samples whose own is missing"


def _distances(arm: dict[str, Any], reference: dict[str, Any]) -> dict[str, Any]:
    return {
        "fd": frechet_distance(arm["statistics"], reference["statistics"]),
        "kid": kernel_distance(arm["features"], reference["features"]),
        "agreement": float(arm["agreed"].mean()),
        "images": int(arm["statistics"].count),
    }


def _train_flops(inputs: dict[str, Manifest]) -> tuple[int, int]:
    """Training FLOPs of the experts that are there with the router, and of the monolith."""
    experts = sum(found.facts["train_flops"] for key, found in inputs.items() if key.startswith("train/expert-"))
    monolith = inputs[MONOLITH].facts["train_flops"] if MONOLITH in inputs else 0
    return experts + inputs[ROUTER].facts["train_flops"], monolith


def _critic(settings: Experiment, unit: Unit, key: str) -> dict[str, Any]:
    (weights,) = (output for output in unit.inputs[key].outputs if output.path == WEIGHTS)
    name = getattr(settings.critics, key.split("/")[1]).model.name
    return {"name": name, "sha256": weights.sha256, "heldout_accuracy": unit.inputs[key].facts["heldout_accuracy"]}


def _content(settings: Experiment, unit: Unit, metrics: dict[str, Any], merged: dict[str, dict[str, Any]]) -> Content:
    router = unit.inputs[ROUTER].facts
    curves = {
        key: atomic.read_json(unit.input(key, CURVE))
        for key in unit.inputs
        if key.split("/")[0] in ("train", "route", "critics")
    }
    usage = {name: arm["usage"] for name, arm in merged.items() if np.ndim(arm["usage"]) and name != MONOLITH_ARM}
    return Content(
        name=settings.name,
        facts=_facts(settings, metrics, unit.inputs),
        metrics=metrics,
        clusters=_clusters(settings, unit),
        gallery_classes=[number % settings.data.num_classes for number in range(GALLERY_PICTURES)],
        galleries=_galleries(settings, unit),
        curves=curves,
        noise_levels=router["noise_levels"],
        router_accuracy={"with class": router["accuracy"], "without class": router["accuracy_without_class"]},
        usage={name: used / used.sum(1, keepdims=True) for name, used in usage.items()},
    )


def _facts(settings: Experiment, metrics: dict[str, Any], inputs: dict[str, Manifest]) -> list[tuple[str, str]]:
    training, evaluate = settings.experts.training, settings.evaluate
    seconds = sum(found.record["seconds"] * found.record["world_size"] for found in inputs.values())
    return [
        ("Training images", f"{inputs[CLUSTER].facts['images']:,}"),
        ("Experts (K)", str(settings.cluster.experts)),
        ("Images seen by all experts together", f"{training.images:,}, batches of {training.batch}"),
        (
            "Sampled images per arm",
            f"{evaluate.images:,}, {evaluate.steps} steps, guidance scale {evaluate.guidance:g}",
        ),
        ("Extractor", f"{metrics['extractor']['name']}, SHA-256 {metrics['extractor']['sha256'][:16]}"),
        ("Judge", f"right on {metrics['judge']['heldout_accuracy']:.1%} of the held-out images"),
        ("Process time of all units", f"{seconds / 60:.1f} minutes"),
    ]


def _clusters(settings: Experiment, unit: Unit) -> list[Cluster]:
    found = []
    for index in range(settings.cluster.experts):
        samples = sample_lists.clustered(unit, f"expert-{index:02d}")
        reader = sample_lists.reader(unit, "train", samples)
        found.append(Cluster(index, len(samples), reader.images(range(min(PICTURES_PER_CLUSTER, len(samples))))))
    return found


def _galleries(settings: Experiment, unit: Unit) -> list[Gallery]:
    """The same noise through every arm, and through every expert alone."""
    data, device = settings.data, networks.device()
    members = networks.load_members(settings, unit.run.unit, unit.inputs, device)
    rows = range(GALLERY_PICTURES)
    classes = torch.tensor([row % data.num_classes for row in rows], device=device)
    reference = sample_lists.evaluated(unit, settings)[: len(rows)]
    clusters = torch.from_numpy(reference["cluster"].astype(np.int64)).to(device)
    shape = (data.channels, data.image_size, data.image_size)
    found = []
    alone = [f"expert-{index}" for index, expert in enumerate(members.experts) if expert is not None]
    arms = [*arm_names(settings), *alone]
    for number, arm in enumerate(arms):
        unit.leave_if_told()
        unit.pulse.beat(number, len(arms))
        field = members.field(arm, settings.evaluate.guidance, clusters)
        found.append(
            Gallery(arm, to_images(sample(field, settings.seed, rows, classes, shape, settings.evaluate.steps)))
        )
    return found
