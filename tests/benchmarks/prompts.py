"""Do samples show what was asked for? python -m tests.benchmarks.prompts RUN [STRATEGY ...] [--each 2]

A lit-score (`tests.benchmarks.lit_score`) looks at every image and chooses among 32 captions, its own and 31 others,
half of them of the same class, such as Unicode's group of an emoji. It is trained on the run's real images but those
whose captions are asked for here: `unseen` are the held-out images' captions, which no network has seen; `seen` as many
captions of training images, which the denoisers have seen and the lit-score has not. RUN needs captions, classes in its
tars, features of its images (`encode`), and heldout: {by: name}, else hardly a caption is unseen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped

import hpcddm
from hpcddm.api import Run
from hpcddm.config import variants
from hpcddm.data.run_samples import FEATURE
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.encoders.text.base import TextEncoder
from hpcddm.errors import UserError
from tests.benchmarks.lit_score import LitScore, candidates, is_first, train
from tests.benchmarks.tables import parser_of, print_header, print_row, run_main

CHOICES = 32
Z = 1.96
"""Standard deviations of a normal distribution that hold 95 % of it."""


@dataclass(frozen=True)
class Real:
    """Real images of a split: features, and numbers of their captions among all distinct ones."""

    features: Float[torch.Tensor, "n d"]
    captions: Int[np.ndarray, " n"]


@dataclass(frozen=True)
class Pool:
    """Captions that are asked for, their groups, and the real images that have them."""

    name: str
    captions: list[str]
    groups: list[int]
    sentences: Float[torch.Tensor, "m e"]
    real: Real


def pools(run: Run, seed: int) -> tuple[LitScore, list[Pool]]:
    """Train a lit-score on what is left when the captions that are asked for are taken away; return it with these."""
    train_split, heldout_split = (_read(run, split) for split in ("train", "heldout"))
    known = set(train_split[1])
    unseen = sorted(set(heldout_split[1]) - known)
    seen = sorted(np.random.default_rng(seed).choice(sorted(known), min(len(unseen), len(known) // 2), replace=False))
    if min(len(unseen), len(seen)) < CHOICES:
        raise UserError(f"{len(unseen)} captions of held-out images are new: fewer than {CHOICES}; hold out by name")
    rest = sorted(known - set(seen))
    sentences = _sentences(run, rest)
    chosen = _real(train_split, rest)
    score = train(chosen.features, chosen.captions, sentences, seed)
    asked = {"seen": (train_split, seen), "unseen": (heldout_split, unseen)}
    return score, [
        Pool(name, captions, _groups(split, captions), _sentences(run, captions), _real(split, captions))
        for name, (split, captions) in asked.items()
    ]


def measure(run: Run, strategies: Sequence[str], each: int, seed: int) -> Iterator[list[object]]:
    """Yield the rows of real images, samples of every strategy, and samples with the captions of others, of both pools.

    A row has the share of images that choose their own caption, and by how much its cosine exceeds that of others.
    """
    score, asked = pools(run, seed)
    encoder = variants.create(ImageEncoder, run.experiment.encode.encoder)
    for pool in asked:
        yield _row("real images", pool, score, pool.real, seed)
    for arm, pool in product(strategies, asked):
        count = len(pool.captions)
        images = run.sample(each * count, arm, prompts=pool.captions, seed=seed)
        features, numbers = torch.from_numpy(encoder.encode(images)), np.arange(len(images)) % count
        yield _row(arm, pool, score, Real(features, numbers), seed)
        others = (numbers + np.random.default_rng(seed).integers(1, count, len(numbers))) % count
        yield _row(f"{arm}, captions of others", pool, score, Real(features, others), seed)


def _row(arm: str, pool: Pool, score: LitScore, images: Real, seed: int) -> list[object]:
    scores = score.scores(images.features, pool.sentences)
    right = is_first(scores, candidates(images.captions, pool.groups, CHOICES, seed))
    own = scores[torch.arange(len(scores)), torch.from_numpy(images.captions)]
    margin = (own - (scores.sum(1) - own) / (scores.shape[1] - 1)).numpy()
    share = f"{right.mean():.1%} +- {_interval(right, images.captions):.1%}"
    more = f"{margin.mean():.3f} +- {_interval(margin, images.captions):.3f}"
    return [arm, pool.name, len(right), share, f"{own.mean():.3f}", more]


def _interval(values: Shaped[np.ndarray, " n"], captions: Int[np.ndarray, " n"]) -> float:
    """Return half the 95 % interval of a mean over captions, for images of one caption are no independent trials."""
    of_caption = np.array([values[captions == number].mean() for number in np.unique(captions)])
    return float(Z * of_caption.std(ddof=1) / len(of_caption) ** 0.5)


def _read(run: Run, split: str) -> tuple[torch.Tensor, list[str], torch.Tensor]:
    """Return features, captions and classes of a split."""
    reader = run.data(split)
    every = range(len(reader))
    return reader.column(FEATURE, every), reader.column("caption", every), reader.column("label", every)


def _real(split: tuple[torch.Tensor, list[str], torch.Tensor], captions: Sequence[str]) -> Real:
    """Choose the images that have one of some captions."""
    number = {caption: place for place, caption in enumerate(captions)}
    rows = [row for row, caption in enumerate(split[1]) if caption in number]
    return Real(split[0][rows].float(), np.array([number[split[1][row]] for row in rows]))


def _groups(split: tuple[torch.Tensor, list[str], torch.Tensor], captions: Sequence[str]) -> list[int]:
    group = dict(zip(reversed(split[1]), reversed(split[2].tolist()), strict=True))
    return [group[caption] for caption in captions]


@torch.no_grad()
def _sentences(run: Run, captions: Sequence[str]) -> Float[torch.Tensor, "m e"]:
    """Compute the mean of the states of each caption's tokens, of length one."""
    encoder = variants.create(TextEncoder, run.experiment.data.condition.encoder)
    return F.normalize(torch.stack([encoder.encode(caption).mean(0) for caption in captions]), dim=1)


def main() -> None:
    """Print a row for each kind of images and captions."""
    parser = parser_of(__doc__)
    parser.add_argument("run")
    parser.add_argument("strategies", nargs="*")
    parser.add_argument("--each", type=int, default=2, help="samples per caption")
    parser.add_argument("--guidance", type=float, help="guidance scale; default: the run's")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    evaluation = {} if given.guidance is None else {"guidance": given.guidance}
    run = hpcddm.open(given.run, **evaluation)
    print_header("arm", "captions", "images", "right caption of 32", "lit-score", "more than that of other captions")
    for row in measure(run, given.strategies, given.each, given.seed):
        print_row(*row)
    print_row("chance", "", "", f"{1 / CHOICES:.1%}", "", "")


if __name__ == "__main__":
    run_main(main)
