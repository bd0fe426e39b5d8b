"""Training settings of single units, for their loops, fingerprints and estimates.

Some numbers of an experiment count all experts together. They are divided here: a unit's images, batch and warm-up
count this unit alone.
"""

import math
from fractions import Fraction
from typing import Any, ClassVar

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import settings_to_hash
from hpcddm.config.training import Expert, ExpertOverride, ExtraExpert, Training
from hpcddm.errors import ConfigError
from hpcddm.runs.unit_keys import AUTOENCODER, MONOLITH, ROUTER, STUDENT, expert_of, stage_of
from hpcddm.runs.unit_settings import evaluator_settings, require_latent_space


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


def unit_training(experiment: Experiment, key: str) -> UnitTraining:
    """Return the training settings of a unit, without counting FLOPs.

    The monolith's images and snapshots are the experts' totals here; its job computes the number of images with equal
    FLOPs from them.

    Args:
        experiment: The experiment.
        key: The unit, as `stage/unit`.

    Raises:
        ConfigError: If an expert's training ends within its warm-up.
        ValueError: If the unit trains nothing.
    """
    is_shared = stage_of(key) in (stage_of(MONOLITH), stage_of(STUDENT))
    total = experiment.experts.training if is_shared else _own_settings(experiment, key)
    if not is_shared:
        part = round_to_whole_batches(total)
    elif key == MONOLITH:
        part = total
    elif key == STUDENT:
        # A quarter of the experts' budget costs a third of it, as each image needs a teacher.
        part = scale_training(total, Fraction(str(experiment.student.share)))
    else:
        part = _expert_training(experiment, expert_of(key))
    # The training of an extra expert may end before the last snapshot.
    numbers = total.snapshots[: len(part.snapshots)]
    note = f"experts.training.batch: {images_per_step(experiment)}" if is_shared else ""
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
    return training.model_copy(
        update={"images": whole_batches(training.images, training.batch), "snapshots": snapshots}
    )


def whole_batches(images: int | Fraction, batch: int) -> int:
    """Round a number of images up to a multiple of the batch."""
    return math.ceil(images / batch) * batch


def _own_settings(experiment: Experiment, key: str) -> Training:
    """Return the training that the experiment sets for a single unit: router, autoencoder or evaluator."""
    if key == ROUTER:
        training = experiment.router.training
    elif key == AUTOENCODER:
        training = require_latent_space(experiment).training
    else:
        training = evaluator_settings(experiment, key).training
    if training is None:
        raise ValueError(f"{key}: this experiment does not train it")
    return training


def _expert_training(experiment: Experiment, expert: Expert | None) -> Training:
    """Return an expert's training: its share, or its own numbers, with its own precision and learning rate."""
    total, own = experiment.experts.training, experiment.experts.variation(expert)
    if isinstance(own, ExtraExpert):
        part = _extra_part(total, own)
    elif isinstance(own, ExpertOverride):
        part = _overridden_part(total, own, experiment.cluster.experts)
    else:
        part = scale_training(total, Fraction(1, experiment.cluster.experts))
    rate = own.learning_rate if own and own.learning_rate else total.learning_rate
    part = part.model_copy(update={"precision": experiment.expert_config(expert).precision, "learning_rate": rate})
    if part.decays_within_warmup:
        text = f"the {part.images} images of expert {expert} end, or its rate does, within its warm-up"
        raise ConfigError(f"experts.training.schedule: {text} of {part.warmup_images}")
    return part


def _overridden_part(total: Training, own: ExpertOverride, num_experts: int) -> Training:
    """Return the training of an expert with its own batch or images; snapshots and decay scale to these images."""
    common = scale_training(total, Fraction(1, num_experts))
    batch, images = own.batch or common.batch, own.images or common.images
    part = scale_training(total, Fraction(batch, total.batch)).model_copy(
        update={"images": whole_batches(images, batch)}
    )
    share = Fraction(1, num_experts) if own.images is None else Fraction(own.images, total.images)
    of_all: dict[str, Any] = {"snapshots": [whole_batches(number * share, batch) for number in total.snapshots]}
    if own.images is not None and total.decay_images is not None:
        of_all["decay_images"] = math.ceil(total.decay_images * share)
    return part.model_copy(update=of_all)


def _extra_part(total: Training, extra: ExtraExpert) -> Training:
    """Return the training of an extra expert; durations that it omits last as many steps as for the other experts.

    They depend neither on the number of experts nor on its number of images, so its training can be prolonged.
    """
    own = {key: getattr(extra, key) for key in ("images", "batch", "warmup_images", "ema_halflife_images")}
    named = {key: number for key, number in own.items() if number is not None}
    part = round_to_whole_batches(scale_training(total, Fraction(extra.batch, total.batch)).model_copy(update=named))
    return part.model_copy(update={"snapshots": [images for images in part.snapshots if images <= part.images]})
