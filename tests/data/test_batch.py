import numpy as np
import torch

from hpcddm.data.batch import read_batch
from hpcddm.data.order import SampleOrder
from hpcddm.data.reader import ArrayReader


def test_a_batch_holds_the_samples_at_its_places_of_the_order():
    images = np.random.default_rng(0).integers(0, 256, (20, 4, 6, 3)).astype(np.uint8)
    reader = ArrayReader(images, np.arange(20), np.arange(20) % 3)
    order = SampleOrder(0, "s", 20)
    batch = read_batch(reader, order, range(35, 43), torch.device("cpu"))
    rows = order.dataset_indices(range(35, 43))
    assert batch.sample_indices == range(35, 43) and batch.labels.tolist() == rows.tolist()
    assert batch.clusters.tolist() == (rows % 3).tolist() and batch.labels.dtype == batch.clusters.dtype == torch.int64
    assert batch.x0.shape == (8, 3, 4, 6) and batch.x0.dtype == torch.float32
    expected = images[rows].transpose(0, 3, 1, 2) / 127.5 - 1
    assert np.allclose(batch.x0.numpy(), expected, atol=1e-6) and batch.x0.abs().max() <= 1
