"""Settings that all placements have in common in an experiment's YAML."""

from typing import ClassVar

from hpcddm.schema import VariantSettings


class PlacementSettings(VariantSettings):
    """Settings of a placement of the experts' weights while sampling."""

    room: ClassVar[str] = "ensemble/placements"

    uses_all_gpus: ClassVar[bool] = False
    """True for a placement that has a use for every GPU of its node."""
