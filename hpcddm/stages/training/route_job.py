"""Stage route: the router p(cluster | x_t, t, class), trained on images or on the experts' samples, or computed."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from hpcddm.config.experiment import Experiment
from hpcddm.config.training import Training
from hpcddm.data import samples
from hpcddm.data.batch import NoisyBatch, PixelInputs
from hpcddm.data.columns import Column
from hpcddm.data.reader import Reader
from hpcddm.diffusion.objectives.base import LINEAR
from hpcddm.diffusion.spaces.base import space_of
from hpcddm.errors import require
from hpcddm.evaluation.router_quality import NOISE_LEVELS, heldout_numbers, quality, router_nfe
from hpcddm.files import atomic, tensors
from hpcddm.jobs.devices import DTYPES, own_device
from hpcddm.jobs.unit import Result, Unit
from hpcddm.models import build_denoiser
from hpcddm.models.build_router import build, computed, initial, precision
from hpcddm.models.calibrated import CalibratedRouter
from hpcddm.models.checkpoints.writing import save_tensors
from hpcddm.runs import unit_settings, weights_files
from hpcddm.runs.files import CALIBRATION, DRAWN, ROUTER_SAMPLES, WEIGHTS
from hpcddm.runs.ranges import HELDOUT, TRAIN
from hpcddm.runs.weights_files import Kept
from hpcddm.sampling.nfe import NetworkEvaluations
from hpcddm.sampling.router_samples import draw
from hpcddm.stages.workload import DECODE_LATENTS, ENCODE_LATENTS, ROUTER, Work, Workload
from hpcddm.training import budgets
from hpcddm.training.inputs import training_inputs, x0_of
from hpcddm.training.loop import Task, load_weights, train
from hpcddm.training.noisy_batches import noisy_batches

SAMPLED_TOGETHER = 100
"""Images that a benchmark gives the router at once."""


def run(settings: Experiment, unit: Unit) -> Result:
    """Make the router, calibrate it and measure it by noise level on held-out images."""
    device = own_device(unit)
    training = unit_settings.router_training(settings)
    made, log_prior = _fit(settings, unit) if training is None else _train(settings, training, unit)
    if unit.ranks.rank > 0:
        return made
    # As it will route: in the precision that it was trained in.
    router = load_weights(build(settings), unit.folder).to(device, DTYPES[precision(settings)])
    ones = [1.0] * len(NOISE_LEVELS)
    corrected = CalibratedRouter(router, log_prior, NOISE_LEVELS, ones)
    reader = samples.reader(unit, HELDOUT)
    numbers = heldout_numbers(len(reader), settings.seed)
    heldout = x0_of(settings, unit, HELDOUT, reader, space_of(settings.data, unit.input))
    measured, temperatures = quality(settings, corrected, reader, numbers, heldout, unit.stop_if_requested, unit.input)
    outputs = list(made.outputs)
    if any(log_prior) or temperatures != ones:
        calibration = {"log_prior": log_prior, "levels": list(NOISE_LEVELS), "temperatures": temperatures}
        atomic.write_json(unit.folder / CALIBRATION, calibration)
        outputs.append(CALIBRATION)
    return Result(outputs, made.results | measured)


def work(workload: Workload, key: str) -> list[Work]:
    """List the experts' samples where there are any, the router's training or fit, and its measurement."""
    settings, counts = workload.settings, workload.counts
    work = [Work(ROUTER, False, router_nfe(settings, counts["heldout"]), SAMPLED_TOGETHER)]
    training, drawing = unit_settings.router_training(settings), settings.router.samples
    if drawing:
        drawn = drawing.images * settings.cluster.experts
        per_image = NetworkEvaluations(experts=float(drawing.steps * (1 if drawing.guidance == 1 else 2)))
        decoding = workload.through_autoencoder(DECODE_LATENTS, drawn, settings.evaluate.batch)
        work = [*workload.of_experts(drawn, settings.evaluate.batch, per_image), *decoding, *work]
    if training:
        own = Work(ROUTER, True, training.images, training.batch)
        # What experts have drawn are images, which prompts have asked for.
        images = workload.through_autoencoder(ENCODE_LATENTS, training.images, training.batch)
        return [own, *(images if drawing else workload.encoding_captions(own)), *work]
    return [Work(ROUTER, False, counts["train"], SAMPLED_TOGETHER), *work]


def _train(settings: Experiment, training: Training, unit: Unit) -> tuple[Result, list[float]]:
    """Train on real images or the experts' samples; return also the log prior that the logits lack."""
    opened: AbstractContextManager[Reader]
    lists: list[Column] | list[np.ndarray]
    outputs, results, experts = [], {}, range(settings.cluster.experts)
    if settings.router.samples:
        drawn, plan = draw(settings, unit)
        opened = nullcontext(drawn)
        outputs, results = [ROUTER_SAMPLES, DRAWN], {"sampling_flops": budgets.sampling_flops(settings, plan.images)}
        lists = [np.flatnonzero(plan.clusters == expert) for expert in experts]
    else:
        opened = samples.training_reader(settings, unit, augmented=settings.data.augmentations)
        lists = [samples.expert_list(unit, expert) for expert in experts]
    order, log_prior = None, [0.0] * len(lists)
    if settings.router.frequency == "balanced":
        order = samples.balanced_order(settings, unit.key, lists)
        log_prior = [math.log(len(own) / order.size) for own in lists]
    flops = cache(partial(budgets.fit_flops, settings))
    model = partial(initial, settings, unit)
    space = space_of(settings.data, unit.input)
    with opened as reader:
        # The experts draw images as they have learnt them: augmented already, and never a column.
        is_drawn = settings.router.samples is not None
        inputs = PixelInputs(reader) if is_drawn else training_inputs(settings, unit, TRAIN, reader)
        to_x: Callable[[torch.Tensor], torch.Tensor] = space.to_model if is_drawn else space.of_batch
        batches = noisy_batches(settings, unit, reader, inputs, order)
        task = Task(settings.seed, model, _loss, batches, to_x, flops_per_image=lambda: flops() // training.images)
        kept = Kept.of(settings.router.training or training, training)
        trained = train(task, training, unit, kept)
    results |= trained.results | {"images": training.images}
    drawing = results.get("sampling_flops", 0)
    results |= {"train_flops": flops() + drawing}
    results |= weights_files.results(kept.snapshots, flops() // training.images, drawing)
    return Result(outputs + trained.outputs, results | build_denoiser.started(settings, unit)), log_prior


def _fit(settings: Experiment, unit: Unit) -> tuple[Result, list[float]]:
    """Compute a router that is not trained from all training images; one rank does it."""
    results = {"images": 0, "train_flops": 0}
    if unit.ranks.rank == 0:
        reader, router = samples.reader(unit, TRAIN), computed(settings)
        results["images"] = len(reader)

        def advance(done: int) -> None:
            unit.stop_if_requested()
            unit.heartbeat.beat(done, len(reader))

        router.fit(reader, x0_of(settings, unit, TRAIN, reader, space_of(settings.data, unit.input)), advance)
        weights = router.state_dict()
        broken = tensors.first_not_finite(weights)
        require(broken is None, f"{unit.key}: tensor '{broken}' is not finite; look for images that are not")
        unit.attempt.require_ownership()
        with atomic.replacing(unit.folder / WEIGHTS) as staged:
            save_tensors(weights, staged)
    return Result([WEIGHTS], results), [0.0] * settings.cluster.experts


def _loss(model: nn.Module, batch: NoisyBatch) -> torch.Tensor:
    """Cross-entropy of the cluster, the class dropped as in the experts' training (arXiv 2501.05450, alg. 1)."""
    logits = model(LINEAR.perturb(batch.x0, batch.noise, batch.time), batch.time, batch.condition)
    return F.cross_entropy(logits, batch.clusters, reduction="none")
