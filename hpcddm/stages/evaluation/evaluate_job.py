"""Stage evaluate: a range of samples in every arm, beside as many held-out and training images."""

from dataclasses import dataclass, field

import h5py
import numpy as np
import torch

from hpcddm.config.experiment import Experiment
from hpcddm.config.spaces import SpaceSettings
from hpcddm.data import samples
from hpcddm.diffusion.spaces.base import Space
from hpcddm.evaluation.metrics import needed
from hpcddm.evaluation.metrics.evaluation import NO_LABELS, ImageSet
from hpcddm.evaluation.metrics.statistics import Statistics
from hpcddm.files import atomic
from hpcddm.jobs.unit import Result, Unit
from hpcddm.models import build_classifier
from hpcddm.models.base import Classifier
from hpcddm.runs.files import EVALUATION
from hpcddm.runs.unit_keys import name_of
from hpcddm.sampling import load_ensemble
from hpcddm.sampling.draw_images import UnitDrawing
from hpcddm.stages.evaluation.evaluate import REAL, REFERENCE, arm_names, evaluate_range
from hpcddm.stages.training.measuring import measuring_keys
from hpcddm.stages.training.train import missing_experts
from hpcddm.stages.workload import DECODE_LATENTS, Work, Workload


def run(settings: Experiment, unit: Unit) -> Result:
    """Sample images [start, stop) and write what the report needs of each arm.

    Image i has the condition of the i-th image of the evaluation set and, for the oracle, its cluster.
    """
    start, stop = evaluate_range(unit.key)
    drawing, pixels = UnitDrawing(settings, unit), build_classifier.pixels(settings)
    measuring_networks = [
        load_ensemble.load_measuring_network(settings, key, unit.run.unit, drawing.device)
        for key in measuring_keys(settings)
    ]
    real = {REFERENCE: drawing.reader, REAL: samples.reader(unit, REAL)}
    numbers = {split: samples.evaluated(unit, settings, split) for split in real}
    has_classes = settings.data.num_classes is not None
    labels = real[REFERENCE].labels(numbers[REFERENCE][start:stop]).numpy() if has_classes else NO_LABELS
    arms = {name: Arm() for name in (*arm_names(settings), *real)}
    total = (stop - start) * len(arms)
    for first in range(start, stop, settings.evaluate.batch):
        rows = range(first, first + settings.evaluate.batch)
        for number, (name, arm) in enumerate(arms.items()):
            unit.stop_if_requested()
            unit.heartbeat.beat((first - start) * len(arms) + number * len(rows), total)
            if name in real:
                images = real[name].images(numbers[name][rows])
            else:
                images, usage = drawing.draw(name, rows, numbers[REFERENCE][rows])
                arm.use(usage)
            arm.add(images, pixels, *measuring_networks)
    unit.heartbeat.beat(total, total)
    with atomic.replacing(unit.folder / EVALUATION, durable=False) as staged, h5py.File(staged, "w") as file:
        for name, arm in arms.items():
            arm.write(file.create_group(name), labels)
    missing = missing_experts(settings, unit.inputs)
    return Result([EVALUATION], {"images": stop - start, "arms": list(arms), "missing_experts": missing})


def work(workload: Workload, key: str) -> list[Work]:
    """List the sampling in all arms, and the measuring networks' run on them and on the real images."""
    (start, stop), batch = evaluate_range(key), workload.settings.evaluate.batch
    arms = arm_names(workload.settings)
    images = len([*arms, REFERENCE, REAL]) * (stop - start)
    measured = [Work(name_of(network), False, images, batch) for network in measuring_keys(workload.settings)]
    decoding = workload.through_autoencoder(DECODE_LATENTS, len(arms) * (stop - start), batch)
    return [*workload.sampling(arms, stop - start, batch), *decoding, *measured]


@dataclass
class Arm:
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

    def use(self, usage: torch.Tensor) -> None:
        """Add the usage of the experts for some images, (steps, K)."""
        used = usage.cpu().numpy()
        self.usage = used if self.usage is None else self.usage + used

    def write(self, group: h5py.Group, labels: np.ndarray) -> None:
        """Store the images and what the metrics need of them; labels: asked for, (N,), empty without classes."""
        features, named = np.concatenate(self.features), np.concatenate(self.named)
        group.create_dataset("images", data=np.concatenate(self.images))
        measured = ImageSet(labels, named == labels, features, Statistics.from_features(features))
        for name, values in measured.arrays(needed()).items():
            group.create_dataset(name, data=values)
        if self.usage is not None:
            group.create_dataset("usage", data=self.usage)
