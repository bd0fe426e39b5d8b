"""Measurements of a training, with a clock that a test sets."""

import mmap
from pathlib import Path

import pytest
import torch

from hpcddm.training import meters
from hpcddm.training.meters import MeanLoss, Throughput, TrainingProgress


def test_images_per_second_are_those_since_the_last_call():
    times = iter([100.0, 110.0, 112.0, 112.0])
    throughput = Throughput(1000, clock=lambda: next(times))
    assert throughput.take(1500) == (50.0, 10.0)
    assert throughput.take(1600) == (50.0, 2.0)
    assert throughput.take(1601)[0] > 0, "a clock that stands still is no reason to die"


def add(mean_loss, losses):
    mean_loss.add(losses)
    mean_loss.images += len(losses)


def test_the_mean_loss_is_of_all_images_since_the_last_one(alone):
    mean_loss = MeanLoss(TrainingProgress(), torch.device("cpu"))
    add(mean_loss, torch.tensor([1.0, 2.0], requires_grad=True))
    add(mean_loss, torch.tensor([6.0]))
    assert (mean_loss.images, mean_loss.take(), mean_loss.images) == (3, 3.0, 0)
    add(mean_loss, torch.tensor([5.0]))
    assert mean_loss.take() == 5.0


def test_a_stored_sum_goes_on_where_it_was(alone):
    before = MeanLoss(TrainingProgress(), torch.device("cpu"))
    add(before, torch.tensor([1.0, 2.0]))
    after = MeanLoss(TrainingProgress(loss_sums=before.sums(), loss_images=before.images), torch.device("cpu"))
    add(after, torch.tensor([6.0]))
    assert after.take() == 3.0


def test_the_peak_of_memory_stays_when_the_memory_is_given_back():
    Path("/proc/self/clear_refs").write_text("5")  # What other tests have taken does not count.
    before = meters.peak_memory_gib(torch.device("cpu"))
    # Pages of a new mapping, as the heap may hold free ones of earlier tests.
    with mmap.mmap(-1, 2**28) as mapping:
        for start in range(0, len(mapping), mmap.PAGESIZE):
            mapping[start] = 1
        peak = meters.peak_memory_gib(torch.device("cpu"))
    # The kernel counts pages in batches of each processor.
    assert before > 0 and peak == pytest.approx(before + 0.25, abs=0.05)
    assert meters.peak_memory_gib(torch.device("cpu")) == pytest.approx(peak, abs=0.01)
