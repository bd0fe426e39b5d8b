"""Reading of tensors from files into memory allocated for the network; sizes in the file are never trusted."""

import os
import re
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from hpcddm.errors import UserError, require
from hpcddm.files import atomic
from hpcddm.files.tensor_file import TensorFile, TensorSpec

DTYPE_NAMES = {
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
DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


def tensor_specs(tensors: Mapping[str, Tensor]) -> dict[str, TensorSpec]:
    """Return type and shape of tensors, which may be on the device `meta`."""
    return {name: TensorSpec(DTYPE_NAMES[values.dtype], tuple(values.shape)) for name, values in tensors.items()}


def load(network: nn.Module, path: Path, sha256: str | None = None) -> None:
    """Load the tensors of a file into a network on the host; they must match the network's state exactly.

    Args:
        network: Network to fill. After an error, its state is undefined.
        path: The file; it is read once.
        sha256: Expected SHA-256 of the file; None to skip the check.

    Raises:
        UserError: The file is missing or has another digest, or a tensor is missing, does not match or is not finite.
    """
    with open_weights(path) as file:
        state = network.state_dict()
        file.require(tensor_specs(state))
        fill(state, file, sha256)


def open_weights(path: Path) -> TensorFile:
    """Open a file of a unit's weights.

    Raises:
        UserError: The file is missing or its header is not valid; the message names it.
    """
    try:
        return TensorFile(path)
    except FileNotFoundError:
        raise UserError(f"{path}: is missing; fetch it again, or remove {path.parent}") from None


def fill(tensors: Mapping[str, Tensor], file: TensorFile, sha256: str | None) -> None:
    """Read tensors from a file into existing memory.

    Args:
        tensors: Contiguous tensors on the host, by name, with the types and shapes of those in the file.
        file: The open file.
        sha256: Expected SHA-256 of the file; None to skip the check.

    Raises:
        UserError: The file has another digest, or a tensor is not finite; the message names file and tensor.
    """
    computed = file.read({name: memory(values) for name, values in tensors.items() if values.numel()})
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
    """Read some tensors of a file in the types that it stores.

    Args:
        file: The open file.
        names: Names of the tensors.
        sha256: Expected SHA-256 of the file; None to skip the check.

    Raises:
        UserError: As for `fill`.
    """
    tensors = {name: torch.empty(file.forms[name].shape, dtype=DTYPES[file.forms[name].dtype]) for name in names}
    fill(tensors, file, sha256)
    return tensors


def read_whole(file: TensorFile, name: str) -> Tensor:
    """Read one tensor in the type that the file stores, without checking its values."""
    values = torch.empty(file.forms[name].shape, dtype=DTYPES[file.forms[name].dtype])
    read_part(file, name, 0, values)
    return values


def read_part(file: TensorFile, name: str, first: int, values: Tensor) -> None:
    """Read consecutive values of a flattened tensor.

    Args:
        file: The open file.
        name: Name of the tensor.
        first: Index of the first value to read.
        values: Contiguous memory on the host that receives the values, of the type in the file.
    """
    if values.numel():
        file.read_part(name, first * values.element_size(), memory(values))


def first_not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor with a value that is not finite; None if all are finite."""
    for name, values in tensors.items():
        # Both ends of NaN are NaN. One pass and no further memory, unlike `isfinite`.
        if values.is_floating_point() and values.numel() and not torch.stack(values.aminmax()).isfinite().all():
            return name
    return None


def memory(values: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor on the host as writable bytes."""
    return values.detach().view(-1).view(torch.uint8).numpy().data


def save_tensors(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write tensors to a safetensors file that others may read as far as the umask says.

    safetensors makes its files for their owner alone: in a folder of a group nobody else could go on with them.
    Raises `OSError` where the disk does not take it.
    """
    try:
        save_file(tensors, path, metadata)
    except SafetensorError as error:
        # safetensors gives the number of a file system's error only in its message.
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
    probe = path.with_name(f".{atomic.unique_suffix()}")
    probe.touch()
    path.chmod(stat.S_IMODE(probe.stat().st_mode))
    probe.unlink()
