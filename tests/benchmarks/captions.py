"""Captions as conditions: memory of numbering them, and samples/s of a training's conditions by each way.

    python -m tests.benchmarks.captions [CAPTIONS ...] [--encoder minilm] [--distinct 4000]

The captions are invented: 4 to 16 words of a vocabulary of 50,000, Zipf-distributed, each of ten samples' one. They are
numbered in a process of its own, whose anonymous memory is looked at every 20 ms. Then batches of 64 samples are made
in one thread, in random order, by the column, and by the threads' way, which keeps the states that fit into 256 MiB: in
the first epoch each caption is new, in the second those that fit are not.
"""

import argparse
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from hpcddm.config.conditions import ConditionSettings
from hpcddm.config.shapes import texts_settings
from hpcddm.data import captions
from hpcddm.data.captions import CAPTION, STATES, write_distinct
from hpcddm.data.catalog import blocks_of
from hpcddm.data.column_files import Spool
from hpcddm.data.columns import TextColumn
from hpcddm.data.reader import ArrayReader
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.diffusion.conditions.sentences import Sentences
from hpcddm.files import atomic
from hpcddm.files.reading import read_json
from hpcddm.runs import manifest
from hpcddm.runs.files import CAPTIONS_FILE, INDEX, STATES_FILE, numbers_file
from hpcddm.runs.manifest import Manifest, flatten
from hpcddm.runs.ranges import TRAIN
from hpcddm.stages.data.texts_job import encoded
from tests.benchmarks.scale import MEGABYTE, in_a_process

COUNTS = (250_000, 1_000_000, 4_000_000)
SAMPLES_OF_EACH, BATCH, TOKENS = 10, 64, 24


def invented(count: int, seed: int = 0) -> list[str]:
    """So many captions, of which some may be equal."""
    draws = np.random.default_rng(seed)
    lengths = draws.integers(4, 17, count)
    words = (draws.zipf(1.2, int(lengths.sum())) % 50_000).tolist()
    ends = np.cumsum(lengths).tolist()
    return [" ".join(f"word{word}" for word in words[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def text_column(folder: Path, count: int) -> TextColumn:
    """Captions of so many samples in one file, written in blocks."""
    path = folder / "texts.h5"
    with Spool(folder) as spool:
        for number, block in enumerate(blocks_of(range(count), 100_000)):
            distinct = invented(max(len(block) // SAMPLES_OF_EACH, 1), number)
            spool.append({CAPTION: [distinct[row % len(distinct)] for row in range(len(block))]})
        spool.write(path)
    return TextColumn(CAPTION, {path: count})


def numbering(counts: list[int]) -> Table:
    """Number the captions of so many samples, all sorted together where they are a million or fewer."""
    table = Table("samples", "distinct", "CPU seconds", "anonymous MB", "disk MB")
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            text_column(root, count)

            def number(root: Path = root, count: int = count) -> None:
                columns = {TRAIN: TextColumn(CAPTION, {root / "texts.h5": count})}
                made = write_distinct(
                    columns, root / CAPTIONS_FILE, lambda split: root / numbers_file(split), lambda done: None
                )
                atomic.write_json(root / INDEX, made)

            seconds, grown = in_a_process(number)
            disk = sum((root / name).stat().st_size for name in (CAPTIONS_FILE, numbers_file(TRAIN)))
            distinct = f"{read_json(root / INDEX):,}"
            figures = (f"{seconds:.1f}", f"{grown / MEGABYTE:.0f}", f"{disk / MEGABYTE:.0f}")
            table.add_row(f"{count:,}", distinct, *figures)
    return table


def reading(encoder: str, distinct: int) -> Table:
    """Make the conditions of two epochs by each way."""
    settings = {cached: _condition(encoder, cached) for cached in (None, True)}
    texts = list(dict.fromkeys(invented(distinct)))
    order = np.random.default_rng(1).permutation(len(texts))
    nothing = np.zeros(len(texts), np.int64)
    reader = ArrayReader(np.zeros((len(texts), 1, 1, 1), np.uint8), nothing, nothing, texts)
    reader.split = TRAIN
    table = Table("way", "first epoch, samples/s", "second epoch, samples/s")
    with tempfile.TemporaryDirectory() as folder:
        rows: dict[str, list[float]] = {}
        seconds = _write_column(Path(folder), settings[True], texts)
        for name, cached in (("as they are read", None), ("column", True)):
            data = SimpleNamespace(condition=settings[cached], num_classes=None)
            condition = conditions.build(data, lambda key, file: Path(folder) / key.removesuffix("/all") / file)
            rows[name] = [_rate(condition, reader, order) for _ in range(2)]
        for name, rates in rows.items():
            table.add_row(name, *(f"{rate:,.0f}" for rate in rates))
        ratios = (column / read for read, column in zip(*rows.values(), strict=True))
        table.add_row("ratio", *(f"{ratio:,.1f}" for ratio in ratios))
        table.add_row("texts, captions/s", f"{len(texts) / seconds:,.0f}", "")
    return table


def _condition(encoder: str, cached: bool | None) -> ConditionSettings:
    values: dict[str, Any] = {"name": "text", "encoder": {"name": encoder}, "tokens": TOKENS}
    return ConditionSettings.model_validate(values | ({} if cached is None else {"cached": cached}))


def _write_column(root: Path, condition: ConditionSettings, texts: list[str]) -> float:
    """Write the column as the two stages do; return the seconds of the encoder."""
    (root / "captions").mkdir()
    (root / "texts" / "000").mkdir(parents=True)
    with Spool(root) as spool:
        spool.append({CAPTION: texts})
        spool.write(root / "texts.h5")
    columns = {TRAIN: TextColumn(CAPTION, {root / "texts.h5": len(texts)})}
    made = write_distinct(
        columns,
        root / "captions" / CAPTIONS_FILE,
        lambda split: root / "captions" / numbers_file(split),
        lambda done: None,
    )
    index = {"captions": made, "samples": {TRAIN: len(texts)}, "ranges": {"000": (0, made)}}
    atomic.write_json(root / "captions" / INDEX, index)
    sentences = Sentences(condition.text_encoder, TOKENS)
    column = TextColumn(CAPTION, {root / "captions" / CAPTIONS_FILE: made})
    started = time.perf_counter()
    with Spool(root) as spool:
        for block in blocks_of(range(made), 512):
            spool.append({STATES: encoded(sentences, column.gather(block), torch.device("cpu"))})
        spool.write(root / "texts" / "000" / STATES_FILE)
    seconds = time.perf_counter() - started
    expected = flatten(texts_settings(SimpleNamespace(condition=condition)))
    manifest.publish(root / "texts" / "000", Manifest("texts", "000", expected, {}, []))
    return seconds


def _rate(condition: conditions.Condition, reader: ArrayReader, order: np.ndarray) -> float:
    started = time.perf_counter()
    for rows in blocks_of(order, BATCH):
        condition.carried(reader, rows, torch.zeros(len(rows), dtype=torch.bool))
    return len(order) / (time.perf_counter() - started)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("counts", nargs="*", type=int, default=list(COUNTS), help="samples whose captions are numbered")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--distinct", type=int, default=4000, help="captions that are read by each way")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=120)
    console.print(f"sorted at once: {captions.SORTED_AT_ONCE:,}")
    console.print(numbering(options.counts))
    console.print(reading(options.encoder, options.distinct))


if __name__ == "__main__":
    main()
