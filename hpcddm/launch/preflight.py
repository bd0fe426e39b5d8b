"""Checks before a submission, without torch, for what would else fail after hours in the queue."""

import sys
from pathlib import Path

from hpcddm import pretrained, weights
from hpcddm.config import Experiment
from hpcddm.errors import UserError
from hpcddm.launch import storage
from hpcddm.pipeline.keys import MONOLITH
from hpcddm.pipeline.plan import PlannedUnit
from hpcddm.pipeline.snapshots import impossible, missing, own_images
from hpcddm.pipeline.stage import DiskSpace
from hpcddm.pipeline.trainings import numbered
from hpcddm.rundir import atomic, manifest
from hpcddm.rundir.layout import RunDir
from hpcddm.rundir.manifest import SNAPSHOTS
from hpcddm.schema import variants_of
from hpcddm.site import Resources, Site
from hpcddm.training.settings import STATE_FORMAT
from hpcddm.weights import SettingsWithWeights

NODE_LOCAL = ("/tmp", "/var/tmp", "/dev/shm")


def preflight(experiment: Experiment, site: Site, run: RunDir, units: list[PlannedUnit]) -> None:
    """Check for what these units, which are still to run, will need.

    Raises `UserError` with one line that names the key or the folder, and the next step. Prints a warning when the
    run lies where other nodes may not see it.
    """
    check_weights(experiment, units)
    for unit in units:
        check_ranks(unit, run, site.resources_for(*unit.key.split("/")))
        check_snapshots(experiment, unit, run)
    check_room(experiment, site, run, units)
    warn_of_node_local(site, run)


def warn_of_node_local(site: Site, run: RunDir) -> None:
    """Print a warning when a run that goes through a queue lies where other nodes may not see it."""
    place = next((place for place in NODE_LOCAL if run.root.resolve().is_relative_to(place)), None)
    if place and site.scheduler == "slurm":
        text = f"{run.root}: {place} is often a disk of one node only; if jobs fail at once, take another --run-dir"
        print(f"warning: {text}", file=sys.stderr)


def check_weights(experiment: Experiment, units: list[PlannedUnit]) -> None:
    """Refuse weights that are not there whole; their bytes are hashed when a job loads them.

    Raises `UserError` naming the key of the variant, what is missing and the next step.
    """
    for place, variant in variants_of(experiment):
        if not any(f"{place}.name" in unit.fingerprint_settings for unit in units):
            continue
        if isinstance(variant, SettingsWithWeights):
            try:
                weights.files(variant)
            except UserError as error:
                raise UserError(f"{place}: {error}") from None
        for weights_file in variant.pretrained:
            path = pretrained.kept_file(weights_file)
            wrong = pretrained.defect(weights_file, path, hashed=False)
            if wrong:
                raise UserError(
                    f"{place}: {variant.name} needs pretrained weights, {path} is {wrong};"
                    " on a node with network run: hpcddm prefetch"
                )


def check_ranks(unit: PlannedUnit, run: RunDir, resources: Resources) -> None:
    """Refuse to continue a training by another number of ranks, stage of ZeRO, or version than saved its state.

    Raises `UserError` with both numbers, the keys and the folder.
    """
    newest = _newest_state(unit, run)
    saved = atomic.read_json(newest) if newest else None
    if newest is None or saved is None:
        return
    if saved.get("format") != STATE_FORMAT:
        raise UserError(
            f"{unit.key}: {newest.parent} was saved by an earlier version of hpcddm; go on with that one, or delete"
            f" {newest.parent.parent} to start it again"
        )
    stage = saved["zero_stage"]
    if stage != resources.zero_stage:
        raise UserError(
            f"{unit.key}: {newest.parent} was saved with zero_stage {stage} and cannot be continued with"
            f" {resources.zero_stage}; set zero_stage: {stage}, or delete {newest.parent.parent} to start it again"
        )
    if saved["world_size"] == resources.ranks:
        return
    raise UserError(
        f"{unit.key}: {newest.parent} was saved by {saved['world_size']} ranks and cannot be continued by"
        f" {resources.ranks} (nodes: {resources.nodes}, ranks_per_node: {resources.ranks_per_node});"
        f" ask for {saved['world_size']}, or delete {newest.parent.parent} to start it again"
    )


def check_snapshots(experiment: Experiment, unit: PlannedUnit, run: RunDir) -> None:
    """Refuse snapshots that a training has passed without taking them.

    Raises `UserError` naming unit, number and ways out.
    """
    may_have = unit.stage in ("train", "route", "distill") and experiment.experts.training.snapshots
    newest = _newest_state(unit, run) if may_have else None
    if newest is None:
        return
    state = atomic.read_json(newest) or {}
    wanted = _monoliths_snapshots(experiment) if unit.key == MONOLITH else own_images(experiment, unit.key)
    lost = missing(state.get("loop", {}).get(SNAPSHOTS, {}), state["images"], wanted)
    if lost is not None:
        raise UserError(impossible(unit.key, lost, wanted[lost], str(newest.parent)))


def _monoliths_snapshots(experiment: Experiment) -> dict[int, int]:
    """Count FLOPs for the monolith's snapshots, for which torch builds the networks."""
    from hpcddm.networks import budgets

    return numbered(experiment.experts.training, budgets.monolith_training(experiment))


def _newest_state(unit: PlannedUnit, run: RunDir) -> Path | None:
    """Find the description of the newest training state that the unit's next job would continue; None for none."""
    descriptions = sorted(run.unit(unit.key).glob("state/images-*/state.json"), reverse=True)
    if not descriptions:
        return None
    inputs = {key: manifest.read(run.unit(key)) for key in unit.inputs}
    if not all(inputs[key] for key in unit.requires):
        return None
    present = {key: input_manifest for key, input_manifest in inputs.items() if input_manifest}
    # Of a training with other settings or inputs nothing is continued.
    trajectory = unit.expected(present).trajectory
    for path in descriptions:
        state = atomic.read_json(path)
        if isinstance(state, dict) and state.get("trajectory") == trajectory and "world_size" in state:
            return path
    return None


def check_room(experiment: Experiment, site: Site, run: RunDir, units: list[PlannedUnit]) -> None:
    """Refuse a file system without room for what these units write.

    Raises `UserError` with what is needed and what is free.
    """
    check_need(storage.still_needed(units, experiment, site, run, storage.image_counts(experiment, run)), run)


def check_need(needed: DiskSpace, run: RunDir) -> None:
    """Refuse a file system without room for `needed`.

    Raises `UserError` with what is needed and what is free.
    """
    free_bytes, free_files = storage.free(run.root)
    way_out = "make room, or take another --run-dir; 'hpcddm plan' shows what each stage needs"
    if needed.kept > free_bytes:
        needed_text, there = storage.readable(needed.kept), storage.readable(free_bytes)
        raise UserError(f"{run.root}: about {needed_text} are needed and {there} are free; {way_out}")
    if free_files is not None and needed.files > free_files:
        raise UserError(
            f"{run.root}: about {needed.files} files are needed and {free_files} inodes are free; {way_out}"
        )
