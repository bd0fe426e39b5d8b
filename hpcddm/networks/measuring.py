"""Measuring networks: the extractor of the distances and the classifier of samples."""

from hpcddm import plugins
from hpcddm.config import Experiment
from hpcddm.models.base import Classifier
from hpcddm.models.flops import training_flops
from hpcddm.models.settings import ClassifierModelSettings
from hpcddm.networks import denoisers
from hpcddm.pipeline.measuring import network_settings


def build(settings: Experiment, key: str) -> Classifier[ClassifierModelSettings]:
    """Build the network of the unit `key`, freshly initialised."""
    model, classes = network_settings(settings, key).model, settings.data.num_classes
    return plugins.create(Classifier, model, settings.data, classes)


def train_flops(settings: Experiment, key: str) -> int:
    """Count the FLOPs for one training image, forward and backward."""
    image, *_ = denoisers.one_image(settings)
    return training_flops(build(settings, key), image)
