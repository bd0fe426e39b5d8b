"""Learning rate as a function of the images seen."""

import math

from hpcddm.config.training import Training


def learning_rate(images_seen: int, training: Training) -> float:
    """Return the rate of a step: it rises linearly from 0 over `warmup_images`, and then follows `schedule`.

    images_seen: images of all ranks, those of the step that it is for included, so that no step is made at 0.
    Cosine: arXiv 1608.03983, eq. 5, without restarts; inverse root: the decay of EDM2, arXiv 2312.02696.
    """
    warmup = training.warmup_images
    factor = min(1.0, images_seen / warmup) if warmup else 1.0
    return training.learning_rate * factor * _decayed(images_seen, training)


def _decayed(images_seen: int, training: Training) -> float:
    """Return the share of the rate that the schedule leaves after so many images."""
    if training.schedule == "constant":
        return 1.0
    if training.schedule == "inverse_root":
        reference = training.decay_images or training.warmup_images
        return math.sqrt(reference / max(images_seen, reference))
    end = training.decay_images or training.images
    done = min(max(images_seen - training.warmup_images, 0) / (end - training.warmup_images), 1.0)
    left = 1 - done if training.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return training.final_rate_share + (1 - training.final_rate_share) * left
