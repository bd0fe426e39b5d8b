"""Captions as conditions: samples/s of a training's conditions by each way.

    python -m tests.benchmarks.captions [--encoder minilm] [--distinct 4000]

The captions are invented: 4 to 16 words of a vocabulary of 50,000, Zipf-distributed. Batches of 64 samples are made in
one thread, in random order, by the column, and by the threads' way, which keeps the states that fit into 256 MiB: in
the first epoch each caption is new, in the second those that fit are not.
"""

import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from hpcddm.config.conditions import ConditionSettings
from hpcddm.config.data_shapes import text_states_settings
from hpcddm.data.catalog import split_into_blocks
from hpcddm.data.column_files import Spool
from hpcddm.data.columns import TextColumn
from hpcddm.data.distinct_captions import CAPTION, STATES, write_distinct
from hpcddm.data.reader import ArrayReader
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.diffusion.conditions.sentence_encoder import SentenceEncoder
from hpcddm.files import atomic
from hpcddm.runs import manifest
from hpcddm.runs.files import CAPTIONS_FILE, INDEX, STATES_FILE, numbers_file
from hpcddm.runs.manifest import Manifest, flatten
from hpcddm.runs.ranges import TRAIN
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CAPTIONS, caption_states_key
from hpcddm.stages.data.encode_captions_job import encode
from tests.benchmarks.tables import parser_of, print_header, print_row

BATCH, TOKENS = 64, 24


def invented(count: int, seed: int = 0) -> list[str]:
    """So many captions, of which some may be equal."""
    draws = np.random.default_rng(seed)
    lengths = draws.integers(4, 17, count)
    words = (draws.zipf(1.2, int(lengths.sum())) % 50_000).tolist()
    ends = np.cumsum(lengths).tolist()
    return [" ".join(f"word{word}" for word in words[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def reading(encoder: str, distinct: int) -> None:
    """Make the conditions of two epochs by each way, and print a row for each."""
    settings = {cached: _condition(encoder, cached) for cached in (None, True)}
    texts = list(dict.fromkeys(invented(distinct)))
    order = np.random.default_rng(1).permutation(len(texts))
    nothing = np.zeros(len(texts), np.int64)
    reader = ArrayReader(np.zeros((len(texts), 1, 1, 1), np.uint8), nothing, nothing, texts)
    reader.split = TRAIN
    print_header("way", "first epoch, samples/s", "second epoch, samples/s")
    with tempfile.TemporaryDirectory() as folder:
        rows: list[list[float]] = []
        seconds = _write_column(Path(folder), settings[True], texts)
        for name, cached in (("as they are read", None), ("column", True)):
            data = SimpleNamespace(condition=settings[cached], num_classes=None)
            condition = conditions.create_condition(data, RunDir(Path(folder)).output)
            rows.append([_rate(condition, reader, order) for _ in range(2)])
            print_row(name, *(f"{rate:,.0f}" for rate in rows[-1]))
        print_row("ratio", *(f"{column / read:,.1f}" for read, column in zip(*rows, strict=True)))
        print_row("texts, captions/s", f"{len(texts) / seconds:,.0f}", "")


def _condition(encoder: str, cached: bool | None) -> ConditionSettings:
    values: dict[str, Any] = {"name": "text", "encoder": {"name": encoder}, "tokens": TOKENS}
    return ConditionSettings.model_validate(values | ({} if cached is None else {"cached": cached}))


def _write_column(root: Path, condition: ConditionSettings, texts: list[str]) -> float:
    """Write the column as the stage does; return the seconds of the encoder."""
    run = RunDir(root)
    numbered, states = run.unit(CAPTIONS), run.unit(caption_states_key("000"))
    states.mkdir(parents=True)
    with Spool(root) as spool:
        spool.append({CAPTION: texts})
        spool.write(root / "texts.h5")
    columns = {TRAIN: TextColumn(CAPTION, {root / "texts.h5": len(texts)})}
    files = numbered / CAPTIONS_FILE, lambda split: numbered / numbers_file(split)
    made = write_distinct(columns, *files, lambda done: None)
    index = {"captions": made, "samples": {TRAIN: len(texts)}, "ranges": {"000": (0, made)}}
    atomic.write_json(numbered / INDEX, index)
    sentences = SentenceEncoder(condition.text_encoder, TOKENS)
    column = TextColumn(CAPTION, {numbered / CAPTIONS_FILE: made})
    started = time.perf_counter()
    with Spool(root) as spool:
        for block in split_into_blocks(range(made), 512):
            spool.append({STATES: encode(sentences, column.gather(block), torch.device("cpu"))})
        spool.write(states / STATES_FILE)
    seconds = time.perf_counter() - started
    expected = flatten(text_states_settings(SimpleNamespace(condition=condition)))
    manifest.publish(states, Manifest(*caption_states_key("000").split("/"), expected, {}, []))
    return seconds


def _rate(condition: conditions.Condition, reader: ArrayReader, order: np.ndarray) -> float:
    started = time.perf_counter()
    for rows in split_into_blocks(order, BATCH):
        condition.to_batch(reader, rows, torch.zeros(len(rows), dtype=torch.bool))
    return len(order) / (time.perf_counter() - started)


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--distinct", type=int, default=4000, help="captions that are read by each way")
    given = parser.parse_args()
    torch.set_num_threads(1)
    reading(given.encoder, given.distinct)


if __name__ == "__main__":
    main()
