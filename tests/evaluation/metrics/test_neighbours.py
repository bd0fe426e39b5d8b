import numpy as np
import pytest

from hpcddm.evaluation.metrics import neighbours
from hpcddm.evaluation.metrics.tenth_rows import kept_rows

RNG = np.random.default_rng(0)


@pytest.fixture(params=[1, 7, 1 << 22], ids=["row by row", "few rows", "at once"])
def small_blocks(request, monkeypatch):
    """Blocks of one row, of some rows, of all."""
    monkeypatch.setattr(neighbours, "VALUES_PER_BLOCK", request.param * 40)


def radii(points, places):
    return neighbours.radii(neighbours.nearest_by_tenth(points, max(places)), places, kept_rows(len(points)))


def together(first, second):
    found = np.full((len(first), len(second)), np.nan)
    for rows, distances in neighbours.blocks(first, second):
        found[rows] = distances
    return found


def test_radii_reach_to_the_kth_other_point(small_blocks):
    points = RNG.standard_normal((40, 3))
    expected = np.sort(np.square(points[:, None] - points[None]).sum(2), axis=1)
    np.testing.assert_allclose(radii(points, (3, 5))[:, 0], expected[:, [3, 5]].T, rtol=1e-10)


def test_radii_without_a_tenth_are_those_of_the_others(small_blocks):
    points = RNG.standard_normal((40, 3))
    found = radii(points, (3, 5))
    for tenth in range(10):
        rows = np.r_[: 4 * tenth, 4 * tenth + 4 : 40]
        np.testing.assert_allclose(found[:, tenth + 1, rows], radii(points[rows], (3, 5))[:, 0], rtol=1e-10)
        assert (np.delete(found[:, tenth + 1], rows, axis=1) == -1).all()
