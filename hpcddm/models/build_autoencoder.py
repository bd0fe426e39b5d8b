"""The autoencoder of a space of latents: as it is trained, loaded, and counted."""

from pathlib import Path

import torch
from torch import nn

from hpcddm.config import variants
from hpcddm.config.autoencoders import AutoencoderSettings
from hpcddm.config.experiment import Experiment
from hpcddm.encoders.autoencoder.base import Autoencoder, TrainedAutoencoder
from hpcddm.models.flops import training_flops, unallocated
from hpcddm.runs.unit_settings import trained_autoencoder


def network(settings: Experiment) -> nn.Module:
    """Build the network of an autoencoder that the run trains, freshly initialised."""
    return variants.create(TrainedAutoencoder, trained_autoencoder(settings)[0], settings.data).network


def load(settings: Experiment, weights: Path) -> Autoencoder[AutoencoderSettings]:
    """Load the autoencoder that the run has trained."""
    return variants.create(Autoencoder, trained_autoencoder(settings)[0], settings.data, weights)


def inputs(settings: Experiment, count: int) -> tuple[torch.Tensor, ...]:
    """Make the arguments of the network for so many images."""
    data = settings.data
    return torch.zeros(count, data.channels, data.image_size, data.image_size), torch.zeros(count, *data.x_shape)


def train_flops(settings: Experiment) -> int:
    """Count the FLOPs for one training image, forward and backward."""
    return training_flops(unallocated(lambda: network(settings)), *inputs(settings, 1))
