"""Chunk arithmetic: every element once, no chunk empty, never more at a time than allowed."""

import itertools

import pytest

from hpcddm.launch.queue import split_into_chunks

SIZES = [*range(1, 40), 97, 500, 1000, 1001, 1002]


@pytest.mark.parametrize("max_array", [1, 2, 7, 8, 30, 1001])
def test_every_element_is_in_one_chunk_and_no_chunk_is_empty_or_too_long(max_array):
    for count, max_parallel in itertools.product(SIZES, [1, 2, 5, 256]):
        found = split_into_chunks(count, max_array, max_parallel)
        assert [index for one in found for index in range(one.start, one.stop)] == list(range(count))
        lengths = [one.stop - one.start for one in found]
        assert 0 < min(lengths) and max(lengths) <= max_array and max(lengths) - min(lengths) <= 1
        assert len(found) == -(-count // max_array)


def at_the_same_time(found):
    """The largest sum of throttles over chunks of which none waits for another, by starting all as early as may be."""
    lane_of = {}
    for index, one in enumerate(found):
        assert one.blocking_chunk is None or one.blocking_chunk < index
        lane_of[index] = index if one.blocking_chunk is None else lane_of[one.blocking_chunk]
    lanes = {lane: max(one.throttle for i, one in enumerate(found) if lane_of[i] == lane) for lane in lane_of.values()}
    return sum(lanes.values())


@pytest.mark.parametrize("max_parallel", [1, 2, 3, 8, 256])
def test_throttles_add_up_to_what_may_run_at_most(max_parallel):
    for count, max_array in itertools.product(SIZES, [1, 2, 3, 8, 1001]):
        found = split_into_chunks(count, max_array, max_parallel)
        assert all(1 <= one.throttle <= one.stop - one.start for one in found)
        total, blocking = at_the_same_time(found), [one.blocking_chunk for one in found]
        blocking = [one for one in blocking if one is not None]
        assert total <= max_parallel
        assert total == min(count, max_parallel) or blocking, "slots lie idle"
        assert len(blocking) == len(set(blocking)), "two chunks wait for the same one and then run together"
