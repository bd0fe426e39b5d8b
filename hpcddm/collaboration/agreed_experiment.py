"""The experiment of a contract at this site: the agreed settings, with this site's places of images and weights."""

from collections.abc import Collection
from copy import deepcopy
from pathlib import Path
from typing import cast

from hpcddm.collaboration import contract_settings
from hpcddm.config import variants
from hpcddm.config.cross_checks import validate_experiment
from hpcddm.config.experiment import Experiment
from hpcddm.config.validation_errors import Origins
from hpcddm.errors import ConfigError, UserError
from hpcddm.errors.printing import printable
from hpcddm.exchange import signed_folder
from hpcddm.exchange.contract import FILE, PARTITION, PROBE, Contract
from hpcddm.files.checked_reads import Unreadable
from hpcddm.files.tensor_file import TensorFile, TensorSpec
from hpcddm.loading.load_experiment import apply_overrides
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.ranges import PROBE_SAMPLES


def check_files(contract: Contract, experiment: Experiment, folder: Path) -> None:
    """Check partition and probe of a contract.

    Args:
        contract: The contract.
        experiment: The experiment that was made of it.
        folder: Folder of the contract.

    Raises:
        UserError: A file is missing or not what was signed, or does not fit the experiment; the message names it.
    """
    # torch, which what is read before does not need.
    from hpcddm.clustering.agreed import ADVICE, AgreedClustering
    from hpcddm.clustering.base import Clustering

    signed_folder.receive(folder, FILE, contract.files, None, lambda size: None)
    try:
        agreed = variants.create(Clustering, experiment.cluster.clustering)
        cast(AgreedClustering, agreed).check(experiment)
        with TensorFile(folder / PROBE) as file:
            _check_probe(file, experiment)
    except Unreadable as error:
        raise UserError(f"{printable(str(error.path))}: {error.reason}; {ADVICE}") from None


def _check_probe(file: TensorFile, experiment: Experiment) -> None:
    data = experiment.data
    expected: dict[str, TensorSpec] = {}
    for cluster in range(experiment.cluster.experts):
        name = f"images-{cluster:02d}"
        found = file.forms.get(name)
        count = found.shape[0] if found and found.shape else 0
        if count > PROBE_SAMPLES:
            raise Unreadable(file.path, f"tensor '{name}' has {count:,} images, more than {PROBE_SAMPLES}")
        expected[name] = TensorSpec("U8", (count, data.image_size, data.image_size, data.channels))
        if data.num_classes is not None:
            expected[f"classes-{cluster:02d}"] = TensorSpec("I64", (count,))
    file.require(expected)


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
        own_settings = f"set here: {printable(' '.join(overrides), MAX_LISTED)}; " if overrides else ""
        raise ConfigError(f"{reason}; {own_settings}{hint}; else ask the coordinator") from None
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
