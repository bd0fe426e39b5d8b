"""Head of the lit-score: two linear maps over frozen features, of images and of names, into one space.

There the cosine says how well an image fits a name (the image tower locked as in arXiv 2111.07991, here both).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float16, Float32
from torch import Tensor, nn

from hpcddm.evaluation.concepts.taggers.pairs import BalancedOrder, TrainingPairs
from hpcddm.randomness import keyed
from hpcddm.randomness.streams import MAP_SCALE

FOR_SCALE = 20_000
"""Images by which features are scaled, at most."""


@dataclass(frozen=True)
class HeadTraining:
    """Settings of the training of a head, and the device on which it is done."""

    width: int
    images: int
    batch: int
    learning_rate: float
    weight_decay: float
    temperature: float
    device: torch.device


@dataclass(frozen=True)
class Head:
    """Trained head: the map of image features, as `mapped` takes it, and the unit vectors of all names."""

    image: Float32[np.ndarray, "w f"]
    names: Float32[np.ndarray, "v w"]


class LinearMap(nn.Module):
    """Linear map from centred and scaled features to unit vectors."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, features: Float32[Tensor, "n d"], width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features.shape[1], width)
        self.register_buffer("mean", features.mean(0))
        # A feature that never changes says nothing, and stays zero.
        self.register_buffer("deviation", features.std(0, correction=0).clamp_min(1e-6))

    def forward(self, features: Float32[Tensor, "n d"]) -> Float32[Tensor, "n w"]:
        return F.normalize(self.linear((features - self.mean) / self.deviation), dim=1)

    def folded(self) -> Float32[Tensor, "w e"]:
        """Return the map of features that are neither centred nor scaled; its last column is the bias."""
        weight = self.linear.weight / self.deviation
        return torch.cat([weight, (self.linear.bias - weight @ self.mean)[:, None]], 1)


def train_head(
    features: Float16[np.ndarray, "n d"],
    names: Float32[Tensor, "v e"],
    pairs: TrainingPairs,
    training: HeadTraining,
    seed: int,
    stream: str,
    advance: Callable[[int], None],
) -> Head:
    """Train a head on pairs of images and names.

    The loss is the cross-entropy of a softmax of cosine / temperature over the names that occur in the pairs, without
    the others of the same image. Every name is trained as often as the others. advance: called with the number of
    images seen; it may raise.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        scaled = np.unique(pairs.rows)
        scaled = scaled[np.sort(keyed.random_subset(seed, f"{stream}/{MAP_SCALE}", len(scaled), FOR_SCALE))]
        image = LinearMap(_rows(features, scaled, torch.device("cpu")), training.width).to(training.device)
        text = LinearMap(names, training.width).to(training.device)
    order = BalancedOrder(pairs, seed, stream)
    own_names = names[torch.from_numpy(order.concepts)].to(training.device)
    steps = -(-training.images // training.batch)
    # Linear maps overfit small sets of images, unless they decay fast.
    trained = [*image.parameters(), *text.parameters()]
    optimiser = torch.optim.AdamW(trained, training.learning_rate, weight_decay=training.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(steps):
        rows, right = order.at(range(step * training.batch, (step + 1) * training.batch))
        logits = image(_rows(features, rows, training.device)) @ text(own_names).T / training.temperature
        others_hidden = _without_others(logits, rows, right, pairs, order)
        loss = F.cross_entropy(others_hidden, torch.from_numpy(right).to(logits.device))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        advance(min((step + 1) * training.batch, training.images))
    with torch.no_grad():
        return Head(image.folded().cpu().numpy(), text(names.to(training.device)).cpu().numpy())


def map_features(
    weights: Float32[np.ndarray, "w f"], features: Float32[np.ndarray, "n d"]
) -> Float32[np.ndarray, "n w"]:
    """Map features of images by the map of a head, to unit vectors."""
    vectors = features @ weights[:, :-1].T + weights[:, -1]
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _rows(features: Float16[np.ndarray, "n d"], rows: np.ndarray, device: torch.device) -> Float32[Tensor, "m d"]:
    return torch.from_numpy(features[rows]).to(device).float()


def _without_others(
    logits: Float[Tensor, "n v"], rows: np.ndarray, right: np.ndarray, pairs: TrainingPairs, order: BalancedOrder
) -> Float[Tensor, "n v"]:
    """Set the logits of the other names of each image to minus infinity: they are not wrong."""
    places, concepts = pairs.of_rows(rows)
    columns = np.searchsorted(order.concepts, concepts)
    is_other = columns != right[places]
    mask = torch.zeros(logits.shape, dtype=torch.bool)
    mask[torch.from_numpy(places[is_other]), torch.from_numpy(columns[is_other])] = True
    return logits.masked_fill(mask.to(logits.device), -torch.inf)
