"""Learning rate as a function of the images seen."""

from hpcddm.training.settings import Training


def constant_with_warmup(images_seen: int, training: Training) -> float:
    """Return a learning rate that rises linearly from 0 over `warmup_images` and then stays.

    images_seen: images of all ranks, those of the step that it is for included, so that no step is made at 0.
    """
    warmup = training.warmup_images
    factor = min(1.0, images_seen / warmup) if warmup else 1.0
    return training.learning_rate * factor
