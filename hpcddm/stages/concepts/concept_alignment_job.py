"""Stage concept_alignment: errors of the experts that are asked beside the others, and how far their data are."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from hpcddm.clustering.base import Clustering
from hpcddm.clustering.partition import FeaturePartition
from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.data import draws, samples
from hpcddm.data.catalog import blocks_of
from hpcddm.encoders.image.base import ImageEncoder, SampleEncoder
from hpcddm.evaluation.concepts.choosing import Choice
from hpcddm.files import atomic
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import ALIGNMENT_FILE, CHOSEN_FILE, PARTITION
from hpcddm.runs.ranges import HELDOUT
from hpcddm.runs.unit_keys import CLUSTER, CONCEPT_COUNTS
from hpcddm.sampling import alignment
from hpcddm.sampling.alignment import LevelErrors, Recorded
from hpcddm.sampling.draw_images import UnitDrawing
from hpcddm.sampling.nfe import NetworkEvaluations
from hpcddm.sampling.sampler import sample, time_grid
from hpcddm.stages.evaluation.evaluate import strategy_labels
from hpcddm.stages.workload import Work, Workload
from hpcddm.training.inputs import x0_of

LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Times of the linear path at which every expert is asked about noisy held-out images."""
REAL_OF_CONCEPT, MOST_REAL, DRAWN = 4, 512, 64
"""Held-out images of each scored concept, and of all, at most; samples that are followed while they are drawn."""
IMAGES_AT_ONCE = 64


def run(settings: Experiment, unit: Unit) -> Result:
    """Measure errors and distances."""
    choice = Choice.read(unit.input(CONCEPT_COUNTS, CHOSEN_FILE))
    drawing = UnitDrawing(settings, unit)
    numbers = np.unique([number for concept in choice.chosen for number in concept.real[:REAL_OF_CONCEPT]])[:MOST_REAL]
    if not len(numbers) or None in drawing.ensemble.experts:
        reason = "no concept is scored" if not len(numbers) else "not all experts are there"
        atomic.write_json(unit.folder / ALIGNMENT_FILE, {"left_out": reason})
        return Result([ALIGNMENT_FILE], {"left_out": reason})
    errors = _errors(settings, unit, drawing, numbers)
    content = {"levels": LEVELS, "errors": errors, **_distances(settings, unit, drawing)}
    atomic.write_json(unit.folder / ALIGNMENT_FILE, content)
    return Result([ALIGNMENT_FILE], {"images": len(numbers), "samples": DRAWN})


def work(workload: Workload, key: str) -> list[Work]:
    """List all experts' run on noisy images, and the drawing of samples by every strategy."""
    settings = workload.settings
    every = NetworkEvaluations(settings.cluster.experts * len(LEVELS), len(LEVELS))
    asked = workload.of_experts(MOST_REAL, IMAGES_AT_ONCE, every)
    return [*asked, *workload.sampling(strategy_labels(settings), DRAWN, DRAWN)]


def _errors(settings: Experiment, unit: Unit, drawing: UnitDrawing, numbers: np.ndarray) -> dict[str, list[float]]:
    """Return errors by level."""
    space, device = drawing.space, drawing.device
    read = x0_of(settings, unit, HELDOUT, drawing.reader, space)
    field = drawing.ensemble.field("full", settings.evaluate)
    experts = [expert for expert in drawing.ensemble.experts if expert is not None]
    measured: dict[str, list[float]] = {}
    for done, level in enumerate(LEVELS):
        unit.heartbeat.beat(done, len(LEVELS) + len(strategy_labels(settings)))
        parts = []
        for block in blocks_of(numbers, IMAGES_AT_ONCE):
            unit.stop_if_requested()
            x0, asked = read(block).to(device), drawing.condition.of(drawing.reader, block).to(device)
            noise = draws.gaussian(settings.seed, f"alignment/{level:g}", block.tolist(), space.shape).to(device)
            parts.append(alignment.level_errors(experts, field, x0, noise, asked, level))
        joined = LevelErrors(*(torch.cat([getattr(part, name) for part in parts]) for name in vars(parts[0])))
        for name, value in alignment.of_selected(joined).items():
            measured.setdefault(name, []).append(value)
    return measured


def _distances(settings: Experiment, unit: Unit, drawing: UnitDrawing) -> dict[str, Any]:
    """Follow samples of every strategy, and compare their estimates of x0 with the clusters; or say why not."""
    distances_of = _distances_of(settings, unit)
    if distances_of is None:
        return {"distances": None, "reason": "the partition compares no features of images"}
    evaluate, space = settings.evaluate, drawing.space
    shown = samples.evaluated(unit, settings)[:DRAWN]
    asked, clusters = drawing.conditions_and_clusters(shown)
    arms: dict[str, dict[str, list[float]]] = {}
    labels = strategy_labels(settings)
    for number, arm in enumerate(labels):
        unit.stop_if_requested()
        unit.heartbeat.beat(len(LEVELS) + number, len(LEVELS) + len(labels))
        recorded = Recorded(drawing.ensemble.field(arm, evaluate, clusters))
        sample(recorded, settings.seed, range(len(shown)), asked, space, evaluate)
        for estimate, weights in zip(recorded.estimates, recorded.weights, strict=True):
            distances = torch.from_numpy(distances_of(space.to_images(space.finish(estimate))))
            for name, value in alignment.asked_distance(weights.cpu(), distances).items():
                arms.setdefault(arm, {}).setdefault(name, []).append(value)
    return {"times": time_grid(evaluate.steps, evaluate.shift)[:-1], "distances": arms}


def _distances_of(settings: Experiment, unit: Unit) -> Callable[[np.ndarray], np.ndarray] | None:
    """Return a function from images to their distances from every cluster; None where the partition has none."""
    clustering = variants.create(Clustering, settings.cluster.clustering)
    partition = clustering.read(unit.input(CLUSTER, PARTITION), settings)
    if not isinstance(partition, FeaturePartition) or not settings.encode.encoder.reads_images:
        return None
    encoder = variants.create(SampleEncoder, settings.encode.encoder)
    if not isinstance(encoder, ImageEncoder):
        return None
    return lambda images: np.sqrt(partition.distances_features(encoder.encode(images)))
