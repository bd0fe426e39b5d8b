import gzip

import numpy as np
import pytest

from hpcddm.errors import UserError
from tests.data.refusals import assert_refused
from tests.helpers import SIDE, write_idx, write_source
from tests.sources.opening import split_of


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("split, count", [("train", 12), ("heldout", 5)])
def test_idx_files_plain_and_gzipped(tmp_path, suffix, split, count):
    write_source(tmp_path, train=12, heldout=5, suffix=suffix)
    records = split_of("idx", split, folder=str(tmp_path))
    assert len(records) == count and records.labels.tolist() == [number % 4 for number in range(count)]
    assert records[3].label == 3 and records[3].image.size == (SIDE, SIDE)
    assert len({records[number].key for number in range(count)}) == count
    pixels = np.random.default_rng(0).integers(0, 256, (12, SIDE, SIDE))
    assert split == "heldout" or np.array_equal(np.asarray(records[11].image), pixels[11])


DAMAGES = {
    "torn": lambda content: content[: len(content) // 2],
    "flipped": lambda content: content[:12] + bytes(255 - byte for byte in content[12:30]) + content[30:],
    "foreign": lambda content: gzip.compress(b"\x00\x00\x0d\x03" + b"\x00" * 100),
    "longer": lambda content: gzip.compress(gzip.decompress(content) + b"\x00"),
    "empty": lambda content: b"",
    "text": lambda content: b"<html>404</html>",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", ["train-labels-idx1-ubyte.gz", "train-images-idx3-ubyte.gz"])
def test_a_damaged_idx_file_is_named(tmp_path, damage, which):
    path = write_source(tmp_path) / which
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with pytest.raises(UserError, match=f"{which}: no IDX file of unsigned bytes in [13] dimensions, or a torn one"):
        split_of("idx", folder=str(tmp_path))[0]


def test_images_without_labels_are_counted_and_a_missing_file_is_named(tmp_path):
    assert_refused("holds no file named train-labels", split_of, "idx", folder=str(tmp_path))
    write_source(tmp_path, train=12)
    write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.zeros(11))
    with pytest.raises(UserError, match="12 images and 11 labels"):
        split_of("idx", folder=str(tmp_path))[0]
