"""Open a run in Python, read its samples and results, draw images and evaluate its velocity fields."""

import warnings
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from hpcddm.config.class_names import class_number
from hpcddm.config.conditions import ConditionSettings
from hpcddm.config.cross_checks import weights_conflict
from hpcddm.config.experiment import Experiment
from hpcddm.config.sampling import EvaluateSettings
from hpcddm.config.schema import validate
from hpcddm.config.spaces import SpaceSettings
from hpcddm.data import run_samples
from hpcddm.data.column_reader import ColumnReader
from hpcddm.data.run_samples import open_catalog
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.diffusion.spaces.base import Space, create_space
from hpcddm.errors import ConfigError
from hpcddm.evaluation.metrics import columns, led_by
from hpcddm.evaluation.unknown_words import CaptionWords, read_caption_words
from hpcddm.files import checked_reads
from hpcddm.jobs.devices import current_device
from hpcddm.pipeline.required_units import missing_experts, units_of_strategy
from hpcddm.pipeline.state import State
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import UnitStatus, require_current, survey_units
from hpcddm.runs import manifest
from hpcddm.runs.files import CURVE, METRICS
from hpcddm.runs.ranges import SPLITS, TRAIN
from hpcddm.runs.run_dir import Locate, RunDir
from hpcddm.runs.stored_experiment import stored_experiment, with_absolute_paths
from hpcddm.runs.stored_results import stored_class_names
from hpcddm.runs.unit_keys import CATALOG, EXPERT_LISTS, REPORT, extra_expert_keys, unit_name
from hpcddm.runs.weights_files import selected_weights
from hpcddm.sampling import load_ensemble
from hpcddm.sampling.draw_images import ImageRequest, draw
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.step_context import SampleStream, StepContext
from hpcddm.stages.evaluation.draw import arm_names


class Run:
    """A run and its trained networks, which are loaded when a method first needs them and then kept in memory.

    Methods with an argument `strategy` take any value of `hpcddm sample --strategy`. The default is the first strategy
    that the run evaluates.

    Args:
        run: Folder of the run.
        experiment: Experiment of the run.

    Examples:
        >>> import hpcddm
        >>> run = hpcddm.open("runs/quickstart")  # doctest: +SKIP
        >>> images = run.sample(8, strategy="top-2", classes=["Sandal"])  # doctest: +SKIP
        >>> condition = run.condition.of_classes([5, 5])  # doctest: +SKIP
        >>> velocity = run.velocity(torch.randn(2, *run.space.shape), time=1.0, condition=condition)  # doctest: +SKIP
    """

    def __init__(self, run: RunDir, experiment: Experiment) -> None:
        self._run, self.experiment = run, experiment
        self._ensembles: dict[tuple[str, ...], Ensemble] = {}

    def __repr__(self) -> str:
        experts, strategies = self.experiment.cluster.experts, ", ".join(arm_names(self.experiment))
        return f"<run {self.experiment.name} in {self._run.root}: {experts} experts; {strategies}>"

    @property
    def strategies(self) -> list[str]:
        """Strategies that the run evaluates, then its single models; `sample` takes others such as 'top-3', too."""
        alone = [f"expert-{number}" for number in range(self.experiment.cluster.experts)]
        return [*arm_names(self.experiment), *alone, *map(unit_name, extra_expert_keys(self.experiment))]

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, by class number; empty for images without classes.

        Raises:
            UserError: The catalog is not complete.
        """
        self._require_current(CATALOG)
        return stored_class_names(self.experiment, self._run)

    @cached_property
    def condition(self) -> conditions.Condition[ConditionSettings]:
        """Condition of the networks: its `of_classes`, `of_prompts`, `of_samples` and `null` make conditions."""
        return conditions.create_condition(self.experiment.data, self.output_locator())

    @cached_property
    def space(self) -> Space[SpaceSettings]:
        """Space of x: its `shape`, the conversion `to_model` from images, and the conversion `to_images` back."""
        return create_space(self.experiment.data, self.output_locator())

    @property
    def metrics(self) -> dict[str, Any]:
        """Content of the report's metrics.json.

        Raises:
            UserError: The report is not complete.
        """
        self._require_current(REPORT)
        content: dict[str, Any] = checked_reads.read_required_json(self._run.output(REPORT, METRICS))
        return content

    def table(self) -> dict[str, dict[str, float]]:
        """Return the report's table, which `pandas.DataFrame(run.table()).T` shows.

        Returns:
            For every strategy, and for real images as 'floor': values by the key of the metric, numbers of images and
            training FLOPs.

        Raises:
            UserError: The report is not complete.
        """
        found = self.metrics
        led = [metric.key for metric in led_by(found["leading_metric"], columns())]
        keys = [*led, "images", "train_flops"]
        rows = found["arms"] | {"floor": found["floor"]}
        return {name: {key: row[key] for key in keys if key in row} for name, row in rows.items()}

    def curves(self) -> dict[str, np.ndarray]:
        """Return the loss curves of the complete trainings.

        Returns:
            Images seen and mean loss by the name of the unit, (N, 2) each.
        """
        states = self._require_current()
        complete = [key for key, status in states.items() if status.state is State.COMPLETE]
        made = {key: manifest.read(self._run.unit(key)) for key in complete}
        trained = [key for key, one in made.items() if one and any(file.path == CURVE for file in one.outputs)]
        read = partial(manifest.read_verified_json, name=CURVE, kind=list[tuple[int, float]])
        return {key: np.array(read(self._run.unit(key))).reshape(-1, 2) for key in trained}

    def _require_current(self, *keys: str) -> dict[str, UnitStatus]:
        """Return the states of all units; raise `UserError` for the first of `keys` that is not current."""
        # Changing settings of the sampler here does not make units stale; a later submit with other settings does.
        states = survey_units(plan_units(stored_experiment(self._run)), self._run)
        require_current(states, self._run, *keys)
        return states

    def output_locator(self) -> Locate:
        """Return a function that locates the outputs of complete units; it raises `UserError` for other units."""
        states = self._require_current()

        def locate(key: str, name: str) -> Path:
            require_current(states, self._run, key)
            return self._run.output(key, name)

        return locate

    def data(self, split: str = TRAIN) -> ColumnReader:
        """Open the samples of a split.

        The reader returns images, labels, captions, clusters and other columns by sample number. It also iterates over
        batches of images and columns.

        Args:
            split: 'train' or 'heldout'.

        Raises:
            ConfigError: The split has another name.
            UserError: A data stage is not complete, or an input of the clusters is missing or has changed.
        """
        if split not in SPLITS:
            raise ConfigError(f"split {split}: valid names: {', '.join(SPLITS)}")
        states = self._require_current(CATALOG)
        catalog = open_catalog(self._run, split)
        if states[EXPERT_LISTS].state is State.MISSING:
            return ColumnReader(catalog, None, {})
        require_current(states, self._run, EXPERT_LISTS)
        stage_columns = {run_samples.CLUSTER: run_samples.clusters}
        if self.experiment.cluster.clustering.needs_features:
            stage_columns[run_samples.FEATURE] = run_samples.features
        return ColumnReader(catalog, run_samples.clusters(catalog), stage_columns)

    def sample(
        self,
        count: int,
        strategy: str | None = None,
        classes: Sequence[int | str] = (),
        prompts: Sequence[str] = (),
        seed: int = 0,
        advance: Callable[[int], object] | None = None,
    ) -> UInt8[np.ndarray, "n h w c"]:
        """Draw images of classes or prompts, or with the conditions of the evaluation set.

        The same seed gives the same images as `hpcddm sample`.

        Args:
            count: Number of images.
            strategy: Strategy that combines the experts; None for the default.
            classes: Numbers or names of the classes that the images have in turn.
            prompts: Prompts that the images have in turn; a warning names their words that no training caption has.
            seed: Seed of the noise.
            advance: Called after each batch with the number of its images; None for nothing.

        Returns:
            Images, (count, H, W, C), uint8.

        Raises:
            ConfigError: The strategy or a class is unknown.
            UserError: A unit that the strategy needs is not complete.
        """
        numbers = self._class_numbers([str(label) for label in classes])
        arm, request = strategy or self.experiment.evaluate.strategies[0], ImageRequest(count, numbers, prompts)
        is_oracle = EXPERT_LISTS in units_of_strategy(self.experiment, arm)
        if prompts and (described := self._caption_words.describe_unknown(prompts)):
            warnings.warn(described, stacklevel=2)
        ensemble, report = self.ensemble(arm), advance or (lambda images: None)
        return draw(self.experiment, self._run, ensemble, arm, is_oracle, request, seed, report)

    @cached_property
    def _caption_words(self) -> CaptionWords:
        return read_caption_words(self.experiment, self._run)

    def _class_numbers(self, classes: list[str]) -> list[int]:
        names, numbers = stored_class_names(self.experiment, self._run) if classes else [], list[int]()
        for name in classes:
            try:
                numbers.append(class_number(name, names))
            except ValueError as error:
                raise ConfigError(f"classes: {name}: {error}") from None
        return numbers

    def velocity(
        self,
        x: Float[Tensor, "n c h w"],
        time: float,
        condition: conditions.Conditions,
        strategy: str | None = None,
        clusters: Int[Tensor, " n"] | None = None,
        seed: int = 0,
    ) -> Float[Tensor, "n c h w"]:
        """Evaluate the velocity v = eps - x0 that the sampler follows at one time, with the guidance of the evaluation.

        Args:
            x: Noisy samples in the space of x, (N, C, H, W).
            time: Time in [0, 1]: 0 for data, 1 for noise.
            condition: Conditions of the N samples, made by `condition`.
            strategy: Strategy that combines the experts; None for the default.
            clusters: Known clusters of the samples, (N,); only the strategy 'oracle' reads them.
            seed: Seed for strategies that draw experts at random.

        Returns:
            Velocity, (N, C, H, W).

        Raises:
            ConfigError: The strategy is unknown.
            UserError: A unit that the strategy needs is not complete.
        """
        arm, device = strategy or self.experiment.evaluate.strategies[0], current_device()
        known_clusters = None if clusters is None else clusters.to(device)
        field = self.ensemble(arm).field(arm, self.experiment.evaluate, known_clusters)
        t = torch.full((len(x),), time, dtype=x.dtype, device=device)
        context = StepContext(SampleStream(seed, range(len(x))), 0, time)
        with torch.no_grad():
            return field(x.to(device), t, condition.to(device), context)

    def ensemble(self, strategy: str) -> Ensemble:
        """Load the networks that a strategy needs, without experts whose units are not complete.

        Args:
            strategy: Strategy that combines the experts.

        Raises:
            ConfigError: The strategy is unknown.
            UserError: A unit that the strategy cannot omit is not complete.
        """
        units = tuple(units_of_strategy(self.experiment, strategy))
        if units not in self._ensembles:
            # This reads all manifests of the run, which would take longer than a velocity.
            missing = missing_experts(self.experiment, self._run, list(units))
            needed = [key for key in units if key not in missing]
            folder_of, choice = self._run.unit, selected_weights(self.experiment)
            self._ensembles[units] = load_ensemble.load_ensemble(
                self.experiment, folder_of, needed, current_device(), choice
            )
        return self._ensembles[units]


def open_run(root: Path | str, **evaluation: Any) -> Run:
    """Open a run.

    Args:
        root: Folder of the run.
        **evaluation: Settings of the sampler that replace those of the run, such as steps=50 or guidance=2.0.

    Raises:
        ConfigError: The folder does not hold a run, or a setting is wrong.
    """
    run = RunDir(Path(root))
    # Networks may need weights that a path names.
    experiment = with_absolute_paths(stored_experiment(run), run)
    if evaluation:
        values = experiment.evaluate.model_dump() | evaluation
        experiment = experiment.model_copy(update={"evaluate": validate(EvaluateSettings, values, "hpcddm.open")})
    for key, problem in weights_conflict(experiment.experts.training, experiment.evaluate).items():
        raise ConfigError(f"hpcddm.open: {key}: {problem}")
    return Run(run, experiment)
