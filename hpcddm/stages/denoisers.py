"""What the stages train and distill have in common: fresh denoisers, how they are perturbed, what they cost."""

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from hpcddm import plugins, starts
from hpcddm.config import Experiment, Recipe, Training
from hpcddm.errors import UserError
from hpcddm.models.flops import forward_flops, training_flops
from hpcddm.objectives.base import Objective
from hpcddm.rundir import atomic
from hpcddm.runtime.unit import Unit, require
from hpcddm.schema import VariantSettings
from hpcddm.starts import Wanted

START = "start.json"
"""Beside a unit's outputs and none of them: the file itself may be gone when the unit is complete."""


def build(settings: Experiment, recipe: Recipe) -> nn.Module:
    """A denoiser, freshly initialised."""
    return plugins.load("models", recipe.model.name).build(recipe.model, settings.data)


def initial(settings: Experiment, recipe: Recipe) -> nn.Module:
    """A denoiser before its training: random weights, its prompts filled in."""
    model = build(settings, recipe)
    fill_prompts(model, recipe.model, settings)
    return model


def start(settings: Experiment, unit: Unit) -> Callable[[nn.Module], None] | None:
    """What fills the unit's denoiser with the weights that it starts from; None where they stay random."""
    wanted = starts.wanted(settings, unit.key)
    return None if wanted is None else partial(start_from, wanted=wanted, unit=unit)


def fill_prompts(model: nn.Module, own: VariantSettings, settings: Experiment) -> None:
    """Give a model that is conditioned on text the prompts of the experiment; any other stays as it is."""
    if own.condition == "text":
        from hpcddm.encoders.texts import prompt_states

        model.set_prompts(prompt_states(settings.data.text))


def start_from(model: nn.Module, wanted: Wanted, unit: Unit) -> None:
    """Fill a model with other weights, which must be those of all its parameters; its fixed buffers stay.

    Raises `UserError` naming the file, and the key or the tensor, when those weights are not the network's.
    """
    path, weights = starting_weights(wanted, unit)
    own = dict(model.named_parameters())
    unexpected = sorted(weights.keys() - model.state_dict().keys())
    missing = sorted(own.keys() - weights.keys())
    wrong = [name for name, value in own.items() if weights.get(name, value).shape != value.shape]
    first = next(iter([*missing, *unexpected, *wrong]), None)
    require(
        first is None,
        f"{path}: not the weights of this model ({len(missing)} tensors missing, {len(unexpected)} unknown,"
        f" {len(wrong)} of another shape, the first {first}); {wanted.advice}",
    )
    # The buffers are computed, or the prompts of another experiment.
    model.load_state_dict({name: weights[name] for name in own}, strict=False)


def starting_weights(wanted: Wanted, unit: Unit) -> tuple[Path, dict[str, torch.Tensor]]:
    """The file that a training starts from, and its tensors; what it is, is kept in the unit's folder for `started`.

    Raises `UserError` naming the file when it holds none, other ones than when the run was submitted, or another
    network's.
    """
    path = (unit.run.root / wanted.start.weights).resolve()
    try:
        weights, digest = load_file(path), atomic.sha256(path)
    except (OSError, SafetensorError) as error:
        raise UserError(starts.unreadable(path, error)) from None
    is_same = wanted.start.content in (None, digest)
    require(is_same, f"{path}: has changed since the run was submitted; put it back, or submit again")
    said = starts.described(path, starts.header(path).own, digest)
    starts.check(wanted, path, said)
    if unit.ranks.rank == 0:
        atomic.write_json(unit.folder / START, starts.record(path, said, digest))
    return path, weights


def started(settings: Experiment, unit: Unit) -> dict[str, Any]:
    """For the manifest: what the unit started from, as {"start": ...}; empty where its weights were random."""
    found = atomic.read_json(unit.folder / START) if starts.wanted(settings, unit.key) else None
    return {} if found is None else {"start": found}


def objective_of(recipe: Recipe) -> Objective:
    """What a denoiser is trained for."""
    return plugins.load("objectives", recipe.objective.name).Objective(recipe.objective)


def train_flops(settings: Experiment, recipe: Recipe) -> int:
    """FLOPs for one training image, forward and backward."""
    return training_flops(build(settings, recipe), *one_image(settings))


def sample_flops(settings: Experiment, recipe: Recipe) -> int:
    """FLOPs of one look at one image."""
    return forward_flops(build(settings, recipe), *one_image(settings))


def of_each(settings: Experiment, experts: Iterable[int | None], count: Callable[..., int]) -> list[int]:
    """`train_flops` or `sample_flops` of some experts (None: the monolith); like networks are counted once."""
    recipes = [settings.recipe(expert) for expert in experts]
    alike = {recipe.model.model_dump_json(): recipe for recipe in recipes}
    found = {model: count(settings, recipe) for model, recipe in alike.items()}
    return [found[recipe.model.model_dump_json()] for recipe in recipes]


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
