"""Encoder states of the captions of a run's samples, memory-mapped; the stage encode_captions computes them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float16
from torch import Tensor

from hpcddm.config.data_shapes import NetworkData, text_states_settings
from hpcddm.data.columns import Column, RaggedColumn
from hpcddm.data.distinct_captions import NUMBER, STATES
from hpcddm.errors import UserError
from hpcddm.files import checked_reads
from hpcddm.runs import manifest
from hpcddm.runs.files import INDEX, STATES_FILE, numbers_file
from hpcddm.runs.result_types import CaptionIndex
from hpcddm.runs.run_dir import Locate
from hpcddm.runs.unit_keys import CAPTIONS, caption_states_key


class CaptionStates:
    """Encoder states of captions by sample number, read from disk on demand.

    Args:
        data: Properties of the data, with the settings of the condition.
        locate: Function that locates the outputs of units.

    Raises:
        UserError: A unit is incomplete or used another encoder, or a file is damaged.
    """

    def __init__(self, data: NetworkData, locate: Locate) -> None:
        self._shape = data.condition.shape
        index: CaptionIndex | None = checked_reads.read_json(locate(CAPTIONS, INDEX), CaptionIndex)
        if index is None:
            folder = locate(CAPTIONS, INDEX).parent
            raise UserError(f"{folder}: the distinct captions are not complete; submit the run again")
        self._numbers = {
            split: Column(NUMBER, {locate(CAPTIONS, numbers_file(split)): count})
            for split, count in index.samples.items()
        }
        expected = manifest.flatten(text_states_settings(data))
        parts = {}
        for name, (start, stop) in index.ranges.items():
            path = locate(caption_states_key(name), STATES_FILE)
            if start < stop:
                _require_settings(expected, path.parent)
                parts[path] = stop - start
        self._states = RaggedColumn(STATES, parts)

    def of(self, split: str, numbers: Sequence[int] | np.ndarray) -> Float16[Tensor, "n l d"]:
        """Copy the states of the captions of some samples.

        Args:
            split: Split of the samples, such as 'train'.
            numbers: (N,) numbers of the samples in the split.

        Returns:
            (N, L, D) float16 states, padded with rows of zeros.
        """
        return torch.from_numpy(self._states.gather(self._numbers[split].gather(numbers), self._shape[0]))


def _require_settings(expected: dict[str, Any], folder: Path) -> None:
    stored = manifest.read(folder)
    if stored is None:
        raise UserError(f"{folder}: the states of captions are not complete; submit the run again")
    if stored.settings != expected:
        there, here = (
            ", ".join(f"{key} {value}" for key, value in settings.items()) for settings in (stored.settings, expected)
        )
        raise UserError(
            f"{folder}: states of another encoder ({there}), the experiment has {here}; submit the run again, which"
            " computes them again"
        )
