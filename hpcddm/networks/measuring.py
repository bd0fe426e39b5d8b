"""Measuring networks: the extractor of the distances and the classifier of samples."""

import torch
from torch import nn

from hpcddm import plugins
from hpcddm.config import Experiment
from hpcddm.models.flops import training_flops
from hpcddm.pipeline.measuring import network_settings


def build(settings: Experiment, key: str) -> nn.Module:
    """Build the network of the unit `key`, freshly initialised."""
    model, classes = network_settings(settings, key).model, settings.data.num_classes
    return plugins.load("models", model.name).build(model, settings.data, classes)


def train_flops(settings: Experiment, key: str) -> int:
    """Count the FLOPs for one training image, forward and backward."""
    data = settings.data
    return training_flops(build(settings, key), torch.zeros(1, data.channels, data.image_size, data.image_size))
