"""Measuring networks: the extractor of the distances and the classifier of samples."""

from torch import nn

from hpcddm import plugins
from hpcddm.config import Experiment
from hpcddm.pipeline.measuring import network_settings


def build(settings: Experiment, key: str) -> nn.Module:
    """Build the network of the unit `key`, freshly initialised."""
    model, classes = network_settings(settings, key).model, settings.data.num_classes
    return plugins.load("models", model.name).build(model, settings.data, classes)
