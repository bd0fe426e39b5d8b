"""Sizes, formats and damage of a few pictures from a folder."""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median_low

from PIL import Image

from hpcddm.data.image_decoding import ImageError, orientation_of, read_image
from hpcddm.data.row_groups import LFS_POINTER
from hpcddm.sources.folders.proposal import SamplePicture

SECONDS = 5
"""Seconds after which no further picture is read."""
FEWEST = 10
"""Pictures that are read whatever it takes."""
IMAGE_SIZES = (8, 12, 16, 20, 24, 28, 32, 48, 64, 96, 128, 256)
"""Sizes of images for networks, in pixels; the default networks divide them into patches."""
GREY_MODES = ("1", "L")


@dataclass
class PictureSample:
    """Sizes, formats and damage of some pictures.

    Attributes:
        opened: Number of pictures that were read.
        broken: Name and reason of those that cannot be used.
        widths, heights: Sides of the others, upright, in pixels.
        formats: Numbers of pictures by format.
        grey: Number of grey ones.
    """

    opened: int = 0
    broken: list[tuple[str, str]] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    heights: list[int] = field(default_factory=list)
    formats: Counter[str] = field(default_factory=Counter)
    grey: int = 0

    @property
    def is_grey(self) -> bool:
        """True if all pictures are grey."""
        return 0 < self.grey == len(self.widths)

    @property
    def short_sides(self) -> list[int]:
        """Shorter sides of the pictures, in ascending order."""
        return sorted(map(min, self.widths, self.heights))

    @property
    def image_size(self) -> int:
        """Largest of `IMAGE_SIZES` to which at most half of the pictures must be enlarged."""
        side = median_low(self.short_sides)
        return max((size for size in IMAGE_SIZES if size <= side), default=IMAGE_SIZES[0])

    def remarks(self) -> list[str]:
        """Describe what is odd about the pictures, one line each."""
        lines = []
        if self.broken:
            pointers = [name for name, reason in self.broken if "Git LFS" in reason]
            advice = "; 'git lfs pull' fetches the files" if pointers else ""
            name, reason = self.broken[0]
            lines.append(f"{len(self.broken)} of {self.opened} opened cannot be used: {name} ({reason}){advice}")
        if self.widths and self.short_sides[0] < min(self.image_size, IMAGE_SIZES[-1]) // 2:
            small = sum(side < self.image_size // 2 for side in self.short_sides)
            lines.append(f"{small} of {self.opened} opened are less than half of image_size: they will be blurred")
        if self.grey and not self.is_grey:
            lines.append(f"{self.grey} of {self.opened} opened are grey, the others have colours")
        return lines


def read_sample(pictures: Iterable[SamplePicture]) -> PictureSample:
    """Decode pictures, as many as `SECONDS` allow."""
    sample, end = PictureSample(), time.monotonic() + SECONDS
    for name, content, reason in pictures:
        sample.opened += 1
        try:
            image = _decoded(content, reason)
        except ImageError as error:
            sample.broken.append((name, str(error)))
        else:
            size = image.size if orientation_of(image) < 5 else image.size[::-1]
            sample.widths.append(size[0])
            sample.heights.append(size[1])
            sample.formats[str(image.format or "")] += 1
            sample.grey += image.mode in GREY_MODES or image.mode.startswith("I")
        if sample.opened >= FEWEST and time.monotonic() > end:
            break
    return sample


def _decoded(content: bytes | Image.Image | None, reason: str) -> Image.Image:
    if isinstance(content, Image.Image):
        return content
    if content is None or content.startswith(LFS_POINTER):
        raise ImageError(reason or "only the pointer that Git LFS leaves")
    return read_image(content)
