import numpy as np
import pytest
import torch
from PIL import Image

from hpcddm.data import tar
from hpcddm.data.reader import ArrayReader, TarReader
from hpcddm.data.sources.base import Record
from hpcddm.errors import UserError
from tests.helpers import SIDE


@pytest.fixture
def shards(tmp_path):
    """Two tars of five and three images, their joint index, and the pixels."""
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (8, SIDE, SIDE, 1)).astype(np.uint8)
    paths, indices = [tmp_path / "a.tar", tmp_path / "b.tar"], []
    for shard, numbers in enumerate((range(5), range(5, 8))):
        chosen = [Record(f"train-{number}", Image.fromarray(pixels[number, ..., 0]), number % 4) for number in numbers]
        tar.write_tar(paths[shard], chosen, SIDE, 1)
        indices.append(tar.index_tar(paths[shard]).rows(shard))
    return paths, np.concatenate(indices), pixels


def test_rows_come_from_their_tars_in_the_order_asked_for(shards):
    paths, samples, pixels = shards
    reader, rows = TarReader(paths, samples), [7, 0, 5, 0, 4]
    assert len(reader) == 8 and np.array_equal(reader.images(rows), pixels[rows])
    assert reader.labels(rows).tolist() == [3, 0, 1, 0, 0] and reader.labels(rows).dtype == torch.int64


def test_an_expert_sees_its_own_rows_only(shards):
    paths, samples, pixels = shards
    samples["cluster"] = [0, 1, 0, 1, 0, 1, 0, 1]
    reader = TarReader(paths, samples[samples["cluster"] == 1])
    assert np.array_equal(reader.images(range(4)), pixels[1::2]) and reader.clusters(range(4)).tolist() == [1] * 4


def test_a_tar_torn_in_the_middle_is_named(shards):
    paths, samples, _ = shards
    paths[1].write_bytes(paths[1].read_bytes()[: int(samples[6]["offset"]) + 20])
    reader = TarReader(paths, samples)
    reader.images([5])
    with pytest.raises(UserError, match=rf"b.tar: torn at byte {samples[6]['offset']} \(20 of {samples[6]['size']}"):
        reader.images([6])


@pytest.mark.parametrize("pattern", [b"\xff\x00\xff\x00", b"\x00", b"\x03", b"\xe0"])
def test_overwritten_bytes_are_named_or_decoded_and_never_a_traceback(shards, pattern):
    paths, samples, _ = shards
    whole, (offset, size) = paths[0].read_bytes(), (int(samples[2]["offset"]), int(samples[2]["size"]))
    named = 0
    for place in range(offset, offset + size):
        torn = bytearray(whole)
        torn[place : place + len(pattern)] = pattern
        paths[0].write_bytes(torn)
        try:
            TarReader(paths, samples).images([2])
        except UserError as error:
            named += "a.tar: torn at byte" in str(error)
    assert named > size // 4


def test_arrays_are_read_by_row():
    images = np.arange(24, dtype=np.uint8).reshape(4, 2, 3, 1)
    reader = ArrayReader(images, np.array([5, 6, 7, 8]), np.array([0, 0, 1, 1]))
    assert len(reader) == 4
    for rows in (range(1, 3), np.array([3, 0])):
        assert reader.images(rows).tolist() == images[list(rows)].tolist()
        assert reader.labels(rows).tolist() == [5 + row for row in rows]
        assert reader.clusters(rows).tolist() == [row // 2 for row in rows]
