"""That a submission costs the same calls for two experts and for eight; seconds are for the benchmark to show."""

import pytest

from tests.benchmarks.submitting import Place
from tests.benchmarks.sweeping import sweep

pytestmark = pytest.mark.slurm


def test_the_calls_of_slurms_clients_do_not_grow_with_the_experts(tmp_path, home, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", home)
    place = Place(tmp_path)
    try:
        two, eight = place.calls("two", 2), place.calls("eight", 8)
        assert two == eight and eight["sbatch"] == 16, "one sbatch for each array, one array for each stage and shape"
        assert eight["sbatch --test-only"] == 2 and eight["scontrol"] <= 3
        assert dict(place.calls("eight", 8)) == {"squeue": 1}, "nothing to submit: one look at the queue"
    finally:
        place.clean()


def test_the_calls_of_slurms_clients_do_not_grow_with_the_settings_of_a_sweep(tmp_path, home, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", home)
    place = Place(tmp_path)
    try:
        few, more = sweep(place, 3), sweep(place, 40)
        # The second time what is shared is in the queue: evaluate, measure, compare, report and a new table are left.
        assert few.calls["sbatch"] == 17 and more.calls["sbatch"] == 5 and "40 settings" in more.said
        assert few.calls["sbatch --test-only"] == 2 and more.calls.total() <= few.calls.total()
        again = sweep(place, 40)
        assert dict(again.calls) == {"squeue": 1} and "nothing new to submit" in again.said
    finally:
        place.clean()
