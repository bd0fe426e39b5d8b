import numpy as np
import pytest
import torch
from torchmetrics.classification import MulticlassCalibrationError

from hpcddm.evaluation.metrics import calibration
from hpcddm.evaluation.metrics.calibration import ece, fit_temperature, nll, probabilities

RNG = np.random.default_rng(0)
TRUE = 2 * RNG.standard_normal((4000, 5))
LABELS = np.array([RNG.choice(5, p=row) for row in probabilities(TRUE)])
"""Drawn from softmax(TRUE), whose temperature is therefore one."""


def test_the_likelihood_is_the_cross_entropy():
    expected = torch.nn.functional.cross_entropy(torch.from_numpy(TRUE / 1.7), torch.from_numpy(LABELS)).item()
    assert nll(TRUE, LABELS, 1.7) == pytest.approx(expected, rel=1e-12)


def test_the_likelihood_survives_enormous_logits():
    assert nll(np.array([[1e5, 0.0], [0.0, 1e5]]), np.array([0, 0])) == pytest.approx(5e4)


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_the_calibration_error_is_that_of_torchmetrics(bins):
    found = probabilities(3 * TRUE)
    metric = MulticlassCalibrationError(5, n_bins=bins, norm="l1")
    expected = metric(torch.from_numpy(found), torch.from_numpy(LABELS)).item()
    assert ece(found, LABELS, bins) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("factor", [0.3, 1.0, 4.0])
def test_the_temperature_undoes_what_was_done_to_the_logits(factor):
    temperature = fit_temperature(factor * TRUE, LABELS)
    assert temperature == pytest.approx(factor, rel=0.05)
    assert temperature == pytest.approx(factor * fit_temperature(TRUE, LABELS), rel=1e-6)


def test_where_the_likelihood_has_no_maximum_the_temperature_is_at_its_bound():
    right = 0.1 * np.eye(3)
    assert fit_temperature(right, np.array([0, 1, 2])) == pytest.approx(calibration.MIN_TEMPERATURE)
    assert fit_temperature(right, np.array([1, 2, 0])) == pytest.approx(calibration.MAX_TEMPERATURE)
