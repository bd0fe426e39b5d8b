"""Loader of batches: threads read, decode and augment ahead of the training, in order and in bounded memory."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Loader(Generic[T]):
    """Iterator over batches that threads read ahead of their use.

    Its only state is the position in `spans`, so a training resumes by starting with the next range. An exception in
    `read` is raised when its batch is requested.

    Args:
        read: Function that reads the batch of a range of sample indices.
        spans: Ranges of sample indices, one per batch.
        threads: Number of threads; at most `threads` + 1 batches are in memory. With 0, `next` reads each batch itself.

    Examples:
        >>> with Loader(read=list, spans=[range(0, 2), range(2, 4)], threads=1) as batches:
        ...     for batch in batches:
        ...         print(batch)
        [0, 1]
        [2, 3]
    """

    def __init__(self, read: Callable[[range], T], spans: Iterable[range], threads: int) -> None:
        self._read, self._spans, self._depth = read, iter(spans), threads + 1
        self._pool = ThreadPoolExecutor(threads, "data") if threads else None
        self._queue: deque[Future[T]] = deque()
        self._waited = 0.0
        self._fill()

    def __enter__(self) -> "Loader[T]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Batches in the making are of no use; a thread that hangs in a file system holds nobody up.
        if self._pool:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        """Return the next batch; wait if it is not ready."""
        started = time.perf_counter()
        if self._pool is None:
            batch = self._read(next(self._spans))
        elif self._queue:
            batch = self._queue.popleft().result()
        else:
            raise StopIteration
        self._waited += time.perf_counter() - started
        self._fill()
        return batch

    def pop_wait_seconds(self) -> float:
        """Return the seconds that the caller has waited for batches since the last call."""
        waited, self._waited = self._waited, 0.0
        return waited

    def _fill(self) -> None:
        while self._pool and len(self._queue) < self._depth:
            span = next(self._spans, None)
            if span is None:
                return
            self._queue.append(self._pool.submit(self._read, span))
