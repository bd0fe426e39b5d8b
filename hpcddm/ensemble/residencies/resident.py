"""All experts resident."""

from hpcddm.schema import VariantSettings


class Settings(VariantSettings):
    """Nothing to set."""
