"""Stage train: one expert on its own samples, or the monolith on all of them."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import torch
from torch import nn

from hpcddm.config import Experiment, ExpertConfig, Training
from hpcddm.pipeline import expert_number
from hpcddm.runtime.unit import Result, Unit
from hpcddm.stages import denoisers
from hpcddm.stages import samples as sample_lists
from hpcddm.stages.routing import router_flops
from hpcddm.training.corruption import Randomness
from hpcddm.training.loop import Batch, Task, train


def run(settings: Experiment, unit: Unit, num_units: int) -> Result:
    """Train the model of this unit; an expert reads its own list of samples and nothing of the other experts."""
    expert = expert_number(unit.key)
    if expert is None:
        config, training = settings.expert_config(), monolith_training(settings)
        samples = sample_lists.clustered(unit, "train")
    else:
        config, training = settings.expert_config(expert), expert_training(settings, expert)
        samples = sample_lists.clustered(unit, unit.name)
    reader = sample_lists.reader(unit, "train", samples)
    loss = _loss(settings, config, unit.key)
    start = denoisers.start(settings, unit)
    task = Task(unit.key, settings.seed, lambda: denoisers.initial(settings, config), loss, reader, start=start)
    trained = train(task, training, unit)
    results = {
        "samples": len(samples),
        "class_counts": np.bincount(samples["label"], minlength=settings.data.num_classes).tolist(),
        "images": training.images,
        "train_flops": training.images * denoisers.train_flops(settings, config),
    }
    return Result(trained.outputs, results | trained.results | denoisers.started(settings, unit))


def expert_training(settings: Experiment, expert: int) -> Training:
    """Return one expert's K-th of the common budget, in its own precision."""
    part = denoisers.part_of(settings.experts.training, Fraction(1, settings.cluster.experts))
    return part.model_copy(update={"precision": settings.expert_config(expert).precision})


def monolith_training(settings: Experiment) -> Training:
    """Give the monolith the images that all experts' and the router's training FLOPs buy: all arms cost the same."""
    total, experts = settings.experts.training, range(settings.cluster.experts)
    *each, monolith_flops = denoisers.of_each(settings, (*experts, None), denoisers.train_flops)
    spent = sum(expert_training(settings, expert).images * each[expert] for expert in experts)
    affordable = (spent + router_flops(settings)) / monolith_flops
    return total.model_copy(update={"images": round(affordable / total.batch) * total.batch})


def _loss(settings: Experiment, config: ExpertConfig, stream: str) -> Callable:
    objective = denoisers.objective_of(config)
    randomness = Randomness(settings.seed, stream)
    dropout, null_class = settings.experts.condition_dropout, settings.data.num_classes

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        noise, t = randomness.gaussian(batch), objective.training_times(randomness.uniform_times(batch))
        classes = randomness.classes(batch, dropout, null_class)
        return objective.loss(model(objective.perturb(batch.x0, noise, t), t, classes), batch.x0, noise, t)

    return loss
