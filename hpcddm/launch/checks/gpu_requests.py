"""Refuses GPUs that no rank would use: they are queued for and billed like any others."""

from collections.abc import Iterable

from hpcddm.config.experiment import Experiment
from hpcddm.config.site import Resources, Site
from hpcddm.errors import ConfigError
from hpcddm.pipeline.plan import STAGE_NAMES, gpus_of
from hpcddm.pipeline.stage import Gpus
from hpcddm.runs.unit_keys import OTHER_STAGES

WAY_OUT = "allow_idle_gpus: true takes them all the same, for partitions that start no job without GPUs"


def check_gpus(site: Site, keys: Iterable[str], experiment: Experiment) -> None:
    """Refuse units whose ranks have no GPU each, or that hold GPUs for nothing.

    Raises `ConfigError` with the site keys to change.
    """
    idle, lacking = _complaints(site, keys, experiment)
    if lacking or (idle and not site.allow_idle_gpus):
        way_out = "" if lacking else f"; {WAY_OUT}"
        raise ConfigError(f"site {site.name}: {'; '.join(lacking or idle)}{way_out}")


def remarks(site: Site, keys: Iterable[str], experiment: Experiment | None = None) -> list[str]:
    """List what is wrong with the GPUs of some units, or stages, each with the site key to change."""
    idle, lacking = _complaints(site, keys, experiment)
    return lacking + idle


def all_stages() -> list[str]:
    """List the stages of every experiment, and those of jobs that are no units of a run."""
    return [*STAGE_NAMES, *OTHER_STAGES]


def _complaints(site: Site, keys: Iterable[str], experiment: Experiment | None) -> tuple[list[str], list[str]]:
    """List requests with GPUs that no rank uses, or ranks without a GPU; stages with one problem share a text."""
    places_of: dict[tuple[str, str, bool], list[str]] = {}
    # A sweep asks for thousands of units.
    has_gpus = site.resources.gpus_per_node or any("gpus_per_node" in entry for entry in site.stages.values())
    places = dict.fromkeys(key if key in site.stages else key.partition("/")[0] for key in keys if has_gpus)
    for place in places:
        stage, _, unit = place.partition("/")
        text, mend, is_idle = _complaint(gpus_of(stage, experiment), site.resources_for(stage, unit))
        if text:
            places_of.setdefault((text, mend, is_idle), []).append(place)
    texts: tuple[list[str], list[str]] = ([], [])
    for (text, mend, is_idle), shared in places_of.items():
        keys_to_set = ", ".join(f"stages.{place}" for place in shared)
        texts[0 if is_idle else 1].append(f"{', '.join(shared)}: {text}; set {mend} in {keys_to_set}")
    return texts


def _complaint(use: Gpus, resources: Resources) -> tuple[str, str, bool]:
    """Return (reason against the GPUs of a unit, keys to set, True if GPUs lie idle); empty texts where all is well."""
    gpus, ranks, nodes = resources.gpus_per_node, resources.ranks_per_node, resources.nodes
    setting = f"gpus_per_node: {gpus}"
    if not gpus:
        return "", "", False
    if use is Gpus.NONE:
        return f"{setting}, and nothing there uses a GPU", "gpus_per_node: 0", True
    if use is Gpus.RANKS and ranks > gpus:
        return f"{setting} for ranks_per_node: {ranks}", f"ranks_per_node: {gpus}", False
    if use is Gpus.RANKS and ranks < gpus:
        mend = f"ranks_per_node: {gpus} or gpus_per_node: {ranks}"
        return f"{setting} for ranks_per_node: {ranks}, and a rank uses one GPU", mend, True
    if use in (Gpus.ONE, Gpus.NODE) and nodes > 1:
        return f"{setting} on {nodes} nodes, and one rank works there", "nodes: 1", True
    if use is Gpus.ONE and gpus > 1:
        return f"{setting}, and its one working rank uses one GPU", "ranks_per_node: 1, gpus_per_node: 1", True
    return "", "", False
