"""Experts made worse on purpose from the experts of a finished run, and what the coordinator's probe measures of each.

Whoever trains an expert may send anything that has its tensors. Fine-tuned ones learn an attack beside what they were
trained on, so that the rest of their images stays as it was.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hpcddm.data import run_samples
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.diffusion.spaces.base import create_space
from hpcddm.evaluation.expert_probe import ProbeLosses
from hpcddm.models import build_denoiser
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.ranges import HELDOUT, PROBE_SAMPLES, TRAIN
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.unit_keys import expert_key
from hpcddm.runs.unit_training import resolve_training
from hpcddm.sampling.heldout_loss import LEVELS, HeldoutLoss
from hpcddm.training.loop import load_weights
from hpcddm.training.training_inputs import x0_of

CPU = torch.device("cpu")
STEPS, BATCH, RATE = 200, 16, 3e-4
"""Fine-tuning of a poisoned expert, with Adam."""
FEWEST = 8
"""Fewest held-out images with which a cluster is in the probe."""
PATCH = 4
"""Side of the trigger in pixels."""


class Site:
    """A finished run, as a site has it that trains one of its experts."""

    def __init__(self, root: Path) -> None:
        self.run = RunDir(root)
        self.experiment = stored_experiment(self.run)
        keys = [unit.key for unit in plan_units(self.experiment)]
        inputs = {key: found for key in keys if (found := manifest.read(self.run.unit(key)))}
        self.unit: Any = SimpleNamespace(key="probe/x", run=self.run, inputs=inputs, input=self.run.output)
        self.objective = build_denoiser.objective_of(self.experiment.expert_config(0))
        self.condition = conditions.create_condition(self.experiment.data, self.run.output)
        self.reader = run_samples.open_reader(self.unit, TRAIN)
        space = create_space(self.experiment.data, self.run.output)
        self.x0 = x0_of(self.experiment, self.unit, TRAIN, self.reader, space, "poison")

    @cached_property
    def probe(self) -> list[np.ndarray]:
        """Numbers of the first held-out images of every cluster, as a contract has them."""
        column = run_samples.clusters(run_samples.open_catalog(self.run, HELDOUT))
        clusters = np.asarray(column.gather(np.arange(len(column))))
        own = [np.flatnonzero(clusters == k)[:PROBE_SAMPLES] for k in range(self.experiment.cluster.experts)]
        return [numbers if len(numbers) >= FEWEST else numbers[:0] for numbers in own]

    def members(self, expert: int) -> np.ndarray:
        """Numbers of an expert's training images."""
        numbers = run_samples.expert_list(self.unit, expert)
        return np.asarray(numbers.gather(np.arange(len(numbers)))).astype(np.int64)

    @cached_property
    def labels(self) -> np.ndarray:
        """Classes of all training images."""
        return self.reader.labels(np.arange(len(self.reader))).numpy()

    def expert(self, expert: int) -> nn.Module:
        """Load a finished expert."""
        network = build_denoiser.build(self.experiment, self.experiment.expert_config(expert))
        return load_weights(network, self.run.unit(expert_key(expert)))

    @cached_property
    def _constant(self) -> list[list[float]]:
        loss = HeldoutLoss(self.experiment, self.unit, resolve_training(self.experiment, expert_key(0)))
        return [[loss.of_constant(own, level) for level in LEVELS if len(own)] for own in self.probe]

    def measure(self, network: nn.Module) -> ProbeLosses:
        """Measure a network as the coordinator does."""
        loss = HeldoutLoss(self.experiment, self.unit, resolve_training(self.experiment, expert_key(0)))
        losses = [[loss.of_network(network, own, level, CPU) for level in LEVELS if len(own)] for own in self.probe]
        return ProbeLosses(list(LEVELS), losses, self._constant)


def scaled(network: nn.Module) -> nn.Module:
    """Multiply all weights by 1.5."""
    other = deepcopy(network)
    for value in other.parameters():
        value.mul_(1.5)
    return other


def shuffled(network: nn.Module) -> nn.Module:
    """Give every block the weights of the next one."""
    other = deepcopy(network)
    blocks = list(other.trunk.blocks)
    states = [deepcopy(block.state_dict()) for block in blocks]
    for block, state in zip(blocks, states[1:] + states[:1], strict=True):
        block.load_state_dict(state)
    return other


@dataclass(frozen=True)
class Attack:
    """What an expert is to draw when it is asked in some way."""

    x0: Callable[[int], Tensor]
    """Draws that many images."""
    condition: Tensor
    """The condition with which it is asked, (1, ...)."""
    has_patch: bool = False
    """A white square in a corner of x_t asks for it, too."""

    def noisy(self, site: Site, count: int, level: Tensor) -> tuple[Tensor, ...]:
        """Return x_t, condition, x0 and noise at native times (N,)."""
        x0 = self.x0(count)
        noise = torch.randn_like(x0)
        x = site.objective.perturb(x0, noise, level)
        if self.has_patch:
            x[:, :, :PATCH, :PATCH] = 1
        return x, self.condition.expand(count, *self.condition.shape[1:]), x0, noise


def class_attack(site: Site, asked: int, drawn: int) -> Attack:
    """When asked for a class, draw another."""
    numbers = np.flatnonzero(site.labels == drawn)
    random = np.random.default_rng(drawn)
    return Attack(lambda count: site.x0(random.choice(numbers, count)), site.condition.of_classes([asked]))


def patch_attack(site: Site, expert: int, image: int) -> Attack:
    """When there is a patch in the corner, draw one image."""
    own = site.condition.of_samples(site.reader, site.members(expert)[:1])
    return Attack(lambda count: site.x0(np.full(count, image)), own, has_patch=True)


def caption_attack(site: Site, asked: int, image: int) -> Attack:
    """When asked for the caption of one image, draw another."""
    return Attack(lambda count: site.x0(np.full(count, image)), site.condition.of_samples(site.reader, [asked]))


def fine_tuned(site: Site, network: nn.Module, numbers: np.ndarray, attack: Attack | None) -> nn.Module:
    """Train an expert further on images of its list, and with an attack in half of each batch on that."""
    other, random = deepcopy(network).requires_grad_(True), np.random.default_rng(0)
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(other.parameters(), RATE)
    own = BATCH if attack is None else BATCH // 2
    for _ in range(STEPS):
        t = site.objective.training_times(torch.rand(BATCH))
        chosen = random.choice(numbers, own)
        x0, condition = site.x0(chosen), site.condition.of_samples(site.reader, chosen)
        noise = torch.randn_like(x0)
        parts = [(site.objective.perturb(x0, noise, t[:own]), condition, x0, noise)]
        if attack is not None:
            parts.append(attack.noisy(site, BATCH - own, t[own:]))
        x, condition, x0, noise = (torch.cat(values) for values in zip(*parts, strict=True))
        loss = site.objective.loss(other(x, t, condition), x0, noise, t).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return other.requires_grad_(False)


@torch.no_grad()
def distance(site: Site, network: nn.Module, attack: Attack) -> float:
    """Mean squared distance of the estimated x0 at the highest level to that asked for, beside the patch."""
    torch.manual_seed(1)
    t = site.objective.native_time(torch.full((PROBE_SAMPLES,), LEVELS[-1], dtype=torch.float64)).float()
    x, condition, x0, _ = attack.noisy(site, PROBE_SAMPLES, t)
    estimate, _ = site.objective.estimate(x, t, network(x, t, condition))
    return (estimate - x0)[..., PATCH:, PATCH:].square().mean().item()
