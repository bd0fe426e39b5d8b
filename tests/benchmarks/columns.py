"""Random rows of a column that is not in memory: python -m tests.benchmarks.columns [--folder DIR] [--rows 120000]

Latents of 32 x 32 x 4 as mean and log-variance, 16 KiB an image, in one file in DIR, which is taken out of the page
cache before each round; a batch is 64 rows. Beside it a copy of the same rows from the memory map alone, as numpy
does it. Bytes are those that the kernel read for this process, as a multiple of those of the rows.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hpcddm.data.column_files import RowBlocks, write_columns
from hpcddm.data.columns import Column

SHAPE, BATCH, BATCHES, ROUNDS = (2, 4, 32, 32), 64, 32, 3


def bytes_read() -> int:
    """Return the bytes that this process had read from disks so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def evict(path: Path) -> None:
    """Take a file out of the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(
    path: Path, rows: int, copies: Callable[[Column], Callable[[np.ndarray], np.ndarray]]
) -> tuple[float, float]:
    """Return milliseconds per batch and bytes read as a multiple of those of the rows, from a cold file."""
    evict(path)
    copy = copies(Column("moments", {path: rows}))
    draw, before, started = np.random.default_rng(0), bytes_read(), time.perf_counter()
    for _ in range(BATCHES):
        copy(draw.integers(0, rows, BATCH))
    seconds = time.perf_counter() - started
    needed = BATCHES * BATCH * int(np.prod(SHAPE)) * 2
    return 1000 * seconds / BATCHES, (bytes_read() - before) / needed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--rows", type=int, default=120_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder) / "latents.h5"
        draw = np.random.default_rng(0)
        blocks = (
            draw.integers(0, 255, (1000, *SHAPE), dtype=np.uint8).astype("<f2") for _ in range(given.rows // 1000)
        )
        rows = given.rows // 1000 * 1000
        write_columns(path, {"moments": RowBlocks((rows, *SHAPE), np.dtype("<f2"), blocks)})
        ways = {
            "memory map alone": lambda column: column.as_array().__getitem__,
            "Column.gather": lambda column: column.gather,
        }
        print("| way | ms per batch of 64, of 3 rounds | bytes read |\n| --- | --- | --- |")
        for name, copies in ways.items():
            rounds = [measure(path, rows, copies) for _ in range(ROUNDS)]
            times = ", ".join(f"{milliseconds:.1f}" for milliseconds, _ in rounds)
            print(f"| {name} | {times} | {min(factor for _, factor in rounds):.2f} x |", flush=True)


if __name__ == "__main__":
    main()
