"""States of the captions of a run's samples, memory-mapped: the stages captions and texts have made them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float16
from torch import Tensor

from hpcddm.config.shapes import NetworkData, texts_settings
from hpcddm.data.captions import NUMBER, STATES
from hpcddm.data.columns import Column, RaggedColumn
from hpcddm.errors import UserError
from hpcddm.files import reading
from hpcddm.runs import manifest
from hpcddm.runs.files import INDEX, STATES_FILE, numbers_file
from hpcddm.runs.layout import Locate
from hpcddm.runs.results import Index
from hpcddm.runs.unit_keys import CAPTIONS


class CaptionStates:
    """States of captions by sample number; nothing is read before it is asked for.

    locate: finds the outputs of the two stages. Raises `UserError` naming the unit that is not complete, or whose
    states are of another encoder, or the file that is damaged.
    """

    def __init__(self, data: NetworkData, locate: Locate) -> None:
        self._shape = data.condition.shape
        index: Index | None = reading.read_json(locate(CAPTIONS, INDEX), Index)
        if index is None:
            folder = locate(CAPTIONS, INDEX).parent
            raise UserError(f"{folder}: the stage captions is not complete; submit the run again")
        self._numbers = {
            split: Column(NUMBER, {locate(CAPTIONS, numbers_file(split)): count})
            for split, count in index.samples.items()
        }
        expected = manifest.flatten(texts_settings(data))
        parts = {}
        for name, (start, stop) in index.ranges.items():
            path = locate(f"texts/{name}", STATES_FILE)
            if start < stop:
                _require_made_by(expected, path.parent)
                parts[path] = stop - start
        self._states = RaggedColumn(STATES, parts)

    def of(self, split: str, numbers: Sequence[int] | np.ndarray) -> Float16[Tensor, "n l d"]:
        """Copy the states of the captions of some samples of a split, with rows of zeros behind them."""
        return torch.from_numpy(self._states.gather(self._numbers[split].gather(numbers), self._shape[0]))


def _require_made_by(expected: dict[str, Any], folder: Path) -> None:
    made = manifest.read(folder)
    if made is None:
        raise UserError(f"{folder}: the states of captions are not complete; submit the run again")
    if made.settings != expected:
        there, here = (", ".join(f"{key} {value}" for key, value in own.items()) for own in (made.settings, expected))
        raise UserError(
            f"{folder}: states of another encoder ({there}), the experiment has {here}; submit the run again, which"
            " makes them anew"
        )
