import numpy as np
import pytest

from hpcddm.data import distinct_captions
from hpcddm.data.column_files import write_columns
from hpcddm.data.columns import Column, TextColumn
from hpcddm.data.distinct_captions import CAPTION, NUMBER, write_distinct

TRAIN = [f"a picture of {number % 37}" for number in range(500)] + ["", "naïve 猫", "\udcff", ""]
HELDOUT = ["", "only here", "a picture of 3", "\udcff"]


def distinct(folder, **texts):
    """The distinct captions of some columns, and the numbers of their samples' captions."""
    folder.mkdir(exist_ok=True)
    columns = {}
    for name, own in texts.items():
        write_columns(folder / f"{name}-texts.h5", {CAPTION: own})
        columns[name] = TextColumn(CAPTION, {folder / f"{name}-texts.h5": len(own)})
    done = []
    count = write_distinct(columns, folder / "captions.h5", lambda name: folder / f"{name}.h5", done.append)
    assert done[-1] == sum(map(len, texts.values()))
    made = TextColumn(CAPTION, {folder / "captions.h5": count}).gather(range(count))
    return made, {name: Column(NUMBER, {folder / f"{name}.h5": len(own)}).as_array() for name, own in texts.items()}


@pytest.mark.parametrize("at_once", [7, 64, 1 << 20])
def test_every_sample_has_the_number_of_its_caption(tmp_path, monkeypatch, at_once):
    """Whether all captions are sorted together or few at a time."""
    monkeypatch.setattr(distinct_captions, "SORTED_AT_ONCE", at_once)
    made, numbers = distinct(tmp_path / "few", train=TRAIN, heldout=HELDOUT)
    assert len(made) == len(set(made)) and set(made) == {*TRAIN, *HELDOUT}
    for name, texts in {"train": TRAIN, "heldout": HELDOUT}.items():
        assert numbers[name].dtype == np.uint32 and [made[number] for number in numbers[name]] == texts
    assert len(list((tmp_path / "few").iterdir())) == 5
    monkeypatch.setattr(distinct_captions, "SORTED_AT_ONCE", 100)
    assert distinct(tmp_path / "other", heldout=HELDOUT[::-1], train=TRAIN[::-1])[0] == made


def test_whoever_waits_can_stop_it_and_nothing_is_left(tmp_path):
    write_columns(tmp_path / "texts.h5", {CAPTION: TRAIN})

    def stop(done):
        raise InterruptedError

    columns = {"train": TextColumn(CAPTION, {tmp_path / "texts.h5": len(TRAIN)})}
    with pytest.raises(InterruptedError):
        write_distinct(columns, tmp_path / "captions.h5", lambda name: tmp_path / f"{name}.h5", stop)
    assert [path.name for path in tmp_path.iterdir()] == ["texts.h5"]
