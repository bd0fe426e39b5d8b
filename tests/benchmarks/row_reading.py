"""Parquet and Arrow files in place beside the reader of `datasets`: python -m tests.benchmarks.row_reading

4,000 JPEGs of 10 to 20 kB, written by `datasets` as parquet, compressed by pyarrow in row groups of 100, and saved as
Arrow. Images per processor second of one core, warm, the best of `ROUNDS` in turn; both sides decode to the same RGB
arrays. Then one epoch of one expert of eight in random order: bytes that the process read, by the kernel's count, in
proportion to those of its images, and what `hpcddm plan` predicts. Needs `pip install datasets`.
"""

import os
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from unittest import mock

import datasets
import numpy as np
import pyarrow.parquet
from datasets import Dataset, Features, Value
from rich.console import Console
from rich.table import Table

from hpcddm.commands.planning.read_amplification import bytes_per_byte
from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.data.catalog import Catalog, CatalogPart, ImageFormat, SplitEntry
from hpcddm.data.column_files import write_columns
from hpcddm.data.copies import open_copy, write_copy
from hpcddm.data.image_decoding import read_image
from hpcddm.data.images import TarImages
from hpcddm.data.open_files import RowGroupCache
from hpcddm.data.random_streams import PLANNED_ORDER
from hpcddm.data.run_samples import list_order
from hpcddm.data.sources.base import TarSource
from hpcddm.data.tar_index import columns_of
from hpcddm.launch.load_experiment import load_experiment
from tests.benchmarks.expert_reading import SIDE, write_tars

TARS, EXPERTS, BATCH, ROUNDS, PARTS, GROUP_ROWS = 4, 8, 16, 5, 4, 100
SMALL_CACHE_BYTES = 6 << 20


def write_sets(folder: Path) -> dict[str, Path]:
    """Write the pictures as parquet, as compressed parquet, and as Arrow."""
    contents = []
    for path in write_tars(folder, TARS):
        with tarfile.open(path) as tar:
            contents += [tar.extractfile(member).read() for member in tar if member.name.endswith("jpg")]
        path.unlink()
    features = Features({"image": datasets.Image(), "text": Value("string")})
    rows = {"image": [{"bytes": content, "path": None} for content in contents], "text": ["a picture"] * len(contents)}
    whole = Dataset.from_dict(rows, features=features)
    for number in range(PARTS):
        part = whole.shard(PARTS, number, contiguous=True)
        for kind in ("parquet", "compressed"):
            (folder / kind).mkdir(exist_ok=True)
        name = f"train-{number:05d}-of-{PARTS:05d}.parquet"
        part.to_parquet(folder / "parquet" / name)
        pyarrow.parquet.write_table(part.data.table, folder / "compressed" / name, row_group_size=GROUP_ROWS)
    whole.save_to_disk(folder / "arrow", num_shards=PARTS)
    return {kind: folder / kind for kind in ("parquet", "compressed", "arrow")}


def experiment_of(folder: Path, order: str = "{name: uniform}") -> Experiment:
    """The quickstart's experiment on one of the sets."""
    source = f"{{name: huggingface, folder: {folder}, heldout: {{share: 0.0001}}, label: null}}"
    changes = (f"data.source={source}", "data.channels=3", f"data.image_size={SIDE}", f"cluster.experts={EXPERTS}")
    changes += ("data.num_classes=null", "data.class_names=null", "evaluators.classifier=null", f"data.order={order}")
    return load_experiment("quickstart", (*changes, "data.condition={name: none}", "experts.model.patch=16"))


def catalog_of(folder: Path, experiment: Experiment) -> Catalog:
    """Index a set as the stage shard does."""
    files = variants.create(TarSource, experiment.data.source).tars("train")
    indices = {number: file.index(lambda content: read_image(content).size).index for number, file in enumerate(files)}
    columns = columns_of(indices)
    write_columns(folder / "columns.h5", columns)
    part = CatalogPart("train", "columns.h5", len(columns["key"]), "")
    form = ImageFormat(3, SIDE, {"name": "centre_crop"})
    entry = SplitEntry(sorted(columns), [file.entry() for file in files], [part], form)
    return Catalog(folder, entry, experiment.data.source.source_folders)


def in_blocks(numbers: Sequence[int], read: Callable[[Sequence[int]], object]) -> int:
    for start in range(0, len(numbers), BATCH):
        read(numbers[start : start + BATCH])
    return len(numbers)


def speed(read: Callable[[], int]) -> float:
    """Images per processor second."""
    started = time.process_time()
    count = read()
    return count / (time.process_time() - started)


def bytes_read(read: Callable[[], object]) -> int:
    """Bytes that this process asked the kernel for."""

    def count() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    before = count()
    read()
    return count() - before


def main() -> None:
    os.environ["HF_DATASETS_OFFLINE"] = "1"
    datasets.disable_progress_bars()
    speeds = Table("files", "all, in order", "datasets, streaming", "ratio", "datasets, its copy", "ratio")
    experts = Table("files", "an expert's", "from its copy", "datasets, its copy", "ratio", "ratio of copies")
    ratios = Table("files", "order", "bytes read per byte", "predicted", "from a copy")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for kind, files in write_sets(folder).items():
            own = folder / f"catalog-{kind}"
            own.mkdir()
            catalog = catalog_of(own, experiment_of(files))
            numbers = np.sort(np.random.default_rng(0).permutation(len(catalog))[: len(catalog) // EXPERTS])
            write_copy(own, catalog, numbers, lambda done: None)
            best = speeds_of(files, theirs_of(folder, files), catalog, numbers, own)
            add_speeds(speeds, kind, best, ["all", "their stream", "their all"])
            add_speeds(experts, kind, best, ["expert", "copied", "their expert"])
            add_ratios(ratios, kind, files, catalog, numbers, own)
            # What a collection meets that is much larger than the cache.
            if kind == "compressed":
                with mock.patch.object(RowGroupCache.__init__, "__defaults__", (SMALL_CACHE_BYTES,)):
                    add_ratios(ratios, f"{kind}, a cache for 1/8 of them", files, catalog, numbers, own)
    Console(width=140).print(speeds, experts, ratios)


def speeds_of(files: Path, theirs: Dataset, catalog: Catalog, numbers: np.ndarray, copy: Path) -> dict[str, float]:
    """Measure all sides in turn; return the best of each, in images per processor second."""
    mine = list_order(experiment_of(files), PLANNED_ORDER, numbers).sample_numbers(range(len(numbers))).tolist()
    rows = list_order(experiment_of(files), PLANNED_ORDER, np.arange(len(numbers))).sample_numbers(range(len(numbers)))

    def read_theirs(some: Sequence[int]) -> list[np.ndarray]:
        return [theirs_image(theirs[number]) for number in some]

    sides = {
        "all": lambda: in_blocks(range(len(catalog)), TarImages(catalog).images),
        "their all": lambda: in_blocks(range(len(catalog)), read_theirs),
        "their stream": lambda: stream_all(files),
        "expert": lambda: in_blocks(mine, TarImages(catalog).images),
        "copied": lambda: in_blocks(rows.tolist(), TarImages(open_copy(copy)).images),
        "their expert": lambda: in_blocks(mine, read_theirs),
    }
    rounds = [{name: speed(read) for name, read in sides.items()} for _ in range(ROUNDS)]
    return {name: max(one[name] for one in rounds) for name in sides}


def add_speeds(table: Table, kind: str, best: dict[str, float], names: list[str]) -> None:
    """Add a row: three speeds, and ratios of the first to the second and third, or of the first two to the third."""
    first, second, third = (best[name] for name in names)
    cells = [f"{best[name]:.0f}" for name in names]
    if names[0] == "all":
        table.add_row(kind, cells[0], cells[1], f"{first / second:.2f}", cells[2], f"{first / third:.2f}")
    else:
        table.add_row(kind, *cells, f"{first / third:.2f}", f"{second / third:.2f}")


def theirs_of(folder: Path, files: Path) -> Dataset:
    if files.name == "arrow":
        return datasets.load_from_disk(files)
    return datasets.load_dataset("parquet", data_dir=str(files), split="train", cache_dir=str(folder / "cache"))


def stream_all(files: Path) -> int:
    if files.name == "arrow":
        stream = datasets.load_from_disk(files).to_iterable_dataset()
    else:
        stream = datasets.load_dataset("parquet", data_dir=str(files), split="train", streaming=True)
    return sum(theirs_image(row) is not None for row in stream)


def theirs_image(row: dict) -> np.ndarray:
    return np.asarray(row["image"].convert("RGB"))


def add_ratios(table: Table, kind: str, files: Path, catalog: Catalog, numbers: np.ndarray, own: Path) -> None:
    wanted = int(catalog.column("size").gather(numbers).sum(dtype=np.int64))
    copied = TarImages(open_copy(own))
    from_copy = bytes_read(partial(in_blocks, range(len(numbers)), copied.files)) / wanted
    for name in ("uniform", "{name: windowed, block_size: 16, window_blocks: 16}"):
        experiment = experiment_of(files, "{name: uniform}" if name == "uniform" else name)
        order = list_order(experiment, PLANNED_ORDER, numbers)
        mine = order.sample_numbers(range(len(numbers))).tolist()
        ratio = bytes_read(partial(in_blocks, mine, TarImages(catalog).files)) / wanted
        table.add_row(kind, name, f"{ratio:.2f}", f"{bytes_per_byte(experiment):.2f}", f"{from_copy:.3f}")


if __name__ == "__main__":
    main()
