"""One expert's pictures in existing tars as a ratio to webdataset: python -m tests.benchmarks.expert_reading

10,000 JPEGs of 10 to 20 kB in ten tars, one expert of eight. One core, warm, in processor seconds, the best of `ROUNDS`
in turn. webdataset streams every tar, and filters by key before it decodes. Of each order one epoch of the expert: its
read calls, and the jumps between them, batch by batch.
"""

import io
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import webdataset
from PIL import Image

from hpcddm.config import variants
from hpcddm.config.data_variants import OrderSettings
from hpcddm.config.schema import validate
from hpcddm.data.catalog import Catalog, CatalogPart, ImageFormat, SplitEntry
from hpcddm.data.column_files import write_columns
from hpcddm.data.image_decoding import decode
from hpcddm.data.images import CatalogImages
from hpcddm.data.orders.base import EpochOrder, ListOrder
from hpcddm.data.sample_file import SampleFile, size_and_mtime
from hpcddm.data.tars.tar_index import columns_of
from hpcddm.data.tars.tar_layout import TarLayout
from tests import pictures
from tests.benchmarks.tables import least_in_turns, print_header, print_row
from tests.catalogs import CENTRE_CROP
from tests.data.oddities import index_existing_tar

TARS, IN_A_TAR, EXPERTS, SIDE, IMAGE_SIZE, BATCH, ROUNDS = 10, 1000, 8, 208, 64, 64, 3
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
    entries = [SampleFile(path.name, *size_and_mtime(path)) for path in tars]
    part = CatalogPart("train-000", "columns.h5", len(columns["key"]), "")
    form = ImageFormat(3, IMAGE_SIZE, {"name": "centre_crop"})
    return Catalog(folder, SplitEntry(sorted(columns), entries, [part], form))


def batches(numbers: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(numbers), BATCH):
        yield numbers[start : start + BATCH]


def streamed(tars: list[Path], keys: set[str], is_decoded: bool) -> int:
    """Stream all tars by webdataset, filter by key, and decode where it is asked for; return the pictures' bytes."""
    samples = webdataset.WebDataset([str(path) for path in tars], shardshuffle=False, empty_check=False)
    samples = samples.select(lambda sample: sample["__key__"] in keys)
    if is_decoded:
        samples = samples.map(
            lambda sample: sample | {"jpg": decode(sample["jpg"], 3, IMAGE_SIZE, CENTRE_CROP).tobytes()}
        )
    return sum(len(sample["jpg"]) for sample in samples)


def reads_of(catalog: Catalog, numbers: np.ndarray) -> list[tuple[int, int, int]]:
    """Reads of an epoch in their order: number of the file, offset, size."""
    made: list[tuple[int, int, int]] = []
    read = os.pread

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        made.append((os.fstat(descriptor).st_ino, offset, size))
        return read(descriptor, size, offset)

    images = CatalogImages(catalog)
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


def main() -> None:
    """Print both tables."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as place:
        folder = Path(place)
        tars = write_tars(folder)
        catalog = catalog_of(folder, tars)
        own = np.random.default_rng(1).permutation(len(catalog))[: len(catalog) // EXPERTS]
        keys, images = set(catalog.texts("key").gather(own)), CatalogImages(catalog)
        calls: dict[str, Callable[[], object]] = {
            "files": lambda: [images.files(block) for block in batches(own)],
            "files, webdataset": lambda: streamed(tars, keys, is_decoded=False),
            "decoded": lambda: [images.images(block) for block in batches(own)],
            "decoded, webdataset": lambda: streamed(tars, keys, is_decoded=True),
        }
        best = least_in_turns(calls, ROUNDS)
        print_header("reading", "seconds", "ratio")
        for side, taken in best.items():
            print_row(side, f"{taken:.3f}", f"{taken / best[side.partition(',')[0]]:.1f}")
        print()
        print_header("order", "read calls", "long seeks", f"MiB fetched, a cache of {CACHED} MiB")
        for name, values in ORDERS.items():
            order = variants.create(EpochOrder, validate(OrderSettings, values, name), 0, "expert", len(own))
            reads = reads_of(catalog, ListOrder(np.sort(own), order).sample_numbers(range(len(own))))
            print_row(name, f"{len(reads):,}", *(f"{count:,}" for count in jumps(reads)))


if __name__ == "__main__":
    main()
