"""Stage measure: what every evaluator measures on the samples of all arms."""

from hpcddm.config.experiment import Experiment
from hpcddm.pipeline.stage import DiskSpace, Stage
from hpcddm.runs.unit_keys import CATALOG
from hpcddm.stages.evaluation.draw import arm_names
from hpcddm.stages.evaluation.measure_real import (
    MeasuringUnits,
    evaluator_of,
    measuring_keys,
    networks_of,
    range_name,
    values_per_measured,
)


def sampled_unit(key: str) -> str:
    """Return the unit of the stage draw whose samples a unit measures."""
    return f"draw/{range_name(key)}"


class MeasureStage(MeasuringUnits, Stage):
    """Stage whose units measure a range of samples with one evaluator; one more evaluator draws no sample again."""

    name = "measure"
    reads = ("catalog", "evaluators", "draw")

    def units(self, experiment: Experiment) -> list[str]:
        """List the ranges of every evaluator."""
        return measuring_keys(experiment, self.name)

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the samples, the catalog for their conditions, and the networks that the run trains."""
        return [CATALOG, *networks_of(experiment, evaluator_of(key)), sampled_unit(key)]

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate float32 values of the samples of all arms."""
        start, stop = map(int, range_name(key).split("-"))
        values = (stop - start) * values_per_measured(experiment, evaluator_of(key))
        return DiskSpace(4 * len(arm_names(experiment)) * values, 0, 1)
