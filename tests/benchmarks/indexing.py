"""The index of a tar as a ratio to Python's tarfile, both in one run: python -m tests.benchmarks.indexing

Two tars: 10,000 members of 700 bytes, 1,000 of 100 kB; in the page cache, in processor seconds, the best of `ROUNDS` in
turn. The floor is reading the headers' bytes at their places, known beforehand, with one call each.
"""

import io
import os
import tarfile
import tempfile
from functools import partial
from pathlib import Path

from hpcddm.data.tars.tar_headers import BLOCK, TarHeaders
from tests.benchmarks.tables import least_in_turns, print_header, print_row

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


def main() -> None:
    """Print a row for each tar."""
    print_header("tar", "us a member", "tarfile", "ratio", "floor")
    with tempfile.TemporaryDirectory() as folder:
        for name, (count, size) in TARS.items():
            path = Path(folder) / "x.tar"
            write(path, count, size)
            found = by_headers(path)
            assert found == by_tarfile(path)
            with open(path, "rb") as file:
                places = [offset - BLOCK for _, offset, _ in found]
                calls = {
                    "walk": partial(by_headers, path),
                    "tarfile": partial(by_tarfile, path),
                    "floor": lambda file=file, places=places: [os.pread(file.fileno(), BLOCK, at) for at in places],
                }
                best = least_in_turns(calls, ROUNDS)
            us = {side: f"{value / count * 1e6:.2f}" for side, value in best.items()}
            print_row(name, us["walk"], us["tarfile"], f"{best['tarfile'] / best['walk']:.1f}", us["floor"])


if __name__ == "__main__":
    main()
