"""Stage router: the router p(cluster | x_t, t, class), trained on images or on the experts' samples, or computed."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from hpcddm.config.experiment import Experiment
from hpcddm.data import run_samples
from hpcddm.data.batch import NoisyBatch, PixelInputs
from hpcddm.data.columns import Column
from hpcddm.data.reader import Reader
from hpcddm.diffusion.objectives.base import LINEAR
from hpcddm.diffusion.spaces.base import create_space
from hpcddm.errors import require
from hpcddm.evaluation.router_quality import NOISE_LEVELS, heldout_numbers, measure_quality, router_nfe
from hpcddm.files import atomic, tensors
from hpcddm.files.tensors import save_tensors
from hpcddm.jobs.devices import DTYPES, choose_device
from hpcddm.jobs.unit import Result, Unit
from hpcddm.models import build_denoiser
from hpcddm.models.build_router import build, build_computed, build_initialised, precision
from hpcddm.models.calibrated_router import CalibratedRouter
from hpcddm.runs import weights_files
from hpcddm.runs.files import CALIBRATION, ROUTER_SAMPLES, ROUTER_SAMPLES_INFO, WEIGHTS
from hpcddm.runs.ranges import HELDOUT, TRAIN
from hpcddm.sampling.ensemble import NetworkEvaluations
from hpcddm.sampling.router_samples import draw_missing
from hpcddm.stages.progress import advance
from hpcddm.stages.workload import DECODE_LATENTS, ENCODE_LATENTS, ROUTER, Work, Workload
from hpcddm.training import flops_budget
from hpcddm.training.loop import Task, load_weights, train
from hpcddm.training.training_inputs import noisy_batches, training_inputs, x0_of

SAMPLED_TOGETHER = 100
"""Images that a benchmark gives the router at once."""


def run(experiment: Experiment, unit: Unit) -> Result:
    """Make the router, calibrate it and measure it by noise level on held-out images."""
    device = choose_device(unit)
    made, log_prior = (_fit if experiment.router.training is None else _train)(experiment, unit)
    if unit.ranks.rank > 0:
        return made
    # As it will route: in the precision that it was trained in.
    router = load_weights(build(experiment), unit.folder).to(device, DTYPES[precision(experiment)])
    ones = [1.0] * len(NOISE_LEVELS)
    corrected = CalibratedRouter(router, log_prior, NOISE_LEVELS, ones)
    reader = run_samples.open_reader(unit, HELDOUT)
    numbers = heldout_numbers(len(reader), experiment.seed)
    heldout = x0_of(experiment, unit, HELDOUT, reader, create_space(experiment.data, unit.input))
    measured, temperatures = measure_quality(
        experiment, corrected, reader, numbers, heldout, unit.stop_if_requested, unit.input
    )
    outputs = list(made.outputs)
    if any(log_prior) or temperatures != ones:
        calibration = {"log_prior": log_prior, "levels": list(NOISE_LEVELS), "temperatures": temperatures}
        atomic.write_json(unit.folder / CALIBRATION, calibration)
        outputs.append(CALIBRATION)
    return Result(outputs, made.results | measured)


def work(workload: Workload, key: str) -> list[Work]:
    """List the experts' samples where there are any, the router's training or fit, and its measurement."""
    experiment, counts = workload.experiment, workload.counts
    work = [Work(ROUTER, False, router_nfe(experiment, counts["heldout"]), SAMPLED_TOGETHER)]
    drawing = experiment.router.samples
    if drawing:
        drawn = drawing.images * experiment.cluster.experts
        per_image = NetworkEvaluations(experts=float(drawing.steps * (1 if drawing.guidance == 1 else 2)))
        decoding = workload.through_autoencoder(DECODE_LATENTS, drawn, experiment.evaluate.batch)
        work = [*workload.expert_work(drawn, experiment.evaluate.batch, per_image), *decoding, *work]
    if experiment.router.training:
        own = workload.training(ROUTER, key)
        # Experts draw images from prompts: the images must be encoded, but no captions.
        images = workload.through_autoencoder(ENCODE_LATENTS, own.images, own.batch)
        return [own, *(images if drawing else workload.encoding_captions(own)), *work]
    return [Work(ROUTER, False, counts["train"], SAMPLED_TOGETHER), *work]


def _train(experiment: Experiment, unit: Unit) -> tuple[Result, list[float]]:
    """Train on real images or the experts' samples; return also the log prior that the logits lack."""
    opened: AbstractContextManager[Reader]
    lists: list[Column] | list[np.ndarray]
    outputs, results, experts = [], {}, range(experiment.cluster.experts)
    if experiment.router.samples:
        drawn, plan = draw_missing(experiment, unit)
        opened = nullcontext(drawn)
        outputs = [ROUTER_SAMPLES, ROUTER_SAMPLES_INFO]
        results = {"sampling_flops": flops_budget.router_samples_flops(experiment, plan.images)}
        lists = [np.flatnonzero(plan.clusters == expert) for expert in experts]
    else:
        opened = run_samples.training_reader(experiment, unit, augmentations=experiment.data.augmentations)
        lists = [run_samples.expert_list(unit, expert) for expert in experts]
    training, order, log_prior = flops_budget.training_of(experiment, unit.key), None, [0.0] * len(lists)
    if experiment.router.frequency == "balanced":
        order = run_samples.balanced_order(experiment, training.stream, lists)
        log_prior = [math.log(len(own) / order.size) for own in lists]
    model, space = partial(build_initialised, experiment, training, unit), create_space(experiment.data, unit.input)
    with opened as reader:
        # The experts draw images as they have learnt them: augmented already, and never a column.
        is_drawn = experiment.router.samples is not None
        inputs = PixelInputs(reader) if is_drawn else training_inputs(experiment, unit, TRAIN, reader)
        to_x: Callable[[torch.Tensor], torch.Tensor] = space.to_model if is_drawn else space.from_batch
        batches = noisy_batches(experiment, unit, reader, inputs, order)
        trained = train(Task(model, _loss, batches, to_x), training, unit)
    results |= trained.results | weights_files.training_costs(training, results.get("sampling_flops", 0))
    results |= build_denoiser.initial_weights_record(training, unit)
    return Result(outputs + trained.outputs, results), log_prior


def _fit(experiment: Experiment, unit: Unit) -> tuple[Result, list[float]]:
    """Compute a router that is not trained from all training images; one rank does it."""
    results = {"images": 0, "train_flops": 0}
    if unit.ranks.rank == 0:
        reader, router = run_samples.open_reader(unit, TRAIN), build_computed(experiment)
        results["images"] = len(reader)

        x0 = x0_of(experiment, unit, TRAIN, reader, create_space(experiment.data, unit.input))
        router.fit(reader, x0, lambda done: advance(unit, done, len(reader)))
        weights = router.state_dict()
        broken = tensors.first_not_finite(weights)
        require(broken is None, f"{unit.key}: tensor '{broken}' is not finite; look for images that are not")
        unit.attempt.require_ownership()
        with atomic.replacing(unit.folder / WEIGHTS) as staged:
            save_tensors(weights, staged)
    return Result([WEIGHTS], results), [0.0] * experiment.cluster.experts


def _loss(model: nn.Module, batch: NoisyBatch) -> torch.Tensor:
    """Cross-entropy of the cluster, the class dropped as in the experts' training (arXiv 2501.05450, alg. 1)."""
    logits = model(LINEAR.perturb(batch.x0, batch.noise, batch.time), batch.time, batch.condition)
    return F.cross_entropy(logits, batch.clusters, reduction="none")
