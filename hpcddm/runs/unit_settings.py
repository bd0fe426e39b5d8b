"""Settings of single units: trainings in their own numbers, measuring networks, and the space of latents.

Where the numbers of an experiment count all experts together, a unit has its share of them: images, batch and warm-up
as each of them trains. These resolved numbers are what its fingerprint covers.
"""

import math
from fractions import Fraction
from typing import Any

from hpcddm.config.autoencoders import TrainedAutoencoderSettings
from hpcddm.config.experiment import ClassifierSettings, Experiment
from hpcddm.config.schema import hashed
from hpcddm.config.spaces import LatentSpaceSettings
from hpcddm.config.training import Expert, ExpertOverride, JoinedExpert, Training
from hpcddm.errors import ConfigError
from hpcddm.runs.unit_keys import AUTOENCODER, CLASSIFIER, EXTRACTOR

TURNS = 4
"""Quarters of a turn that an extractor tells apart where the images have no classes (arXiv 1803.07728).

Not the clusters: by such a ruler, runs of other clusterings or of another K could not be compared.
"""


def expert_training(settings: Experiment, expert: Expert) -> Training:
    """Return an expert's training in its own precision and at its own rate.

    That is a K-th of the common one, in its own numbers where it has any, or that of one that joined.
    Raises `ConfigError` where its numbers leave no course of the learning rate.
    """
    total, own = settings.experts.training, settings.experts.variation(expert)
    if isinstance(own, JoinedExpert):
        part = _joined_part(total, own)
    elif isinstance(own, ExpertOverride):
        part = _overridden_part(total, own, settings.cluster.experts)
    else:
        part = part_of(total, Fraction(1, settings.cluster.experts))
    rate = own.learning_rate if own and own.learning_rate else total.learning_rate
    part = part.model_copy(update={"precision": settings.expert_config(expert).precision, "learning_rate": rate})
    if part.decays_within_warmup:
        text = f"the {part.images} images of expert {expert} end, or its rate does, within its warm-up"
        raise ConfigError(f"experts.training.schedule: {text} of {part.warmup_images}")
    return part


def images_per_step(settings: Experiment) -> str:
    """Say what `experts.training.batch` counts: all experts together, of which each has its part."""
    batch, num_experts = settings.experts.training.batch, settings.cluster.experts
    each = f" over all {num_experts} experts, {batch // num_experts} each" if num_experts > 1 else ""
    return f"{batch} images per step{each}"


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


def fingerprinted(total: Training, own: Training) -> dict[str, Any]:
    """Return the settings of a unit's own training under its fingerprint.

    Snapshots bear numbers of the experiment in the names of their files, and stand there by these numbers.
    """
    snapshots = {str(number): images for number, images in numbered(total, own).items()}
    return hashed(own) | ({"snapshots": snapshots} if snapshots else {})


def numbered(total: Training, own: Training) -> dict[int, int]:
    """Return the snapshots of a unit's own training by their numbers in the experiment.

    A training that joined may end before the last snapshot.
    """
    return dict(zip(total.snapshots, own.snapshots, strict=False))


def part_of(total: Training, share: Fraction) -> Training:
    """Scale a training by a share: images, batch, warm-up, EMA half-life and logging (arXiv 2501.05450, sec. 4)."""
    batch = int(total.batch * share)
    return total.model_copy(
        update={
            "images": whole_batches(total.images, total.batch) // total.batch * batch,
            "batch": batch,
            "warmup_images": int(total.warmup_images * share),
            "decay_images": None if total.decay_images is None else math.ceil(total.decay_images * share),
            "ema_halflife_images": math.ceil(total.ema_halflife_images * share),
            "log_images": math.ceil(total.log_images * share),
            "snapshots": [whole_batches(number * share, batch) for number in total.snapshots],
        }
    )


def _overridden_part(total: Training, own: ExpertOverride, num_experts: int) -> Training:
    """Return the numbers of an expert with its own batch, or own images, of which snapshots and decay have a share."""
    common = part_of(total, Fraction(1, num_experts))
    batch, images = own.batch or common.batch, own.images or common.images
    part = part_of(total, Fraction(batch, total.batch)).model_copy(update={"images": whole_batches(images, batch)})
    share = Fraction(1, num_experts) if own.images is None else Fraction(own.images, total.images)
    of_all: dict[str, Any] = {"snapshots": [whole_batches(number * share, batch) for number in total.snapshots]}
    if own.images is not None and total.decay_images is not None:
        of_all["decay_images"] = math.ceil(total.decay_images * share)
    return part.model_copy(update=of_all)


def _joined_part(total: Training, joined: JoinedExpert) -> Training:
    """Return the numbers of an expert that joined; those that it does not name last as many steps as the others' do.

    So they depend neither on the number of experts nor on its own number of images, by which it may be continued.
    """
    own = {key: getattr(joined, key) for key in ("images", "batch", "warmup_images", "ema_halflife_images")}
    named = {key: number for key, number in own.items() if number is not None}
    part = in_whole_batches(part_of(total, Fraction(joined.batch, total.batch)).model_copy(update=named))
    return part.model_copy(update={"snapshots": [images for images in part.snapshots if images <= part.images]})


def in_whole_batches(training: Training) -> Training:
    """Round the images of a training, and those of its snapshots, up to whole batches."""
    snapshots = [whole_batches(number, training.batch) for number in training.snapshots]
    return training.model_copy(
        update={"images": whole_batches(training.images, training.batch), "snapshots": snapshots}
    )


def whole_batches(images: int | Fraction, batch: int) -> int:
    """Round a number of images up to whole batches."""
    return math.ceil(images / batch) * batch


def has_mirrored(experiment: Experiment) -> bool:
    """Tell if the latents of mirrored images are a column, too: half of the visits of a training see these."""
    return bool(experiment.data.augmentations)


def latent_space(experiment: Experiment) -> LatentSpaceSettings | None:
    """Return the settings of a space of latents; None for another space."""
    space = experiment.data.space
    return space if isinstance(space, LatentSpaceSettings) else None


def required_space(experiment: Experiment) -> LatentSpaceSettings:
    """Return the settings of the space of latents; raises ValueError for another space."""
    space = latent_space(experiment)
    if space is None:
        raise ValueError("data.space: this run has no latents")
    return space


def autoencoder_keys(experiment: Experiment) -> list[str]:
    """List the unit that trains the autoencoder, where the run does."""
    space = latent_space(experiment)
    return [AUTOENCODER] if space is not None and space.autoencoder.is_trained else []


def trained_autoencoder(experiment: Experiment) -> tuple[TrainedAutoencoderSettings, Training]:
    """Return the autoencoder that the run trains, and its training; raises ValueError where there is none."""
    space = required_space(experiment)
    if space.training is None or not isinstance(space.autoencoder, TrainedAutoencoderSettings):
        raise ValueError("data.space: this run trains no autoencoder")
    return space.autoencoder, in_whole_batches(space.training)


def network_settings(experiment: Experiment, key: str) -> ClassifierSettings:
    """Return the settings of the extractor or of the classifier, by its unit's key.

    Raises `ValueError` for a classifier that the experiment does not have.
    """
    settings = {EXTRACTOR: experiment.measuring.extractor, CLASSIFIER: experiment.measuring.classifier}[key]
    if settings is None:
        raise ValueError(f"{key}: these images have no classes")
    return settings


def outputs(experiment: Experiment) -> int:
    """Return the number of outputs of a measuring network."""
    return experiment.data.num_classes or TURNS


def overridden_images(experiment: Experiment) -> list[dict[str, Any]]:
    """Return images and batch of experts that have their own, with their clusters."""
    changed = [override for override in experiment.experts.overrides if override.images or override.batch]
    return [override.model_dump(include={"clusters", "images", "batch"}) for override in changed]
