"""Bounds on the memory that a checkpoint of torch may take: about the size of its file."""

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import torch

from hpcddm.errors import UserError, require
from hpcddm.errors.printing import printable

MAX_SHARED = 2
"""Most bytes of all tensors per byte of the file: tied tensors store their values once."""


def require_uncompressed(file: Path, opened: BinaryIO) -> None:
    """Raise `UserError` for an archive that would grow as it is read; torch itself never packs one."""
    if not zipfile.is_zipfile(opened):
        return
    try:
        with zipfile.ZipFile(opened) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise UserError(f"{file}: torn, or no checkpoint of torch ({printable(error)})") from None
    packed = next((member.filename for member in members if member.compress_type != zipfile.ZIP_STORED), None)
    require(packed is None, f"{file}: {printable(packed)} is packed, which torch never does; save the tensors again")
    held, size = sum(member.file_size for member in members), os.fstat(opened.fileno()).st_size
    require(held <= size, f"{file}: its members claim {held:,} bytes and it has {size:,}; fetch it again")


def require_bounded(tensors: Mapping[str, torch.Tensor], file: Path) -> None:
    """Raise `UserError` naming the first tensor that is larger than what the file holds of it."""
    size, total = file.stat().st_size, 0
    for name, values in tensors.items():
        if values.layout != torch.strided or values.is_meta:
            continue
        own, stored = values.numel() * values.element_size(), values.untyped_storage().nbytes()
        total += own
        if own > stored or stored > size or total > MAX_SHARED * size:
            asked = f"tensor '{printable(name)}' asks for {own:,} bytes of {stored:,}, {total:,} with those before it"
            raise UserError(f"{file}: {asked}; the file has {size:,}; save the tensors again")
