"""A denoiser as a folder that stock diffusers loads: tensors, config and scheduler under its names."""

import json
from pathlib import Path
from typing import Any

import torch

from hpcddm.config import variants
from hpcddm.config.objectives import ObjectiveSettings
from hpcddm.diffusion.objectives.base import Objective
from hpcddm.files.tensors import save_tensors
from hpcddm.loading.ensemble_document import EnsembleDocument
from hpcddm.models.checkpoints import file_formats
from hpcddm.models.checkpoints.base import CheckpointContent, CheckpointInfo
from hpcddm.models.checkpoints.diffusers_dit import dump, is_representable
from hpcddm.models.checkpoints.file_formats import DIFFUSERS_WEIGHTS
from hpcddm.runs.initial_weights import METADATA

FOLDER = "diffusers"
"""Folder of the copies in a published ensemble."""
STEPS = 1000
"""Steps of the time axis: both sides embed 1000 t, which diffusers calls the time step."""
PIPELINE_CLASSES = 1000
"""diffusers' DiTPipeline takes number 1000 for the null class, however many classes there are."""
DDIM_PREDICTIONS = {"epsilon": "epsilon", "x0": "sample", "v": "v_prediction"}
"""Prediction type of hpcddm -> that of diffusers."""


def add_copies(folder: Path, document: EnsembleDocument) -> list[str]:
    """Write a copy of every denoiser of an ensemble that diffusers can represent; return the paths of the copies."""
    copies = []
    for network in document.networks.values():
        if network.objective is None:
            continue
        stored = file_formats.read_checkpoint(folder / network.file)
        _, info = file_formats.layout("hpcddm").load(stored, None)
        if is_representable(info):
            copies.append(f"{FOLDER}/{Path(network.file).stem}")
            # The original beside it describes itself; of two entries of metadata the order would be random.
            write_denoiser(stored, folder / copies[-1], is_described=False)
    return copies


def write_denoiser(
    stored: CheckpointContent, output: Path, is_described: bool = True
) -> tuple[CheckpointInfo, dict[str, Any], bool]:
    """Write a denoiser as a new folder.

    Args:
        stored: Its weights, with a description of themselves.
        output: The folder.
        is_described: True to keep the description in the file.

    Returns:
        Settings of the network, the `config.json` of its copy, and whether there is a scheduler for it.

    Raises:
        UserError: diffusers has no such network.
    """
    tensors, info = file_formats.layout("hpcddm").load(stored, None)
    theirs, config = dump(tensors, info, PIPELINE_CLASSES)
    scheduler = scheduler_config(info.objective)
    _write(output, theirs, config, stored.description if is_described else {}, scheduler)
    return info, config, scheduler is not None


def scheduler_config(settings: ObjectiveSettings) -> dict[str, Any] | None:
    """Return the config of the diffusers scheduler that samples with a network of this objective, or None.

    A variance-preserving path becomes DDIM's table of 1000 levels, alpha_i = alpha(i / 1000); the velocity of the
    linear path a solver for flows. `FlowMatchEulerDiscreteScheduler` cannot be used inside DiTPipeline, which calls
    `scale_model_input`; DPMSolverMultistepScheduler can, and its first order is Euler's step.
    """
    objective = variants.create(Objective, settings)
    level = objective.level(torch.arange(STEPS, dtype=torch.float64) / STEPS)
    if objective.prediction_type == "path_velocity" and settings.schedule.name == "linear":
        flow = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "solver_order": 2}
        return {"_class_name": "DPMSolverMultistepScheduler", "num_train_timesteps": STEPS} | flow
    kept = level.alpha.square()
    if objective.prediction_type not in DDIM_PREDICTIONS or (kept + level.sigma.square() - 1).abs().max() > 1e-9:
        return None
    return {
        "_class_name": "DDIMScheduler",
        "num_train_timesteps": STEPS,
        "trained_betas": (1 - kept / torch.cat([kept.new_ones(1), kept[:-1]])).tolist(),
        "prediction_type": DDIM_PREDICTIONS[objective.prediction_type],
        "clip_sample": False,
        "timestep_spacing": "trailing",
    }


def _write(
    output: Path,
    tensors: dict[str, Any],
    config: dict[str, Any],
    description: dict[str, Any],
    scheduler: dict[str, Any] | None,
) -> None:
    transformer = output / "transformer"
    transformer.mkdir(parents=True)
    metadata = {METADATA: json.dumps(description, sort_keys=True)} if description else {}
    save_tensors(tensors, transformer / DIFFUSERS_WEIGHTS, {"format": "pt"} | metadata)
    _json(transformer / "config.json", config)
    if scheduler is not None:
        (output / "scheduler").mkdir()
        _json(output / "scheduler" / "scheduler_config.json", scheduler)
        parts = {"transformer": config["_class_name"], "scheduler": scheduler["_class_name"], "vae": "AutoencoderKL"}
        index = {name: ["diffusers", kind] for name, kind in parts.items()}
        _json(output / "model_index.json", {"_class_name": "DiTPipeline"} | index)


def _json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n")
