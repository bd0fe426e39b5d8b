"""WebDataset tars and their byte-offset index, by which an expert reads its own samples only."""

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import webdataset
from PIL import Image

from hpcddm.data.sources.base import Record
from hpcddm.errors import UserError

SAMPLE = np.dtype(
    [
        ("id", "<u8"),
        ("shard", "<u4"),
        ("offset", "<u8"),
        ("size", "<u4"),
        ("label", "<i4"),
        ("cluster", "<i4"),
    ]
)
"""One row of an index: `offset` and `size` of the image's bytes in tar number `shard`; cluster -1 is not known yet."""


def write_tar(path: Path, records: Iterable[Record], image_size: int, channels: int) -> int:
    """Write records as PNG and class, centre-cropped and resized; return their number.

    The same records give the same bytes: no time and no user name is stored.
    """
    count = 0
    with open(path, "wb") as file, webdataset.TarWriter(file, mtime=0) as writer:
        for record in records:
            stream = io.BytesIO()
            _prepare(record.image, image_size, channels).save(stream, format="PNG")
            writer.write({"__key__": record.key, "png": stream.getvalue(), "cls": str(record.label).encode()})
            count += 1
    return count


def index_tar(path: Path, shard: int) -> tuple[np.ndarray, list[str]]:
    """Read the rows (N,) of dtype `SAMPLE` and the keys of a tar, in its order.

    Raises `UserError` naming the tar and the entry when it is torn or an image lacks its class.
    """
    rows, keys, images, labels = [], [], {}, {}
    try:
        with tarfile.open(path) as tar:
            for entry in tar:
                if not entry.isfile():
                    continue
                key, _, extension = entry.name.partition(".")
                if extension != "cls":
                    images[key] = (entry.offset_data, entry.size)
                elif content := tar.extractfile(entry):
                    labels[key] = int(content.read())
    except (tarfile.TarError, OSError, ValueError) as error:
        raise UserError(f"{path}: a torn or foreign tar ({error})") from None
    for key, (offset, size) in images.items():
        if key not in labels:
            raise UserError(f"{path}: image {key} has no class")
        rows.append((0, shard, offset, size, labels[key], -1))
        keys.append(key)
    return np.array(rows, dtype=SAMPLE), keys


def _prepare(image: Image.Image, size: int, channels: int) -> Image.Image:
    image = image.convert("RGB" if channels == 3 else "L")
    side = min(image.size)
    x, y = (image.width - side) // 2, (image.height - side) // 2
    image = image.crop((x, y, x + side, y + side))
    return image if side == size else image.resize((size, size), Image.Resampling.LANCZOS)
