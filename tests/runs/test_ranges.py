"""Ranges of tars: every tar and every image in one of them, and no more of them than a run can look through."""

import pytest

from hpcddm.runs import ranges
from tests.helpers import tiny


@pytest.mark.parametrize("tars, most", [(1, 256), (7, 256), (7, 3), (256, 256), (257, 256), (40_000, 256)])
def test_every_tar_and_image_is_in_one_range_in_order(tmp_path, monkeypatch, tars, most):
    monkeypatch.setattr(ranges, "MAX_RANGES", most)
    experiment, images = tiny(tmp_path, data__shards=tars), {"train": 123_457, "heldout": 40}
    keys = ranges.range_keys(experiment, "shard", (ranges.TRAIN,))
    assert len(keys) == min(tars, most) and keys[0] == "shard/train-000"
    held = [tar for key in keys for tar in ranges.tars_of(experiment, key)]
    assert held == list(range(tars))
    spans = [ranges.images_of_tar(experiment, "train", tar, images["train"]) for tar in held]
    assert [span.stop for span in spans[:-1]] == [span.start for span in spans[1:]]
    counts = [ranges.images_of_range(experiment, key, images) for key in keys]
    assert sum(counts) == images["train"] and max(counts) <= 2 * min(counts) + 2 * images["train"] // tars


def test_held_out_images_have_ranges_of_their_own(tmp_path):
    keys = ranges.range_keys(tiny(tmp_path, data__heldout_shards=2), "assign")
    assert keys == ["assign/train-000", "assign/train-001", "assign/heldout-000", "assign/heldout-001"]
    assert [ranges.split_of(key) for key in keys] == ["train", "train", "heldout", "heldout"]
