"""lit-score: how well an image fits a caption, by two linear maps over frozen encoders.

The maps end in one space, where the cosine of an image and its caption is trained by InfoNCE to be the largest among
those of a batch, from both sides (arXiv 1807.03748, eq. 4; on frozen encoders, arXiv 2111.07991). It is no CLIPScore:
its encoders have seen neither captions of images nor each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

WIDTH = 256
TEMPERATURE = 0.07
"""Temperature of the softmax at the start; it is trained."""


@dataclass(frozen=True)
class Training:
    """Settings of the two maps' training; a batch has one image of each of so many captions."""

    epochs: int = 40
    batch: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 0.1


class LitScore(nn.Module):
    """Two linear maps, from centred and scaled image features and sentence features to one space."""

    def __init__(self, images: Float[Tensor, "n d"], sentences: Float[Tensor, "m e"]) -> None:
        super().__init__()
        self.image, self.text = (nn.Linear(rows.shape[1], WIDTH) for rows in (images, sentences))
        self.log_scale = nn.Parameter(torch.tensor(1 / TEMPERATURE).log())
        for name, rows in {"image": images, "text": sentences}.items():
            self.register_buffer(f"{name}_mean", rows.mean(0))
            self.register_buffer(f"{name}_deviation", rows.std(0) + 1e-6)

    def of_images(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n w"]:
        """Map image features to unit vectors."""
        return F.normalize(self.image((features - self.image_mean) / self.image_deviation), dim=1)

    def of_sentences(self, features: Float[Tensor, "n e"]) -> Float[Tensor, "n w"]:
        """Map sentence features to unit vectors."""
        return F.normalize(self.text((features - self.text_mean) / self.text_deviation), dim=1)

    @torch.no_grad()
    def scores(self, images: Float[Tensor, "n d"], sentences: Float[Tensor, "m e"]) -> Float[Tensor, "n m"]:
        """Compute the cosine of every image with every sentence."""
        return self.of_images(images) @ self.of_sentences(sentences).T


def train(
    images: Float[Tensor, "n d"],
    captions: Int[np.ndarray, " n"],
    sentences: Float[Tensor, "m e"],
    seed: int,
    training: Training = Training(),
) -> LitScore:
    """Train the maps on images and the numbers of their captions; an epoch takes one image of every caption."""
    torch.manual_seed(seed)
    model, draws = LitScore(images, sentences), np.random.default_rng(seed)
    order = np.argsort(captions, kind="stable")
    of_caption = np.split(order, np.flatnonzero(np.diff(captions[order])) + 1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, training.learning_rate, total_steps=training.epochs * -(-len(of_caption) // training.batch)
    )
    for _ in range(training.epochs):
        chosen = draws.permutation([draws.choice(own) for own in of_caption])
        for start in range(0, len(chosen), training.batch):
            rows = chosen[start : start + training.batch]
            own = model.of_images(images[rows])
            theirs = model.of_sentences(sentences[captions[rows]])
            logits, right = model.log_scale.exp() * own @ theirs.T, torch.arange(len(rows))
            loss = F.cross_entropy(logits, right) + F.cross_entropy(logits.T, right)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return model.eval().requires_grad_(False)


def candidates(
    right: Int[np.ndarray, " n"], groups: Sequence[int], count: int, seed: int
) -> Int[np.ndarray, "n {count}"]:
    """Draw other captions for each right one, which stands first; half of them are of its group, if there are so many.

    right: number of each image's caption; groups: of every caption. Raises ValueError for too few captions.
    """
    if len(groups) < count:
        raise ValueError(f"{len(groups)} captions, and an image is to choose among {count}")
    drawn, of_caption = np.random.default_rng(seed), np.asarray(groups)
    rows = []
    for number in right:
        others = drawn.permutation(np.delete(np.arange(len(groups)), number))
        is_alike = of_caption[others] == of_caption[number]
        alike = others[is_alike][: count // 2]
        rest = others[~is_alike][: count - 1 - len(alike)]
        # A group may be all but a few captions.
        more = others[is_alike][len(alike) : count - 1 - len(rest)]
        rows.append([number, *alike, *rest, *more])
    return np.array(rows)


def is_first(scores: Float[Tensor, "n m"], shown: Int[np.ndarray, "n k"]) -> Bool[np.ndarray, " n"]:
    """Tell of every image if its own caption, which stands first, has the largest score of those that it is shown."""
    own = torch.gather(scores, 1, torch.from_numpy(shown))
    return (own[:, 0] > own[:, 1:].amax(1)).numpy()
