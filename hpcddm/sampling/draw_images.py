"""Samples of a run: those that a unit of a stage draws, and those of a finished run, for Python and the verb sample."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int, Integer, UInt8
from torch import Tensor

from hpcddm.config.experiment import Experiment
from hpcddm.data import samples as sample_lists
from hpcddm.data.catalog import Catalog, open_catalog
from hpcddm.data.columns import Numbers
from hpcddm.data.reader import TarReader
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.diffusion.spaces.base import space_of
from hpcddm.errors import UserError
from hpcddm.jobs.devices import current_device, own_device
from hpcddm.jobs.unit import Unit
from hpcddm.runs.layout import RunDir
from hpcddm.runs.ranges import HELDOUT
from hpcddm.runs.stored_results import stored_class_names
from hpcddm.runs.weights_files import chosen as chosen_weights
from hpcddm.sampling import load_ensemble
from hpcddm.sampling.denoiser import Condition
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.sampler import sample


class UnitDrawing:
    """Draws samples in a unit of a stage, by the networks that the unit reads, with conditions of held-out images."""

    def __init__(self, settings: Experiment, unit: Unit) -> None:
        self._settings = settings
        self.device = own_device(unit, uses_all=settings.evaluate.placement.uses_all_gpus)
        weights = chosen_weights(settings)
        self.ensemble = load_ensemble.load_ensemble(settings, unit.run.unit, unit.inputs, self.device, weights)
        self.space, self.condition = space_of(settings.data, unit.input), conditions.build(settings.data, unit.input)
        self.reader = sample_lists.reader(unit, HELDOUT)

    def conditions_and_clusters(self, shown: Numbers) -> tuple[Condition, Int[Tensor, " n"]]:
        """Read conditions and clusters of held-out images, onto the device of the networks."""
        return self.condition.of(self.reader, shown).to(self.device), self.reader.clusters(shown).to(self.device)

    def draw(
        self, arm: str, rows: range, shown: Numbers
    ) -> tuple[UInt8[np.ndarray, "n h w c"], Float64[Tensor, "steps k"]]:
        """Draw images, and return the usage of the experts in every step: their weights, summed over the images.

        rows: numbers of the samples, which with the experiment's seed determine their noise, the same in every arm.
        shown: held-out images that have the conditions and, for the oracle, the clusters.
        """
        settings, (asked, clusters) = self._settings, self.conditions_and_clusters(shown)
        field = self.ensemble.field(arm, settings.evaluate, clusters)
        x = sample(field, settings.seed, rows, asked, self.space, settings.evaluate)
        return self.space.to_images(x), torch.stack(field.usage).double()


@dataclass(frozen=True)
class ImageRequest:
    """Images to draw: of some classes in turn, of some sentences in turn, or like those of the evaluation set."""

    count: int
    classes: Sequence[int] = ()
    prompts: Sequence[str] = ()


def draw(
    settings: Experiment,
    run: RunDir,
    ensemble: Ensemble,
    arm: str,
    is_oracle: bool,
    request: ImageRequest,
    seed: int,
    advance: Callable[[int], object],
) -> UInt8[np.ndarray, "n h w c"]:
    """Draw images in the batches of the evaluation.

    is_oracle: True for the arm that reads the clusters. It takes for image i the cluster of the i-th held-out image of
    its class, or of the i-th of the evaluation set, and the router's probabilities where that cluster's expert is
    missing. advance: called with the number of images of every batch.
    """
    evaluate, space, device = settings.evaluate, space_of(settings.data, run.output), current_device()
    condition_of_each, clusters = _conditions_and_clusters(settings, run, request, is_oracle)
    blocks = []
    for start in range(0, request.count, evaluate.batch):
        rows = range(start, min(start + evaluate.batch, request.count))
        block = slice(rows.start, rows.stop)
        own_clusters = None if clusters is None else clusters[block].to(device)
        field = ensemble.field(arm, evaluate, own_clusters)
        blocks.append(space.to_images(sample(field, seed, rows, condition_of_each[block].to(device), space, evaluate)))
        advance(len(rows))
    return np.concatenate(blocks)


def _conditions_and_clusters(
    settings: Experiment, run: RunDir, request: ImageRequest, is_oracle: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Make the conditions of the images and, for the oracle, their clusters (N,), which a sentence does not have."""
    condition, numbers = conditions.build(settings.data, run.output), range(request.count)
    if request.prompts:
        return condition.of_prompts([request.prompts[number % len(request.prompts)] for number in numbers]), None
    names, catalog = stored_class_names(settings, run), open_catalog(run, HELDOUT)
    if request.classes:
        classes = [request.classes[number % len(request.classes)] for number in numbers]
        return condition.of_classes(classes), _oracle_clusters(catalog, classes, names) if is_oracle else None
    chosen, reader = sample_lists.evaluation_numbers(catalog, settings, names), TarReader(catalog)
    shown = np.resize(chosen, request.count)
    clusters = sample_lists.clusters(catalog).gather(shown).astype(np.int64) if is_oracle else None
    return condition.of(reader, shown), None if clusters is None else torch.from_numpy(clusters)


def _oracle_clusters(catalog: Catalog, classes: Sequence[int], names: Sequence[str]) -> torch.Tensor:
    every = range(len(catalog))
    labels, clusters = catalog.column("label").gather(every), sample_lists.clusters(catalog).gather(every)
    return torch.from_numpy(oracle_clusters(labels, clusters, classes, names))


def oracle_clusters(
    labels: Int[np.ndarray, " n"], clusters: Integer[np.ndarray, " n"], classes: Sequence[int], names: Sequence[str]
) -> np.ndarray:
    """Take for each class the cluster of the next held-out image of that class, cyclically: int64 (N,).

    labels, clusters: of all held-out images; names: of all classes. Raises `UserError` naming a class that has no
    held-out image.
    """
    of_class = {label: clusters[labels == label] for label in set(classes)}
    for label, own in sorted(of_class.items()):
        if not len(own):
            raise UserError(
                f"the oracle needs a held-out image of class {names[label]}, there is none;"
                " take another --class or --strategy"
            )
    taken = dict.fromkeys(of_class, 0)
    chosen = []
    for label in classes:
        chosen.append(int(of_class[label][taken[label] % len(of_class[label])]))
        taken[label] += 1
    return np.array(chosen, dtype=np.int64)
