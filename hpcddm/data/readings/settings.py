"""Settings that readings have in common in an experiment's YAML."""

from typing import ClassVar

from hpcddm.schema import VariantSettings


class ReadingSettings(VariantSettings):
    """Way in which trainings read their images, which changes no bit of them."""

    room: ClassVar[str] = "data/readings"
    reads_copies: ClassVar[bool] = False
    """True where an expert reads the tars that the stage materialise makes of its list."""

    @property
    def drops_exif(self) -> bool:
        """Tell if copies lose the EXIF of their pictures."""
        return False
