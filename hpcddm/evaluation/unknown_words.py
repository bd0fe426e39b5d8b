"""Words of prompts that no training caption has: the networks can only guess what they mean."""

from collections.abc import Sequence

import numpy as np

from hpcddm.config.experiment import Experiment
from hpcddm.data.run_samples import open_catalog
from hpcddm.errors import UserError
from hpcddm.errors.printing import printable
from hpcddm.evaluation.concepts.tokenise import is_word, tokens
from hpcddm.runs.ranges import TRAIN
from hpcddm.runs.run_dir import RunDir

CAPTIONS = 50_000
"""Most training captions that are read, which takes about a second; of more, these are evenly spread."""


def describe_unknown_words(experiment: Experiment, run: RunDir, prompts: Sequence[str]) -> str | None:
    """Return a sentence about the words of some prompts that no training caption has.

    Args:
        experiment: Experiment of the run.
        run: Folder of the run.
        prompts: Prompts to draw images of.

    Returns:
        The sentence; None if all words occur, or the captions cannot be read here.
    """
    words = dict.fromkeys(token for prompt in prompts for token in tokens(prompt) if is_word(token))
    captions, count = _training_captions(experiment, run) if words else ([], 0)
    known = {token for caption in captions for token in tokens(caption)}
    unknown = [word for word in words if word not in known]
    if not captions or not unknown:
        return None
    read = f"{len(captions):,} of {count:,}" if len(captions) < count else f"all {count:,}"
    return f"no training caption has {printable(', '.join(unknown))} ({read} were read): images may not show it"


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
