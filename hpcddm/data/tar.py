"""WebDataset tars: writing them, and finding where each sample's image lies, its class and its caption."""

import io
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import webdataset
from jaxtyping import Int32, UInt32, UInt64
from PIL import Image

from hpcddm.data.sources.base import Record
from hpcddm.errors import UserError, require

V = TypeVar("V")
IMAGES = frozenset({"png", "jpg", "jpeg", "webp", "bmp", "gif", "tif", "tiff"})
"""Extensions of members that are a sample's image."""
LABEL, CAPTION = "cls", "txt"
"""Extensions of members that are a sample's class, a number, and its caption."""

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


@dataclass(frozen=True)
class TarIndex:
    """Samples of one tar in its order: key, place of the image's bytes, class, caption.

    offsets, sizes: in bytes; labels, captions: None for a tar without them.
    """

    keys: list[str]
    offsets: UInt64[np.ndarray, " n"]
    sizes: UInt32[np.ndarray, " n"]
    labels: Int32[np.ndarray, " n"] | None
    captions: list[str] | None

    def rows(self, shard: int) -> np.ndarray:
        """Return the samples as rows of dtype `SAMPLE`, those of tar number `shard`."""
        rows = np.zeros(len(self.keys), dtype=SAMPLE)
        rows["shard"], rows["offset"], rows["size"], rows["cluster"] = shard, self.offsets, self.sizes, -1
        rows["label"] = 0 if self.labels is None else self.labels
        return rows


def write_tar(path: Path, records: Iterable[Record], image_size: int, channels: int) -> int:
    """Write records as PNG, centre-cropped and resized, with class and caption; return their number.

    The same records give the same bytes: no time and no user name is stored.
    """
    count = 0
    with open(path, "wb") as file, webdataset.TarWriter(file, mtime=0) as writer:
        for record in records:
            stream = io.BytesIO()
            _prepare(record.image, image_size, channels).save(stream, format="PNG")
            members: dict[str, str | bytes] = {"__key__": record.key, "png": stream.getvalue()}
            if record.label is not None:
                members[LABEL] = str(record.label).encode()
            if record.caption is not None:
                members[CAPTION] = record.caption.encode()
            writer.write(members)
            count += 1
    return count


def index_tar(path: Path) -> TarIndex:
    """Find the samples of a tar; members that are neither image nor class nor caption are passed over.

    Raises `UserError` naming the tar and the sample when it is torn, a sample has two images, or some samples have a
    class or a caption and others have none.
    """
    images: dict[str, tuple[int, int]] = {}
    labels: dict[str, np.int32] = {}
    captions: dict[str, str] = {}
    try:
        with tarfile.open(path) as tar:
            for member in tar:
                key, extension = split_name(member.name)
                if extension in IMAGES and member.isfile():
                    require(key not in images, f"{path}: sample {key} has two images")
                    images[key] = (member.offset_data, member.size)
                elif extension in (LABEL, CAPTION) and (content := tar.extractfile(member)):
                    if extension == LABEL:
                        labels[key] = np.int32(int(content.read()))
                    else:
                        captions[key] = content.read().decode()
    except (tarfile.TarError, OSError, ValueError, OverflowError) as error:
        raise UserError(f"{path}: a torn or foreign tar ({error})") from None
    return TarIndex(
        keys=list(images),
        offsets=np.array([offset for offset, _ in images.values()], dtype=np.uint64),
        sizes=np.array([size for _, size in images.values()], dtype=np.uint32),
        labels=np.array(known) if (known := _of_every(path, "class", images, labels)) else None,
        captions=_of_every(path, "caption", images, captions),
    )


def split_name(name: str) -> tuple[str, str]:
    """Split a member's name into key and extension at the first dot of its base name, as WebDataset does.

    The extension is in lower case; the key is empty for a name that belongs to no sample.
    """
    folder, slash, base = name.rpartition("/")
    stem, _, extension = base.partition(".")
    return (folder + slash + stem, extension.lower()) if stem and extension else ("", "")


def _of_every(path: Path, what: str, images: Iterable[str], values: Mapping[str, V]) -> list[V] | None:
    """List the values of all samples; None where no sample has one. Raises `UserError` naming one without."""
    if not values:
        return None
    for key in images:
        require(key in values, f"{path}: sample {key} has no {what}, others have one")
    return [values[key] for key in images]


def _prepare(image: Image.Image, size: int, channels: int) -> Image.Image:
    image = image.convert("RGB" if channels == 3 else "L")
    side = min(image.size)
    x, y = (image.width - side) // 2, (image.height - side) // 2
    image = image.crop((x, y, x + side, y + side))
    return image if side == size else image.resize((size, size), Image.Resampling.LANCZOS)
