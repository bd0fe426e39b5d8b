"""Python: open a run, read its samples and results, draw images, evaluate its velocity fields.

import hpcddm

run = hpcddm.open("runs/quickstart")
images = run.sample(8, strategy="top-2", classes=[5])
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from hpcddm.config.conditions import ConditionSettings
from hpcddm.config.cross_checks import not_kept
from hpcddm.config.experiment import Experiment
from hpcddm.config.sampling import EvaluateSettings
from hpcddm.config.schema import validate
from hpcddm.config.spaces import SpaceSettings
from hpcddm.data import samples
from hpcddm.data.catalog import open_catalog
from hpcddm.data.named import NamedReader
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.diffusion.spaces.base import Space, space_of
from hpcddm.errors import ConfigError
from hpcddm.files import reading
from hpcddm.jobs.devices import current_device
from hpcddm.pipeline.plan import plan
from hpcddm.pipeline.required_units import missing_experts, units_of
from hpcddm.pipeline.unit_states import State, UnitStatus, require_current, survey
from hpcddm.runs.files import METRICS
from hpcddm.runs.layout import Locate, RunDir
from hpcddm.runs.ranges import SPLITS, TRAIN
from hpcddm.runs.stored_experiment import out_of_run, stored_experiment
from hpcddm.runs.stored_results import stored_class_names
from hpcddm.runs.unit_keys import CATALOG, LISTS, REPORT
from hpcddm.runs.weights_files import chosen
from hpcddm.sampling import load_ensemble
from hpcddm.sampling.draw_images import ImageRequest, draw
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.step_context import SampleStream, StepContext


class Run:
    """A run with the networks that it has trained, which are loaded when they are first needed, and kept.

    settings: its experiment. The strategy of a method is by default the first one that the run has evaluated; it can be
    any of `hpcddm sample --strategy`.
    """

    def __init__(self, run: RunDir, settings: Experiment) -> None:
        self._run, self.settings = run, settings
        self._ensembles: dict[tuple[str, ...], Ensemble] = {}

    @property
    def class_names(self) -> list[str]:
        """Names of the classes in the order of their numbers; none for images without classes.

        Raises `UserError` unless the catalog is complete.
        """
        self._require(CATALOG)
        return stored_class_names(self.settings, self._run)

    @cached_property
    def condition(self) -> conditions.Condition[ConditionSettings]:
        """Condition of the networks: `of_classes`, `of_prompts`, `null`, and `of(reader, numbers)` of samples."""
        return conditions.build(self.settings.data, self._output())

    @cached_property
    def space(self) -> Space[SpaceSettings]:
        """Space of x: its `shape`, `to_model` from images and `to_images` back."""
        return space_of(self.settings.data, self._output())

    @property
    def metrics(self) -> dict[str, Any]:
        """Content of the report's metrics.json; raises `UserError` unless the report is complete."""
        self._require(REPORT)
        content: dict[str, Any] = reading.need_json(self._run.output(REPORT, METRICS))
        return content

    def _require(self, *keys: str) -> dict[str, UnitStatus]:
        """Return the states of all units; raises `UserError` for the first of these that is not current."""
        # Settings of the sampler that were changed here make nothing stale; those of a later submit do.
        states = survey(plan(stored_experiment(self._run)), self._run)
        require_current(states, self._run, *keys)
        return states

    def _output(self) -> Locate:
        """Return a function that finds outputs of complete units, and raises `UserError` for those of others."""
        states = self._require()

        def locate(key: str, name: str) -> Path:
            require_current(states, self._run, key)
            return self._run.output(key, name)

        return locate

    def data(self, split: str = TRAIN) -> NamedReader:
        """Open the samples of a split, 'train' or 'heldout': images, labels, captions and clusters by number.

        Also any column by its name, and batches of images and columns. Raises `ConfigError` for another split,
        `UserError` where the data stages are not complete, or what their clusters were made of is gone or has changed.
        """
        if split not in SPLITS:
            raise ConfigError(f"split {split}: valid names: {', '.join(SPLITS)}")
        states = self._require(CATALOG)
        catalog = open_catalog(self._run, split)
        if states[LISTS].state is State.MISSING:
            return NamedReader(catalog, None, {})
        require_current(states, self._run, LISTS)
        made = {samples.CLUSTER: samples.clusters}
        if self.settings.cluster.clustering.needs_features:
            made[samples.FEATURE] = samples.features
        return NamedReader(catalog, samples.clusters(catalog), made)

    def sample(
        self,
        count: int,
        strategy: str | None = None,
        classes: Sequence[int] = (),
        prompts: Sequence[str] = (),
        seed: int = 0,
        advance: Callable[[int], object] = lambda images: None,
    ) -> UInt8[np.ndarray, "n h w c"]:
        """Draw images of some classes in turn, or of some prompts in turn; with neither, like the evaluation set.

        The same seed gives the same images as `hpcddm sample`. advance: called with the number of images of a batch.
        Raises `ConfigError` for an unknown strategy or class, `UserError` naming a unit that is not complete.
        """
        num_classes = self.settings.data.num_classes
        if num_classes is not None and (unknown := [label for label in classes if not 0 <= label < num_classes]):
            raise ConfigError(f"classes: {unknown[0]}: valid classes are 0 to {num_classes - 1}")
        arm, request = strategy or self.settings.evaluate.strategies[0], ImageRequest(count, classes, prompts)
        is_oracle = LISTS in units_of(self.settings, arm)
        return draw(self.settings, self._run, self.ensemble(arm), arm, is_oracle, request, seed, advance)

    def velocity(
        self,
        x: Float[Tensor, "n c h w"],
        time: float,
        condition: conditions.Conditions,
        strategy: str | None = None,
        clusters: Int[Tensor, " n"] | None = None,
        seed: int = 0,
    ) -> Float[Tensor, "n c h w"]:
        """Evaluate the velocity eps - x0 that the sampler would follow at a time in [0, 1], noise being at 1.

        It is guided as the evaluation is. clusters: known clusters, which only the oracle reads; seed: of the draws of
        strategies that draw experts. Raises as `sample` does.
        """
        arm, device = strategy or self.settings.evaluate.strategies[0], current_device()
        own_clusters = None if clusters is None else clusters.to(device)
        field = self.ensemble(arm).field(arm, self.settings.evaluate, own_clusters)
        t = torch.full((len(x),), time, dtype=x.dtype, device=device)
        context = StepContext(SampleStream(seed, range(len(x))), 0, time)
        with torch.no_grad():
            return field(x.to(device), t, condition.to(device), context)

    def ensemble(self, strategy: str) -> Ensemble:
        """Load the networks that a strategy reads, those of all units that are complete by then.

        Raises as `sample` does.
        """
        units = tuple(units_of(self.settings, strategy))
        if units not in self._ensembles:
            # This reads all manifests of the run, which would take longer than a velocity.
            missing = missing_experts(self.settings, self._run, list(units))
            needed = [key for key in units if key not in missing]
            folder_of, choice = self._run.unit, chosen(self.settings)
            self._ensembles[units] = load_ensemble.load_ensemble(
                self.settings, folder_of, needed, current_device(), choice
            )
        return self._ensembles[units]


def open_run(root: Path | str, **evaluation: Any) -> Run:
    """Open a run; evaluation: settings of its sampler to change, such as steps=50, guidance=2.0.

    Raises `ConfigError` when the folder holds no run, or a setting is wrong.
    """
    run = RunDir(Path(root))
    # Networks may need weights that a path names.
    settings = out_of_run(stored_experiment(run), run)
    if evaluation:
        values = settings.evaluate.model_dump() | evaluation
        settings = settings.model_copy(update={"evaluate": validate(EvaluateSettings, values, "hpcddm.open")})
    for key, problem in not_kept(settings.experts.training, settings.evaluate).items():
        raise ConfigError(f"hpcddm.open: {key}: {problem}")
    return Run(run, settings)
