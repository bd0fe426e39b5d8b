"""Measuring networks: the extractor of the distances and the classifier of samples."""

from torch import nn

from hpcddm import plugins
from hpcddm.config import ClassifierSettings, Experiment


def network_settings(settings: Experiment, name: str) -> ClassifierSettings:
    """Return the settings of 'extractor' or 'classifier'."""
    return {"extractor": settings.measuring.extractor, "classifier": settings.measuring.classifier}[name]


def build(settings: Experiment, network: ClassifierSettings) -> nn.Module:
    """Build a freshly initialised classifier."""
    return plugins.load("models", network.model.name).build(network.model, settings.data, settings.data.num_classes)
