"""Arguments and options that several verbs have, and the units that such arguments name."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from hpcddm.errors import ConfigError, require
from hpcddm.runs.run_dir import RunDir

PATH = click.Path(path_type=Path)
RUN = click.argument("run", type=lambda name: RunDir(Path(name)), metavar="RUN")
UNIT = click.argument("unit", metavar="STAGE/UNIT")
EXPERIMENT = click.argument("name", default="quickstart", metavar="[EXPERIMENT]")
OVERRIDES = click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
SITE = click.option(
    "--site", "site_name", default="auto", show_default=True, help="A site's name or YAML file; auto: Slurm, or here."
)
RUN_DIR = click.option("--run-dir", type=PATH, help="Default: runs/<the experiment's name>.")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Write the exact batch scripts and submit nothing.")
JSON = click.option("--json", "as_json", is_flag=True, help="For programs.")
TRUST = click.option(
    "--trust-run", is_flag=True, help="Execute the run's own copies of site and template, even if others wrote them."
)


def matching_units(root: Path, names: Iterable[str], keys: Sequence[str]) -> list[str]:
    """Return the units that some names mean, each once; keys: of all units, in their order.

    `train` means all units whose keys begin with `train/`. Raises `ConfigError` for a name that means none.
    """
    named: dict[str, None] = {}
    for name in names:
        if not (units := [key for key in keys if key == name or key.startswith(f"{name}/")]):
            stages = ", ".join(dict.fromkeys(key.rpartition("/")[0] for key in keys))
            raise ConfigError(f"{root} has no unit '{name}'; valid: {', '.join(keys)}; or a stage: {stages}")
        named |= dict.fromkeys(units)
    return list(named)


def matching_unit(root: Path, name: str, keys: Sequence[str]) -> str:
    """Return the unit that a name means; raises `ConfigError` for a name that means none, or several."""
    units = matching_units(root, [name], keys)
    require(len(units) <= 1, f"{root}: {name} has {len(units)} units; name one: {', '.join(units)}", ConfigError)
    return units[0]
