"""Refuses GPUs that no rank would use: they are queued for and billed like any others."""

from collections.abc import Iterable

from hpcddm.config.experiment import Experiment
from hpcddm.config.site import Resources, Site
from hpcddm.errors import ConfigError
from hpcddm.pipeline.stage import GpuUse
from hpcddm.pipeline.unit_graph import RESOURCE_KEYS, usable_gpus
from hpcddm.runs.unit_keys import OTHER_STAGES

IDLE_GPUS_ADVICE = "allow_idle_gpus: true takes them all the same, for partitions that start no job without GPUs"


def check_gpus(site: Site, keys: Iterable[str], experiment: Experiment) -> None:
    """Refuse units with fewer GPUs than ranks, and units that hold GPUs without using them.

    Raises `ConfigError` with the site keys to change.
    """
    idle, lacking = _find_problems(site, keys, experiment)
    if lacking or (idle and not site.allow_idle_gpus):
        way_out = "" if lacking else f"; {IDLE_GPUS_ADVICE}"
        raise ConfigError(f"site {site.name}: {'; '.join(lacking or idle)}{way_out}")


def gpu_remarks(site: Site, keys: Iterable[str], experiment: Experiment | None = None) -> list[str]:
    """List the faults in the GPU requests of some units, or stages, each with the site key to change."""
    idle, lacking = _find_problems(site, keys, experiment)
    return lacking + idle


def all_resource_keys() -> list[str]:
    """List `PLACES`, and the stages of jobs that are not units of a run."""
    return [*RESOURCE_KEYS, *OTHER_STAGES]


def _find_problems(site: Site, keys: Iterable[str], experiment: Experiment | None) -> tuple[list[str], list[str]]:
    """List requests with GPUs that no rank uses, or ranks without a GPU; stages with one problem share a text."""
    places_of: dict[tuple[str, str, bool], list[str]] = {}
    # A sweep asks for thousands of units.
    has_gpus = site.resources.gpus_per_node or any("gpus_per_node" in entry for entry in site.stages.values())
    for place in dict.fromkeys(
        key if key in site.stages or key in RESOURCE_KEYS else key.partition("/")[0] for key in keys if has_gpus
    ):
        stage, _, unit = place.partition("/")
        text, mend, is_idle = _find_problem(usable_gpus(place, experiment), site.resources_for(stage, unit))
        if text:
            places_of.setdefault((text, mend, is_idle), []).append(place)
    texts: tuple[list[str], list[str]] = ([], [])
    for (text, mend, is_idle), shared in places_of.items():
        keys_to_set = ", ".join(f"stages.{place}" for place in shared)
        texts[0 if is_idle else 1].append(f"{', '.join(shared)}: {text}; set {mend} in {keys_to_set}")
    return texts


def _find_problem(use: GpuUse, resources: Resources) -> tuple[str, str, bool]:
    """Return (reason against the GPUs of a unit, keys to set, True if GPUs lie idle); empty texts where all is well."""
    gpus, ranks, nodes = resources.gpus_per_node, resources.ranks_per_node, resources.nodes
    setting = f"gpus_per_node: {gpus}"
    if not gpus:
        return "", "", False
    if use is GpuUse.NONE:
        return f"{setting}, and nothing there uses a GPU", "gpus_per_node: 0", True
    if use is GpuUse.RANKS and ranks > gpus:
        return f"{setting} for ranks_per_node: {ranks}", f"ranks_per_node: {gpus}", False
    if use is GpuUse.RANKS and ranks < gpus:
        mend = f"ranks_per_node: {gpus} or gpus_per_node: {ranks}"
        return f"{setting} for ranks_per_node: {ranks}, and a rank uses one GPU", mend, True
    if use in (GpuUse.ONE, GpuUse.NODE) and nodes > 1:
        return f"{setting} on {nodes} nodes, and one rank works there", "nodes: 1", True
    if use is GpuUse.ONE and gpus > 1:
        return f"{setting}, and its one working rank uses one GPU", "ranks_per_node: 1, gpus_per_node: 1", True
    return "", "", False
