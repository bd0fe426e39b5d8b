"""Stage distill: one dense student learns the experts' velocities (arXiv 2501.05450, sec. 3.5)."""

from collections.abc import Callable
from fractions import Fraction
from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

from hpcddm.config import Experiment, Training
from hpcddm.ensemble.dispatch import weighted_velocity
from hpcddm.ensemble.ensemble import Ensemble
from hpcddm.models.flops import forward_flops
from hpcddm.objectives import conversions
from hpcddm.pipeline import expert_keys
from hpcddm.rundir.manifest import Manifest
from hpcddm.runtime.unit import Result, Unit
from hpcddm.stages import denoisers, networks, routing
from hpcddm.stages import samples as sample_lists
from hpcddm.training.corruption import Randomness
from hpcddm.training.loop import Batch, Task, train


def run(settings: Experiment, unit: Unit, num_units: int) -> Result:
    """Train the student on all training images, an expert's estimates in the place of image and noise."""
    config, training = settings.expert_config(), student_training(settings)
    reader = sample_lists.reader(unit, "train", sample_lists.clustered(unit, "train"))
    # The ranks know their devices only once they have met, which is inside the training.
    members_on = cache(lambda device: networks.load_ensemble(settings, unit.run.unit, unit.inputs, device))
    loss = _loss(settings, members_on, unit.key)
    start = denoisers.start(settings, unit)
    task = Task(unit.key, settings.seed, lambda: denoisers.initial(settings, config), loss, reader, start=start)
    trained = train(task, training, unit)
    flops = denoisers.train_flops(settings, config) + round(teacher_flops(settings, unit.inputs))
    results = {"teacher": settings.distill.teacher, "images": training.images, "train_flops": training.images * flops}
    return Result(trained.outputs, results | trained.results | denoisers.started(settings, unit))


def student_training(settings: Experiment) -> Training:
    """Return the student's share of the experts' budget; a quarter costs a third, as each image needs a teacher."""
    part = denoisers.part_of(settings.experts.training, Fraction(str(settings.distill.share)))
    return part.model_copy(update={"precision": settings.expert_config().precision})


def teacher_flops(settings: Experiment, inputs: dict[str, Manifest] | None = None) -> float:
    """Return the FLOPs of the teacher of one image on average, by the clusters' sizes where they are known."""
    keys = expert_keys(settings)
    sizes = [inputs[key].results["samples"] if inputs else 1 for key in keys]
    flops_of_each = denoisers.of_each(settings, range(len(keys)), denoisers.sample_flops)
    experts = sum(size * flops for size, flops in zip(sizes, flops_of_each, strict=True)) / sum(sizes)
    if settings.distill.teacher == "cluster":
        return experts
    return experts + forward_flops(routing.build(settings), *denoisers.one_image(settings))


def _loss(settings: Experiment, members_on: Callable[[torch.device], Ensemble], stream: str) -> Callable:
    """Return the student's loss against the teacher's estimates: x0 = x - t v, eps = x + (1 - t) v.

    With flow matching that is || v_student - v_teacher ||^2.
    """
    objective = denoisers.objective_of(settings.expert_config())
    randomness = Randomness(settings.seed, stream)
    dropout, null_class = settings.experts.condition_dropout, settings.data.num_classes

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        t = objective.training_times(randomness.uniform_times(batch))
        classes = randomness.classes(batch, dropout, null_class)
        noisy = objective.perturb(batch.x0, randomness.gaussian(batch), t)
        level = objective.level(t)
        # The teachers speak of the linear path, where alpha + sigma = 1.
        scale = level.alpha + level.sigma
        x, time = conversions.scale_per_sample(1 / scale, noisy), (level.sigma / scale).to(t.dtype)
        velocity = _teacher(settings, members_on(x.device), batch, x, time, classes)
        x0, eps = x - conversions.scale_per_sample(time, velocity), x + conversions.scale_per_sample(1 - time, velocity)
        return objective.loss(model(noisy, t, classes), x0, eps, t)

    return loss


@torch.no_grad()
def _teacher(
    settings: Experiment, ensemble: Ensemble, batch: Batch, x: torch.Tensor, t: torch.Tensor, classes: torch.Tensor
) -> torch.Tensor:
    """Evaluate one expert's velocity for every image (N, C, H, W): that of its cluster, or the router's likeliest."""
    by_cluster = settings.distill.teacher == "cluster"
    chosen = batch.clusters if by_cluster else ensemble.router(x, t, classes).argmax(1)
    routing_weights = F.one_hot(chosen, len(ensemble.experts)).to(x.dtype)
    return weighted_velocity(ensemble.experts, routing_weights, x, t, classes)
