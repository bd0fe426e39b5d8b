"""Stage train: one expert on its own samples, or the monolith on all of them."""

import math
from collections.abc import Callable

import torch
from torch import nn

from hpcddm import plugins
from hpcddm.config import Experiment, Training
from hpcddm.models.flops import training_flops
from hpcddm.pipeline import MONOLITH
from hpcddm.runtime.unit import Result, Unit
from hpcddm.stages import samples as sample_lists
from hpcddm.stages.route import router_flops
from hpcddm.training.corruption import Randomness
from hpcddm.training.loop import Batch, Task, train


def run(settings: Experiment, unit: Unit, num_units: int) -> Result:
    """Train the model of this unit; an expert reads its own list of samples and nothing of the other experts."""
    flops = denoiser_flops(settings)
    if unit.key == MONOLITH:
        samples, training = sample_lists.clustered(unit, "train"), monolith_training(settings, flops)
    else:
        samples, training = sample_lists.clustered(unit, unit.name), expert_training(settings)
    reader = sample_lists.reader(unit, "train", samples)
    task = Task(unit.key, settings.seed, lambda: build(settings), _loss(settings, unit.key), reader)
    outputs = train(task, training, unit)
    facts = {"samples": len(samples), "images": training.images, "train_flops": training.images * flops}
    return Result(outputs, facts)


def build(settings: Experiment) -> nn.Module:
    """A freshly initialised denoiser."""
    model = settings.experts.model
    return plugins.load("models", model.name).build(model, settings.data)


def denoiser_flops(settings: Experiment) -> int:
    """Training FLOPs for one image, forward and backward."""
    data = settings.data
    image = torch.zeros(1, data.channels, data.image_size, data.image_size)
    return training_flops(build(settings), image, torch.zeros(1), torch.zeros(1, dtype=torch.long))


def expert_training(settings: Experiment) -> Training:
    """One expert's K-th of the common budget: whatever counts images is divided by K (arXiv 2501.05450, sec. 4)."""
    num_experts, total = settings.cluster.experts, settings.experts.training
    return total.model_copy(
        update={
            "images": _whole_batches(total.images, total.batch) // num_experts,
            "batch": total.batch // num_experts,
            "warmup_images": total.warmup_images // num_experts,
            "ema_halflife_images": math.ceil(total.ema_halflife_images / num_experts),
            "log_images": math.ceil(total.log_images / num_experts),
        }
    )


def monolith_training(settings: Experiment, flops: int) -> Training:
    """The whole budget, and the images that the router's training FLOPs buy: all arms cost the same."""
    total = settings.experts.training
    bought = round(router_flops(settings) / flops / total.batch) * total.batch
    return total.model_copy(update={"images": _whole_batches(total.images, total.batch) + bought})


def _whole_batches(images: int, batch: int) -> int:
    return math.ceil(images / batch) * batch


def _loss(settings: Experiment, stream: str) -> Callable:
    objective_settings = settings.experts.objective
    objective = plugins.load("objectives", objective_settings.name).Objective(objective_settings)
    randomness = Randomness(settings.seed, stream)
    dropout, null_class = settings.experts.condition_dropout, settings.data.num_classes

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        noise, t = randomness.gaussian(batch), randomness.times(batch)
        classes = randomness.classes(batch, dropout, null_class)
        return objective.loss(model(objective.perturb(batch.x0, noise, t), t, classes), batch.x0, noise, t)

    return loss
