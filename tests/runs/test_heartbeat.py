import json

import pytest

from hpcddm.files.checked_reads import Unreadable
from hpcddm.runs import heartbeat
from hpcddm.runs.heartbeat import HeartbeatWriter


def test_a_beat_says_how_far_and_how_fast(tmp_path):
    writer = HeartbeatWriter(tmp_path, "owner", 3, "host", interval=0.0)
    writer.beat(100, 1000)
    writer._started = (writer._started[0] - 10, 100, 1000)
    writer.beat(600, 1000, loss=0.5)
    beat = heartbeat.read(tmp_path)
    assert (beat.owner, beat.attempt, beat.host, beat.done, beat.total) == ("owner", 3, "host", 600, 1000)
    assert beat.figures == {"loss": 0.5} and beat.is_fresh
    assert beat.rate == pytest.approx(50, rel=0.05) and beat.seconds_left == pytest.approx(8, rel=0.05)


def test_beats_are_few_but_the_last_one_counts(tmp_path):
    assert heartbeat.read(tmp_path) is None
    writer = HeartbeatWriter(tmp_path, "owner", 1, "host", interval=1000.0)
    for done in (1, 2, 3):
        writer.beat(done, 4)
    assert heartbeat.read(tmp_path).done == 1
    writer.beat(4, 4)
    assert heartbeat.read(tmp_path).done == 4


def test_a_beat_that_cannot_be_written_ends_nothing(tmp_path):
    (tmp_path / "file").touch()
    HeartbeatWriter(tmp_path / "file", "owner", 1, "host").beat(1, 2)
    assert heartbeat.read(tmp_path / "file") is None


def beat_of(**changes):
    return json.dumps({"time": 1e9, "owner": "o", "attempt": 1, "host": "h"} | changes)


DAMAGED = ["", "{", "[]", '{"colour": 1}', beat_of(time=9e12), beat_of(time=-1), beat_of(rate=-1), beat_of(done="1")]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_beat_is_named(tmp_path, content):
    (tmp_path / heartbeat.FILE_NAME).write_text(content)
    with pytest.raises(Unreadable, match="heartbeat.json: holds no usable JSON"):
        heartbeat.read(tmp_path)
