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


@dataclass(frozen=True)
class TarIndex:
    """Samples of one tar in its order: key, place of the image's bytes, class, caption.

    offsets, sizes: in bytes; labels, captions: None for a tar without them.
    """

    path: Path
    keys: list[str]
    offsets: UInt64[np.ndarray, " n"]
    sizes: UInt32[np.ndarray, " n"]
    labels: Int32[np.ndarray, " n"] | None
    captions: list[str] | None


@dataclass(frozen=True)
class Sample:
    """One sample as it stands in a tar: key, the image's file and the extension of its name, class, caption."""

    key: str
    image: bytes
    extension: str
    label: int | None = None
    caption: str | None = None


def write_samples(path: Path, samples: Iterable[Sample]) -> int:
    """Write samples and return their number.

    The same samples give the same bytes: no time and no user name is stored.
    """
    count = 0
    with open(path, "wb") as file, webdataset.TarWriter(file, mtime=0) as writer:
        for sample in samples:
            members: dict[str, str | bytes] = {"__key__": sample.key, sample.extension: sample.image}
            if sample.label is not None:
                members[LABEL] = str(sample.label).encode()
            if sample.caption is not None:
                members[CAPTION] = sample.caption.encode(errors="surrogateescape")
            writer.write(members)
            count += 1
    return count


def write_tar(path: Path, records: Iterable[Record], image_size: int, channels: int) -> int:
    """Write records as PNG, centre-cropped and resized, with class and caption; return their number."""
    return write_samples(path, (_as_png(record, image_size, channels) for record in records))


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
        path,
        keys=list(images),
        offsets=np.array([offset for offset, _ in images.values()], dtype=np.uint64),
        sizes=np.array([size for _, size in images.values()], dtype=np.uint32),
        labels=np.array(known) if (known := _of_every(path, "class", images, labels)) else None,
        captions=_of_every(path, "caption", images, captions),
    )


def columns_of(indices: Mapping[int, TarIndex]) -> dict[str, np.ndarray | list[str]]:
    """Return the columns of consecutive tars by name; indices: by the tars' numbers in their split.

    tar, offset, size, key; label and caption where there are any. Raises `UserError` naming a tar without them among
    others that have them.
    """
    parts = list(indices.values())
    columns: dict[str, np.ndarray | list[str]] = {
        "tar": np.repeat(np.array(list(indices), dtype=np.uint32), [len(part.keys) for part in parts]),
        "offset": np.concatenate([part.offsets for part in parts]),
        "size": np.concatenate([part.sizes for part in parts]),
        "key": [key for part in parts for key in part.keys],
    }
    for what, values in (("classes", [part.labels for part in parts]), ("captions", [part.captions for part in parts])):
        lacking = [part.path for part, value in zip(parts, values, strict=True) if value is None]
        if 0 < len(lacking) < len(parts):
            raise UserError(f"{lacking[0]}: its images have no {what}, those of other tars have")
    if labels := [part.labels for part in parts if part.labels is not None]:
        columns["label"] = np.concatenate(labels)
    if captions := [part.captions for part in parts if part.captions is not None]:
        columns["caption"] = [caption for part in captions for caption in part]
    return columns


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


def _as_png(record: Record, image_size: int, channels: int) -> Sample:
    stream = io.BytesIO()
    _prepare(record.image, image_size, channels).save(stream, format="PNG")
    return Sample(record.key, stream.getvalue(), "png", record.label, record.caption)


def _prepare(image: Image.Image, size: int, channels: int) -> Image.Image:
    image = image.convert("RGB" if channels == 3 else "L")
    side = min(image.size)
    x, y = (image.width - side) // 2, (image.height - side) // 2
    image = image.crop((x, y, x + side, y + side))
    return image if side == size else image.resize((size, size), Image.Resampling.LANCZOS)
