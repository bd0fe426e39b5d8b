"""Build, load and count the autoencoder of a space of latents."""

from pathlib import Path

import torch
from torch import nn

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.spaces import AutoencoderSettings
from hpcddm.encoders.autoencoder.base import Autoencoder, TrainedAutoencoder
from hpcddm.models.flops import training_flops, unallocated
from hpcddm.runs.unit_training import trained_autoencoder


def build(experiment: Experiment) -> nn.Module:
    """Build the network of an autoencoder that the run trains, freshly initialised."""
    return variants.create(TrainedAutoencoder, trained_autoencoder(experiment), experiment.data).network


def load(experiment: Experiment, weights: Path) -> Autoencoder[AutoencoderSettings]:
    """Load the autoencoder that the run has trained, from the file `weights`."""
    return variants.create(Autoencoder, trained_autoencoder(experiment), experiment.data, weights)


def inputs(experiment: Experiment, count: int) -> tuple[torch.Tensor, ...]:
    """Create zeros as arguments of the network: images and latents, `count` of each."""
    data = experiment.data
    return torch.zeros(count, data.channels, data.image_size, data.image_size), torch.zeros(count, *data.x_shape)


def train_flops(experiment: Experiment) -> int:
    """Count the FLOPs of one training image, forward and backward."""
    return training_flops(unallocated(lambda: build(experiment)), *inputs(experiment, 1))
