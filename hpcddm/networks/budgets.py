"""Budgets: images and FLOPs of every training, shared by the stages, the report and `plan`."""

import math
from collections.abc import Callable, Iterable
from fractions import Fraction

from hpcddm.config import Experiment, ExpertConfig
from hpcddm.models.flops import forward_flops, training_flops
from hpcddm.networks import denoisers, router
from hpcddm.pipeline.train import expert_keys
from hpcddm.rundir.manifest import Manifest
from hpcddm.training.settings import Training


def whole_batches(images: int, batch: int) -> int:
    """Round a number of images up to whole batches."""
    return math.ceil(images / batch) * batch


def in_whole_batches(training: Training) -> Training:
    """Round the images of a training up to whole batches."""
    return training.model_copy(update={"images": whole_batches(training.images, training.batch)})


def part_of(total: Training, share: Fraction) -> Training:
    """Scale a training by a share: images, batch, warm-up, EMA half-life and logging (arXiv 2501.05450, sec. 4)."""
    batch = int(total.batch * share)
    return total.model_copy(
        update={
            "images": whole_batches(total.images, total.batch) // total.batch * batch,
            "batch": batch,
            "warmup_images": int(total.warmup_images * share),
            "ema_halflife_images": math.ceil(total.ema_halflife_images * share),
            "log_images": math.ceil(total.log_images * share),
        }
    )


def expert_training(settings: Experiment, expert: int) -> Training:
    """Return one expert's K-th of the common budget, in its own precision."""
    part = part_of(settings.experts.training, Fraction(1, settings.cluster.experts))
    return part.model_copy(update={"precision": settings.expert_config(expert).precision})


def monolith_training(settings: Experiment) -> Training:
    """Give the monolith the images that all experts' and the router's training FLOPs buy: all arms cost the same."""
    total, experts = settings.experts.training, range(settings.cluster.experts)
    *each, monolith_flops = flops_of_each(settings, (*experts, None), train_flops)
    spent = sum(expert_training(settings, expert).images * each[expert] for expert in experts)
    affordable = (spent + router_flops(settings)) / monolith_flops
    return total.model_copy(update={"images": round(affordable / total.batch) * total.batch})


def student_training(settings: Experiment) -> Training:
    """Return the student's share of the experts' budget; a quarter costs a third, as each image needs a teacher.

    Raises `ValueError` for an experiment without a student.
    """
    part = part_of(settings.experts.training, Fraction(str(settings.student.share)))
    return part.model_copy(update={"precision": settings.expert_config().precision})


def router_training(settings: Experiment) -> Training | None:
    """Return the router's training in whole batches; None for one that is not trained."""
    training = settings.router.training
    return None if training is None else in_whole_batches(training)


def train_flops(settings: Experiment, config: ExpertConfig) -> int:
    """Count the FLOPs for one training image, forward and backward."""
    return training_flops(denoisers.build(settings, config), *denoisers.one_image(settings))


def sample_flops(settings: Experiment, config: ExpertConfig) -> int:
    """Count the FLOPs of one evaluation on one image."""
    return forward_flops(denoisers.build(settings, config), *denoisers.one_image(settings))


def flops_of_each(
    settings: Experiment, experts: Iterable[int | None], count: Callable[[Experiment, ExpertConfig], int]
) -> list[int]:
    """Apply `train_flops` or `sample_flops` to some experts (None: the monolith); equal networks are counted once."""
    configs = [settings.expert_config(expert) for expert in experts]
    alike = {config.model.model_dump_json(): config for config in configs}
    flops = {model: count(settings, config) for model, config in alike.items()}
    return [flops[config.model.model_dump_json()] for config in configs]


def teacher_flops(settings: Experiment, inputs: dict[str, Manifest] | None = None) -> float:
    """Return the FLOPs of the teacher of one image on average, by the clusters' sizes where they are known."""
    keys = expert_keys(settings)
    sizes = [inputs[key].results["samples"] if inputs else 1 for key in keys]
    each = flops_of_each(settings, range(len(keys)), sample_flops)
    experts = sum(size * flops for size, flops in zip(sizes, each, strict=True)) / sum(sizes)
    if settings.student.teacher == "cluster":
        return experts
    return experts + forward_flops(router.build(settings), *denoisers.one_image(settings))


def router_flops(settings: Experiment) -> int:
    """Count the FLOPs of the router before it is used, which count for the ensemble: training and its samples.

    Of the samples every expert draws as many here; of experts that differ in size the manifest tells the exact sum.
    """
    samples, experts = settings.router.samples, settings.cluster.experts
    return fit_flops(settings) + sampling_flops(settings, [samples.images if samples else 0] * experts)


def fit_flops(settings: Experiment) -> int:
    """Count the FLOPs of the router's training alone; in a refit the backward pass ends at the head."""
    training = router_training(settings)
    if training is None:
        return 0
    return training_flops(router.trainable(settings), *denoisers.one_image(settings)) * training.images


def sampling_flops(settings: Experiment, images: list[int]) -> int:
    """Count the FLOPs of drawing so many images from each expert, for a router that is trained on them."""
    samples = settings.router.samples
    if samples is None:
        return 0
    nfe = samples.steps * (1 if samples.guidance == 1 else 2)
    each = flops_of_each(settings, range(len(images)), sample_flops)
    return nfe * sum(count * flops for count, flops in zip(images, each, strict=True))
