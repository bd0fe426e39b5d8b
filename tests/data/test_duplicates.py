import pytest

from hpcddm.data import duplicates
from hpcddm.data.column_files import write_columns
from hpcddm.data.columns import TextColumn

FIRST = [f"key-{number}" for number in range(1000)]
SECOND = ["key-7", "other", "twice", "twice", "key-999", "twice"]


def columns(folder, *keys):
    for number, own in enumerate(keys):
        write_columns(folder / str(number), {"key": own})
    return [TextColumn("key", {folder / str(number): len(own)}) for number, own in enumerate(keys)]


@pytest.mark.parametrize("at_once", [7, 1 << 22])
def test_samples_are_named_whose_key_one_before_them_has(tmp_path, monkeypatch, at_once):
    """Whether all hashes are sorted together or few at a time."""
    monkeypatch.setattr(duplicates, "HASHES_AT_ONCE", at_once)
    assert duplicates.find_repeated_keys(columns(tmp_path, FIRST), tmp_path).tolist() == []
    repeated = duplicates.find_repeated_keys(columns(tmp_path, FIRST, SECOND), tmp_path)
    assert repeated.tolist() == [1000, 1003, 1004, 1005]
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1"}


def test_keys_that_share_a_hash_only_are_different_samples(tmp_path, monkeypatch):
    real = duplicates._hashes
    monkeypatch.setattr(duplicates, "_hashes", lambda keys: real(keys) % 5)
    keys = columns(tmp_path, FIRST[:40] + ["key-3"])
    assert duplicates.find_repeated_keys(keys, tmp_path).tolist() == [40]
