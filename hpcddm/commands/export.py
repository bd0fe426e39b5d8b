"""The verb export: a trained denoiser as a folder that stock diffusers loads."""

import json
from pathlib import Path
from typing import Any

import click
import jinja2

from hpcddm.commands.options import PATH, RUN, UNIT
from hpcddm.config.class_names import are_numbers
from hpcddm.config.experiment import Experiment
from hpcddm.errors import ConfigError, UserError, require
from hpcddm.errors.next_step import install_command
from hpcddm.errors.printing import echo
from hpcddm.files import checked_reads
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import require_current, survey_units
from hpcddm.runs import manifest
from hpcddm.runs.files import SCALE_FILE, WEIGHTS
from hpcddm.runs.links import link_above, require_own
from hpcddm.runs.result_types import LatentScale
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.stored_results import stored_class_names
from hpcddm.runs.unit_keys import AUTOENCODER, LATENT_SCALE, student_keys, train_keys
from hpcddm.runs.unit_training import latent_space, resolve_training


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
    require(unit in valid, f"{unit}: no denoiser of this run; valid names: {', '.join(valid)}", ConfigError)
    if linked := link_above(run, unit):
        raise UserError(f"{unit}: {linked}")
    require_own(run, unit)
    require_current(survey_units(plan_units(experiment), run), run, unit)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"--output {output}: is not empty; name a new folder")
    from hpcddm.models.build_denoiser import require_network
    from hpcddm.models.checkpoints import file_formats
    from hpcddm.publishing.diffusers_folder import write_denoiser

    require_network(experiment, resolve_training(experiment, unit).denoiser, run.unit(unit) / WEIGHTS)
    stored = file_formats.read_checkpoint(run.unit(unit))
    # A file may describe itself, so the manifest has not been read yet.
    if stored.sha256 != manifest.recorded_digest(run.unit(unit), stored.path.name):
        raise UserError(f"{stored.path}: its bytes are not those of its manifest; fetch it again")
    latents = _latents(run, experiment)
    try:
        info, config, has_scheduler = write_denoiser(stored, output)
        (output / "README.txt").write_text(
            _render_readme(
                unit=unit,
                sha256=stored.sha256,
                info=info,
                null_class=config["num_embeds_ada_norm"],
                class_names=_shown_names(stored_class_names(experiment, run)),
                has_scheduler=has_scheduler,
                **latents,
            )
        )
    except OSError as error:
        raise UserError(f"--output {output}: cannot be written ({error.strerror or error})") from None
    echo(f"{output}: {unit} as diffusers' DiTTransformer2DModel; see {output / 'README.txt'}")


def _shown_names(names: list[str]) -> str:
    return "" if are_numbers(names) else json.dumps(names)


def _latents(run: RunDir, experiment: Experiment) -> dict[str, Any]:
    """Return the autoencoder and the scale of the latents that the network sees; empty where it sees pixels.

    Raises `UserError` without their scale.
    """
    if (space := latent_space(experiment)) is None:
        return {}
    settings = json.dumps(space.autoencoder.model_dump(mode="json", exclude_none=True))
    name = f"{settings} in {run.unit(AUTOENCODER)}" if space.autoencoder.is_trained else settings
    scale = checked_reads.read_required_json(run.output(LATENT_SCALE, SCALE_FILE), LatentScale)
    return {"autoencoder": name, "scale": scale}


def _render_readme(**facts: Any) -> str:
    template = Path(__file__).with_name("export_readme.txt.j2").read_text()
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    return environment.from_string(template).render(install=install_command("diffusers>=0.35"), **facts)
