"""That a submission costs the same calls for two experts and for eight; seconds are for the benchmark to show."""

import pytest

from tests.benchmarks.submitting import Place

pytestmark = pytest.mark.slurm


def test_the_calls_of_slurms_clients_do_not_grow_with_the_experts(tmp_path, home, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", home)
    place = Place(tmp_path)
    try:
        two, eight = place.calls("two", 2), place.calls("eight", 8)
        assert two == eight and eight["sbatch"] == 9, "one sbatch for each array, one array for each stage and shape"
        assert eight["sbatch --test-only"] == 2 and eight["scontrol"] <= 3
        assert dict(place.calls("eight", 8)) == {"squeue": 1}, "nothing to submit: one look at the queue"
    finally:
        place.clean()
