"""Units that a user names on the command line: one by its key, or all of a stage by the stage's name."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from hpcddm.errors import ConfigError


def matching_units(root: Path, names: Iterable[str], keys: Sequence[str]) -> list[str]:
    """Return the units that some names mean, each once; keys: of all units, in their order.

    `train` means all units whose keys begin with `train/`. Raises `ConfigError` for a name that means none.
    """
    named: dict[str, None] = {}
    for name in names:
        units = [key for key in keys if key == name or key.startswith(f"{name}/")]
        if not units:
            stages = ", ".join(dict.fromkeys(key.rpartition("/")[0] for key in keys))
            raise ConfigError(f"{root} has no unit '{name}'; valid: {', '.join(keys)}; or a stage: {stages}")
        named |= dict.fromkeys(units)
    return list(named)


def matching_unit(root: Path, name: str, keys: Sequence[str]) -> str:
    """Return the unit that a name means; raises `ConfigError` for a name that means none, or several."""
    units = matching_units(root, [name], keys)
    if len(units) > 1:
        raise ConfigError(f"{root}: {name} has {len(units)} units; name one: {', '.join(units)}")
    return units[0]
