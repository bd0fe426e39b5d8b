"""On which images temperatures are fitted, and on which a router is measured."""

import numpy as np
import pytest
import torch

from hpcddm.data.reader import ArrayReader
from hpcddm.errors import UserError
from hpcddm.evaluation.router_quality import measure_quality
from tests.helpers import SIDE, tiny


class ByClass(torch.nn.Module):
    """A router that is nearly sure that the cluster has the number of the class."""

    def __init__(self):
        super().__init__()
        self.sure = torch.nn.Parameter(torch.tensor(5.0))

    def forward(self, x, t, classes):
        return self.sure * torch.nn.functional.one_hot(classes.clamp(max=3), 4).float()


def test_temperatures_are_fitted_on_other_images_than_those_that_are_measured(tmp_path):
    experiment = tiny(tmp_path, cluster__experts=4, router__temperature="one")
    labels = np.arange(400) // 2 % 4
    clusters = np.where(np.arange(400) % 2, (labels + 1) % 4, labels)
    reader = ArrayReader(np.zeros((400, SIDE, SIDE, 1), dtype=np.uint8), labels, clusters)
    images = torch.zeros(400, 1, SIDE, SIDE)
    x0_of = images.__getitem__
    results, temperatures = measure_quality(experiment, ByClass(), reader, np.arange(400), x0_of, lambda: None)
    # Always right on the half that is fitted, so it may be surer; never on the half that is measured.
    assert max(temperatures) < 1 and results["accuracy"] == [0.0] * 10
    assert min(results["scaled_nll"]) > max(results["nll"])


def test_a_router_that_answers_the_same_for_all_images_is_dead(tmp_path):
    experiment = tiny(tmp_path, cluster__experts=4)
    reader = ArrayReader(np.zeros((40, SIDE, SIDE, 1), dtype=np.uint8), np.arange(40) % 4, np.arange(40) % 4)
    router = ByClass()
    router.sure.data.zero_()
    x0_of, rate = torch.zeros(40, 1, SIDE, SIDE).__getitem__, experiment.router.training.learning_rate
    with pytest.raises(UserError, match=f"router/all: the training has diverged: the router answers the same .*{rate}"):
        measure_quality(experiment, router, reader, np.arange(40), x0_of, lambda: None)
