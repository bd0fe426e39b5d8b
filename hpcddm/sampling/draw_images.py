"""Images, drawn in a unit of a stage or from trained networks, for Python and the verb sample."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float64, Int, Integer, UInt8
from torch import Tensor

from hpcddm.config.conditions import ConditionSettings
from hpcddm.config.experiment import Experiment
from hpcddm.config.sampling import EvaluateSettings
from hpcddm.config.spaces import SpaceSettings
from hpcddm.data import evaluation_set, run_samples
from hpcddm.data.catalog import Catalog, split_into_blocks
from hpcddm.data.columns import Numbers
from hpcddm.data.reader import CatalogReader
from hpcddm.data.run_samples import open_catalog
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.diffusion.spaces.base import Space, create_space
from hpcddm.errors import UserError
from hpcddm.jobs.devices import choose_device, current_device
from hpcddm.jobs.unit import Unit
from hpcddm.runs.ranges import HELDOUT
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_results import stored_class_names
from hpcddm.runs.weights_files import selected_weights
from hpcddm.sampling import load_ensemble
from hpcddm.sampling.denoiser_velocity import Condition
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.sampler import sample

T = TypeVar("T")


class UnitSampler:
    """Draws images in a unit of a stage, with the networks that the unit reads and conditions of held-out images.

    Args:
        experiment: Settings of the experiment.
        unit: Unit in which the images are drawn.
    """

    def __init__(self, experiment: Experiment, unit: Unit) -> None:
        self._experiment = experiment
        self.device = choose_device(unit, uses_all=experiment.evaluate.placement.uses_all_gpus)
        weights = selected_weights(experiment)
        self.ensemble = load_ensemble.load_ensemble(experiment, unit.run.unit, unit.inputs, self.device, weights)
        self.space = create_space(experiment.data, unit.input)
        self.condition = conditions.create_condition(experiment.data, unit.input)
        self.reader = run_samples.open_reader(unit, HELDOUT)

    def conditions_and_clusters(self, heldout_numbers: Numbers) -> tuple[Condition, Int[Tensor, " n"]]:
        """Read the conditions and clusters of held-out images, on the device of the networks.

        Args:
            heldout_numbers: (N,) numbers of held-out images.

        Returns:
            (N, ...) conditions and (N,) clusters.
        """
        condition = self.condition.of_samples(self.reader, heldout_numbers).to(self.device)
        return condition, self.reader.clusters(heldout_numbers).to(self.device)

    def draw(
        self, arm: str, sample_numbers: range, condition_numbers: Numbers
    ) -> tuple[UInt8[np.ndarray, "n h w c"], Float64[Tensor, "steps k"]]:
        """Draw images of one arm.

        Args:
            arm: Name of the arm, as in `Ensemble.field`.
            sample_numbers: Numbers of the images. With the experiment's seed they determine the noise, the same in
                every arm.
            condition_numbers: (N,) held-out images that supply the conditions and, for the oracle, the clusters.

        Returns:
            (N, H, W, C) uint8 images, and the usage of the experts (steps, K): their weights, summed over the images.
        """
        settings, (condition, clusters) = self._experiment, self.conditions_and_clusters(condition_numbers)
        field = self.ensemble.field(arm, settings.evaluate, clusters)
        x = sample(field, settings.seed, sample_numbers, condition, self.space, settings.evaluate)
        return self.space.to_images(x), torch.stack(field.usage).double()


@dataclass(frozen=True)
class ImageRequest:
    """Images to draw: of the classes in turn, of the sentences in turn, or with the evaluation set's conditions."""

    count: int
    classes: Sequence[int] = ()
    prompts: Sequence[str] = ()


@dataclass(frozen=True)
class RequestedConditions:
    """Conditions (N, ...) of requested images and, for the oracle, their clusters (N,)."""

    conditions: torch.Tensor
    clusters: Int[Tensor, " n"] | None = None


def draw(
    ensemble: Ensemble,
    arm: str,
    space: Space[SpaceSettings],
    evaluate: EvaluateSettings,
    requested: RequestedConditions,
    seed: int,
    advance: Callable[[int], object],
) -> UInt8[np.ndarray, "n h w c"]:
    """Draw images in the batches of the evaluation.

    Args:
        ensemble: Loaded networks.
        arm: Name of the arm, as in `Ensemble.field`.
        space: Space of x.
        evaluate: Settings of the sampler.
        requested: Conditions and clusters of the images.
        seed: Seed of the noise.
        advance: Function that receives the number of images of each finished batch.

    Returns:
        (N, H, W, C) uint8 images.
    """
    device, blocks = current_device(), []
    for rows in split_into_blocks(range(len(requested.conditions)), evaluate.batch):
        block = slice(rows.start, rows.stop)
        own_clusters = None if requested.clusters is None else requested.clusters[block].to(device)
        field = ensemble.field(arm, evaluate, own_clusters)
        x = sample(field, seed, rows, requested.conditions[block].to(device), space, evaluate)
        blocks.append(space.to_images(x))
        advance(len(rows))
    return np.concatenate(blocks)


def request_conditions(
    experiment: Experiment,
    run: RunDir,
    condition: conditions.Condition[ConditionSettings],
    request: ImageRequest,
    is_oracle: bool,
) -> RequestedConditions:
    """Compute the conditions of images of a run and, for the oracle, their clusters; sentences have none.

    Args:
        experiment: Settings of the experiment.
        run: Folder of the run.
        condition: Condition of its networks.
        request: Number of images, and their classes or sentences; by default those of the evaluation set.
        is_oracle: True for clusters: image i takes that of the i-th held-out image of its class, or of the i-th image
            of the evaluation set. If the expert of that cluster is missing, the router decides.

    Raises:
        UserError: The oracle needs a held-out image of a class that has none.
    """
    named = named_conditions(condition, request)
    if named is not None and (request.prompts or not is_oracle):
        return RequestedConditions(named)
    names, catalog = stored_class_names(experiment, run), open_catalog(run, HELDOUT)
    if named is not None:
        return RequestedConditions(named, _oracle_clusters(catalog, in_turn(request.classes, request.count), names))
    chosen, reader = evaluation_set.choose_condition_samples(catalog, experiment, names), CatalogReader(catalog)
    shown = np.resize(chosen, request.count)
    clusters = run_samples.clusters(catalog).gather(shown).astype(np.int64) if is_oracle else None
    return RequestedConditions(
        condition.of_samples(reader, shown), None if clusters is None else torch.from_numpy(clusters)
    )


def named_conditions(
    condition: conditions.Condition[ConditionSettings], request: ImageRequest
) -> conditions.Conditions | None:
    """Compute the conditions of the sentences or classes of a request; None if it names neither."""
    if request.prompts:
        return condition.of_prompts(in_turn(request.prompts, request.count))
    return condition.of_classes(in_turn(request.classes, request.count)) if request.classes else None


def in_turn(values: Sequence[T], count: int) -> list[T]:
    """Repeat values in turn until there are `count`."""
    return [values[number % len(values)] for number in range(count)]


def _oracle_clusters(catalog: Catalog, classes: Sequence[int], names: Sequence[str]) -> torch.Tensor:
    every = range(len(catalog))
    labels, clusters = catalog.column("label").gather(every), run_samples.clusters(catalog).gather(every)
    return torch.from_numpy(oracle_clusters(labels, clusters, classes, names))


def oracle_clusters(
    labels: Int[np.ndarray, " n"], clusters: Integer[np.ndarray, " n"], classes: Sequence[int], names: Sequence[str]
) -> np.ndarray:
    """Choose for each requested class the cluster of the next held-out image of that class, cyclically.

    Args:
        labels: (M,) classes of all held-out images.
        clusters: (M,) clusters of all held-out images.
        classes: N requested class ids.
        names: Names of all classes.

    Returns:
        (N,) int64 clusters.

    Raises:
        UserError: A class has no held-out image.
    """
    of_class = {label: clusters[labels == label] for label in set(classes)}
    for label, class_clusters in sorted(of_class.items()):
        if not len(class_clusters):
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
