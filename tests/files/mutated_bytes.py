"""Files with some bytes replaced, or their end cut off: what reads them has values, or says in one line why not."""

import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcddm.errors import UserError

NUMBERS_OF_FILES = pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.long)])
SHARE = st.floats(0, 1, exclude_max=True)
CHANGES = st.tuples(st.lists(st.tuples(SHARE, st.integers(0, 255)), min_size=1, max_size=8), SHARE | st.just(1.0))
QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "derandomize": True, "database": None}


def require_values_or_one_line(count: int, whole: bytes, read: Callable[[bytes], None], within: int | None = None):
    """Read so many mutations of a file; bytes are replaced within its first ones, or anywhere."""

    @given(CHANGES)
    @settings(max_examples=count, **QUIET)
    def survive(change):
        (places, kept), raw = change, bytearray(whole)
        for place, value in places:
            raw[int(place * (within or len(raw)))] = value
        started = time.monotonic()
        try:
            read(bytes(raw[: int(kept * len(raw))]))
        except UserError as error:
            assert str(error).isprintable()
        assert time.monotonic() - started < 5

    survive()
