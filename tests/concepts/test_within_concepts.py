import json

import numpy as np
import pytest

from hpcddm.concepts.within_concepts import home_within_concepts


def planted(rng, slope=0.1, concepts=40, runs=3, noise=0.05):
    """Concepts that are easier the more concentrated they are on average, in runs of different partitions."""
    concept, run = np.divmod(np.arange(concepts * runs), runs)
    ease = rng.normal(0, 0.3, concepts)
    log_home = 2 + ease[concept] + rng.normal(0, 0.2, len(concept))
    levels = np.array([0.0, 0.3, -0.2])[run]
    scores = slope * log_home + 0.5 * ease[concept] + levels + noise * rng.standard_normal(len(concept))
    return scores, 10**log_home, concept, run


def with_dummies(scores, home, concept, run):
    design = np.column_stack([np.log10(home), np.eye(concept.max() + 1)[concept], np.eye(run.max() + 1)[run]])
    return np.linalg.lstsq(design, scores, rcond=None)[0][0]


@pytest.mark.parametrize("share_kept", [1.0, 0.7])
def test_the_slope_is_that_of_dummies_for_concepts_and_runs(share_kept):
    rng = np.random.default_rng(0)
    rows = planted(rng)
    kept = rng.random(len(rows[0])) < share_kept
    rows = [column[kept] for column in rows]
    assert home_within_concepts(*rows).slope.value == pytest.approx(with_dummies(*rows))


def test_a_planted_slope_is_recovered_as_often_as_the_interval_says():
    """In 95 % of 200 sets: 180 to 199 of them, which intervals of exactly 95 % do in 99.8 % of cases."""
    rng = np.random.default_rng(0)
    slopes = [home_within_concepts(*planted(rng)).slope for _ in range(200)]
    assert 180 <= sum(slope.low <= 0.1 <= slope.high for slope in slopes) < 200
    assert np.mean([slope.value for slope in slopes]) == pytest.approx(0.1, abs=0.005)


def test_runs_of_one_partition_identify_nothing():
    scores, home, concepts, runs = planted(np.random.default_rng(0))
    result = home_within_concepts(scores, home[3 * (np.arange(120) // 3)], concepts, runs)
    assert result.slope is None and result.not_identified.startswith("not identified: the runs' partitions")
    json.dumps(result.as_json(), allow_nan=False)


def test_concepts_of_one_run_say_nothing():
    scores, home, concepts, runs = planted(np.random.default_rng(0))
    scores[(concepts >= 9) & (runs > 0)] = np.nan
    home[(concepts == 0) & (runs > 0)] = 0
    result = home_within_concepts(scores, home, concepts, runs)
    assert result.slope is None and result.concepts == 8
    assert result.not_identified == "this needs 10 concepts with an outcome in several runs, and there are 8"
