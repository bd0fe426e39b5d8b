import threading
import time

import pytest
import torch

from hpcddm.data.batch import Batch
from hpcddm.data.loader import Loader
from hpcddm.errors import UserError
from tests.data.refusals import assert_refused

SPANS = [range(start, start + 3) for start in range(0, 30, 3)]


class Counting:
    """Makes batches and notes how many were begun, and how many are in the making at once."""

    def __init__(self, seconds=0.0, torn=None):
        self.seconds, self.torn = seconds, torn
        self.begun, self.running, self.most, self._lock = 0, 0, 0, threading.Lock()

    def read(self, span):
        with self._lock:
            self.begun, self.running = self.begun + 1, self.running + 1
            self.most = max(self.most, self.running)
        time.sleep(self.seconds)
        with self._lock:
            self.running -= 1
        if span.start == self.torn:
            raise UserError(f"torn at {span.start}")
        return Batch(span, torch.tensor(span.start))


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_batches_come_in_order_from_threads_that_work_at_once(threads):
    reading = Counting(0.02)
    with Loader(reading.read, SPANS, threads) as loader:
        assert [batch.sample_indices for batch in loader] == SPANS
        assert list(loader) == []
    assert min(threads, 2) <= reading.most <= max(threads, 1)


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_no_more_is_read_ahead_than_the_queue_holds(threads):
    reading = Counting()
    with Loader(reading.read, SPANS, threads) as loader:
        for taken in range(1, 4):
            next(loader)
            time.sleep(0.05)
            assert taken <= reading.begun <= taken + (threads + 1 if threads else 0)


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_an_error_is_raised_when_its_batch_is_taken(threads):
    with Loader(Counting(torn=6).read, SPANS, threads) as loader:
        assert [next(loader).x0.item() for _ in range(2)] == [0, 3]
        assert_refused("torn at 6", next, loader)


def test_leaving_does_not_wait_for_batches_in_the_making():
    started = time.perf_counter()
    with Loader(Counting(0.5).read, SPANS, 2):
        pass
    assert time.perf_counter() - started < 0.4
