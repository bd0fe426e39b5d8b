"""The checker of types and shapes that tests apply to calls."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
"""Checks a function's arguments and result; an int passes for a float, as it does for mypy."""
