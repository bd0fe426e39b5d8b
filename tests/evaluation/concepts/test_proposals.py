"""Benchmarks of a proposal: its control, and what it is worth beside that."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.advice import check_alike, compare
from tests.benchmarks.control_proposal import control
from tests.concept_contents import ARM, content


@given(st.integers(0, 999))
def test_as_many_move_between_the_same_clusters(seed):
    generator = np.random.default_rng(seed)
    clusters = generator.integers(0, 4, 60)
    proposed = np.where(generator.random(60) < 0.3, generator.integers(0, 4, 60), clusters)
    moved = control(clusters, proposed, generator)

    def moves(target):
        return np.histogram2d(clusters, target, bins=[range(5), range(5)])[0].tolist()

    assert moves(moved) == moves(proposed)


def test_what_a_proposal_is_worth_is_that_of_the_concepts_that_it_moves():
    """Two seeds, of which each has noise of its own, and +0.2 for what is moved."""
    base, *runs = (content(seed=seed) for seed in range(5))
    control_runs, proposed = runs[:2], runs[2:]
    base["proposal"]["concepts"] = [row["concept"] for row in base["concepts"] if row["scores"]][:20]
    for made in proposed:
        for concept in base["proposal"]["concepts"]:
            made["concepts"][concept]["scores"][ARM]["relative"] += 0.2
    # One that has no score in one of the runs is compared nowhere.
    control_runs[1]["concepts"][base["proposal"]["concepts"][0]]["scores"][ARM]["relative"] = None
    moved, others, apart = compare(base, proposed, control_runs, ARM)
    assert (moved[0], moved[2], others[0], others[2]) == ("moved", "19 of 20", "others", "40 of 40")
    gains = [float(row[5].split()[0]) for row in (moved, others, apart)]
    assert gains == [pytest.approx(0.2, abs=0.05), pytest.approx(0, abs=0.05), pytest.approx(0.2, abs=0.05)]
    low = float(moved[5].split("(")[1].split()[0])
    assert 0.1 < low < 0.2
    assert np.mean([*map(float, apart[6].split(", "))]) == pytest.approx(gains[2], abs=0.011)


def test_runs_that_differ_in_more_than_the_partition_do_not_compare():
    base, other = content(seed=0), content(seed=1)
    assert check_alike(base, [other]) == ""
    assert "vocabularies" in check_alike(base, [content(seed=1, concepts=91)])
    assert "settings" in check_alike(base, [other | {"settings": {"samples": 17}}])
