"""Stage distill: one dense student learns the experts' velocities (arXiv 2501.05450, sec. 3.5)."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

from hpcddm.config.experiment import Experiment, ExpertConfig
from hpcddm.data.batch import NoisyBatch
from hpcddm.diffusion.objectives import conversions
from hpcddm.jobs.unit import Result, Unit
from hpcddm.models import build_denoiser
from hpcddm.runs.unit_keys import MONOLITH
from hpcddm.sampling import load_ensemble
from hpcddm.sampling.dispatch import weighted_velocity
from hpcddm.sampling.ensemble import Ensemble, NetworkEvaluations
from hpcddm.stages.training.train_job import train_denoiser
from hpcddm.stages.workload import Work, Workload
from hpcddm.training import flops_budget


def run(experiment: Experiment, unit: Unit) -> Result:
    """Train the student on all training images, an expert's estimates in the place of image and noise."""
    training = flops_budget.training_of(experiment, unit.key)
    flops = training.flops_per_image + round(flops_budget.teacher_flops(experiment, unit.inputs))
    # The ranks know their devices only once they have met, which is inside the training.
    ensemble_on = cache(lambda device: load_ensemble.load_ensemble(experiment, unit.run.unit, unit.inputs, device))
    loss = _loss(experiment, training.denoiser, ensemble_on)
    trained = train_denoiser(experiment, unit, replace(training, flops_per_image=flops), loss)
    return replace(trained, results={"teacher": experiment.student.teacher} | trained.results)


def work(workload: Workload, key: str) -> list[Work]:
    """List the student's training, and an evaluation of its teacher for every image."""
    student = workload.training(MONOLITH, key)
    per_image = NetworkEvaluations(1.0, 1.0 if workload.experiment.student.teacher == "router" else 0.0)
    teacher = workload.expert_work(student.images, student.batch, per_image)
    return [student, *workload.encoding_captions(student), *teacher]


def _loss(
    experiment: Experiment, config: ExpertConfig, ensemble_on: Callable[[torch.device], Ensemble]
) -> Callable[[nn.Module, NoisyBatch], torch.Tensor]:
    """Return the student's loss against the teacher's estimates: x0 = x - t v, eps = x + (1 - t) v.

    With flow matching that is || v_student - v_teacher ||^2.
    """
    objective = build_denoiser.objective_of(config)

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
