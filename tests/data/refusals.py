"""What users read where something is refused."""

from collections.abc import Callable

import pytest

from hpcddm.errors import UserError


def assert_refused(
    message: str, ask: Callable, *arguments: object, error: type[Exception] = UserError, **keys: object
) -> None:
    """Assert that a call raises an error of one line, in which a regular expression is found."""
    with pytest.raises(error, match=message) as raised:
        ask(*arguments, **keys)
    assert "\n" not in str(raised.value)
