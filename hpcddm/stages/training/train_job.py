"""Stage train: one expert on its own samples, or the monolith on all of them."""

from collections.abc import Callable
from functools import cache, partial

import torch
from torch import nn

from hpcddm.config.experiment import Experiment, ExpertConfig
from hpcddm.data import samples
from hpcddm.data.batch import NoisyBatch
from hpcddm.diffusion.spaces.base import space_of
from hpcddm.jobs.unit import Result, Unit
from hpcddm.models import build_denoiser
from hpcddm.runs import unit_settings, weights_files
from hpcddm.runs.ranges import TRAIN
from hpcddm.runs.stored_results import list_results, split_results
from hpcddm.runs.unit_keys import expert_of
from hpcddm.runs.weights_files import Kept
from hpcddm.sampling import probe
from hpcddm.stages.workload import Work, Workload
from hpcddm.training import budgets
from hpcddm.training.inputs import training_inputs
from hpcddm.training.loop import Task, train
from hpcddm.training.noisy_batches import noisy_batches


def run(settings: Experiment, unit: Unit) -> Result:
    """Train the model of this unit; an expert reads its own list of samples and nothing of the other experts."""
    expert = expert_of(unit.key)
    config = settings.expert_config(expert)
    if expert is None:
        training, listed, order = budgets.monolith_training(settings), None, None
        seen = split_results(unit.inputs, TRAIN)
    else:
        training = unit_settings.expert_training(settings, expert)
        listed = samples.training_list(unit, expert)
        order = samples.list_order(settings, unit.key, listed)
        seen = list_results(unit.inputs, expert)
    start = build_denoiser.start(settings, unit)
    flops = cache(partial(budgets.train_flops, settings, config))
    build = partial(build_denoiser.build, settings, config)
    to_x = space_of(settings.data, unit.input).of_batch
    with samples.training_reader(settings, unit, listed, settings.data.augmentations) as reader:
        batches = noisy_batches(settings, unit, reader, training_inputs(settings, unit, TRAIN, reader), order)
        looks = probe.looks(settings, unit, expert, training)
        note = f"experts.training.batch: {unit_settings.images_per_step(settings)}"
        task = Task(settings.seed, build, _loss(config), batches, to_x, start, flops, looks, note)
        kept = Kept.of(settings.experts.training, training)
        trained = train(task, training, unit, kept)
    results = {"images": training.images, "train_flops": training.images * flops()}
    results |= weights_files.results(kept.snapshots, flops())
    return Result(trained.outputs, seen | results | trained.results | build_denoiser.started(settings, unit))


def work(workload: Workload, key: str) -> list[Work]:
    """List the training of one denoiser."""
    settings, expert = workload.settings, expert_of(key)
    training = (
        budgets.monolith_training(settings) if expert is None else unit_settings.expert_training(settings, expert)
    )
    work = Work(workload.denoiser(expert), True, training.images, training.batch)
    return [work, *workload.encoding_captions(work)]


def _loss(config: ExpertConfig) -> Callable[[nn.Module, NoisyBatch], torch.Tensor]:
    objective = build_denoiser.objective_of(config)

    def loss(model: nn.Module, batch: NoisyBatch) -> torch.Tensor:
        t = objective.training_times(batch.time)
        prediction = model(objective.perturb(batch.x0, batch.noise, t), t, batch.condition)
        return objective.loss(prediction, batch.x0, batch.noise, t)

    return loss
