"""The verb export: a trained denoiser as a folder that stock diffusers loads."""

import json
from pathlib import Path
from typing import Any

import click
import jinja2

from hpcddm.commands.options import PATH, RUN, UNIT
from hpcddm.config import variants
from hpcddm.config.class_names import are_numbers
from hpcddm.config.experiment import Experiment
from hpcddm.config.objectives import ObjectiveSettings
from hpcddm.errors import ConfigError, UserError
from hpcddm.errors.next_step import install_command
from hpcddm.errors.printing import echo
from hpcddm.files import checked_reads
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import require_current, survey_units
from hpcddm.runs import manifest
from hpcddm.runs.files import SCALE_FILE, WEIGHTS
from hpcddm.runs.initial_weights import METADATA
from hpcddm.runs.links import link_above
from hpcddm.runs.result_types import LatentScale
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.stored_results import stored_class_names
from hpcddm.runs.unit_keys import AUTOENCODER, LATENT_SCALE, student_keys, train_keys
from hpcddm.runs.unit_training import latent_space, resolve_training

STEPS = 1000
"""Steps of the time axis: both sides embed 1000 t, which diffusers calls the time step."""
PIPELINE_CLASSES = 1000
"""diffusers' DiTPipeline takes number 1000 for the null class, however many classes there are."""
DDIM_PREDICTIONS = {"epsilon": "epsilon", "x0": "sample", "v": "v_prediction"}
"""Prediction type of hpcddm -> that of diffusers."""


@click.command()
@RUN
@UNIT
@click.option("--output", type=PATH, required=True, help="A new folder.")
def export(run: RunDir, unit: str, output: Path) -> None:
    """Write a denoiser of RUN as a folder that stock diffusers loads.

    \b
    Example: hpcddm export runs/fashion_mnist train/expert-02 --output expert-02   (or distill/student)
    Next:    README.txt in that folder has the lines that load it
    """
    experiment = stored_experiment(run)
    valid = [*train_keys(experiment), *student_keys(experiment)]
    if unit not in valid:
        raise ConfigError(f"{unit}: no denoiser of this run; valid names: {', '.join(valid)}")
    if linked := link_above(run, unit):
        raise UserError(f"{unit}: {linked}")
    require_current(survey_units(plan_units(experiment), run), run, unit)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"--output {output}: is not empty; name a new folder")
    from hpcddm.models.build_denoiser import require_network
    from hpcddm.models.checkpoints import file_formats
    from hpcddm.models.checkpoints.diffusers_dit import dump

    require_network(experiment, resolve_training(experiment, unit).denoiser, run.unit(unit) / WEIGHTS)
    stored = file_formats.read_checkpoint(run.unit(unit))
    # A file may describe itself, so the manifest has not been read yet.
    if stored.sha256 != manifest.recorded_digest(run.unit(unit), stored.path.name):
        raise UserError(f"{stored.path}: its bytes are not those of its manifest; fetch it again")
    tensors, info = file_formats.layout("hpcddm").load(stored, None)
    theirs, config = dump(tensors, info, PIPELINE_CLASSES)
    scheduler = scheduler_config(info.objective)
    names = stored_class_names(experiment, run)
    readme = _render_readme(
        unit=unit,
        sha256=stored.sha256,
        info=info,
        null_class=config["num_embeds_ada_norm"],
        class_names="" if are_numbers(names) else json.dumps(names),
        has_scheduler=scheduler is not None,
        **_latents(run, experiment),
    )
    try:
        _write(output, theirs, config, stored.description, scheduler)
        (output / "README.txt").write_text(readme)
    except OSError as error:
        raise UserError(f"--output {output}: cannot be written ({error.strerror or error})") from None
    echo(f"{output}: {unit} as diffusers' DiTTransformer2DModel; see {output / 'README.txt'}")


def scheduler_config(settings: ObjectiveSettings) -> dict[str, Any] | None:
    """Return the config of the diffusers scheduler that samples with a network of this objective, or None.

    A variance-preserving path becomes DDIM's table of 1000 levels, alpha_i = alpha(i / 1000); the velocity of the
    linear path a solver for flows. `FlowMatchEulerDiscreteScheduler` cannot be used inside DiTPipeline, which calls
    `scale_model_input`; DPMSolverMultistepScheduler can, and its first order is Euler's step.
    """
    import torch

    from hpcddm.diffusion.objectives.base import Objective

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
    from hpcddm.files.tensors import save_tensors
    from hpcddm.models.checkpoints.file_formats import DIFFUSERS_WEIGHTS

    transformer = output / "transformer"
    transformer.mkdir(parents=True)
    save_tensors(
        tensors, transformer / DIFFUSERS_WEIGHTS, {"format": "pt", METADATA: json.dumps(description, sort_keys=True)}
    )
    _json(transformer / "config.json", config)
    if scheduler is not None:
        (output / "scheduler").mkdir()
        _json(output / "scheduler" / "scheduler_config.json", scheduler)
        parts = {"transformer": config["_class_name"], "scheduler": scheduler["_class_name"], "vae": "AutoencoderKL"}
        index = {name: ["diffusers", kind] for name, kind in parts.items()}
        _json(output / "model_index.json", {"_class_name": "DiTPipeline"} | index)


def _json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n")


def _latents(run: RunDir, experiment: Experiment) -> dict[str, Any]:
    """Return the autoencoder and the scale of the latents that the network sees; empty where it sees pixels.

    Raises `UserError` without their scale.
    """
    space = latent_space(experiment)
    if space is None:
        return {}
    settings = json.dumps(space.autoencoder.model_dump(mode="json", exclude_none=True))
    name = f"{settings} in {run.unit(AUTOENCODER)}" if space.autoencoder.is_trained else settings
    scale = checked_reads.read_required_json(run.output(LATENT_SCALE, SCALE_FILE), LatentScale)
    return {"autoencoder": name, "scale": scale}


def _render_readme(**facts: Any) -> str:
    template = Path(__file__).with_name("export_readme.txt.j2").read_text()
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    return environment.from_string(template).render(install=install_command("diffusers>=0.35"), **facts)
