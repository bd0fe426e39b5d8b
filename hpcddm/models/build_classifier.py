"""Measuring networks: the extractor of the distances and the classifier of samples."""

import torch

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.models import ClassifierModelSettings
from hpcddm.config.spaces import SpaceSettings
from hpcddm.diffusion.spaces.base import Space
from hpcddm.models.base import Classifier
from hpcddm.models.flops import training_flops, unallocated
from hpcddm.runs.unit_settings import network_settings, outputs

PIXELS = SpaceSettings.model_validate({"name": "pixels"})


def build(settings: Experiment, key: str) -> Classifier[ClassifierModelSettings]:
    """Build the network of the unit `key`, freshly initialised."""
    return variants.create(Classifier, network_settings(settings, key).model, settings.data, outputs(settings))


def pixels(settings: Experiment) -> Space[SpaceSettings]:
    """Create the space in which measuring networks see images, whatever that of the denoisers is."""
    return variants.create(Space, PIXELS, settings.data)


def train_flops(settings: Experiment, key: str) -> int:
    """Count the FLOPs for one training image, forward and backward."""
    return training_flops(unallocated(lambda: build(settings, key)), torch.zeros(1, *pixels(settings).shape))
