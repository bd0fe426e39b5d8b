"""Layout of the samples in a tar: what each member is, by the extension of its name."""

from dataclasses import dataclass

IMAGES = frozenset("png apng jpg jpeg jpe jfif webp bmp gif tif tiff avif jp2 j2k".split())
"""Extensions of members that are a sample's image."""
LABEL, CAPTION = "cls", "txt"
"""Extensions of members that are a sample's class, a number, and its caption."""


def extension_of(text: str) -> str:
    """Return an extension as members have it, whether it was written with a dot in front of it or without."""
    return text.lower().removeprefix(".")


@dataclass(frozen=True)
class ValueLocation:
    """Place of a value in a sample: the member of this extension, or the entry of this name in the JSON that it holds.

    In an experiment `txt` or `json:caption`.
    """

    extension: str
    entry: str | None = None

    @classmethod
    def parse(cls, text: str) -> "ValueLocation":
        extension, _, entry = text.partition(":")
        return cls(extension_of(extension), entry or None)


@dataclass(frozen=True)
class TarLayout:
    """Roles of the members of a sample, by their extensions; every other member is passed over.

    metadata: extension of a JSON object with further values of the sample; require_end: False takes tars without the
    zeros that end one.
    """

    images: frozenset[str] = IMAGES
    label: ValueLocation | None = ValueLocation(LABEL)
    caption: ValueLocation | None = ValueLocation(CAPTION)
    metadata: str = "json"
    require_end: bool = True

    @property
    def extensions(self) -> frozenset[str]:
        """Extensions of the members that say something of a sample, but for its image."""
        fields = (field.extension for field in (self.label, self.caption) if field is not None)
        return frozenset({self.metadata, *fields})
