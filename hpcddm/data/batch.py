"""Batch of a training: one rank's images of one step, with all that a loss may use."""

from dataclasses import dataclass

import torch

from hpcddm.data.order import Order
from hpcddm.data.reader import Reader, to_tensor


@dataclass(frozen=True)
class Batch:
    """Images of one step on one rank, with the data that a loss may use.

    sample_indices: N indices of the images in the order of training, from which all randomness comes;
    x0: (N, C, H, W) float32 in [-1, 1]; labels, clusters: (N,) int64.
    """

    sample_indices: range
    x0: torch.Tensor
    labels: torch.Tensor
    clusters: torch.Tensor


def read_batch(reader: Reader, order: Order, sample_indices: range, device: torch.device) -> Batch:
    """Read the samples at some indices of an order to a device."""
    rows = order.dataset_indices(sample_indices)
    tensors = to_tensor(reader.images(rows)), reader.labels(rows), reader.clusters(rows)
    return Batch(sample_indices, *(tensor.to(device, non_blocking=True) for tensor in tensors))
