"""Weights from other sites: exactly the tensors that were agreed on, and every value finite. torch is not imported."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import UInt

from hpcddm.files.checked_reads import Unreadable
from hpcddm.files.tensor_file import TensorFile, TensorSpec

BLOCK_BYTES = 64 << 20
"""Bytes of a tensor that are in memory at once."""
EXPONENTS = {"F32": (np.uint32, 0x7F800000), "F16": (np.uint16, 0x7C00), "BF16": (np.uint16, 0x7F80)}
"""Integer of the size of a value, and its exponent bits: all set, they mean an infinity or no number (IEEE 754)."""


def check_weights(path: Path, expected: Mapping[str, TensorSpec], advance: Callable[[int], None]) -> None:
    """Check a file of weights in memory that does not grow with it.

    Args:
        path: The file.
        expected: Type and shape of each tensor by name; floating-point types only.
        advance: Called with the bytes of every block that is checked; it may raise.

    Raises:
        FileNotFoundError: The file does not exist.
        Unreadable: The header is not valid, has metadata, or lists other tensors; or a value is infinite or not a
            number. The message names the first tensor.
    """
    with TensorFile(path) as file:
        if file.metadata:
            raise Unreadable(path, f"has metadata ({len(file.metadata)} entries), and none were agreed on")
        file.require(expected)
        for name, spec in file.forms.items():
            _check_finite(file, name, spec, advance)


def _check_finite(file: TensorFile, name: str, spec: TensorSpec, advance: Callable[[int], None]) -> None:
    integer, exponent = EXPONENTS[spec.dtype]
    buffer = np.empty(min(spec.size, BLOCK_BYTES) // np.dtype(integer).itemsize, integer)
    for first in range(0, spec.size, BLOCK_BYTES):
        block = buffer[: min(spec.size - first, BLOCK_BYTES) // buffer.itemsize]
        file.read_part(name, first, block.data.cast("B"))
        if not _are_finite(block, exponent):
            raise Unreadable(file.path, f"tensor '{name}' has values that are infinite or not numbers")
        advance(block.nbytes)


def _are_finite(values: UInt[np.ndarray, " n"], exponent: int) -> bool:
    # Bits, not numbers: denormals cost nothing here, and no type of torch is needed for BF16.
    values &= values.dtype.type(exponent)
    return not bool((values == exponent).any())
