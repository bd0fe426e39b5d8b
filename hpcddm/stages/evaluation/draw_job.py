"""Stage draw: a range of samples in every arm."""

from dataclasses import dataclass, field

import h5py
import numpy as np
import torch

from hpcddm.config.experiment import Experiment
from hpcddm.data import evaluation_set
from hpcddm.data.catalog import split_into_blocks
from hpcddm.files import atomic
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import EVALUATION
from hpcddm.sampling import nfe
from hpcddm.sampling.draw_images import UnitSampler
from hpcddm.stages.evaluation.draw import arm_names, draw_range
from hpcddm.stages.progress import advance
from hpcddm.stages.training.train import missing_experts
from hpcddm.stages.workload import DECODE_LATENTS, Work, Workload


def run(experiment: Experiment, unit: Unit) -> Result:
    """Sample images [start, stop) in every arm.

    Image i has the condition of the i-th image of the evaluation set and, for the oracle, its cluster.
    """
    start, stop = draw_range(unit.key)
    drawing, numbers = UnitSampler(experiment, unit), evaluation_set.condition_samples(unit, experiment)
    arms = {name: ArmImages() for name in arm_names(experiment)}
    total = (stop - start) * len(arms)
    for rows in split_into_blocks(range(start, stop), experiment.evaluate.batch):
        for number, (name, arm) in enumerate(arms.items()):
            advance(unit, (rows.start - start) * len(arms) + number * len(rows), total)
            arm.add(*drawing.draw(name, rows, numbers[rows]))
    unit.heartbeat.beat(total, total)
    with atomic.replacing(unit.folder / EVALUATION, durable=False) as staged, h5py.File(staged, "w") as file:
        for name, arm in arms.items():
            arm.write(file.create_group(name))
    missing = missing_experts(experiment, unit.inputs)
    return Result([EVALUATION], {"images": stop - start, "arms": list(arms), "missing_experts": missing})


def work(workload: Workload, key: str) -> list[Work]:
    """List the sampling in all arms."""
    (start, stop), batch = draw_range(key), workload.experiment.evaluate.batch
    arms = arm_names(workload.experiment)
    decoding = workload.through_autoencoder(DECODE_LATENTS, len(arms) * (stop - start), batch)
    return [*workload.sampling(arms, stop - start, batch, nfe.of_arm), *decoding]


@dataclass
class ArmImages:
    """Images of one arm so far, and the usage of the experts; that of a dense model is one weight per step."""

    images: list[np.ndarray] = field(default_factory=list)
    usage: np.ndarray | None = None

    def add(self, images: np.ndarray, usage: torch.Tensor) -> None:
        """Add images, uint8 (N, H, W, C), and the usage of the experts for them, (steps, K)."""
        used = usage.cpu().numpy()
        self.images.append(images)
        self.usage = used if self.usage is None else self.usage + used

    def write(self, group: h5py.Group) -> None:
        """Store the images and the usage."""
        group.create_dataset("images", data=np.concatenate(self.images))
        group.create_dataset("usage", data=self.usage)
