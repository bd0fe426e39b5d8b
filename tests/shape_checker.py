"""The checker of types and shapes that tests apply to calls."""

from collections.abc import Iterator
from contextlib import contextmanager

import jaxtyping
from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
"""Checks a function's arguments and result; an int passes for a float, as it does for mypy."""


@contextmanager
def unchecked() -> Iterator[None]:
    """Check no call, as in jobs: for values that only the code itself should refuse."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
