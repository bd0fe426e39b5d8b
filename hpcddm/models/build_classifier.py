"""Build the evaluators: the feature extractor of the distances and the classifier of samples."""

import torch

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.models import ClassifierModelSettings
from hpcddm.config.spaces import SpaceSettings
from hpcddm.diffusion.spaces.base import Space
from hpcddm.models.base import Classifier
from hpcddm.models.flops import training_flops, unallocated
from hpcddm.runs.unit_training import evaluator_settings, num_outputs

PIXELS = SpaceSettings.model_validate({"name": "pixels"})


def build(experiment: Experiment, key: str) -> Classifier[ClassifierModelSettings]:
    """Build the network of an evaluator, freshly initialised.

    Args:
        experiment: Settings of the experiment.
        key: Key of the evaluator's unit.
    """
    model = evaluator_settings(experiment, key).model
    return variants.create(Classifier, model, experiment.data, num_outputs(experiment))


def pixels(experiment: Experiment) -> Space[SpaceSettings]:
    """Create the space of pixels, in which evaluators see images whatever the space of the denoisers is."""
    return variants.create(Space, PIXELS, experiment.data)


def train_flops(experiment: Experiment, key: str) -> int:
    """Count the FLOPs of one training image, forward and backward."""
    return training_flops(unallocated(lambda: build(experiment, key)), torch.zeros(1, *pixels(experiment).shape))
