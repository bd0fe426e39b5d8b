"""Stage encode_captions: the distinct captions of both splits; the states of the tokens of a range of them."""

import numpy as np
import torch

from hpcddm.config.conditions import TextEncoderSettings
from hpcddm.config.experiment import Experiment
from hpcddm.data import run_samples
from hpcddm.data.catalog import split_into_blocks
from hpcddm.data.column_files import Spool
from hpcddm.data.columns import TextColumn
from hpcddm.data.distinct_captions import CAPTION, NUMBER_TYPE, STATES, write_distinct
from hpcddm.diffusion.conditions.sentence_encoder import SentenceEncoder, require_finite
from hpcddm.errors import require
from hpcddm.files import atomic, checked_reads
from hpcddm.jobs.devices import choose_device
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import CAPTIONS_FILE, INDEX, STATES_FILE, numbers_file
from hpcddm.runs.ranges import SPLITS
from hpcddm.runs.result_types import CaptionIndex
from hpcddm.runs.unit_keys import CAPTIONS, unit_name
from hpcddm.stages.data.encode_captions import CAPTIONS_AT_ONCE, captions_of_unit, states_keys
from hpcddm.stages.progress import advance
from hpcddm.stages.workload import TEXT_ENCODER, Work, Workload

ENCODED_AT_ONCE = 64


def run(experiment: Experiment, unit: Unit) -> Result:
    """Number the distinct captions, or encode those of one range."""
    return _number(experiment, unit) if unit.key == CAPTIONS else _encode(experiment, unit)


def work(workload: Workload, key: str) -> list[Work]:
    """List the encoder's run on one range."""
    if key == CAPTIONS:
        return []
    count = captions_of_unit(workload.experiment, workload.counts)
    return [Work(TEXT_ENCODER, False, count, ENCODED_AT_ONCE)]


def _number(experiment: Experiment, unit: Unit) -> Result:
    """Number the distinct captions, and divide them into ranges that are encoded each by a unit."""
    catalogs = {split: run_samples.open_unit_catalog(unit, split) for split in SPLITS}
    for split, catalog in catalogs.items():
        require(
            catalog.has(CAPTION),
            f"data.condition: the {split} images have no captions; say where they are in data.source, or take another"
            " condition",
        )
    total = sum(map(len, catalogs.values()))
    require(total <= 1 << 8 * NUMBER_TYPE.itemsize, f"data: {total} samples are too many for captions of one run")

    columns = {split: catalog.texts(CAPTION) for split, catalog in catalogs.items()}
    count = write_distinct(
        columns,
        unit.folder / CAPTIONS_FILE,
        lambda split: unit.folder / numbers_file(split),
        lambda done: advance(unit, done, total),
    )
    names = [unit_name(key) for key in states_keys(experiment)]
    described = {"captions": count, "samples": {split: len(own) for split, own in catalogs.items()}}
    atomic.write_json(unit.folder / INDEX, described | {"ranges": ranges(count, names)})
    print(f"{count} different captions of {total} samples", flush=True)
    return Result([CAPTIONS_FILE, INDEX, *map(numbers_file, catalogs)], described)


def ranges(count: int, names: list[str]) -> dict[str, tuple[int, int]]:
    """Divide captions into ranges of whole blocks, so that the batches of the encoder do not depend on the ranges."""
    blocks = -(-count // CAPTIONS_AT_ONCE)
    edges = [min(blocks * part // len(names) * CAPTIONS_AT_ONCE, count) for part in range(len(names) + 1)]
    return {name: (edges[part], edges[part + 1]) for part, name in enumerate(names)}


def _encode(experiment: Experiment, unit: Unit) -> Result:
    """Encode the captions of one range."""
    index: CaptionIndex = checked_reads.read_required_json(unit.input(CAPTIONS, INDEX), CaptionIndex)
    start, stop = index.ranges[unit.name]
    encoder, (tokens, _) = _encoder(experiment), experiment.data.condition.shape
    device = choose_device(unit) if encoder.uses_gpu else torch.device("cpu")
    captions = TextColumn(CAPTION, {unit.input(CAPTIONS, CAPTIONS_FILE): index.captions})
    sentences, count = SentenceEncoder(encoder, tokens), 0
    with Spool(unit.folder) as spool:
        for block in split_into_blocks(range(start, stop), CAPTIONS_AT_ONCE):
            unit.stop_if_requested()
            states = encode(sentences, captions.gather(block), device)
            for own in states:
                require_finite(torch.from_numpy(own), encoder.name)
            spool.append({STATES: states})
            count += sum(map(len, states))
            unit.heartbeat.beat(block.stop - start, stop - start)
        spool.write(unit.folder / STATES_FILE)
    return Result([STATES_FILE], {"captions": stop - start, "tokens": count})


def encode(sentences: SentenceEncoder, captions: list[str], device: torch.device) -> list[np.ndarray]:
    """Compute the states (l, d) of each of some captions, float16; those of like length are encoded together."""
    tokens = sentences.tokenise(captions)
    lengths = (tokens >= 0).sum(dim=1)
    states: list[np.ndarray] = [np.empty(0)] * len(captions)
    for places in lengths.argsort(stable=True).split(ENCODED_AT_ONCE):
        # Without the positions that are padding in all captions.
        own = tokens[places, : int(lengths[places].max())]
        made = sentences.states(own.to(device)).cpu()
        for place, of_caption in zip(places.tolist(), made, strict=True):
            states[place] = of_caption[of_caption.any(dim=1)].numpy()
    return states


def _encoder(experiment: Experiment) -> TextEncoderSettings:
    encoder = experiment.data.condition.text_encoder
    if encoder is None:
        raise ValueError("data.condition: nothing is encoded")
    return encoder
