"""The experiment of a contract at this site: the agreed settings, with this site's places of images and weights."""

from collections.abc import Collection
from copy import deepcopy
from pathlib import Path

from hpcddm.collaboration import contract_settings
from hpcddm.collaboration.contract_files import check_files
from hpcddm.config.cross_checks import validate_experiment
from hpcddm.config.experiment import Experiment
from hpcddm.config.validation_errors import Origins
from hpcddm.errors import ConfigError
from hpcddm.errors.printing import printable
from hpcddm.exchange.contract import FILE, PARTITION, Contract
from hpcddm.loading.load_experiment import apply_overrides
from hpcddm.pipeline.unit_graph import plan_units

MAX_LISTED = 1500
"""Most characters of a list of settings that differ."""


def load_agreed(contract: Contract, folder: Path, overrides: Collection[str]) -> Experiment:
    """Return the experiment of a contract that somebody sent.

    Args:
        contract: The contract.
        folder: Folder with its partition.
        overrides: Settings of this site as `key.key=value`: where its images and weights are, and what may differ.

    Raises:
        UserError: The contract would make this site read a file, run a variant of its own, or plan too many units; or
            its partition or probe is damaged, or does not fit.
        ConfigError: An override is invalid, or changes what was agreed on. The message names the key.
    """
    contract_settings.check_settings(contract)
    values, partition = deepcopy(contract.experiment), contract.files[PARTITION]
    fitted_by = values["cluster"].get("clustering")
    if isinstance(fitted_by, dict) and fitted_by.get("name") == "file":
        # Of clusters that a file lists, the partition has all.
        fitted_by |= {"table": {"file": str(folder / PARTITION)}}
    own = {"name": "agreed", "partition": str(folder / PARTITION), "content_hash": partition.sha256}
    values["cluster"]["clustering"] = own | {"fitted_by": fitted_by}
    origins = apply_overrides(values, overrides, Origins(str(folder / FILE)))
    try:
        experiment = validate_experiment(values, origins)
    except ConfigError as error:
        hint = "where this site has its files, KEY=VALUE says, such as data.source.folder=/data/images"
        reason = "; ".join(str(error).splitlines())
        raise ConfigError(f"{reason}; {hint}; else ask the coordinator") from None
    contract_settings.check_experiment(contract, experiment)
    # An experiment that this site has changed is refused by the keys: see `check_recipes`.
    if not contract_settings.changed_settings(contract, experiment):
        check_files(contract, experiment, folder)
    return experiment


def check_recipes(contract: Contract, experiment: Experiment, site: str) -> None:
    """Check that this site's images and the recipes of its experts are those that were agreed on.

    Args:
        contract: The contract.
        experiment: The experiment of this site, with the hashes of its files.
        site: Name of this site.

    Raises:
        ConfigError: They are others. The message names key, value and agreed value.
    """
    found, agreed = experiment.data.content_hash, contract.data.content_hash
    if found != agreed:
        reason = f"other images than agreed on (their hash is {found}, the contract's {agreed})"
        by_time = "; files that stay where they are must have the coordinator's times, too: copy them with rsync -t"
        hint = by_time * experiment.data.source.uses_existing_tars
        raise ConfigError(f"data.source: {reason}; name the right ones{hint}")
    units = {unit.key: unit.fingerprint_settings for unit in plan_units(experiment)}
    changed = contract_settings.changed_settings(contract, experiment)
    for key in contract.units_of(site):
        changed |= contract_settings.differences(contract.experts[key].settings, units[key])
    if changed:
        pairs = {key: [printable(repr(value), 80) for value in both] for key, both in changed.items()}
        listed = "; ".join(f"{key}: {here} here, {there} agreed on" for key, (here, there) in pairs.items())
        raise ConfigError(f"not what the contract says ({printable(listed, MAX_LISTED)}); leave these out")
