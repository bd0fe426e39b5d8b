"""The verb convert: makes initial weights of an experiment's denoisers from published weights, or a run's."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from hpcddm.commands.options import OVERRIDES, PATH
from hpcddm.commands.terminal import make_table, print_table
from hpcddm.config import variants
from hpcddm.config.experiment import ExpertConfig
from hpcddm.config.models import LayoutSettings
from hpcddm.errors import ConfigError, UserError, require
from hpcddm.errors.printing import echo
from hpcddm.files import atomic
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.runs import initial_weights
from hpcddm.runs.unit_keys import all_experts

MOVE_TIMES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Times at which a note prints the change of log-SNR from one path to another."""


@click.command()
@click.argument("source", type=PATH)
@OVERRIDES
@click.option(
    "--like", required=True, metavar="EXPERIMENT", help="Experiment that uses the weights: a name or a YAML file."
)
@click.option("--output", type=PATH, default=Path("seed.safetensors"), show_default=True)
@click.option(
    "--layout", default="auto", show_default=True, help="original_dit, sit, lightningdit, diffusers_dit, hpcddm."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of new tensors.")
@click.option("--keep-head", is_flag=True, help="Keep the last layer although its prediction type differs.")
@click.option("--expert", metavar="EXPERT", help="Number or name of the expert to match, if experts differ.")
def convert(
    source: Path,
    like: str,
    overrides: tuple[str, ...],
    output: Path,
    layout: str,
    seed: int,
    keep_head: bool,
    expert: str | None,
) -> None:
    """Convert the weights in SOURCE to initial weights.

    The result fits the denoisers of the experiment that --like names. SOURCE is a .safetensors, .pt or .pth file, a
    diffusers folder, or a unit of a run. The verdict on each tensor (kept, folded, reset, dropped) is printed and
    stored with the weights. KEY=VALUE changes a setting.

    \b
    Example: hpcddm convert runs/fm/train/monolith --like fashion_mnist --output start.safetensors
    Next:    hpcddm submit fashion_mnist experts.init_from.weights=start.safetensors
    """
    _check_options(layout, output)
    experiment = load_experiment(like, overrides)
    valid = {str(own): own for own in all_experts(experiment)}
    if expert is not None and expert not in valid:
        raise ConfigError(f"--expert {expert}: valid are {', '.join(valid)}")
    named = None if expert is None else valid[expert]
    from hpcddm.models.checkpoints import conversion, file_formats

    stored = file_formats.read_checkpoint(source)
    layout = file_formats.recognise_layout(stored) if layout == "auto" else layout
    config = experiment.expert_config(named)
    tensors, info = file_formats.layout(layout).load(stored, config.model)
    place = initial_weights.expert_setting_key(experiment, named, "model")
    target = conversion.Target(config.model, experiment.data, config.objective, place)
    made = conversion.convert(tensors, info, target, seed, keep_head)
    latents = stored.description.get("data", {}).get(initial_weights.LATENTS)
    description = _described(config, experiment.data, latents) | {
        "source": source.name,
        "source_sha256": stored.sha256,
        "images": stored.description.get("images"),
        "train_flops": stored.description.get("train_flops"),
        "layout": layout,
        "seed": seed,
        "notes": [*stored.notes, *info.notes, *_notes(info, target)],
        "verdicts": made.verdicts,
    }
    _save(made.tensors, description, output)
    _print(made, description, output)


def _check_options(layout: str, output: Path) -> None:
    valid = ("auto", *variants.list_variants(LayoutSettings.package))
    require(layout in valid, f"--layout {layout}: valid names are {', '.join(valid)}", ConfigError)
    require(output.suffix == ".safetensors", f"--output {output}: the name must end in .safetensors", ConfigError)


def _described(config: ExpertConfig, data: Any, latents: str | None) -> dict[str, Any]:
    """Describe the network for the file's metadata, which conversions and trainings that start from it read.

    latents: digest of those that the source was trained on, where its run's own autoencoder made them.
    """
    return {
        "model": config.model.model_dump(),
        "objective": config.objective.model_dump(),
        "data": {
            "channels": data.x_shape.channels,
            "image_size": data.x_shape.height,
            "num_classes": data.num_classes,
            "space": data.space.defining_settings,
            initial_weights.LATENTS: latents,
            **initial_weights.network_condition(config.model, data),
        },
    }


def _notes(source: Any, target: Any) -> list[str]:
    """List differences between source and target beyond single tensors: size, path, prediction, qk_norm, block."""
    notes = []
    size = target.data.x_shape.height
    if source.image_size not in (None, size):
        notes.append(f"positions are computed: for images of {source.image_size} there, of {size} here")
    have, want = source.objective, target.objective
    if (have.name, have.schedule) != (want.name, want.schedule):
        before, after = (f"{objective.name} on the path {objective.schedule.description}" for objective in (have, want))
        notes.append(f"{before} there, {after} here" + _moves(have.schedule, want.schedule))
    if target.model.qk_norm and not source.model.qk_norm:
        notes.append("qk_norm is new: queries and keys are normalised now, which no tensor can undo")
    for key, have in asdict(source.model.block).items():
        want = getattr(target.model.block, key)
        if have != want:
            notes.append(f"{key} is {have} there, {want} here: another network, which training must adapt")
    return notes


def _moves(source: Any, target: Any) -> str:
    """Say by how much log-SNR moves at equal t, which networks of all paths are given alike; empty for one path."""
    if source == target:
        return ""
    import torch

    from hpcddm.diffusion.objectives.schedules.base import log_snr_differences

    moves = log_snr_differences(source, target, torch.tensor(MOVE_TIMES, dtype=torch.float64)).tolist()
    listed = ", ".join(f"{move:+.2f} at t = {t}" for t, move in zip(MOVE_TIMES, moves, strict=True))
    return f"; both are given 1000 t, and log-SNR here less that there is {listed}"


def _save(tensors: dict[str, Any], description: dict[str, Any], output: Path) -> None:
    from hpcddm.files.tensors import save_tensors

    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        # No training ever starts from a torn file.
        with atomic.replacing(output) as staged:
            save_tensors(tensors, staged, {initial_weights.METADATA: json.dumps(description, sort_keys=True)})
    except OSError as error:
        raise UserError(f"--output {output}: cannot be written ({error.strerror or error})") from None


def _print(made: Any, description: dict[str, Any], output: Path) -> None:
    title = f"{description['source']} ({description['layout']}), SHA-256 {description['source_sha256'][:12]}"
    table = make_table(("tensor", "number", "verdict", "why"), made.table(), ("tensor", "verdict", "why"), title)
    table.columns[-1].no_wrap = False
    print_table(table)
    echo(*(f"note: {note}" for note in description["notes"]))
    counts = ", ".join(f"{count} {verdict}" for verdict, count in made.counts().items())
    images = description["images"]
    history = "what its source cost is unknown" if images is None else f"its source saw {images:,} images"
    echo(f"{output}: {counts}; {history}; start from it with experts.init_from.weights={output}")
