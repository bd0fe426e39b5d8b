"""Loss of a denoiser on held-out images by noise level, and that of the best predictor that ignores what it sees."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from hpcddm.config.experiment import Experiment
from hpcddm.data import run_samples
from hpcddm.data.catalog import split_into_blocks
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.diffusion.objectives.conversions import Images
from hpcddm.diffusion.spaces.base import create_space
from hpcddm.jobs.unit import Unit
from hpcddm.models import build_denoiser
from hpcddm.randomness import keyed
from hpcddm.randomness.streams import PROBE_NOISE
from hpcddm.runs.ranges import HELDOUT
from hpcddm.runs.unit_training import ResolvedTraining
from hpcddm.sampling.denoiser_velocity import NetworkFunction
from hpcddm.training.training_inputs import x0_of

LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Times of the linear path, whose log-SNRs other objectives are asked at, too."""
IMAGES_AT_ONCE = 16


class HeldoutLoss:
    """Loss of a denoiser's objective on chosen held-out images, with noise that depends on level and place alone.

    Args:
        experiment: Settings of the experiment.
        unit: Unit that measures; its inputs include the catalog and what the networks see of its samples.
        training: The training whose objective it is, and whose stream samples latents.
    """

    def __init__(self, experiment: Experiment, unit: Unit, training: ResolvedTraining) -> None:
        self._seed = experiment.seed
        self._objective = build_denoiser.objective_of(training.denoiser)
        self._condition = conditions.create_condition(experiment.data, unit.input)
        self._reader = run_samples.open_reader(unit, HELDOUT)
        space = create_space(experiment.data, unit.input)
        self._read = x0_of(experiment, unit, HELDOUT, self._reader, space, training.stream)
        self._last: tuple[list[int], Images] | None = None

    @torch.no_grad()
    def of_network(
        self,
        network: NetworkFunction,
        numbers: Int64[np.ndarray, " n"],
        level: float,
        device: torch.device,
        is_conditioned: bool = True,
    ) -> float:
        """Compute the mean loss of a network, as it is trained.

        Args:
            network: Denoiser on the device.
            numbers: (N,) numbers of held-out samples, at least one.
            level: Time of the linear path.
            device: Device of the network.
            is_conditioned: False for the null condition, with which guidance evaluates a network.
        """
        total = 0.0
        for rows, x0, noise, t in self._noisy(numbers, level, device):
            chosen = numbers[rows.start : rows.stop]
            own = self._condition
            told = own.of_samples(self._reader, chosen) if is_conditioned else own.null(len(rows))
            prediction = network(self._objective.perturb(x0, noise, t), t, told.to(device))
            total += self._objective.loss(prediction, x0, noise, t).double().sum().item()
        return total / len(numbers)

    @torch.no_grad()
    def of_constant(self, numbers: Int64[np.ndarray, " n"], level: float) -> float:
        """Compute the loss of the best constant predictor: the least that one image c gives as every prediction.

        At one level all images have the same weight w, and w / N sum_n |c - y_n|^2 is least where c is the mean of
        the targets y_n. The mean is that of the given images and noise, so it flatters the constant predictor by
        a factor 1 - 1 / N.

        Args:
            numbers: (N,) numbers of held-out samples, at least one.
            level: Time of the linear path.
        """
        cpu, count = torch.device("cpu"), len(numbers)
        targets = (
            self._objective.predict(x0, noise, t).double().sum(0, keepdim=True)
            for _, x0, noise, t in self._noisy(numbers, level, cpu)
        )
        mean = (sum(targets, torch.zeros(())) / count).float()
        losses = (
            self._objective.loss(mean.expand_as(x0), x0, noise, t).double().sum().item()
            for _, x0, noise, t in self._noisy(numbers, level, cpu)
        )
        return sum(losses) / count

    def _noisy(
        self, numbers: Int64[np.ndarray, " n"], level: float, device: torch.device
    ) -> Iterator[tuple[range, Images, Images, Float[Tensor, " n"]]]:
        """Yield the places of some samples, and their x0, noise and native times."""
        images = self._x0(numbers)
        for rows in split_into_blocks(range(len(numbers)), IMAGES_AT_ONCE):
            x0 = images[rows.start : rows.stop].to(device)
            stream = PROBE_NOISE.format(level=level)
            noise = keyed.gaussian(self._seed, stream, rows, tuple(x0.shape[1:])).to(device)
            linear = torch.full((len(rows),), level, dtype=torch.float64, device=device)
            yield rows, x0, noise, self._objective.native_time(linear).float()

    def _x0(self, numbers: Int64[np.ndarray, " n"]) -> Images:
        """Return x0 of some samples, which stays in memory until other samples are asked for."""
        key = numbers.tolist()
        if self._last is None or self._last[0] != key:
            self._last = (key, self._read(numbers))
        return self._last[1]
