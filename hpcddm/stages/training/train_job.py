"""Stage train: one expert on its own samples, or the monolith on all of them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from hpcddm.config.experiment import Experiment, ExpertConfig
from hpcddm.data import run_samples
from hpcddm.data.batch import NoisyBatch
from hpcddm.data.columns import Column
from hpcddm.data.orders.base import Order
from hpcddm.diffusion.spaces.base import create_space
from hpcddm.jobs.unit import Result, Unit
from hpcddm.models import build_denoiser
from hpcddm.randomness.streams import of_training
from hpcddm.runs import weights_files
from hpcddm.runs.ranges import TRAIN
from hpcddm.runs.stored_results import list_results, split_results
from hpcddm.runs.unit_keys import expert_of
from hpcddm.runs.unit_training import ResolvedTraining
from hpcddm.sampling import denoiser_observer
from hpcddm.stages.workload import Work, Workload
from hpcddm.training import flops_budget
from hpcddm.training.log import Observer
from hpcddm.training.loop import Task, train
from hpcddm.training.training_inputs import noisy_batches, training_inputs


def run(experiment: Experiment, unit: Unit) -> Result:
    """Train the model of this unit; an expert reads its own list of samples and nothing of the other experts."""
    expert = expert_of(unit.key)
    training = flops_budget.training_of(experiment, unit.key)
    if expert is None:
        listed, order, seen = None, None, split_results(unit.inputs, TRAIN)
    else:
        listed = run_samples.training_list(unit, expert)
        order = run_samples.list_order(experiment, of_training(unit.key), listed)
        seen = list_results(unit.inputs, expert)
    observer = denoiser_observer.denoiser_observer(experiment, unit, training)
    trained = train_denoiser(experiment, unit, training, _loss(training.denoiser), listed, order, observer)
    return replace(trained, results=seen | trained.results)


def train_denoiser(
    experiment: Experiment,
    unit: Unit,
    training: ResolvedTraining,
    loss: Callable[[nn.Module, NoisyBatch], torch.Tensor],
    listed: Column | None = None,
    order: Order | None = None,
    observer: Observer | None = None,
) -> Result:
    """Train a denoiser from its initial weights.

    Args:
        experiment: Settings of the experiment.
        unit: Unit under training.
        training: Its training, with the FLOPs per image.
        loss: Function from network and batch to the loss of every image.
        listed: Samples that are read; all training samples by default.
        order: Order of the samples, as `noisy_batches` takes it.
        observer: Measurements during training.
    """
    start = build_denoiser.initial_weights_loader(training, unit)
    build = partial(build_denoiser.build, experiment, training.denoiser)
    to_x = create_space(experiment.data, unit.input).from_batch
    with run_samples.training_reader(experiment, unit, listed, experiment.data.augmentations) as reader:
        batches = noisy_batches(experiment, unit, reader, training_inputs(experiment, unit, TRAIN, reader), order)
        trained = train(Task(build, loss, batches, to_x, start, observer), training, unit)
    results = weights_files.training_costs(training) | trained.results
    return Result(trained.outputs, results | build_denoiser.initial_weights_record(training, unit), trained.digests)


def work(workload: Workload, key: str) -> list[Work]:
    """List the training of one denoiser."""
    work = workload.training(workload.denoiser(expert_of(key)), key)
    return [work, *workload.encoding_captions(work)]


def _loss(config: ExpertConfig) -> Callable[[nn.Module, NoisyBatch], torch.Tensor]:
    objective = build_denoiser.objective_of(config)

    def loss(model: nn.Module, batch: NoisyBatch) -> torch.Tensor:
        t = objective.training_times(batch.time)
        prediction = model(objective.perturb(batch.x0, batch.noise, t), t, batch.condition)
        return objective.loss(prediction, batch.x0, batch.noise, t)

    return loss
