"""Budgets: FLOPs of every training, and the images that they buy, shared by the stages, the report and `plan`."""

from collections.abc import Callable, Iterable, Mapping

from hpcddm.config.experiment import Experiment, ExpertConfig
from hpcddm.config.training import Expert, Training
from hpcddm.models import build_denoiser, build_router
from hpcddm.models.flops import forward_flops, training_flops, unallocated
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.stored_results import list_results
from hpcddm.runs.unit_keys import expert_keys
from hpcddm.runs.unit_settings import expert_training, router_training


def monolith_training(settings: Experiment) -> Training:
    """Give the monolith the images that all experts' and the router's training FLOPs buy: all arms cost the same.

    So it is at every snapshot: the FLOPs are those of the experts' and the router's snapshots that go together, or of
    the whole router where it has none.
    """
    total, experts = settings.experts.training, range(settings.cluster.experts)
    *each, monolith_flops = flops_of_each(settings, (*experts, None), train_flops)
    trainings = [expert_training(settings, expert) for expert in experts]

    def bought(images: Iterable[int], router: int) -> int:
        spent = sum(own * flops for own, flops in zip(images, each, strict=True))
        return max(round((spent + router) / monolith_flops / total.batch), 1) * total.batch

    snapshots = zip(*(own.snapshots for own in trainings), _router_at_snapshots(settings), strict=True)
    update = {
        "images": bought((own.images for own in trainings), router_flops(settings)),
        "snapshots": [bought(images, router) for *images, router in snapshots],
    }
    return total.model_copy(update=update)


def _router_at_snapshots(settings: Experiment) -> list[int]:
    """Count the FLOPs of the router that goes with each of the experts' snapshots."""
    whole, fit, training = router_flops(settings), fit_flops(settings), router_training(settings)
    if training is None or not training.snapshots:
        return [whole] * len(settings.experts.training.snapshots)
    return [whole - fit + fit // training.images * images for images in training.snapshots]


def train_flops(settings: Experiment, config: ExpertConfig) -> int:
    """Count the FLOPs for one training image, forward and backward."""
    return training_flops(
        unallocated(lambda: build_denoiser.build(settings, config)), *build_denoiser.one_image(settings)
    )


def sample_flops(settings: Experiment, config: ExpertConfig) -> int:
    """Count the FLOPs of one evaluation on one image."""
    return forward_flops(
        unallocated(lambda: build_denoiser.build(settings, config)), *build_denoiser.one_image(settings)
    )


def flops_of_each(
    settings: Experiment, experts: Iterable[Expert | None], count: Callable[[Experiment, ExpertConfig], int]
) -> list[int]:
    """Apply `train_flops` or `sample_flops` to some experts (None: the monolith); equal networks are counted once."""
    configs = [settings.expert_config(expert) for expert in experts]
    alike = {config.model.model_dump_json(): config for config in configs}
    flops = {model: count(settings, config) for model, config in alike.items()}
    return [flops[config.model.model_dump_json()] for config in configs]


def teacher_flops(settings: Experiment, inputs: Mapping[str, Manifest] | None = None) -> float:
    """Return the FLOPs of the teacher of one image on average, by the clusters' sizes where they are known."""
    keys = expert_keys(settings)
    sizes = [list_results(inputs, number)["samples"] if inputs else 1 for number in range(len(keys))]
    each = flops_of_each(settings, range(len(keys)), sample_flops)
    experts = sum(size * flops for size, flops in zip(sizes, each, strict=True)) / sum(sizes)
    if settings.student.teacher == "cluster":
        return experts
    return experts + forward_flops(
        unallocated(lambda: build_router.build(settings)), *build_denoiser.one_image(settings)
    )


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
    return (
        training_flops(unallocated(lambda: build_router.trainable(settings)), *build_denoiser.one_image(settings))
        * training.images
    )


def sampling_flops(settings: Experiment, images: list[int]) -> int:
    """Count the FLOPs of drawing so many images from each expert, for a router that is trained on them."""
    samples = settings.router.samples
    if samples is None:
        return 0
    nfe = samples.steps * (1 if samples.guidance == 1 else 2)
    each = flops_of_each(settings, range(len(images)), sample_flops)
    return nfe * sum(count * flops for count, flops in zip(images, each, strict=True))
