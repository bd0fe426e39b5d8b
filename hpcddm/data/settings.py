"""Properties of the data that networks and encoders depend on; an experiment's `data` has them all."""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class ImageShape(Protocol):
    """Shape of the images, (channels, image_size, image_size)."""

    @property
    def channels(self) -> int: ...

    @property
    def image_size(self) -> int: ...


@runtime_checkable
class NetworkData(ImageShape, Protocol):
    """Shape of the images, number of classes, and the text of every class."""

    @property
    def num_classes(self) -> int: ...

    @property
    def text(self) -> Any:
        """Settings of the prompts: `tokens` of a prompt, and their `encoder` with its `width`; None without text."""
