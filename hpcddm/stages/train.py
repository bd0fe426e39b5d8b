"""Stage train: one expert on its own samples, or the monolith on all of them."""

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import torch
from torch import nn

from hpcddm.config import Experiment, ExpertConfig
from hpcddm.data import samples as sample_lists
from hpcddm.data.batch import NoisyBatch
from hpcddm.networks import budgets, denoisers
from hpcddm.networks.batches import noisy_batches
from hpcddm.networks.workload import Work, Workload
from hpcddm.pipeline import trainings
from hpcddm.pipeline.keys import expert_number
from hpcddm.runtime.unit import Result, Unit
from hpcddm.spaces.base import space_of
from hpcddm.training.loop import Task, train


def run(settings: Experiment, unit: Unit) -> Result:
    """Train the model of this unit; an expert reads its own list of samples and nothing of the other experts."""
    expert = expert_number(unit.key)
    if expert is None:
        config, training = settings.expert_config(), budgets.monolith_training(settings)
        samples = sample_lists.clustered(unit, "train")
    else:
        config, training = settings.expert_config(expert), trainings.expert_training(settings, expert)
        samples = sample_lists.clustered(unit, unit.name)
    reader = sample_lists.reader(unit, "train", samples)
    batches = noisy_batches(settings, unit.key, reader)
    start = denoisers.start(settings, unit)
    flops = cache(partial(budgets.train_flops, settings, config))
    build = partial(denoisers.build, settings, config)
    to_model = space_of(settings.data).to_model
    task = Task(settings.seed, build, _loss(config), batches, to_model, start, flops)
    trained = train(task, training, unit)
    results = {"samples": len(samples), "images": training.images, "train_flops": training.images * flops()}
    if settings.data.num_classes is not None:
        results["class_counts"] = np.bincount(samples["label"], minlength=settings.data.num_classes).tolist()
    return Result(trained.outputs, results | trained.results | denoisers.started(settings, unit))


def work(workload: Workload, key: str) -> list[Work]:
    """List the training of one denoiser."""
    settings, expert = workload.settings, expert_number(key)
    training = budgets.monolith_training(settings) if expert is None else trainings.expert_training(settings, expert)
    return [Work(workload.denoiser(expert), True, training.images, training.batch)]


def _loss(config: ExpertConfig) -> Callable[[nn.Module, NoisyBatch], torch.Tensor]:
    objective = denoisers.objective_of(config)

    def loss(model: nn.Module, batch: NoisyBatch) -> torch.Tensor:
        t = objective.training_times(batch.time)
        prediction = model(objective.perturb(batch.x0, batch.noise, t), t, batch.condition)
        return objective.loss(prediction, batch.x0, batch.noise, t)

    return loss
