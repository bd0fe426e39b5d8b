"""One expert's pictures in existing tars as a ratio to webdataset: python -m tests.benchmarks.expert_reading

10,000 JPEGs of 10 to 20 kB in ten tars, one expert of eight. One core, warm, in processor seconds, the best of `ROUNDS`
in turn. webdataset streams every tar and filters by key, before it decodes or behind it. Cold, where the file system
lets go of its pages: the bytes that a disk gave, in proportion to the pages that the wanted bytes touch. Of each order
one epoch of the expert: its read calls, and the jumps between them, batch by batch.
"""

import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import webdataset
from PIL import Image
from rich.console import Console
from rich.table import Table

from hpcddm.config import variants
from hpcddm.config.data_variants import OrderSettings
from hpcddm.config.schema import validate
from hpcddm.data.catalog import Catalog, CatalogPart, ImageFormat, SplitEntry
from hpcddm.data.column_files import write_columns
from hpcddm.data.existing_tars import index_existing_tar
from hpcddm.data.image_decoding import decode
from hpcddm.data.images import TarImages
from hpcddm.data.orders.base import EpochOrder, ListOrder
from hpcddm.data.tar_entry import Tar, size_and_mtime
from hpcddm.data.tar_index import columns_of
from hpcddm.data.tar_layout import TarLayout
from tests import pictures

TARS, IN_A_TAR, EXPERTS, SIDE, IMAGE_SIZE, BATCH, ROUNDS = 10, 1000, 8, 208, 64, 64, 3
PAGE = os.sysconf("SC_PAGE_SIZE")
QUALITY = 88
NEAR, CACHED = 1 << 20, 32
"""Bytes of a gap that is no long seek, and of a block as a file system fetches it; blocks that its cache holds."""
ORDERS: dict[str, dict[str, object]] = {
    "uniform": {"name": "uniform"},
    "windowed, 16 blocks of 16 rows": {"name": "windowed", "block_size": 16, "window_blocks": 16},
    "windowed, 4 blocks of 16 rows": {"name": "windowed", "block_size": 16, "window_blocks": 4},
    "windowed, 1 block of 64 rows": {"name": "windowed", "block_size": 64, "window_blocks": 1},
}


def write_tars(folder: Path, count: int = TARS) -> list[Path]:
    """Write real pictures, enlarged and with the grain of a camera; 1000 in each tar."""
    sheet = Image.open(pictures.EMOJI / "sheet.png").convert("RGB")
    generator = np.random.default_rng(0)
    paths = [folder / f"{number:05d}.tar" for number in range(count)]
    for number, path in enumerate(paths):
        with webdataset.TarWriter(str(path)) as writer:
            for row in range(IN_A_TAR):
                x, y = (pictures.SIDE * int(place) for place in generator.integers(0, 16, 2))
                picture = sheet.crop((x, y, x + pictures.SIDE, y + pictures.SIDE)).resize((SIDE, SIDE))
                grain = generator.normal(0, 9, (SIDE, SIDE, 3))
                stream = io.BytesIO()
                pixels = (np.asarray(picture) + grain).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(stream, "JPEG", quality=QUALITY)
                writer.write({"__key__": f"{number:05d}{row:04d}", "jpg": stream.getvalue(), "txt": "a picture"})
    return paths


def header(content: bytes) -> tuple[int, int]:
    """Width and height of a picture."""
    return Image.open(io.BytesIO(content)).size


def catalog_of(folder: Path, tars: list[Path]) -> Catalog:
    """Index the tars as the stage shard does."""
    indices = {number: index_existing_tar(path, TarLayout(), check=header).index for number, path in enumerate(tars)}
    columns = columns_of(indices)
    write_columns(folder / "columns.h5", columns)
    entries = [Tar(path.name, *size_and_mtime(path)) for path in tars]
    part = CatalogPart("train-000", "columns.h5", len(columns["key"]), "")
    form = ImageFormat(3, IMAGE_SIZE, {"name": "centre_crop"})
    return Catalog(folder, SplitEntry(sorted(columns), entries, [part], form))


def batches(numbers: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(numbers), BATCH):
        yield numbers[start : start + BATCH]


def streamed(tars: list[Path], keys: set[str], decoded: str) -> int:
    """Stream all tars by webdataset; decoded: `no`, `behind` the filter or `before` it. Return the pictures' bytes."""
    samples = webdataset.WebDataset([str(path) for path in tars], shardshuffle=False, empty_check=False)

    def pixels(sample: dict) -> dict:
        return sample | {"jpg": decode(sample["jpg"], 3, IMAGE_SIZE).tobytes()}

    samples = samples.map(pixels) if decoded == "before" else samples
    samples = samples.select(lambda sample: sample["__key__"] in keys)
    samples = samples.map(pixels) if decoded == "behind" else samples
    return sum(len(sample["jpg"]) for sample in samples)


def seconds(call: Callable[[], object]) -> float:
    """Processor seconds of one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def disk_bytes() -> int:
    """Bytes that this process has caused to be fetched from a disk."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def cold_ratio(catalog: Catalog, tars: list[Path], numbers: np.ndarray) -> float | None:
    """Bytes from the disk for some samples over those of the pages that they touch; None where it gave none."""
    os.sync()
    for path in tars:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    rows = [catalog.column(name).gather(numbers).tolist() for name in ("tar", "offset", "size")]
    touched = {
        (tar, page)
        for tar, offset, size in zip(*rows, strict=True)
        for page in range(offset // PAGE, (offset + size - 1) // PAGE + 1)
    }
    images, before = TarImages(catalog), disk_bytes()
    for block in batches(numbers):
        images.files(block)
    fetched = disk_bytes() - before
    return fetched / (len(touched) * PAGE) if fetched else None


def reads_of(catalog: Catalog, numbers: np.ndarray) -> list[tuple[int, int, int]]:
    """Reads of an epoch in their order: number of the file, offset, size."""
    made: list[tuple[int, int, int]] = []
    read = os.pread

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        made.append((os.fstat(descriptor).st_ino, offset, size))
        return read(descriptor, size, offset)

    images = TarImages(catalog)
    with mock.patch.object(os, "pread", pread):
        for block in batches(numbers):
            images.files(block)
    return made


def jumps(reads: list[tuple[int, int, int]]) -> tuple[int, int]:
    """Count long seeks, to another file or farther than `NEAR`, and blocks fetched past a cache of the latest."""
    long = sum(
        file != other or abs(offset - (before + size)) > NEAR
        for (file, before, size), (other, offset, _) in pairwise(reads)
    )
    fetch = lru_cache(CACHED)(lambda file, block: None)
    for file, offset, size in reads:
        for block in range(offset // NEAR, (offset + size - 1) // NEAR + 1):
            fetch(file, block)
    return long, fetch.cache_info().misses


def seeks(catalog: Catalog, own: np.ndarray) -> Table:
    """Tabulate one epoch of an expert in several orders."""
    table = Table("order", "read calls", "long seeks", f"MiB fetched, a cache of {CACHED} MiB")
    for name, values in ORDERS.items():
        order = variants.create(EpochOrder, validate(OrderSettings, values, name), 0, "expert", len(own))
        listed = ListOrder(np.sort(own), order)
        reads = reads_of(catalog, listed.sample_numbers(range(len(own))))
        table.add_row(name, f"{len(reads):,}", *(f"{count:,}" for count in jumps(reads)))
    return table


def main() -> None:
    """Print one table."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as place:
        folder = Path(place)
        tars = write_tars(folder)
        catalog = catalog_of(folder, tars)
        everything = np.random.default_rng(1).permutation(len(catalog))
        own = everything[: len(catalog) // EXPERTS]
        keys, every_key = set(catalog.texts("key").gather(own)), set(catalog.texts("key").gather(everything))
        images = TarImages(catalog)
        calls: dict[str, Callable[[], object]] = {
            "raw": lambda: [images.files(block) for block in batches(own)],
            "raw, webdataset": lambda: streamed(tars, keys, "no"),
            "decoded": lambda: [images.images(block) for block in batches(own)],
            "decoded, webdataset filters first": lambda: streamed(tars, keys, "behind"),
            "decoded, webdataset decodes first": lambda: streamed(tars, keys, "before"),
            "all raw": lambda: [images.files(block) for block in batches(everything)],
            "all raw, webdataset": lambda: streamed(tars, every_key, "no"),
        }
        rounds = [{side: seconds(call) for side, call in calls.items()} for _ in range(ROUNDS)]
        best = {side: min(taken[side] for taken in rounds) for side in calls}
        sizes = catalog.column("size").gather(everything)
        cold = cold_ratio(catalog, tars, own)
        orders = seeks(catalog, own)
    table = Table("reading", "seconds", "ratio")
    for side, taken in best.items():
        mine = best[side.partition(",")[0]]
        table.add_row(side, f"{taken:.3f}", f"{taken / mine:.1f}")
    console = Console(width=120)
    console.print(
        f"{len(sizes):,} pictures of {sizes.min() / 1e3:.1f} to {sizes.max() / 1e3:.1f} kB, expert: {len(own):,}"
    )
    console.print(table)
    console.print(orders)
    console.print(f"cold: disk bytes over pages wanted {cold:.3f}" if cold else "cold: the file system kept its pages")


if __name__ == "__main__":
    main()
