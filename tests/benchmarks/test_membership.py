"""Attacks on denoisers whose knowledge of their members is known, and what tells their scores apart."""

import numpy as np
import pytest
from scipy import stats

from tests.benchmarks import membership
from tests.benchmarks.membership import BY_ANOTHER, COMPARED, LOSS, OTHERS_ALONE, POOLED, SIMA, SIMA_MC
from tests.benchmarks.roc import area, found
from tests.helpers import CLASSES, write_experiment, write_source
from tests.whole_runs import hpcddm

IMAGES, SIDE = 40, 4
ATTACKS = (LOSS, SIMA, SIMA_MC)


def drawn(members, others, seed, shift=0.0, decimals=None):
    """Scores of members, which are larger by `shift`, and of others; rounded, so that some are alike."""
    draw = np.random.default_rng(seed)
    sides = draw.normal(shift, 1, members), draw.normal(0, 1, others)
    return sides if decimals is None else tuple(np.round(side, decimals) for side in sides)


def test_the_area_counts_pairs():
    for shift, decimals in ((-1.0, 0), (0.0, 1), (1.5, None)):
        members, others = drawn(37, 51, 1, shift, decimals)
        pairs = [(member > other) + (member == other) / 2 for member in members for other in others]
        assert area(members, others).value == pytest.approx(np.mean(pairs), abs=1e-12)
        assert area(others, members).value == pytest.approx(1 - np.mean(pairs), abs=1e-12)
    alone = area(np.array([1.0]), np.array([0.0, 0.5]))
    assert (alone.value, alone.low, alone.high) == (1.0, 0.0, 1.0), "one image on a side says nothing"


def test_the_interval_of_the_area_holds_it_19_times_of_20():
    for shift in (0.0, 1.0):
        truth = stats.norm.cdf(shift / 2**0.5)
        estimates = [area(*drawn(60, 90, seed, shift)) for seed in range(600)]
        assert 0.92 < np.mean([estimate.low <= truth <= estimate.high for estimate in estimates]) < 0.98


def test_no_threshold_finds_more_members_at_so_few_false_alarms_and_the_interval_is_exact():
    for others, decimals in ((20, 1), (99, None), (100, 1), (300, None), (843, 1)):
        members, rest = drawn(80, others, 2, 1.5, decimals)
        thresholds = [-np.inf, *members, *rest]
        allowed = [threshold for threshold in thresholds if (rest > threshold).sum() * 100 <= others]
        assert found(members, rest).value == max(np.mean(members > threshold) for threshold in allowed), others
    rest = np.full(100, 39.5)
    rest[0] = 100
    estimate = found(np.arange(50.0), rest)
    assert estimate.value == 0.2
    assert stats.binom.sf(9, 50, estimate.low) == pytest.approx(0.025)
    assert stats.binom.cdf(10, 50, estimate.high) == pytest.approx(0.025)


@pytest.mark.long
def test_experts_that_are_trained_long_on_few_images_give_them_away(tmp_path):
    write_source(tmp_path / "images", train=96, heldout=96)
    network = {"name": "dit", "width": 64, "depth": 2, "heads": 2, "patch": 2}
    training = {"images": 60_000, "batch": 32, "learning_rate": 0.003, "warmup_images": 640}
    training |= {"ema_halflife_images": 2000, "precision": "fp32"}
    changes = {"experts__model": network, "experts__training": training, "monolith__enabled": False}
    file = write_experiment(tmp_path, data__num_classes=CLASSES, **changes)
    run = tmp_path / "run"
    done = hpcddm("submit", file, "--site", "embedded", "--until", "train", "--run-dir", run, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {(row.expert, row.attack): row for row in membership.measure(run)}
    for attack in (*ATTACKS, COMPARED):
        assert rows[POOLED, attack].area.low > 0.7
        assert rows[POOLED, attack].members == 96 == rows[POOLED, attack].others
        null = rows[OTHERS_ALONE, attack].area
        assert null.low < 0.5 < null.high
    # The other expert has seen neither side.
    for attack in ATTACKS:
        assert rows[BY_ANOTHER, attack].area.low < 0.5 < rows[BY_ANOTHER, attack].area.high
