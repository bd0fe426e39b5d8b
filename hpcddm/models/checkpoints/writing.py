"""Writing tensors: safetensors files with the permissions that any other new file gets."""

import os
import re
import stat
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from hpcddm.files import atomic


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
