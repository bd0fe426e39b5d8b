"""Stage evaluate: a range of samples in every arm, beside as many held-out and training images."""

from dataclasses import dataclass, field

import h5py
import numpy as np
import torch

from hpcddm.config.experiment import Experiment
from hpcddm.config.spaces import SpaceSettings
from hpcddm.data import run_samples
from hpcddm.diffusion.spaces.base import Space
from hpcddm.evaluation.metrics import needed
from hpcddm.evaluation.metrics.feature_statistics import FeatureStatistics
from hpcddm.evaluation.metrics.metric_inputs import NO_LABELS, ImageSet
from hpcddm.files import atomic
from hpcddm.jobs.unit import Result, Unit
from hpcddm.models import build_classifier
from hpcddm.models.base import Classifier
from hpcddm.runs.files import EVALUATION
from hpcddm.runs.unit_keys import unit_name
from hpcddm.sampling import load_ensemble
from hpcddm.sampling.draw_images import UnitSampler
from hpcddm.stages.evaluation.evaluate import REAL, REFERENCE, arm_names, evaluate_range
from hpcddm.stages.training.evaluators import evaluator_keys
from hpcddm.stages.training.train import missing_experts
from hpcddm.stages.workload import DECODE_LATENTS, Work, Workload


def run(experiment: Experiment, unit: Unit) -> Result:
    """Sample images [start, stop) and write the report's inputs for each arm.

    Image i has the condition of the i-th image of the evaluation set and, for the oracle, its cluster.
    """
    start, stop = evaluate_range(unit.key)
    drawing, pixels = UnitSampler(experiment, unit), build_classifier.pixels(experiment)
    evaluators = [
        load_ensemble.load_evaluator(experiment, key, unit.run.unit, drawing.device)
        for key in evaluator_keys(experiment)
    ]
    real = {REFERENCE: drawing.reader, REAL: run_samples.open_reader(unit, REAL)}
    numbers = {split: run_samples.evaluation_samples(unit, experiment, split) for split in real}
    has_classes = experiment.data.num_classes is not None
    labels = real[REFERENCE].labels(numbers[REFERENCE][start:stop]).numpy() if has_classes else NO_LABELS
    arms = {name: ArmImages() for name in (*arm_names(experiment), *real)}
    total = (stop - start) * len(arms)
    for first in range(start, stop, experiment.evaluate.batch):
        rows = range(first, first + experiment.evaluate.batch)
        for number, (name, arm) in enumerate(arms.items()):
            unit.stop_if_requested()
            unit.heartbeat.beat((first - start) * len(arms) + number * len(rows), total)
            if name in real:
                images = real[name].images(numbers[name][rows])
            else:
                images, usage = drawing.draw(name, rows, numbers[REFERENCE][rows])
                arm.add_usage(usage)
            arm.add(images, pixels, *evaluators)
    unit.heartbeat.beat(total, total)
    with atomic.replacing(unit.folder / EVALUATION, durable=False) as staged, h5py.File(staged, "w") as file:
        for name, arm in arms.items():
            arm.write(file.create_group(name), labels)
    missing = missing_experts(experiment, unit.inputs)
    return Result([EVALUATION], {"images": stop - start, "arms": list(arms), "missing_experts": missing})


def work(workload: Workload, key: str) -> list[Work]:
    """List the sampling in all arms, and the evaluators' run on them and on the real images."""
    (start, stop), batch = evaluate_range(key), workload.experiment.evaluate.batch
    arms = arm_names(workload.experiment)
    images = len([*arms, REFERENCE, REAL]) * (stop - start)
    measured = [Work(unit_name(network), False, images, batch) for network in evaluator_keys(workload.experiment)]
    decoding = workload.through_autoencoder(DECODE_LATENTS, len(arms) * (stop - start), batch)
    return [*workload.sampling(arms, stop - start, batch), *decoding, *measured]


@dataclass
class ArmImages:
    """Images of one arm so far, with their features, the classes named for them, and the usage of the experts."""

    images: list[np.ndarray] = field(default_factory=list)
    features: list[np.ndarray] = field(default_factory=list)
    named: list[np.ndarray] = field(default_factory=list)
    usage: np.ndarray | None = None

    @torch.no_grad()
    def add(
        self,
        images: np.ndarray,
        pixels: Space[SpaceSettings],
        extractor: Classifier,
        classifier: Classifier | None = None,
    ) -> None:
        """Add images, uint8 (N, H, W, C), with the extractor's features and the class that the classifier names."""
        tensor = pixels.to_model(torch.from_numpy(images).to(next(extractor.parameters()).device))
        self.images.append(images)
        self.features.append(extractor.features(tensor).cpu().numpy())
        self.named.append(NO_LABELS if classifier is None else classifier(tensor).argmax(1).cpu().numpy())

    def add_usage(self, usage: torch.Tensor) -> None:
        """Add the usage of the experts for some images, (steps, K)."""
        used = usage.cpu().numpy()
        self.usage = used if self.usage is None else self.usage + used

    def write(self, group: h5py.Group, labels: np.ndarray) -> None:
        """Store the images and the values that metrics need; labels: requested classes, (N,), empty without classes."""
        features, named = np.concatenate(self.features), np.concatenate(self.named)
        group.create_dataset("images", data=np.concatenate(self.images))
        measured = ImageSet(labels, named == labels, features, FeatureStatistics.from_features(features))
        for name, values in measured.arrays(needed()).items():
            group.create_dataset(name, data=values)
        if self.usage is not None:
            group.create_dataset("usage", data=self.usage)
