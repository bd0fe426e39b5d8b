"""Makes the contract of a run whose lists are complete: recipes, tables of tensors, partition and probe."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from hpcddm.clustering.partition import read_arrays, save_arrays
from hpcddm.collaboration.agreed_packages import accepted_versions
from hpcddm.collaboration.contract_settings import shared_settings
from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import variants_of
from hpcddm.data.reader import CatalogReader
from hpcddm.data.run_samples import clusters, open_catalog, probe_samples
from hpcddm.errors import ConfigError, UserError, require
from hpcddm.errors.next_step import NextStep, command, step
from hpcddm.exchange.bundle import SiteWord
from hpcddm.exchange.contract import (
    AgreedData,
    AgreedExpert,
    AgreedSite,
    AgreedTensor,
    Contract,
    flat_name,
)
from hpcddm.exchange.ssh_keys import PublicKey
from hpcddm.files.atomic import digest
from hpcddm.files.tensors import tensor_specs
from hpcddm.jobs.planned_unit import PlannedUnit
from hpcddm.loading.last_command import repeat_commands
from hpcddm.models import build_denoiser
from hpcddm.models.flops import unallocated
from hpcddm.pipeline.state import State
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import UnitStatus, describe, survey_units
from hpcddm.runs import manifest
from hpcddm.runs.files import PARTITION
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.ranges import HELDOUT, SPLITS
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_results import list_results, split_results
from hpcddm.runs.unit_keys import CLUSTER, LATENT_SCALE, expert_keys, expert_of
from hpcddm.runs.unit_training import latent_space, resolve_training
from hpcddm.runs.weights_files import weights_names
from hpcddm.training.flops_budget import train_flops

VALID_DAYS = 730
"""Days for which a key is valid; a later revision of the contract prolongs it."""


@dataclass(frozen=True)
class Terms:
    """Terms of the data, and keys of the sites: the parts of a contract that people state."""

    license: str
    terms: str
    keys: Mapping[str, PublicKey]
    """Keys of sites that are new, or replace another one."""
    revoked: tuple[str, ...] = ()


def make_contract(
    run: RunDir, experiment: Experiment, terms: Terms, before: Contract | None, previous: str | None
) -> Contract:
    """Return the next revision of a run's contract, without its files.

    Args:
        run: The run; its expert lists are complete.
        experiment: Its experiment, with absolute paths.
        terms: Terms of the data, and keys of sites.
        before: The revision before; None for the first one.
        previous: SHA-256 of the revision before.

    Raises:
        UserError: A unit is missing, or a site has no key.
        ConfigError: The experiment cannot be agreed on; the message names the key.
    """
    coordinator, units = _require_shareable(experiment), plan_units(experiment)
    states, keys = survey_units(units, run), expert_keys(experiment)
    trained = {unit.key: unit for unit in units if unit.key in keys}
    _require_made(run, states, dict.fromkeys([CLUSTER, *(name for unit in trained.values() for name in unit.inputs)]))
    made = {name: _required(run, name) for unit in trained.values() for name in unit.inputs}
    tables: dict[str, dict[str, AgreedTensor]] = {}
    experts = {key: _recipe(experiment, unit, made, tables) for key, unit in trained.items()}
    train, heldout = (split_results(made, split)["samples"] for split in SPLITS)
    return Contract(
        "hpcddm contract 1",
        before.id if before else secrets.token_hex(16),
        before.revision + 1 if before else 1,
        previous,
        coordinator,
        _sites(experiment, coordinator, terms, before),
        shared_settings(experiment, _measured_scale(experiment, made)),
        experts,
        tables,
        AgreedData(str(experiment.data.content_hash), train, heldout, terms.license, terms.terms),
        accepted_versions(),
        list(SiteWord.__dataclass_fields__),
        {},
    )


def _require_shareable(experiment: Experiment) -> str:
    """Return the coordinator's site."""
    if experiment.site is None:
        raise ConfigError("site: not named; name the site of the coordinator, which trains router and monolith")
    if experiment.experts.sites is None:
        raise ConfigError("experts.sites: not named; name the site of every expert")
    if experiment.experts.extra:
        raise ConfigError("experts.extra: has a private list of samples; a contract names no file")
    own = variants.user_files()
    for place, variant in variants_of(experiment):
        if f"{variant.package}/{variant.name}.py" in own:
            raise ConfigError(f"{place}: '{variant.name}' is a variant of yours, which other sites do not have")
    # What cannot be agreed on is said before what is missing.
    shared_settings(experiment, None)
    return experiment.site


def _require_made(run: RunDir, states: Mapping[str, UnitStatus], keys: Iterable[str]) -> None:
    missing = [states[key] for key in keys if states[key].state is not State.COMPLETE]
    if missing:
        # Latents and captions are not needed for the lists, and no later stage ends before the trainings.
        stages, again = dict.fromkeys(status.unit.stage for status in missing), repeat_commands(run, is_whole=True)
        commands = (*again[:-1], *((*words, "--until", stage) for words in again[-1:] for stage in stages))
        raise UserError(str(NextStep(commands, f"{missing[0].key} is {describe(missing[0], run)}")))


def _required(run: RunDir, key: str) -> Manifest:
    made = manifest.read(run.unit(key))
    if made is None:
        raise UserError(str(step("hpcddm", "status", run.root, reason=f"{key} is not complete")))
    return made


def _recipe(
    experiment: Experiment,
    unit: PlannedUnit,
    made: Mapping[str, Manifest],
    tables: dict[str, dict[str, AgreedTensor]],
) -> AgreedExpert:
    """Return the recipe of one expert, and add its table of tensors to `tables`."""
    expert, training = expert_of(unit.key), resolve_training(experiment, unit.key)
    network = unallocated(lambda: build_denoiser.build(experiment, training.denoiser))
    specs = tensor_specs(network.state_dict())
    table = {name: AgreedTensor(spec.dtype, list(spec.shape)) for name, spec in specs.items()}  # type: ignore[arg-type]
    name = digest({own: asdict(tensor) for own, tensor in table.items()})
    tables[name] = table
    return AgreedExpert(
        experiment.experts.sites[expert] if experiment.experts.sites and isinstance(expert, int) else "",
        unit.fingerprint_settings,
        unit.expected({own: made[own] for own in unit.inputs}).inputs,
        list_results(made, expert)["samples"] if expert is not None else 0,
        training.settings.images,
        training.settings.batch,
        train_flops(experiment, training.denoiser),
        sorted(map(flat_name, weights_names(training.settings))),
        name,
        sum(values.numel() for values in network.state_dict().values()),
    )


def _measured_scale(experiment: Experiment, made: Mapping[str, Manifest]) -> dict[str, list[float]] | None:
    space = latent_space(experiment)
    if space is None or not space.is_measured:
        return None
    return {name: made[LATENT_SCALE].results[name] for name in ("shift", "scale")}


def _sites(experiment: Experiment, coordinator: str, terms: Terms, before: Contract | None) -> dict[str, AgreedSite]:
    """Return all sites with their keys; a key that is given again gets new days."""
    today = datetime.now(UTC).date()
    sites = dict(before.sites) if before else {}
    for name, key in terms.keys.items():
        sites[name] = AgreedSite(key.text, today.isoformat(), (today + timedelta(days=VALID_DAYS)).isoformat())
    for name in terms.revoked:
        require(name in sites, f"--revoke {name}: not a site of the contract; its sites: {', '.join(sites)}")
        if name == coordinator or name in terms.keys:
            raise ConfigError(
                f"--revoke {name}: --site with a new key of {name} takes the old one's place; leave this out"
            )
        sites[name] = replace(sites[name], is_revoked=True)
    needed = dict.fromkeys([coordinator, *(experiment.experts.sites or [])])
    for name in needed:
        if name not in sites:
            raise UserError(
                f"{name}: has no key yet; ask it for the folder that '{command('hpcddm', 'site', 'key', name)}' writes,"
                " and for its fingerprint, and name them with --site FOLDER --trust FINGERPRINT"
            )
    return sites


def write_partition(run: RunDir, path: Path) -> None:
    """Write the arrays that define a run's partition as safetensors."""
    save_arrays(read_arrays(run.output(CLUSTER, PARTITION)), path)


def write_probe(run: RunDir, experiment: Experiment, path: Path) -> None:
    """Write the held-out images of every cluster on which experts are probed, with their classes.

    The file has, for each cluster k, `images-<k>`: (N, H, W, C), uint8, and, for images with classes, `classes-<k>`:
    (N,), int64.
    """
    catalog = open_catalog(run, HELDOUT)
    reader = CatalogReader(catalog, clusters(catalog))
    tensors: dict[str, Any] = {}
    for cluster, numbers in enumerate(probe_samples(catalog, experiment)):
        tensors[f"images-{cluster:02d}"] = np.ascontiguousarray(reader.images(numbers))
        if experiment.data.num_classes is not None:
            tensors[f"classes-{cluster:02d}"] = reader.labels(numbers).numpy()
    save_file(tensors, path)
