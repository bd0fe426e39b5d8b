"""What the stages train and distill have in common: fresh denoisers, how they are perturbed, what they cost."""

import math
from fractions import Fraction
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from hpcddm import plugins
from hpcddm.config import Experiment, Recipe, Start, Training
from hpcddm.models.flops import forward_flops, training_flops
from hpcddm.objectives.base import Objective
from hpcddm.rundir import atomic
from hpcddm.runtime.unit import Unit, require
from hpcddm.schema import VariantSettings


def build(settings: Experiment, recipe: Recipe) -> nn.Module:
    """A denoiser, freshly initialised."""
    return plugins.load("models", recipe.model.name).build(recipe.model, settings.data)


def initial(settings: Experiment, recipe: Recipe, unit: Unit) -> nn.Module:
    """A denoiser ready to be trained: its prompts filled in, and the weights that it starts from.

    Raises `UserError` naming the file when those weights are not the network's.
    """
    model = build(settings, recipe)
    if recipe.start is not None:
        start_from(model, recipe.start, unit)
    # After the weights: those of another run hold its own prompts.
    fill_prompts(model, recipe.model, settings)
    return model


def fill_prompts(model: nn.Module, own: VariantSettings, settings: Experiment) -> None:
    """Give a model that is conditioned on text the prompts of the experiment; any other stays as it is."""
    if own.condition == "text":
        from hpcddm.encoders.texts import prompt_states

        model.set_prompts(prompt_states(settings.data.text))


def start_from(model: nn.Module, start: Start, unit: Unit) -> None:
    """Fill a model with other weights, which must be all of its own; fixed buffers may be missing."""
    path, weights = starting_weights(start, unit)
    unexpected = sorted(weights.keys() - model.state_dict().keys())
    missing = sorted(dict(model.named_parameters()).keys() - weights.keys())
    wrong = [name for name, value in model.state_dict().items() if weights.get(name, value).shape != value.shape]
    first = next(iter([*missing, *unexpected, *wrong]), None)
    require(
        first is None,
        f"{path}: not the weights of this model ({len(missing)} tensors missing, {len(unexpected)} unknown,"
        f" {len(wrong)} of another shape, the first {first}); convert them: hpcddm convert",
    )
    model.load_state_dict(weights, strict=False)


def starting_weights(start: Start, unit: Unit) -> tuple[Path, dict[str, torch.Tensor]]:
    """The file that a training starts from, and its tensors.

    Raises `UserError` naming the file when it holds none, or other ones than when the run was submitted.
    """
    path = (unit.run.root / start.weights).resolve()
    try:
        weights = load_file(path)
        is_same = start.content in (None, atomic.sha256(path))
    except (OSError, SafetensorError) as error:
        require(False, f"{path}: no weights to start from ({error})")
    require(is_same, f"{path}: has changed since the run was submitted; put it back, or submit again")
    return path, weights


def objective_of(recipe: Recipe) -> Objective:
    """What a denoiser is trained for."""
    return plugins.load("objectives", recipe.objective.name).Objective(recipe.objective)


def train_flops(settings: Experiment, recipe: Recipe) -> int:
    """FLOPs for one training image, forward and backward."""
    return training_flops(build(settings, recipe), *one_image(settings))


def sample_flops(settings: Experiment, recipe: Recipe) -> int:
    """FLOPs of one look at one image."""
    return forward_flops(build(settings, recipe), *one_image(settings))


def one_image(settings: Experiment) -> tuple[torch.Tensor, ...]:
    """Arguments of a denoiser, or of a router, for one image."""
    data = settings.data
    image = torch.zeros(1, data.channels, data.image_size, data.image_size)
    return image, torch.zeros(1), torch.zeros(1, dtype=torch.long)


def whole_batches(images: int, batch: int) -> int:
    """So many images, rounded up to whole batches."""
    return math.ceil(images / batch) * batch


def part_of(total: Training, share: Fraction) -> Training:
    """A share of a training: whatever counts images becomes less by that factor (arXiv 2501.05450, sec. 4)."""
    batch = int(total.batch * share)
    return total.model_copy(
        update={
            "images": whole_batches(total.images, total.batch) // total.batch * batch,
            "batch": batch,
            "warmup_images": int(total.warmup_images * share),
            "ema_halflife_images": math.ceil(total.ema_halflife_images * share),
            "log_images": math.ceil(total.log_images * share),
        }
    )
