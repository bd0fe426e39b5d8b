"""Stage distill: one dense student learns the experts' velocities (arXiv 2501.05450, sec. 3.5)."""

from collections.abc import Callable
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import nn

from hpcddm.config.experiment import Experiment
from hpcddm.data import run_samples
from hpcddm.data.batch import NoisyBatch
from hpcddm.diffusion.objectives import conversions
from hpcddm.diffusion.spaces.base import create_space
from hpcddm.jobs.unit import Result, Unit
from hpcddm.models import build_denoiser
from hpcddm.runs import weights_files
from hpcddm.runs.ranges import TRAIN
from hpcddm.runs.unit_keys import MONOLITH
from hpcddm.sampling import load_ensemble
from hpcddm.sampling.dispatch import weighted_velocity
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.nfe import NetworkEvaluations
from hpcddm.stages.workload import Work, Workload
from hpcddm.training import flops_budget
from hpcddm.training.loop import Task, train
from hpcddm.training.training_inputs import noisy_batches, training_inputs


def run(experiment: Experiment, unit: Unit) -> Result:
    """Train the student on all training images, an expert's estimates in the place of image and noise."""
    config, training = experiment.expert_config(), flops_budget.training_of(experiment, unit.key)
    # The ranks know their devices only once they have met, which is inside the training.
    ensemble_on = cache(lambda device: load_ensemble.load_ensemble(experiment, unit.run.unit, unit.inputs, device))
    start = build_denoiser.initial_weights_loader(experiment, unit)
    flops = flops_budget.train_flops(experiment, config) + round(flops_budget.teacher_flops(experiment, unit.inputs))
    build = partial(build_denoiser.build, experiment, config)
    to_x = create_space(experiment.data, unit.input).from_batch
    with run_samples.training_reader(experiment, unit, augmentations=experiment.data.augmentations) as reader:
        batches = noisy_batches(experiment, unit, reader, training_inputs(experiment, unit, TRAIN, reader))
        task = Task(experiment.seed, build, _loss(experiment, ensemble_on), batches, to_x, start, flops)
        trained = train(task, training, unit)
    results = {"teacher": experiment.student.teacher} | weights_files.training_costs(training, flops)
    return Result(trained.outputs, results | trained.results | build_denoiser.initial_weights_record(experiment, unit))


def work(workload: Workload, key: str) -> list[Work]:
    """List the student's training, and an evaluation of its teacher for every image."""
    training = flops_budget.training_of(workload.experiment, key)
    per_image = NetworkEvaluations(1.0, 1.0 if workload.experiment.student.teacher == "router" else 0.0)
    teacher = workload.expert_work(training.images, training.batch, per_image)
    student = Work(MONOLITH, True, training.images, training.batch)
    return [student, *workload.encoding_captions(student), *teacher]


def _loss(
    experiment: Experiment, ensemble_on: Callable[[torch.device], Ensemble]
) -> Callable[[nn.Module, NoisyBatch], torch.Tensor]:
    """Return the student's loss against the teacher's estimates: x0 = x - t v, eps = x + (1 - t) v.

    With flow matching that is || v_student - v_teacher ||^2.
    """
    objective = build_denoiser.objective_of(experiment.expert_config())

    def loss(model: nn.Module, batch: NoisyBatch) -> torch.Tensor:
        t = objective.training_times(batch.time)
        noisy = objective.perturb(batch.x0, batch.noise, t)
        level = objective.level(t)
        # The teachers speak of the linear path, where alpha + sigma = 1.
        scale = level.alpha + level.sigma
        x, time = conversions.scale_per_sample(1 / scale, noisy), (level.sigma / scale).to(t.dtype)
        velocity = _teacher(experiment, ensemble_on(x.device), batch, x, time)
        x0, eps = x - conversions.scale_per_sample(time, velocity), x + conversions.scale_per_sample(1 - time, velocity)
        return objective.loss(model(noisy, t, batch.condition), x0, eps, t)

    return loss


@torch.no_grad()
def _teacher(
    experiment: Experiment, ensemble: Ensemble, batch: NoisyBatch, x: torch.Tensor, t: torch.Tensor
) -> torch.Tensor:
    """Evaluate one expert's velocity for every image (N, C, H, W): that of its cluster, or the router's likeliest."""
    chosen = batch.clusters
    if experiment.student.teacher == "router":
        if ensemble.router is None:
            raise ValueError("the teacher is chosen by the router, which is missing")
        chosen = ensemble.router(x, t, batch.condition).argmax(1)
    routing_weights = F.one_hot(chosen, len(ensemble.experts)).to(x.dtype)
    return weighted_velocity(ensemble.experts, routing_weights, x, t, batch.condition)
