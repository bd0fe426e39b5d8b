"""Tensors read from files: into memory that the network has, never into what a file asks for."""

from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from hpcddm.errors import UserError, require
from hpcddm.files.tensor_file import Form, TensorFile

NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Names of the types in files."""
DTYPES = {name: dtype for dtype, name in NAMES.items()}


def forms(tensors: Mapping[str, Tensor]) -> dict[str, Form]:
    """Return type and shape of some tensors, which may be on the device `meta`."""
    return {name: Form(NAMES[values.dtype], tuple(values.shape)) for name, values in tensors.items()}


def load(network: nn.Module, path: Path, sha256: str | None = None) -> None:
    """Fill a network on the host with the tensors of a file, which are just those of its state.

    Args:
        network: What is filled; also where an error is raised.
        path: The file; it is read once.
        sha256: Digest that its bytes must have; None where nobody has stated it.

    Raises:
        UserError: Naming the file, and the tensor that is another than the network's, or not finite.
    """
    with opened(path) as file:
        state = network.state_dict()
        file.require(forms(state))
        fill(state, file, sha256)


def opened(path: Path) -> TensorFile:
    """Open a file of a unit's weights; raises `UserError` naming the file that is missing or has no usable header."""
    try:
        return TensorFile(path)
    except FileNotFoundError:
        raise UserError(f"{path}: is missing; fetch it again, or remove {path.parent}") from None


def fill(tensors: Mapping[str, Tensor], file: TensorFile, sha256: str | None) -> None:
    """Read the tensors of these names, contiguous ones on the host and of the types in the file.

    Raises `UserError` naming the file for another digest than `sha256`, and the first tensor that is not finite.
    """
    computed = file.read({name: _memory(values) for name, values in tensors.items() if values.numel()})
    require(
        sha256 in (None, computed),
        f"{file.path}: its bytes are not those of its manifest; fetch it again, or remove {file.path.parent}",
    )
    broken = first_not_finite(tensors)
    require(
        broken is None,
        f"{file.path}: tensor '{broken}' is not finite; fetch it again, or remove {file.path.parent}",
    )


def read(file: TensorFile, names: Collection[str], sha256: str | None = None) -> dict[str, Tensor]:
    """Read some tensors of a file as it has them; `sha256` and errors as of `fill`."""
    tensors = {name: torch.empty(file.forms[name].shape, dtype=DTYPES[file.forms[name].dtype]) for name in names}
    fill(tensors, file, sha256)
    return tensors


def read_whole(file: TensorFile, name: str) -> Tensor:
    """Read one tensor as the file has it, its values unchecked."""
    values = torch.empty(file.forms[name].shape, dtype=DTYPES[file.forms[name].dtype])
    read_part(file, name, 0, values)
    return values


def read_part(file: TensorFile, name: str, first: int, values: Tensor) -> None:
    """Read values of a tensor from its value `first` on, flat, into contiguous memory on the host of the same type."""
    if values.numel():
        file.read_part(name, first * values.element_size(), _memory(values))


def first_not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor with a value that is not finite; None where all are."""
    for name, values in tensors.items():
        # Both ends of NaN are NaN. One pass and no further memory, unlike `isfinite`.
        if values.is_floating_point() and values.numel() and not torch.stack(values.aminmax()).isfinite().all():
            return name
    return None


def _memory(values: Tensor) -> memoryview:
    """Return the bytes of a contiguous tensor on the host, to write to."""
    return values.detach().view(-1).view(torch.uint8).numpy().data
