"""What several tests need: a tiny source of images, a tiny experiment, the command line, finished units."""

import gzip
import json
import subprocess
import sys
from copy import deepcopy
from functools import cache
from pathlib import Path

import click
import numpy as np
import yaml
from click.testing import CliRunner, Result

from hpcddm.cli import HIDDEN, VERBS, main
from hpcddm.config.experiment import Experiment
from hpcddm.jobs.planned_unit import PlannedUnit
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.pipeline.unit_graph import STAGES
from hpcddm.runs import manifest
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CATALOG

REPOSITORY = Path(__file__).parent.parent
LOAD_VARIANTS = REPOSITORY / "tests/benchmarks/variants"
"""Variants of one's own: a source and an encoder that invent samples, for load tests."""
SIDE, CLASSES = 8, 4
ALL_DATA_STAGES = tuple(name for name, stage in STAGES.items() if stage.runs_at_every_site)
"""Stages that every site makes for itself."""
DATA_STAGES = tuple(name for name in ALL_DATA_STAGES if name not in ("latents", "encode_captions"))
"""Those of the tiny experiment, whose networks see pixels and classes."""

TRAINING = {"images": 64, "batch": 16, "learning_rate": 0.01, "warmup_images": 0, "ema_halflife_images": 100}
TRAINING |= {"precision": "fp32"}
CLUSTERING = {"name": "kmeans", "fine_clusters": 8, "iterations": 5, "restarts": 1, "max_share": None}
EXPERIMENT = {
    "name": "tiny",
    "data": {
        "source": {"name": "idx", "folder": "images"},
        "image_size": SIDE,
        "channels": 1,
        "num_classes": CLASSES,
        "shards": 2,
    },
    "encode": {"encoder": {"name": "pixels", "size": 4}},
    "cluster": {"experts": 2, "clustering": CLUSTERING},
    "experts": {
        "model": {"name": "dit", "width": 16, "depth": 1, "heads": 1, "patch": 4},
        "objective": {"name": "flow_matching"},
        "training": TRAINING,
    },
    "router": {"model": {"name": "router_dit", "width": 16, "depth": 1, "heads": 1, "patch": 4}, "training": TRAINING},
    "evaluators": {
        "extractor": {"model": {"name": "small_cnn", "width": 8, "features": 8}, "training": TRAINING},
        "classifier": {"model": {"name": "small_cnn", "width": 8, "features": 8}, "training": TRAINING},
    },
    "evaluate": {"images": 24, "batch": 8, "steps": 2, "strategies": ["top-1"]},
}

FINAL = ["draw/0000000-0000024", "measure/own-0000000-0000024", "compare/own", "report/all"]
"""Units of it that draw samples or read them, in the order of the stages."""
FINAL_STAGES = {key.split("/")[0] for key in FINAL}

LATENT_SPACE = {
    "name": "autoencoder",
    "autoencoder": {"name": "kl_small", "factor": 2, "width": 8, "blocks": 1},
    "training": TRAINING,
}
"""A space of latents, x of shape (4, 4, 4)."""
JOINED = {"name": "hats", "list": "hats.txt", "images": 32, "batch": 8}
"""An entry of `experts.extra`."""


def changed(values: dict, **changes: object) -> dict:
    """A copy of nested `values` with dotted keys, dots written as '__', set anew."""
    copy = json.loads(json.dumps(values))
    for key, value in changes.items():
        *parents, last = key.split("__")
        place = copy
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = deepcopy(value)
    return copy


def write_idx(path: Path, values: np.ndarray) -> None:
    """Write unsigned bytes as an IDX file, gzipped where the name says so."""
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, dtype=">u4").tobytes()
    content = header + values.astype(np.uint8).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def write_source(folder: Path, train: int = 96, heldout: int = 40, suffix: str = ".gz") -> Path:
    """Four IDX files of random images, classes in turn."""
    generator = np.random.default_rng(0)
    for prefix, count in (("train", train), ("t10k", heldout)):
        images = generator.integers(0, 256, (count, SIDE, SIDE))
        write_idx(folder / f"{prefix}-images-idx3-ubyte{suffix}", images)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte{suffix}", np.arange(count) % CLASSES)
    return folder


def write_experiment(folder: Path, **changes: object) -> Path:
    """Write the tiny experiment with some keys changed and return its path."""
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(changed(EXPERIMENT, **changes)))
    return path


def tiny(folder: Path, **changes: object) -> Experiment:
    """The tiny experiment, validated."""
    return load_experiment(str(write_experiment(folder, **changes)))


@cache
def commands() -> dict[str, click.Command]:
    """Import all verbs."""
    return {name: main.get_command(None, name) for name in (*VERBS, *HIDDEN)}


def hpcddm(*arguments: object) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def python(code: str, *arguments: object, timeout: float = 60, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that sees nothing of this one's environment but the path."""
    environment = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY), **environment}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment, check=False)


COUNTED = {"splits": {"train": {"samples": 24}, "heldout": {"samples": 24}}}
"""Results of a catalog."""


def finish(units: list[PlannedUnit], run: RunDir) -> None:
    """Make units complete, each with one small output, as their jobs would have."""
    for unit in units:
        folder = run.unit(unit.key)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "output.bin").write_bytes(unit.key.encode())
        wanted = [key for key in unit.optional if manifest.read(run.unit(key))]
        inputs = unit.expected({key: manifest.read(run.unit(key)) for key in [*unit.requires, *wanted]}).inputs
        outputs = manifest.describe_outputs(folder, ["output.bin"])
        results = COUNTED if unit.key == CATALOG else {}
        manifest.publish(folder, Manifest(*unit.key.split("/"), unit.fingerprint_settings, inputs, outputs, results))
