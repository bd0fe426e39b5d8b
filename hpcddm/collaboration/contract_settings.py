"""Settings that a contract carries: what goes into it without any path, and what a contract may make a site do."""

import json
from copy import deepcopy
from typing import Any

from hpcddm.config import paths
from hpcddm.config.experiment import Experiment, ProbeRule
from hpcddm.config.schema import settings_to_hash, validate
from hpcddm.errors import ConfigError, UserError, require
from hpcddm.errors.printing import printable
from hpcddm.exchange.contract import PARTITION, PROBE, Contract
from hpcddm.files.tensor_file import HEADER_BYTES, VALUE_BYTES
from hpcddm.loading import foreign_settings
from hpcddm.loading.foreign_settings import find_paths, leads_outside, leaves
from hpcddm.runs.manifest import flatten
from hpcddm.runs.ranges import PROBE_SAMPLES
from hpcddm.runs.unit_keys import expert_keys, expert_of, extra_expert_keys

CLUSTERING, SOURCE = "cluster.clustering", "data.source"
MAX_PARTITION = 4 << 30
"""Largest size of a partition: a million fine clusters of a thousand features."""
EXTRACTORS = "evaluate.extractors"
OWN_KEYS = (
    "data.class_names",
    "concepts",
    "distill",
    "router.refit",
    "evaluators.extractor.pretrained",
    "evaluators.classifier.pretrained",
    EXTRACTORS,
    "evaluate.perceptual",
    "evaluate.reference",
)
"""Settings of the coordinator's site alone, on which no expert depends; they stay there. Names of classes may be in any
language, and what crosses is ASCII."""


def shared_settings(experiment: Experiment, scale: dict[str, list[float]] | None) -> dict[str, Any]:
    """Return the settings that a contract carries, nested as in the YAML file.

    Args:
        experiment: The experiment.
        scale: Shift and scale of the latents, if they are measured here; other sites take these numbers.

    Raises:
        ConfigError: Experts depend on a private file; the message names the key.
    """
    values = experiment.model_dump(mode="json")
    for key in OWN_KEYS:
        place, _, last = key.rpartition(".")
        section = paths.value_at(values, place) if place else values
        if section:
            section[last] = [] if key == EXTRACTORS else None
    values["experts"]["probe"] = (experiment.experts.probe or ProbeRule()).model_dump()
    cluster = values["cluster"]
    cluster["clustering"] = cluster["clustering"].get("fitted_by") or cluster["clustering"]
    if experiment.data.space.is_trained_in_run:
        raise ConfigError(
            "data.space: the run trains its autoencoder, and no network but experts crosses between sites"
        )
    if scale is not None:
        values["data"]["space"] |= scale
    for place, holder, key in list(find_paths(values)):
        if not place.startswith((SOURCE, CLUSTERING)) and "hub" not in holder:
            raise ConfigError(f"{place}: a private file, which other sites do not have; a contract names no file")
        # Each site names its own place of images and public weights; their hashes are in the contract.
        del holder[key]
    outside = next((place for place, value in leaves(values) if leads_outside(value)), None)
    if outside is not None:
        raise ConfigError(f"{outside}: leads out of the folder of the images; a contract names no place of one site")
    return values


def check_settings(contract: Contract) -> None:
    """Check what the settings of a contract that somebody sent would make a site do, before they are used.

    Raises:
        UserError: They name a file, ask for other units than experts are agreed on, or are more or larger than any
            experiment needs; or other files belong to the contract than partition and probe. The message names the key.
    """
    if contract.files.keys() != {PARTITION, PROBE}:
        raise UserError(f"contract.json: files: are not {PARTITION} and {PROBE}; refused")
    foreign_settings.check_values("contract.json", contract.experiment)
    path = next((place for place, _, _ in find_paths(contract.experiment)), None)
    if path is not None:
        raise UserError(f"contract.json: {printable(path)} names a file; refused, a contract names none")
    num_experts = sum(isinstance(expert_of(key), int) for key in contract.experts)
    if paths.value_at(contract.experiment, "cluster.experts") != num_experts:
        raise UserError(f"contract.json: cluster.experts: is not {num_experts}, the experts that it lists; refused")


def check_experiment(contract: Contract, experiment: Experiment) -> None:
    """Check an experiment that was made of the settings of a contract.

    Raises:
        UserError: It has a variant that is not in the package, or other experts than the contract, whose files are
            larger than they need be.
    """
    foreign_settings.check_variants("contract.json", experiment)
    if {*expert_keys(experiment), *extra_expert_keys(experiment)} != contract.experts.keys():
        raise UserError("contract.json: its experiment has other experts than it lists; refused")
    data = experiment.data
    image = data.image_size**2 * data.channels + VALUE_BYTES["I64"]
    largest = {PARTITION: MAX_PARTITION, PROBE: len(contract.experts) * PROBE_SAMPLES * image + HEADER_BYTES}
    for name, most in largest.items():
        require(contract.files[name].size <= most, f"contract.json: {name} has more than {most:,} bytes; refused")


def changed_settings(contract: Contract, experiment: Experiment) -> dict[str, tuple[Any, Any]]:
    """Return the settings in fingerprints that are not those of a contract, as (here, agreed on), by dotted key.

    The clustering is left out: every site takes the partition of the contract.
    """
    own, values = experiment.model_dump(), deepcopy(contract.experiment)
    values["cluster"]["clustering"] = own["cluster"]["clustering"]
    # What a contract does not name are places of files, which do not enter fingerprints: they are those of this site.
    for place, holder, key in list(find_paths(own)):
        there = paths.value_at(values, place.rpartition(".")[0])
        if isinstance(there, dict):
            there.setdefault(key, holder[key])
    agreed = Experiment.model_validate(values)
    return differences(*(flatten(settings_to_hash(one)) for one in (agreed, experiment)))


def with_agreed_probe(experiment: Experiment, contract: Contract | None) -> Experiment:
    """Return the experiment with the rule for experts of other sites that a contract fixes before they are trained.

    Args:
        experiment: The experiment.
        contract: Contract of its run; None for a run without one.

    Raises:
        ConfigError: The experiment names another rule.
    """
    if contract is None:
        return experiment
    agreed = validate(
        ProbeRule, paths.value_at(contract.experiment, "experts.probe") or {}, "contract.json: experts.probe"
    )
    if experiment.experts.probe not in (None, agreed):
        here = flatten(experiment.experts.probe.model_dump()), flatten(agreed.model_dump())
        raise ConfigError(f"experts.probe: {here[0]}, but the contract says {here[1]}; leave it out")
    return experiment.model_copy(update={"experts": experiment.experts.model_copy(update={"probe": agreed})})


def differences(agreed: dict[str, Any], here: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the values that differ as (here, agreed on), by dotted key."""
    # As JSON has them: a contract has no tuples.
    own = json.loads(json.dumps(here))
    return {key: (own.get(key), agreed.get(key)) for key in sorted({*own, *agreed}) if own.get(key) != agreed.get(key)}
