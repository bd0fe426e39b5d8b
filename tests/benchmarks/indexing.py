"""The index of a tar as a ratio to Python's tarfile, both in one run: python -m tests.benchmarks.indexing

Two tars: 10,000 members of 700 bytes, 1,000 of 100 kB; in the page cache, in processor seconds, the best of `ROUNDS` in
turn. The floor is reading the headers' bytes at their places, known beforehand, with one call each.
"""

import io
import os
import tarfile
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hpcddm.data.tar_headers import BLOCK, TarHeaders
from hpcddm.data.tar_index import index_tar

TARS = {"10,000 members of 700 B": (10_000, 700), "1,000 members of 100 kB": (1_000, 100_000)}
ROUNDS = 5


def write(path: Path, count: int, size: int) -> None:
    """Write a tar of so many images of so many bytes."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as file:
        for number in range(count):
            member = tarfile.TarInfo(f"train-{number:08d}.png")
            member.size = size
            file.addfile(member, io.BytesIO(bytes(size)))


def by_tarfile(path: Path) -> list[tuple[str, int, int]]:
    with tarfile.open(path, "r:") as file:
        return [(member.name, member.offset_data, member.size) for member in file]


def by_headers(path: Path) -> list[tuple[str, int, int]]:
    with TarHeaders(path) as members:
        return [(member.name, member.offset, member.size) for member in members]


def seconds(call: Callable[[], object]) -> float:
    """Processor seconds of one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def bytes_kept(path: Path) -> tuple[int, int]:
    """Bytes that an index keeps, and the most that making it takes."""
    tracemalloc.start()
    index = index_tar(path)
    kept = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert index.keys
    return kept


def main() -> None:
    """Print one table."""
    columns = ("tar", "us a member", "tarfile", "ratio", "floor", "us of index_tar", "bytes kept a sample", "at most")
    table = Table(*columns)
    with tempfile.TemporaryDirectory() as folder:
        for name, (count, size) in TARS.items():
            path = Path(folder) / "x.tar"
            write(path, count, size)
            found = by_headers(path)
            assert found == by_tarfile(path)
            with open(path, "rb") as file:
                places = [offset - BLOCK for _, offset, _ in found]
                calls: dict[str, Callable[[], object]] = {
                    "walk": lambda path=path: by_headers(path),
                    "tarfile": lambda path=path: by_tarfile(path),
                    "floor": lambda file=file, places=places: [os.pread(file.fileno(), BLOCK, at) for at in places],
                    "index": lambda path=path: index_tar(path),
                }
                rounds = [{side: seconds(call) for side, call in calls.items()} for _ in range(ROUNDS)]
            best = {side: min(one[side] for one in rounds) for side in calls}
            us = {side: f"{value / count * 1e6:.2f}" for side, value in best.items()}
            kept, peak = bytes_kept(path)
            ratio = f"{best['tarfile'] / best['walk']:.1f}"
            memory = (f"{kept / count:.0f}", f"{peak / count:.0f}")
            table.add_row(name, us["walk"], us["tarfile"], ratio, us["floor"], us["index"], *memory)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
