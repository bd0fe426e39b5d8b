"""Stage train: one expert on its own samples, or the monolith on all of them."""

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import torch
from torch import nn

from hpcddm.config import Experiment, ExpertConfig
from hpcddm.data import samples as sample_lists
from hpcddm.data.batch import Batch
from hpcddm.networks import budgets, denoisers
from hpcddm.networks.workload import Work, Workload
from hpcddm.pipeline.keys import expert_number
from hpcddm.runtime.unit import Result, Unit
from hpcddm.training.corruption import Randomness
from hpcddm.training.loop import Task, train


def run(settings: Experiment, unit: Unit) -> Result:
    """Train the model of this unit; an expert reads its own list of samples and nothing of the other experts."""
    expert = expert_number(unit.key)
    if expert is None:
        config, training = settings.expert_config(), budgets.monolith_training(settings)
        samples = sample_lists.clustered(unit, "train")
    else:
        config, training = settings.expert_config(expert), budgets.expert_training(settings, expert)
        samples = sample_lists.clustered(unit, unit.name)
    reader = sample_lists.reader(unit, "train", samples)
    loss = _loss(settings, config, unit.key)
    start = denoisers.start(settings, unit)
    flops = cache(partial(budgets.train_flops, settings, config))
    build = partial(denoisers.initial, settings, config)
    task = Task(unit.key, settings.seed, build, loss, reader, start=start, flops_per_image=flops)
    trained = train(task, training, unit)
    results = {
        "samples": len(samples),
        "class_counts": np.bincount(samples["label"], minlength=settings.data.num_classes).tolist(),
        "images": training.images,
        "train_flops": training.images * flops(),
    }
    return Result(trained.outputs, results | trained.results | denoisers.started(settings, unit))


def work(workload: Workload, key: str) -> list[Work]:
    """List the training of one denoiser."""
    settings, expert = workload.settings, expert_number(key)
    training = budgets.monolith_training(settings) if expert is None else budgets.expert_training(settings, expert)
    return [Work(workload.denoiser(expert), True, training.images, training.batch)]


def _loss(settings: Experiment, config: ExpertConfig, stream: str) -> Callable:
    objective = denoisers.objective_of(config)
    randomness = Randomness(settings.seed, stream)
    dropout, null_class = settings.experts.condition_dropout, settings.data.num_classes

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        noise, t = randomness.gaussian(batch), objective.training_times(randomness.uniform_times(batch))
        classes = randomness.classes(batch, dropout, null_class)
        return objective.loss(model(objective.perturb(batch.x0, noise, t), t, classes), batch.x0, noise, t)

    return loss
