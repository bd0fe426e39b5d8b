"""Checks before a submission, without torch, for what would else fail after hours in the queue."""

import sys
from pathlib import Path
from typing import Any

from hpcddm.config import pretrained, weights
from hpcddm.config.experiment import Experiment
from hpcddm.config.schema import VariantSettings, settings_to_hash, variants_of
from hpcddm.config.site import Site
from hpcddm.config.weights import SettingsWithWeights
from hpcddm.errors import UserError
from hpcddm.errors.next_step import command
from hpcddm.jobs.planned_unit import PlannedUnit
from hpcddm.launch.checks import disk_estimates
from hpcddm.launch.local.machine_gpus import GpuPool
from hpcddm.pipeline.stage import DiskSpace
from hpcddm.runs import manifest, training_states
from hpcddm.runs.files import SNAPSHOTS
from hpcddm.runs.journal import Journal
from hpcddm.runs.manifest import LENGTH, flatten
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.state_seals import state_seal
from hpcddm.runs.unit_keys import MONOLITH
from hpcddm.runs.unit_training import ResolvedTraining, resolve_training
from hpcddm.runs.weights_files import first_missing_snapshot, missing_snapshot_error

NODE_LOCAL = ("/tmp", "/var/tmp", "/dev/shm")
CPU_INFO = Path("/proc/cpuinfo")
BF16_FLAGS = {"avx512bw", "bf16"}
"""Flags of the x86 and ARM processors for which torch has kernels in bf16."""
PRECISION = "training.precision"


def preflight(experiment: Experiment, site: Site, run: RunDir, units: list[PlannedUnit]) -> None:
    """Check that the resources of these units, which are still to run, exist.

    Raises `UserError` with one line that names the key or the folder, and the next step. Prints a warning if the run
    is in a folder that other nodes may not see, or if this machine's CPU would train in bf16 without instructions for
    it.
    """
    check_weights(experiment, units)
    for unit in units:
        check_state(unit, run)
        check_snapshots(experiment, unit, run)
    counts = disk_estimates.image_counts(experiment, run)
    check_disk_space(disk_estimates.still_needed(units, experiment, site, run, counts), run)
    warn_of_node_local(site, run)
    warn_of_slow_bf16(site, units)


def warn_of_node_local(site: Site, run: RunDir) -> None:
    """Print a warning at the first submission if the nodes of a cluster may not see the run's folder."""
    if Journal(run.journal).submissions():
        return
    place = next((place for place in NODE_LOCAL if run.root.resolve().is_relative_to(place)), None)
    if place and site.scheduler == "slurm":
        text = f"{run.root}: {place} is often a disk of one node only; if jobs fail at once, take another --run-dir"
        print(f"warning: {text}", file=sys.stderr)


def warn_of_slow_bf16(site: Site, units: list[PlannedUnit]) -> None:
    """Print a warning if units train in bf16 on this machine's CPU and torch would have to emulate it."""
    in_bf16 = {
        key if key != PRECISION else f"experts.{PRECISION}"
        for unit in units
        for key, value in unit.fingerprint_settings.items()
        if key.endswith(PRECISION) and value == "bf16"
    }
    if not in_bf16 or site.scheduler != "local" or GpuPool(site).device_ids or BF16_FLAGS & _cpu_flags():
        return
    settings = " ".join(f"{key}=fp32" for key in sorted(in_bf16))
    text = "this CPU has no instructions for bf16 and trains many times faster in fp32"
    print(f"warning: {text}; interrupt, and append {settings}", file=sys.stderr)


def _cpu_flags() -> set[str]:
    """Return the words of `CPU_INFO`, which list the instructions of the processor."""
    return set(CPU_INFO.read_text().split()) if CPU_INFO.exists() else set()


def check_weights(experiment: Experiment, units: list[PlannedUnit]) -> None:
    """Refuse weights that are not there whole; their bytes are hashed when a job loads them.

    Raises `UserError` naming the key of the variant, what is missing and the next step.
    """
    for place, variant in variants_of(experiment):
        if not any(_reads_weights(unit, place, variant) for unit in units):
            continue
        if isinstance(variant, SettingsWithWeights):
            try:
                weights.list_files(variant)
            except UserError as error:
                raise UserError(f"{place}: {error}") from None
        for weights_file in variant.pretrained:
            path = pretrained.cached_file(weights_file)
            if wrong := pretrained.defect(weights_file, path, hashed=False):
                advice = f"on a node with network run: {command('hpcddm', 'prefetch')}"
                raise UserError(f"{place}: {variant.name} needs pretrained weights, {path} is {wrong}; {advice}")


def _reads_weights(unit: PlannedUnit, place: str, variant: VariantSettings) -> bool:
    """Tell if a unit reads the weights of a variant; the place of an extractor in its list is not in fingerprints."""
    if not place.startswith("evaluate.extractors."):
        return f"{place}.name" in unit.fingerprint_settings
    settings = {f"extractor.{key}": value for key, value in flatten(settings_to_hash(variant)).items()}
    return settings.items() <= unit.fingerprint_settings.items()


def check_state(unit: PlannedUnit, run: RunDir) -> None:
    """Refuse to continue a training whose state an earlier version saved, or others in a run with a contract.

    Raises `UserError` with its folder.
    """
    states = _continuable_states(unit, run)
    seal = state_seal(run, unit.key) if states else None
    if seal is not None:
        seal.require_own(states)
    if states and states[-1][1].get("format") != training_states.FORMAT:
        folder = states[-1][0]
        advice = f"go on with that one, or delete {folder.parent} to start it again"
        raise UserError(f"{unit.key}: {folder} was saved by an earlier version of hpcddm; {advice}")


def check_snapshots(experiment: Experiment, unit: PlannedUnit, run: RunDir) -> None:
    """Refuse snapshots that a training has passed without taking them.

    Raises `UserError` naming unit, number and ways out.
    """
    may_have = unit.stage in ("train", "router", "distill") and experiment.experts.training.snapshots
    newest = newest_state(unit, run) if may_have else None
    if newest is None:
        return
    folder, state = newest
    training = (_counted if unit.key == MONOLITH else resolve_training)(experiment, unit.key)
    wanted = training.settings.by_experiment_number
    taken = state.get("loop", {}).get(SNAPSHOTS, {})
    if (lost := first_missing_snapshot(taken, state["images"], wanted)) is not None:
        raise UserError(missing_snapshot_error(unit.key, lost, wanted[lost], taken, str(folder)))


def _counted(experiment: Experiment, key: str) -> ResolvedTraining:
    """Return a training whose length is counted in FLOPs, for which torch builds the networks."""
    from hpcddm.training import flops_budget

    return flops_budget.training_of(experiment, key)


def newest_state(unit: PlannedUnit, run: RunDir) -> tuple[Path, dict[str, Any]] | None:
    """Find the newest training state that the unit's next job would continue, and read it; None for none.

    In a run with a contract a job continues what jobs of the same user have saved.
    """
    states = _continuable_states(unit, run)
    seal = state_seal(run, unit.key) if states else None
    return next((one for one in reversed(states) if seal is None or seal.holds(one[1])), None)


def _continuable_states(unit: PlannedUnit, run: RunDir) -> list[tuple[Path, dict[str, Any]]]:
    """List the states of the unit's training as its settings and inputs are now, oldest first."""
    folder = run.unit(unit.key) / training_states.FOLDER
    if not folder.is_dir():
        return []
    inputs = {key: manifest.read_if_usable(run.unit(key)) for key in unit.inputs}
    if not all(inputs[key] for key in unit.requires):
        return []
    present = {key: input_manifest for key, input_manifest in inputs.items() if input_manifest}
    # Of a training with other settings or inputs nothing is continued.
    return training_states.list_states(folder, unit.expected(present).trajectory, unit.fingerprint_settings.get(LENGTH))


def check_disk_space(needed: DiskSpace, run: RunDir) -> None:
    """Refuse a file system without room for `needed`.

    Raises `UserError` with what is needed and what is free.
    """
    free_bytes, inodes = disk_estimates.free_space(run.root)
    way_out = "make room, or take another --run-dir; 'hpcddm plan' shows what each stage needs"
    if needed.kept > free_bytes:
        needed_text, there = disk_estimates.format_bytes(needed.kept), disk_estimates.format_bytes(free_bytes)
        raise UserError(f"{run.root}: about {needed_text} are needed and {there} are free; {way_out}")
    if inodes is not None and needed.files > inodes:
        raise UserError(f"{run.root}: about {needed.files} files are needed and {inodes} inodes are free; {way_out}")
