"""Stage reference_statistics: mean and covariance of the held-out images, in the format of other programs."""

from hpcddm.config.experiment import Experiment
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.unit_keys import unit_name
from hpcddm.stages.evaluation.measure_real import encoders_by_label, measuring_keys, num_features
from hpcddm.stages.unit_kinds import UnitsOfInputs


class ReferenceStatisticsStage(UnitsOfInputs, Stage):
    """Stage with a unit for each extractor with public weights that has fewer features than there are images.

    No other program has the run's own extractor, and the covariance of as many images or fewer is singular.
    """

    name = "reference_statistics"
    reads = ("measure_real",)

    def units(self, experiment: Experiment) -> list[str]:
        """List the extractors."""
        features = {label: num_features(experiment, label) for label in encoders_by_label(experiment)}
        images = experiment.evaluate.images
        return [f"{self.name}/{label}" for label, count in features.items() if 0 < count < images]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the measurements of all ranges."""
        return measuring_keys(experiment, "measure_real", unit_name(key))

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate float64 values of mean and covariance."""
        features = num_features(experiment, unit_name(key))
        return DiskSpace(8 * features * (features + 1), 0, 1)
