"""Writing WebDataset tars."""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import webdataset

from hpcddm.data.image_decoding import ImageError, fit_to_shape
from hpcddm.data.tars.record import Record
from hpcddm.data.tars.tar_layout import CAPTION, LABEL
from hpcddm.data.transforms.base import Transform
from hpcddm.errors import UserError


@dataclass(frozen=True)
class Sample:
    """One sample of a tar: key, the image's file and the extension of its name, class, caption."""

    key: str
    image: bytes
    extension: str
    label: int | None = None
    caption: str | None = None


def write_samples(path: Path, samples: Iterable[Sample]) -> int:
    """Write samples and return their number.

    The same samples give the same bytes: the time is 0, and names of user and group are empty.
    """
    count = 0
    with open(path, "wb") as file, webdataset.TarWriter(file, user="", group="", mtime=0) as writer:
        for sample in samples:
            members: dict[str, str | bytes] = {"__key__": sample.key, sample.extension: sample.image}
            if sample.label is not None:
                members[LABEL] = str(sample.label).encode()
            if sample.caption is not None:
                members[CAPTION] = sample.caption.encode(errors="surrogateescape")
            writer.write(members)
            count += 1
    return count


def write_tar(path: Path, records: Iterable[Record], image_size: int, channels: int, transform: Transform[Any]) -> int:
    """Write records as PNG of the wanted size, with class and caption; return their number.

    Raises `UserError` naming the record whose picture cannot be used.
    """
    return write_samples(path, (_as_png(record, image_size, channels, transform) for record in records))


def _as_png(record: Record, image_size: int, channels: int, transform: Transform[Any]) -> Sample:
    stream = io.BytesIO()
    try:
        fit_to_shape(record.image, channels, image_size, transform).save(stream, format="PNG")
    except ImageError as error:
        raise UserError(f"{record.key}: {error}") from None
    return Sample(record.key, stream.getvalue(), "png", record.label, record.caption)
