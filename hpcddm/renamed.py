"""Old names in users' files: each is an error that tells the new name."""

KEYS = {
    "critics": "measuring",
    "judge": "classifier",
    "mixed": "overrides",
    "start": "init_from",
    "redo": "nredo",
    "residency": "placement",
    "quantity": "prediction_type",
    "text": "condition",
    "look_again_seconds": "recheck_seconds",
}
"""Keys of an experiment or a site."""

VARIANTS = {"once": "per-trajectory", "measured": "target_space"}
"""Names of variants."""

STAGES = {"critics": "measuring"}
"""Stages, as `--redo` and the `stages` of a site name them."""


def hint(names: dict[str, str], old: str) -> str:
    """Text to append to an error about the unknown name `old`; empty unless it was renamed."""
    return f", which is now called '{names[old]}'" if old in names else ""
