"""Hundreds of saves on two nodes that see each other's names late, with kills at random moments."""

import pytest

from tests.late_names.enduring import endure
from tests.late_names.mounts import LATE

SAVES, KILLS = 200, 20


@pytest.mark.long
@pytest.mark.usefixtures("program")
def test_no_state_is_ever_mixed_and_the_weights_are_those_of_an_undisturbed_training(tmp_path):
    found = endure(tmp_path, SAVES, KILLS, LATE, seed=0)
    assert found["saves"] >= SAVES and found["kills"] == KILLS and found["files of a state"] >= 5
    assert found["mixed states"] == 0 and found["weights bit-identical"]
