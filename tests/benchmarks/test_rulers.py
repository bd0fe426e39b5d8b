"""The ruler of an experiment does not depend on its seed."""

import pytest

from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import EXTRACTOR
from tests.benchmarks import rulers
from tests.helpers import tiny, write_source


@pytest.mark.long
def test_all_seeds_of_an_experiment_measure_the_same_distances(tmp_path):
    write_source(tmp_path / "images")
    first, second = RunDir(tmp_path / "first"), RunDir(tmp_path / "second")
    experiment, other = (tiny(tmp_path, seed=seed) for seed in (0, 5))
    second.root.mkdir()
    for stage in rulers.DATA:
        (second.root / stage).symlink_to(first.root / stage)
    rulers.make(experiment, first, [*rulers.data_keys(experiment), EXTRACTOR])
    rulers.make(other, second, [EXTRACTOR])
    measured = rulers.distances(experiment, first)
    assert len(set(measured.values())) == len(rulers.SETS)
    assert rulers.distances(other, second) == measured
