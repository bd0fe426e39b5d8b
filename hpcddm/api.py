"""Open a run in Python, read its samples and results, draw images and evaluate its velocity fields."""

import warnings
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from hpcddm.config.cross_checks import weights_conflict
from hpcddm.config.experiment import Experiment
from hpcddm.config.sampling import EvaluateSettings
from hpcddm.config.schema import validate
from hpcddm.data import run_samples
from hpcddm.data.column_reader import ColumnReader
from hpcddm.data.run_samples import open_catalog
from hpcddm.errors import ConfigError, UserError
from hpcddm.evaluation.metrics import columns, led_by
from hpcddm.evaluation.unknown_words import CaptionWords, read_caption_words
from hpcddm.files import checked_reads
from hpcddm.jobs.devices import current_device
from hpcddm.loading.ensemble_document import read_ensemble
from hpcddm.pipeline.required_units import missing_experts
from hpcddm.pipeline.state import State
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import UnitStatus, require_current, survey_units
from hpcddm.publishing.published_ensemble import PublishedEnsemble
from hpcddm.runs import manifest
from hpcddm.runs.files import CURVE, METRICS
from hpcddm.runs.published_files import is_published
from hpcddm.runs.ranges import SPLITS, TRAIN
from hpcddm.runs.run_dir import Locate, RunDir
from hpcddm.runs.stored_experiment import stored_experiment, with_absolute_paths
from hpcddm.runs.stored_results import stored_class_names
from hpcddm.runs.unit_keys import CATALOG, EXPERT_LISTS, REPORT, extra_expert_keys, unit_name
from hpcddm.runs.weights_files import selected_weights
from hpcddm.sampling import load_ensemble
from hpcddm.sampling.draw_images import ImageRequest, RequestedConditions, request_conditions
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.trained_model import TrainedModel
from hpcddm.stages.evaluation.draw import arm_names


class Run(TrainedModel):
    """A run, its samples and results, and its trained networks.

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
        super().__init__(experiment)
        self._run = run

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
        return self._known_class_names()

    def _known_class_names(self) -> list[str]:
        return stored_class_names(self.experiment, self._run)

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

    def _request_conditions(self, request: ImageRequest, is_oracle: bool) -> RequestedConditions:
        if request.prompts and (described := self._caption_words.describe_unknown(request.prompts)):
            warnings.warn(described, stacklevel=3)
        return request_conditions(self.experiment, self._run, self.condition, request, is_oracle)

    @cached_property
    def _caption_words(self) -> CaptionWords:
        return read_caption_words(self.experiment, self._run)

    def _present(self, units: Sequence[str]) -> list[str]:
        # This reads all manifests of the run, which would take longer than a velocity.
        missing = missing_experts(self.experiment, self._run, list(units))
        return [key for key in units if key not in missing]

    def _load(self, units: Sequence[str]) -> Ensemble:
        choice = selected_weights(self.experiment)
        return load_ensemble.load_ensemble(self.experiment, self._run.unit, units, current_device(), choice)


def open_model(root: Path | str, **evaluation: Any) -> Run | PublishedEnsemble:
    """Open a run, or a published ensemble.

    Args:
        root: The folder.
        **evaluation: Settings of the sampler that replace its own, such as steps=50 or guidance=2.0.

    Raises:
        ConfigError: The folder does not hold a run, or a setting is wrong.
        UserError: The description of the ensemble is damaged or refused.
    """
    folder, document = Path(root), None
    if is_published(folder):
        document, experiment = read_ensemble(folder)
    else:
        # Networks may need weights that a path names.
        experiment = with_absolute_paths(stored_experiment(RunDir(folder)), RunDir(folder))
    if evaluation:
        values = experiment.evaluate.model_dump() | evaluation
        experiment = experiment.model_copy(update={"evaluate": validate(EvaluateSettings, values, "hpcddm.open")})
    for key, problem in weights_conflict(experiment.experts.training, experiment.evaluate).items():
        raise ConfigError(f"hpcddm.open: {key}: {problem}")
    return Run(RunDir(folder), experiment) if document is None else PublishedEnsemble(folder, document, experiment)


def open_run(root: Path | str) -> Run:
    """Open a run; errors as those of `open_model`.

    Raises:
        UserError: The folder is a published ensemble, and what is needed is only in a run.
    """
    model = open_model(root)
    if not isinstance(model, Run):
        raise UserError(f"{root}: a published ensemble, which has no images and no results; name the run")
    return model
