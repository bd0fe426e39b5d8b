"""Stage route: the router p(cluster | x_t, t, class), trained on all clusters at their natural frequency."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from hpcddm import plugins
from hpcddm.config import Experiment, Training
from hpcddm.data import noise
from hpcddm.data.reader import TarReader, to_tensor
from hpcddm.models.flops import training_flops
from hpcddm.objectives import path
from hpcddm.runtime.unit import Result, Unit
from hpcddm.stages import samples as sample_lists
from hpcddm.training.corruption import Randomness
from hpcddm.training.loop import Batch, Task, load_weights, train

NOISE_LEVELS = tuple((level + 0.5) / 10 for level in range(10))
MEASURED_IMAGES = 1000


def run(settings: Experiment, unit: Unit, num_units: int) -> Result:
    """Train the router and measure its accuracy by noise level on held-out images."""
    samples = sample_lists.clustered(unit, "train")
    reader = sample_lists.reader(unit, "train", samples)
    training = router_training(settings)
    task = Task(unit.key, settings.seed, lambda: build(settings), _loss(settings, unit.key), reader)
    outputs = train(task, training, unit)
    facts = {"images": training.images, "train_flops": router_flops(settings)}
    if unit.ranks.rank == 0:
        heldout = sample_lists.clustered(unit, "heldout")[:MEASURED_IMAGES]
        router = load_weights(build(settings), unit.folder)
        facts |= _accuracy(settings, router, sample_lists.reader(unit, "heldout", heldout))
    return Result(outputs, facts)


def build(settings: Experiment) -> nn.Module:
    """A freshly initialised router."""
    model = settings.router.model
    return plugins.load("models", model.name).build(model, settings.data, settings.cluster.experts)


def router_training(settings: Experiment) -> Training:
    """The router's training in whole batches."""
    training = settings.router.training
    return training.model_copy(update={"images": math.ceil(training.images / training.batch) * training.batch})


def router_flops(settings: Experiment) -> int:
    """Training FLOPs of the router, which are on the ensemble's bill."""
    data = settings.data
    image = torch.zeros(1, data.channels, data.image_size, data.image_size)
    one = training_flops(build(settings), image, torch.zeros(1), torch.zeros(1, dtype=torch.long))
    return one * router_training(settings).images


def _loss(settings: Experiment, stream: str) -> Callable:
    """Cross-entropy of the cluster, the class dropped as in the experts' training (arXiv 2501.05450, alg. 1)."""
    randomness = Randomness(settings.seed, stream)
    dropout, null_class = settings.experts.condition_dropout, settings.data.num_classes

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        t = randomness.times(batch)
        classes = randomness.classes(batch, dropout, null_class)
        logits = model(path.linear(batch.x0, randomness.gaussian(batch), t), t, classes)
        return F.cross_entropy(logits, batch.clusters, reduction="none")

    return loss


@torch.no_grad()
def _accuracy(settings: Experiment, router: nn.Module, reader: TarReader) -> dict[str, list[float]]:
    """How often the most probable cluster is the right one, by noise level, with and without the class."""
    rows = range(len(reader))
    x0, labels, clusters = to_tensor(reader.images(rows)), reader.labels(rows), reader.clusters(rows)
    eps = noise.gaussian(settings.seed, "route/accuracy", rows, tuple(x0.shape[1:]))
    nobody = torch.full_like(labels, settings.data.num_classes)
    found: dict[str, list[float]] = {"noise_levels": list(NOISE_LEVELS), "accuracy": [], "accuracy_without_class": []}
    for level in NOISE_LEVELS:
        t = torch.full((len(x0),), level)
        for name, classes in (("accuracy", labels), ("accuracy_without_class", nobody)):
            guess = router(path.linear(x0, eps, t), t, classes).argmax(1)
            found[name].append((guess == clusters).float().mean().item())
    return found
