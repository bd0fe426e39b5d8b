"""Stages run here and now on a small part of Fashion-MNIST: each training in a process of its own, as in a job."""

import gzip
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from hpcddm.config import paths
from hpcddm.config.experiment import Experiment
from hpcddm.config.site import Resources
from hpcddm.files import atomic
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.jobs.stopping import StopFlag
from hpcddm.jobs.unit import Result, Unit
from hpcddm.models import build_denoiser
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.heartbeat import HeartbeatWriter
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import with_relative_paths
from hpcddm.runs.stored_results import list_results
from hpcddm.runs.unit_keys import CLUSTER_REPORT, EXPERT_LISTS, ROUTER, expert_keys
from hpcddm.stages.concepts import concept_counts_job, concept_tags_job, concept_vocabulary_job
from hpcddm.stages.data import (
    assign_job,
    catalog_job,
    cluster_job,
    cluster_report_job,
    copy_lists_job,
    encode_captions_job,
    encode_job,
    expert_lists_job,
    shard_job,
)
from hpcddm.stages.training import router_job
from tests.helpers import ALL_DATA_STAGES, REPOSITORY, tiny, write_idx

IMAGES = {
    "data__image_size": 28,
    "data__num_classes": 10,
    "encode__encoder": {"name": "pixels"},
    "cluster__clustering": {"name": "kmeans", "fine_clusters": 64, "iterations": 10, "restarts": 1, "max_share": None},
    "cluster__experts": 4,
    "experts__training__images": 64,
    "evaluate__images": 20,
    "evaluate__batch": 10,
}
STAGES = {
    "shard": shard_job,
    "catalog": catalog_job,
    "encode": encode_job,
    "cluster": cluster_job,
    "assign": assign_job,
    "expert_lists": expert_lists_job,
    "cluster_report": cluster_report_job,
    "encode_captions": encode_captions_job,
    "copy_lists": copy_lists_job,
    "router": router_job,
    "concept_vocabulary": concept_vocabulary_job,
    "concept_tags": concept_tags_job,
    "concept_counts": concept_counts_job,
}


def write_images(folder: Path, train: int = 2000, heldout: int = 400) -> None:
    """The first images of the Fashion-MNIST that comes with the repository."""
    for prefix, count in (("train", train), ("t10k", heldout)):
        for kind, shape in (("images-idx3", (-1, 28, 28)), ("labels-idx1", (-1,))):
            name = f"{prefix}-{kind}-ubyte.gz"
            content = gzip.decompress((REPOSITORY / "experiments" / "quickstart" / name).read_bytes())
            values = np.frombuffer(content, dtype=np.uint8, offset=16 if len(shape) == 3 else 8).reshape(shape)
            write_idx(folder / name, values[:count])


class Bench:
    """One run of an experiment, unit by unit."""

    def __init__(self, root: Path, run: str, **changes: Any) -> None:
        self.root, self.run, self.name = root, RunDir(root / run), run
        self.settings = self.experiment(**changes)

    def experiment(self, **changes: Any) -> Experiment:
        """The experiment with some keys changed."""
        return tiny(self.root, **(IMAGES | changes))

    def unit(self, key: str, experiment: Experiment | None = None, run: RunDir | None = None) -> Unit:
        """A unit as the entry of a job makes it."""
        run = run or self.run
        planned = next(unit for unit in plan_units(experiment or self.settings) if unit.key == key)
        inputs = {need: manifest.read(self.run.unit(need)) for need in planned.requires}
        digests = {need: found.digest for need, found in inputs.items()}
        trajectory = Manifest(*key.split("/"), planned.fingerprint_settings, digests, []).trajectory
        run.unit(key).mkdir(parents=True, exist_ok=True)
        atomic.write_json(run.experiment, with_relative_paths(experiment or self.settings, run).model_dump())
        ranks = Ranks(0, 0, 1, 1, "me")
        attempt = open_attempt(run.logs(key), ranks)
        heartbeat = HeartbeatWriter(attempt.folder, "me", attempt.number, "host")
        often = Resources(sync_every_steps=1)
        return Unit(key, run, ranks, attempt, heartbeat, StopFlag(), inputs, trajectory, resources=often)

    def publish(self, unit: Unit, result: Result, experiment: Experiment | None = None) -> None:
        """Write the manifest that a job of these settings writes, by default of those of the run."""
        planned = next(one for one in plan_units(experiment or self.settings) if one.key == unit.key)
        outputs = manifest.describe_outputs(unit.folder, result.outputs)
        digests = {key: found.digest for key, found in unit.inputs.items()}
        found = Manifest(*unit.key.split("/"), planned.fingerprint_settings, digests, outputs, result.results)
        manifest.publish(unit.folder, found)

    def make(self, *keys: str) -> None:
        """Make units, one after the other."""
        for key in keys:
            unit = self.unit(key)
            settings = paths.make_absolute(self.settings, self.run.root)
            self.publish(unit, STAGES[key.split("/")[0]].run(settings, unit))

    def make_data(self) -> None:
        """Make everything that trainings read."""
        units = [unit for unit in plan_units(self.settings) if unit.stage in ALL_DATA_STAGES]
        self.make(*(unit.key for unit in units if unit.key != CLUSTER_REPORT))

    def make_experts(self) -> None:
        """Experts that were never trained, whose predictions differ."""
        made = {EXPERT_LISTS: manifest.read(self.run.unit(EXPERT_LISTS))}
        for number, key in enumerate(expert_keys(self.settings)):
            unit = self.unit(key)
            torch.manual_seed(number)
            network = build_denoiser.build(self.settings, self.settings.expert_config(number))
            weights = {name: value + 0.1 * torch.randn_like(value) for name, value in network.state_dict().items()}
            save_file(weights, unit.folder / "weights.safetensors")
            self.publish(unit, Result(["weights.safetensors"], list_results(made, number)))

    def train(self, unit: Unit, run: Callable[[], Result], experiment: Experiment | None = None) -> None:
        """Make a unit that trains in a process of its own, as the ranks of a job leave by ending theirs."""
        child = os.fork()
        if child == 0:
            try:
                self.publish(unit, run(), experiment)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, unit.key

    def router(self, name: str, **changes: Any) -> tuple[Experiment, Unit]:
        """The unit of a router in a run of its own, which shares everything else with this one."""
        settings, root = self.experiment(**changes), RunDir(self.root / f"{self.name}-{name}")
        for stage in (*ALL_DATA_STAGES, "train"):
            if self.run.unit(f"{stage}/all").exists() and not root.unit(f"{stage}/all").exists():
                root.root.mkdir(exist_ok=True)
                root.unit(f"{stage}/all").symlink_to(self.run.unit(f"{stage}/all"))
        return settings, self.unit(ROUTER, settings, root)

    def route(self, name: str, **changes: Any) -> dict:
        """Make a router in a process of its own; its manifest's facts and outputs."""
        settings, unit = self.router(name, **changes)
        self.train(unit, lambda: router_job.run(settings, unit), settings)
        found = manifest.read(unit.folder)
        return {"facts": found.results, "outputs": {one.path for one in found.outputs}, "folder": unit.folder}
