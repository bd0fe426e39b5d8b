"""Files of every kind that other people put where pictures are: pictures by odd names, and what is none."""

import io
import os
import tarfile
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
from PIL import Image

from hpcddm.data.tars.tar_layout import TarLayout
from hpcddm.sources.source_files import IndexedFile, PictureCheck
from hpcddm.sources.tars.existing_tars import SourceTar

HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(500)
JPEG_XL = b"\0\0\0\x0cJXL \r\n\x87\n" + bytes(500)


def encoded(seed: int, kind: str = "PNG", **options: object) -> bytes:
    """A picture of noise."""
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (9, 9, 3)).astype("uint8")
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def class_folder(root: Path, classes: tuple[str, ...] = ("cat", "dog"), count: int = 4) -> Path:
    """A folder per class, with a few PNG files each."""
    for number, name in enumerate(classes):
        (root / name).mkdir(parents=True, exist_ok=True)
        for place in range(count):
            (root / name / f"{place:03d}.png").write_bytes(encoded(number * count + place))
    return root


def write_tar(path: Path, members: list[tuple[str, bytes]], has_end: bool = True, **options: object) -> Path:
    """Write members, (name, content); (name, b'1...') of the types of links have 'TYPE target' as their content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", **options) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, tuple):
                info.type, info.linkname = content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        end = tar.offset
    if not has_end:
        os.truncate(path, end)
    return path


def index_existing_tar(
    path: Path,
    layout: TarLayout,
    prefix: str = "",
    check: PictureCheck | None = None,
    names: Collection[str] = (),
    is_wanted: Callable[[str], bool] = lambda key: True,
) -> IndexedFile:
    """Index a tar of no collection; is_wanted: tells by the key of a sample whether it counts."""
    return SourceTar(path, prefix, is_wanted, False, path.parent, None, layout).index(check, names)
