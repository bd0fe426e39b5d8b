"""Stage probe: measures experts of other sites on held-out images, before router, evaluation and report read them."""

from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import settings_to_hash
from hpcddm.pipeline.fingerprints import common_settings
from hpcddm.pipeline.stage import DiskSpace, GpuUse, Stage
from hpcddm.runs.unit_keys import CATALOG, EXPERT_LISTS, expert_key, expert_keys, expert_of, probe_key, unit_name
from hpcddm.stages.unit_kinds import NetworkUnits, network_inputs

FILE_BYTES, CLUSTER_BYTES = 1000, 300
"""Bytes of the file with the losses: in all, and more for every cluster."""


def probed_expert(key: str) -> int:
    """Return the number of the expert that a unit of this stage probes."""
    expert = expert_of(f"train/{unit_name(key)}")
    if not isinstance(expert, int):
        raise ValueError(f"{key}: probes no expert of a cluster")
    return expert


class ProbeStage(NetworkUnits, Stage):
    """Stage with a unit for each expert of another site than the one that trains the router."""

    name = "probe"
    reads = ("catalog", "autoencoder", "latents", "expert_lists", "encode_captions", "train")
    gpus = GpuUse.ONE

    def units(self, experiment: Experiment) -> list[str]:
        """List the experts of other sites; none without a rule."""
        sites = {key: experiment.experts.site_of(number) for number, key in enumerate(expert_keys(experiment))}
        is_ruled = experiment.experts.probe is not None
        return [probe_key(key) for key, site in sites.items() if is_ruled and site not in (None, experiment.site)]

    def requires(self, experiment: Experiment, key: str) -> list[str]:
        """Return the expert, and what its loss on held-out images reads."""
        return [CATALOG, EXPERT_LISTS, *network_inputs(experiment), expert_key(probed_expert(key))]

    def fingerprint_settings(self, experiment: Experiment, key: str) -> dict[str, Any]:
        """Include the rule, how the weights are read, and which of them."""
        config, evaluate = experiment.expert_config(probed_expert(key)), settings_to_hash(experiment.evaluate)
        chosen = {name: value for name, value in evaluate.items() if name in ("snapshot", "sigma_rel")}
        return common_settings(experiment, config.model) | {
            "experts.probe": experiment.experts.probe and settings_to_hash(experiment.experts.probe),
            "experts.condition_dropout": experiment.experts.condition_dropout,
            "objective": settings_to_hash(config.objective),
            "evaluate": chosen,
        }

    def site(self, experiment: Experiment, key: str) -> str | None:
        """Return the expert's own site where a contract is followed, and elsewhere that of the router, which imports.

        So every site probes its experts before it sends them, and the site that takes them probes them again.
        """
        is_partner = experiment.cluster.clustering.name == "agreed"
        return experiment.experts.site_of(probed_expert(key)) if is_partner else experiment.site

    def disk(self, experiment: Experiment, key: str, images: dict[str, int], ranks: int) -> DiskSpace:
        """Estimate the file with the losses."""
        return DiskSpace(FILE_BYTES + CLUSTER_BYTES * experiment.cluster.experts, 0, 1)
