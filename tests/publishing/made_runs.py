"""Complete runs whose networks are random, made in less than a second, and their publication by the command line."""

import json
from pathlib import Path

import h5py
import numpy as np
import torch
from safetensors.torch import save_file

from hpcddm.config.experiment import Experiment
from hpcddm.models import build_autoencoder, build_denoiser
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import AUTOENCODER, CATALOG, CLUSTER, EXPERT_LISTS, LATENT_SCALE, REPORT, ROUTER, stage_of
from hpcddm.runs.unit_training import resolve_training
from hpcddm.runs.weights_files import training_costs, weights_names
from hpcddm.stages.evaluation.draw import arm_names
from hpcddm.stages.training import router_job
from tests.commands.runs import bare_run
from tests.helpers import COUNTED, hpcddm, tiny

FIGURES = {"fd": 12.5, "kid": 0.0312, "agreement": 0.25, "images": 24, "train_flops": 12_000_000}
CALIBRATION = {"log_prior": [-0.5, -1.0], "levels": [0.0, 1.0], "temperatures": [1.5, 0.8]}
SCALE = {"shift": [0.1, -0.2, 0.0, 0.3], "scale": [1.5, 0.7, 1.0, 2.0]}


def made_run(root: Path, remark: str = "", without: tuple[str, ...] = (), **changes: object) -> RunDir:
    """A run of the tiny experiment, everything of it complete but the units `without`, and its networks random."""
    run, experiment = bare_run(root, **changes), tiny(root.parent, **changes)
    units = plan_units(experiment)
    for number, unit in enumerate(units):
        folder = run.unit(unit.key)
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(number)
        names, results = _content(experiment, unit.key, folder, remark)
        known = {key: manifest.read(run.unit(key)) for key in [*unit.requires, *unit.optional]}
        inputs = unit.expected({key: one for key, one in known.items() if one}).inputs
        outputs = manifest.describe_outputs(folder, names)
        manifest.publish(folder, Manifest(*unit.key.split("/"), unit.fingerprint_settings, inputs, outputs, results))
    for key in without:
        (run.unit(key) / "manifest.json").unlink()
    return run


def _content(experiment: Experiment, key: str, folder: Path, remark: str) -> tuple[list[str], dict]:
    """Write the outputs of a unit as far as others read them; return their names, and its results."""
    stage, names, results = stage_of(key), ["output.bin"], {}
    if stage in ("train", "distill", "router", "autoencoder"):
        names, results = _trained(experiment, key, folder)
    elif stage == "draw":
        names = ["evaluation.h5"]
        with h5py.File(folder / names[0], "w") as file:
            images = np.random.default_rng(0).integers(0, 256, (24, *_image_shape(experiment)), dtype=np.uint8)
            for arm in arm_names(experiment):
                file.create_group(arm)["images"] = images
    elif key == CLUSTER:
        names = ["partition.h5"]
        with h5py.File(folder / names[0], "w") as file:
            file["centres"] = np.arange(8.0).reshape(2, 4)
    elif key == LATENT_SCALE:
        names = ["latent_scale.json"]
        (folder / names[0]).write_text(json.dumps(SCALE))
    elif key == REPORT:
        names = ["metrics.json"]
        (folder / names[0]).write_text(json.dumps(_metrics(experiment, remark)))
    else:
        (folder / names[0]).write_bytes(key.encode())
    if key == CATALOG:
        results = COUNTED
    if key == EXPERT_LISTS:
        results = {"lists": {f"expert-{number:02d}": {"samples": 12 + number} for number in range(2)}}
    return names, results


def _trained(experiment: Experiment, key: str, folder: Path) -> tuple[list[str], dict]:
    if key == ROUTER:
        network, training = router_job.build(experiment), None
    else:
        training = resolve_training(experiment, key)
        is_space = key == AUTOENCODER
        network = (
            build_autoencoder.build(experiment) if is_space else build_denoiser.build(experiment, training.denoiser)
        )
    names = ["weights.safetensors"] if key in (ROUTER, AUTOENCODER) else weights_names(training.settings)
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        save_file({own: 0.3 * torch.randn_like(values) for own, values in network.state_dict().items()}, folder / name)
    if key == ROUTER:
        (folder / "calibration.json").write_text(json.dumps(CALIBRATION))
        names.append("calibration.json")
    return names, {} if training is None else training_costs(training)


def _metrics(experiment: Experiment, remark: str) -> dict:
    arms = {arm: dict(FIGURES) for arm in arm_names(experiment)}
    return {
        "arms": arms,
        "floor": {"fd": 1.25, "kid": -0.0001, "agreement": 0.5, "images": 24},
        "intervals": {arm: {"fd@own": [11.0, 14.0], "kid@own": [None, None]} for arm in arms} | {"floor": {}},
        "leading_metric": "fd",
        "protocol": {"Samples": "24 of each arm"},
        "remark": remark,
        "warnings": [],
    }


def _image_shape(experiment: Experiment) -> tuple[int, int, int]:
    side = experiment.data.image_size
    return side, side, experiment.data.channels


def published(run: RunDir | Path, output: Path, *options: object) -> Path:
    """Publish a run to a folder, which is returned."""
    done = publish(run, output, *options)
    assert done.exit_code == 0, done.output
    return output


def publish(run: RunDir | Path, output: Path, *options: object):
    """Call `hpcddm publish`."""
    return hpcddm("publish", run.root if isinstance(run, RunDir) else run, "--output", output, *options)


def content(folder: Path) -> dict[str, bytes]:
    """All files of a folder by their paths."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def document(folder: Path) -> dict:
    """Content of `ensemble.json`."""
    return json.loads((folder / "ensemble.json").read_text())


def refusal_of(done, code: int | None = None) -> str:
    """Return the one line of a refused command, which every terminal can show."""
    if not isinstance(done.exception, SystemExit | None):
        raise done.exception
    lines = done.stderr.splitlines()
    assert done.exit_code in ((1, 2) if code is None else (code,)), done.output
    assert len(lines) == 1 and lines[0].startswith("error: ") and lines[0].isprintable(), done.output
    return lines[0]
