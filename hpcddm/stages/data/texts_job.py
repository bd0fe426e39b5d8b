"""Stage texts: the states of the tokens of a range of the distinct captions, as a column without padding."""

import numpy as np
import torch

from hpcddm.config.experiment import Experiment
from hpcddm.config.text_encoders import TextEncoderSettings
from hpcddm.data.captions import CAPTION, STATES
from hpcddm.data.catalog import blocks_of
from hpcddm.data.column_files import Spool
from hpcddm.data.columns import TextColumn
from hpcddm.diffusion.conditions.sentences import Sentences, require_finite
from hpcddm.files import reading
from hpcddm.jobs.devices import own_device
from hpcddm.jobs.unit import Result, Unit
from hpcddm.runs.files import CAPTIONS_FILE, INDEX, STATES_FILE
from hpcddm.runs.results import Index
from hpcddm.runs.unit_keys import CAPTIONS
from hpcddm.stages.data.texts import CAPTIONS_AT_ONCE, captions_of_unit
from hpcddm.stages.workload import TEXT_ENCODER, Work, Workload

ENCODED_AT_ONCE = 64


def run(settings: Experiment, unit: Unit) -> Result:
    """Encode the captions of one range."""
    index: Index = reading.need_json(unit.input(CAPTIONS, INDEX), Index)
    start, stop = index.ranges[unit.name]
    encoder, (tokens, _) = _encoder(settings), settings.data.condition.shape
    device = own_device(unit) if encoder.uses_gpu else torch.device("cpu")
    captions = TextColumn(CAPTION, {unit.input(CAPTIONS, CAPTIONS_FILE): index.captions})
    sentences, count = Sentences(encoder, tokens), 0
    with Spool(unit.folder) as spool:
        for block in blocks_of(range(start, stop), CAPTIONS_AT_ONCE):
            unit.stop_if_requested()
            states = encoded(sentences, captions.gather(block), device)
            for own in states:
                require_finite(torch.from_numpy(own), encoder.name)
            spool.append({STATES: states})
            count += sum(map(len, states))
            unit.heartbeat.beat(block.stop - start, stop - start)
        spool.write(unit.folder / STATES_FILE)
    return Result([STATES_FILE], {"captions": stop - start, "tokens": count})


def work(workload: Workload, key: str) -> list[Work]:
    """List the encoder's run on one range."""
    count = captions_of_unit(workload.settings, workload.counts)
    return [Work(TEXT_ENCODER, False, count, ENCODED_AT_ONCE)]


def encoded(sentences: Sentences, captions: list[str], device: torch.device) -> list[np.ndarray]:
    """Compute the states (l, d) of each of some captions, float16; those of like length are encoded together."""
    tokens = sentences.tokenised(captions)
    lengths = (tokens >= 0).sum(dim=1)
    states: list[np.ndarray] = [np.empty(0)] * len(captions)
    for places in lengths.argsort(stable=True).split(ENCODED_AT_ONCE):
        # Without what is padding in all of them.
        own = tokens[places, : int(lengths[places].max())]
        made = sentences.states(own.to(device)).cpu()
        for place, of_caption in zip(places.tolist(), made, strict=True):
            states[place] = of_caption[of_caption.any(dim=1)].numpy()
    return states


def _encoder(settings: Experiment) -> TextEncoderSettings:
    encoder = settings.data.condition.text_encoder
    if encoder is None:
        raise ValueError("data.condition: nothing is encoded")
    return encoder
