"""Words of prompts that no training caption has: the networks can only guess what they mean."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpcddm.config.experiment import Experiment
from hpcddm.data.run_samples import open_catalog
from hpcddm.errors import UserError
from hpcddm.errors.printing import printable
from hpcddm.evaluation.concepts.tokenise import is_word, tokens
from hpcddm.runs.ranges import TRAIN
from hpcddm.runs.run_dir import RunDir

CAPTIONS = 50_000
"""Most training captions that are read; of more, these are evenly spread."""


@dataclass(frozen=True)
class CaptionWords:
    """Words of the training captions of a run; none where the captions cannot be read."""

    words: frozenset[str]
    read: int
    """Number of captions that were read."""
    captions: int
    """Number of captions."""

    def describe_unknown(self, prompts: Sequence[str]) -> str | None:
        """Return a sentence about the words of some prompts that no caption that was read has; None without any."""
        words = dict.fromkeys(token for prompt in prompts for token in tokens(prompt) if is_word(token))
        unknown = [word for word in words if word not in self.words]
        if not self.read or not unknown:
            return None
        read = f"all {self.captions:,}" if self.read == self.captions else f"{self.read:,} of {self.captions:,}"
        return f"{printable(', '.join(unknown))}: in none of the training captions ({read} were read)"


def read_caption_words(experiment: Experiment, run: RunDir) -> CaptionWords:
    """Read the words of the training captions of a run, or of its classes' prompts.

    Args:
        experiment: Experiment of the run.
        run: Folder of the run.
    """
    captions, count = _training_captions(experiment, run)
    return CaptionWords(frozenset(word for text in captions for word in tokens(text)), len(captions), count)


def _training_captions(experiment: Experiment, run: RunDir) -> tuple[Sequence[str], int]:
    """Return captions of the training images, and how many there are; no captions where they cannot be read."""
    condition = experiment.data.condition
    if not condition.reads_captions:
        of_classes = getattr(condition, "prompts", None) or []
        return of_classes, len(of_classes)
    try:
        catalog = open_catalog(run, TRAIN)
        numbers = np.unique(np.linspace(0, len(catalog) - 1, min(len(catalog), CAPTIONS)).astype(np.int64))
        return catalog.texts("caption").gather(numbers), len(catalog)
    except UserError:
        return [], 0
