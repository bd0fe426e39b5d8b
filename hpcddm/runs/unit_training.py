"""Settings of single units, and their trainings, each resolved once for loop, fingerprint, estimates and records.

Some numbers of an experiment count all experts together. They are divided here: a unit's images, batch and warm-up
count this unit alone.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from hpcddm.config.data import DataSettings
from hpcddm.config.experiment import ClassifierSettings, Experiment, ExpertConfig
from hpcddm.config.models import ClassifierModelSettings, DenoiserModelSettings, RouterModelSettings
from hpcddm.config.schema import settings_to_hash
from hpcddm.config.spaces import LatentSpaceSettings, TrainedAutoencoderSettings
from hpcddm.config.training import Expert, ExpertOverride, ExtraExpert, Training
from hpcddm.errors import ConfigError
from hpcddm.randomness.streams import of_training
from hpcddm.runs.initial_weights import InitRequest, init_request
from hpcddm.runs.unit_keys import AUTOENCODER, CLASSIFIER, EXTRACTOR, MONOLITH, ROUTER, STUDENT, expert_of, stage_of

NUM_ROTATIONS = 4
"""Rotations by multiples of 90 degrees that an extractor classifies if the images have no classes (arXiv 1803.07728).

Clusters would not do as labels: runs with different clusterings or another K could not be compared.
"""


def has_mirrored_latents(experiment: Experiment) -> bool:
    """Return True if latents of mirrored images are stored, which a training reads in half of its visits."""
    return bool(experiment.data.augmentations)


def latent_space(experiment: Experiment) -> LatentSpaceSettings | None:
    """Return the settings of the latent space; None if the networks see pixels."""
    space = experiment.data.space
    return space if isinstance(space, LatentSpaceSettings) else None


def require_latent_space(experiment: Experiment) -> LatentSpaceSettings:
    """Return the settings of the latent space.

    Raises:
        ValueError: If the run has no latents.
    """
    if (space := latent_space(experiment)) is None:
        raise ValueError("data.space: this run has no latents")
    return space


def autoencoder_keys(experiment: Experiment) -> list[str]:
    """List the unit that trains the autoencoder; empty if the run trains none."""
    space = latent_space(experiment)
    return [AUTOENCODER] if space is not None and space.autoencoder.is_trained else []


def trained_autoencoder(experiment: Experiment) -> TrainedAutoencoderSettings:
    """Return the settings of the autoencoder that the run trains.

    Raises:
        ValueError: If the run does not train an autoencoder.
    """
    autoencoder = require_latent_space(experiment).autoencoder
    if not isinstance(autoencoder, TrainedAutoencoderSettings):
        raise ValueError("data.space: this run trains no autoencoder")
    return autoencoder


def evaluator_settings(experiment: Experiment, key: str) -> ClassifierSettings:
    """Return the settings of the extractor or the classifier.

    Args:
        experiment: The experiment.
        key: Unit of the network, `EXTRACTOR` or `CLASSIFIER`.

    Raises:
        ValueError: If the experiment does not have this network.
    """
    settings = {EXTRACTOR: experiment.evaluators.extractor, CLASSIFIER: experiment.evaluators.classifier}.get(key)
    if settings is None:
        raise ValueError(f"{key}: trains nothing; a classifier needs images with classes")
    return settings


def num_outputs(experiment: Experiment) -> int:
    """Return the number of outputs of an evaluator: the classes, or `NUM_ROTATIONS` without classes."""
    return experiment.data.num_classes or NUM_ROTATIONS


def overridden_images(experiment: Experiment) -> list[dict[str, Any]]:
    """Return clusters, images and batch of each override that sets images or batch."""
    changed = [override for override in experiment.experts.overrides if override.images or override.batch]
    return [override.model_dump(include={"clusters", "images", "batch"}) for override in changed]


Network = DenoiserModelSettings | RouterModelSettings | ClassifierModelSettings | TrainedAutoencoderSettings
AUTOENCODER_SEED = 0
"""Seed of an autoencoder and of the order of its samples; not the experiment's, whose seeds share one autoencoder."""


class UnitTraining(Training):
    """Training settings of one unit: all numbers of its loop, in images of this unit."""

    not_hashed: ClassVar[frozenset[str]] = Training.not_hashed | {"snapshots", "snapshot_numbers", "batch_note"}

    snapshot_numbers: list[int] = []
    """The experiment's numbers of images at `snapshots`, in the same order; file names contain them."""
    batch_note: str = ""
    """Remark about the batch in the first line of the log, if the experiment's batch counts several networks."""

    @property
    def by_experiment_number(self) -> dict[int, int]:
        """Images of this unit at each snapshot, by the experiment's number of images."""
        return dict(zip(self.snapshot_numbers, self.snapshots, strict=True))

    def fingerprinted(self) -> dict[str, Any]:
        """Return the settings that count in the unit's fingerprint."""
        snapshots = {str(number): images for number, images in self.by_experiment_number.items()}
        return settings_to_hash(self) | ({"snapshots": snapshots} if snapshots else {})


@dataclass(frozen=True)
class ResolvedTraining:
    """Everything that one training takes from an experiment, resolved once and handed down.

    Args:
        key: The unit, as `stage/unit`.
        settings: Settings of the loop, in images of this unit.
        seed: Seed of initial weights and samples.
        data: Settings of the images.
        network: Settings of the network.
        outputs: Number of the network's outputs, where other settings than its own and the data's determine it.
        config: Settings of a denoiser; None for other networks.
        start: Request for initial weights; None for random ones.
        flops_per_image: FLOPs of a training image, forward and backward; 0 if they are not counted.
    """

    key: str
    settings: UnitTraining
    seed: int
    data: DataSettings
    network: Network
    outputs: tuple[int, ...] = ()
    config: ExpertConfig | None = None
    start: InitRequest | None = None
    flops_per_image: int = 0

    @property
    def stream(self) -> str:
        """Name of the random numbers of the training."""
        return of_training(self.key)

    @property
    def parameters(self) -> int:
        """Number of parameters of the network."""
        return self.network.parameters(self.data, *self.outputs)

    @property
    def denoiser(self) -> ExpertConfig:
        """Settings of the denoiser; raises `ValueError` for a training of another network."""
        if self.config is None:
            raise ValueError(f"{self.key}: trains no denoiser")
        return self.config


def resolve_training(experiment: Experiment, key: str) -> ResolvedTraining:
    """Resolve the training of a unit, without counting FLOPs.

    The monolith's images and snapshots are the experts' totals here; `flops_budget.training_of` computes the number of
    images with equal FLOPs from them.

    Args:
        experiment: The experiment.
        key: The unit, as `stage/unit`.

    Raises:
        ConfigError: If an expert's training ends within its warm-up.
        ValueError: If the unit trains nothing.
    """
    if stage_of(key) in (stage_of(MONOLITH), stage_of(STUDENT)):
        config = experiment.expert_config(None if key == STUDENT else expert_of(key))
        settings, start = _part_of_total(experiment, key, config), init_request(experiment, key)
        return ResolvedTraining(
            key, settings, experiment.seed, experiment.data, config.model, config=config, start=start
        )
    outputs: tuple[int, ...] = ()
    network: Network
    if key == ROUTER:
        training, seed = experiment.router.training, experiment.seed
        network, outputs = experiment.router.model, (experiment.cluster.experts,)
    elif key == AUTOENCODER:
        training, seed = require_latent_space(experiment).training, AUTOENCODER_SEED
        network = trained_autoencoder(experiment)
    else:
        evaluator = evaluator_settings(experiment, key)
        training, seed = evaluator.training, evaluator.seed
        network, outputs = evaluator.model, (num_outputs(experiment),)
    if training is None:
        raise ValueError(f"{key}: this experiment does not train it")
    whole = dict(round_to_whole_batches(training))
    settings = UnitTraining.model_construct(**whole, snapshot_numbers=training.snapshots)
    return ResolvedTraining(key, settings, seed, experiment.data, network, outputs, start=init_request(experiment, key))


def _part_of_total(experiment: Experiment, key: str, config: ExpertConfig) -> UnitTraining:
    """Return the part of a denoiser in the training of all experts together."""
    total = experiment.experts.training
    if key == MONOLITH:
        part = total
    elif key == STUDENT:
        # A quarter of the experts' budget costs a third of it, as each image needs a teacher.
        part = scale_training(total, Fraction(str(experiment.student.share)))
    else:
        part = _expert_training(experiment, expert_of(key), config.precision)
    # The training of an extra expert may end before the last snapshot.
    numbers = total.snapshots[: len(part.snapshots)]
    note = f"experts.training.batch: {images_per_step(experiment)}"
    return UnitTraining.model_construct(**dict(part), snapshot_numbers=numbers, batch_note=note)


def images_per_step(experiment: Experiment) -> str:
    """Describe `experts.training.batch` as text: images per step over all experts, and of each expert."""
    batch, num_experts = experiment.experts.training.batch, experiment.cluster.experts
    each = f" over all {num_experts} experts, {batch // num_experts} each" if num_experts > 1 else ""
    return f"{batch} images per step{each}"


def scale_training(total: Training, share: Fraction) -> Training:
    """Scale a training by a share (arXiv 2501.05450, sec. 4).

    It scales images, batch, warm-up, decay, EMA half-life, logging interval and snapshots; the number of steps stays.

    Args:
        total: Training of all experts together.
        share: Share of one unit.
    """
    batch = int(total.batch * share)
    return total.model_copy(
        update={
            "images": whole_batches(total.images, total.batch) // total.batch * batch,
            "batch": batch,
            "warmup_images": int(total.warmup_images * share),
            "decay_images": None if total.decay_images is None else math.ceil(total.decay_images * share),
            "ema_halflife_images": math.ceil(total.ema_halflife_images * share),
            "log_every_images": math.ceil(total.log_every_images * share),
            "snapshots": [whole_batches(number * share, batch) for number in total.snapshots],
        }
    )


def round_to_whole_batches(training: Training) -> Training:
    """Round the images of a training and of its snapshots up to whole batches."""
    snapshots = [whole_batches(number, training.batch) for number in training.snapshots]
    images = whole_batches(training.images, training.batch)
    return training.model_copy(update={"images": images, "snapshots": snapshots})


def whole_batches(images: int | Fraction, batch: int) -> int:
    """Round a number of images up to a multiple of the batch."""
    return math.ceil(images / batch) * batch


def _expert_training(experiment: Experiment, expert: Expert | None, precision: str) -> Training:
    """Return an expert's training: its share, or its own numbers, with its own precision and learning rate."""
    total, own = experiment.experts.training, experiment.experts.variation(expert)
    if isinstance(own, ExtraExpert):
        part = _extra_part(total, own)
    elif isinstance(own, ExpertOverride):
        part = _overridden_part(total, own, experiment.cluster.experts)
    else:
        part = scale_training(total, Fraction(1, experiment.cluster.experts))
    rate = own.learning_rate if own and own.learning_rate else total.learning_rate
    part = part.model_copy(update={"precision": precision, "learning_rate": rate})
    if part.decays_within_warmup:
        text = f"the {part.images} images of expert {expert} end, or its rate does, within its warm-up"
        raise ConfigError(f"experts.training.schedule: {text} of {part.warmup_images}")
    return part


def _overridden_part(total: Training, own: ExpertOverride, num_experts: int) -> Training:
    """Return the training of an expert with its own batch or images; snapshots and decay scale to these images."""
    common = scale_training(total, Fraction(1, num_experts))
    batch, images = own.batch or common.batch, own.images or common.images
    share = Fraction(1, num_experts) if own.images is None else Fraction(own.images, total.images)
    snapshots = [whole_batches(number * share, batch) for number in total.snapshots]
    changes: dict[str, Any] = {"images": whole_batches(images, batch), "snapshots": snapshots}
    if own.images is not None and total.decay_images is not None:
        changes["decay_images"] = math.ceil(total.decay_images * share)
    return scale_training(total, Fraction(batch, total.batch)).model_copy(update=changes)


def _extra_part(total: Training, extra: ExtraExpert) -> Training:
    """Return the training of an extra expert; durations that it omits last as many steps as for the other experts.

    They depend neither on the number of experts nor on its number of images, so its training can be prolonged.
    """
    own = {key: getattr(extra, key) for key in ("images", "batch", "warmup_images", "ema_halflife_images")}
    named = {key: number for key, number in own.items() if number is not None}
    part = round_to_whole_batches(scale_training(total, Fraction(extra.batch, total.batch)).model_copy(update=named))
    return part.model_copy(update={"snapshots": [images for images in part.snapshots if images <= part.images]})
