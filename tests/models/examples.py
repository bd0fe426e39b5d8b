"""Small networks of the variants of `models`, with every two values of their options."""

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Literal, get_args, get_origin

import torch
from torch import nn

from hpcddm.config import variants
from hpcddm.config.models import DenoiserModelSettings, NetworkSettings
from hpcddm.models.base import Network
from tests.diffusion.spaces.examples import network_data, told

DATA = network_data(2, 8, 3)
EXPERIMENT = SimpleNamespace(data=DATA, cluster=SimpleNamespace(experts=4))
OUTPUTS = 5
SMALL = {"width": 32, "depth": 2, "heads": 2, "patch": 4, "encoder": {"name": "pixels"}}


def settings(name: str, **options: Any) -> Any:
    """The settings of a small network; `condition` among the options is the form of what the data tell."""
    schema = variants.settings_class("models", name)
    if options.get("condition") in ("class", "text"):
        options["condition"] = "given"
    needed = {key for key, field in schema.model_fields.items() if field.is_required()}
    return schema(name=name, **{key: value for key, value in SMALL.items() if key in needed} | options)


def network(settings: Any, data: Any, outputs: int) -> Network:
    """The network of some settings; a denoiser has as many outputs as it needs."""
    arguments = () if isinstance(settings, DenoiserModelSettings) else (outputs,)
    return variants.create(Network, settings, data, *arguments)


def combinations(*bases: type[NetworkSettings]) -> list[tuple[str, dict[str, Any]]]:
    """All trained variants of these bases with few combinations of their options, but for named sizes."""
    found = []
    for name in (name for base in bases for name in variants.list_variants("models", base)):
        schema = variants.settings_class("models", name)
        if getattr(schema, "trained", True):
            values = {key: _values(field.annotation) for key, field in schema.model_fields.items()}
            if "given" in values.get("condition", ()):
                values["condition"] = ("class", "text", *values["condition"][1:])
            found += [(name, own) for own in pairwise({key: of_key for key, of_key in values.items() if of_key})]
    return found


def pairwise(values: dict[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Combinations in which every value is, and every two of two options are together; only text modulates as text."""
    products = [dict(zip(values, product, strict=True)) for product in itertools.product(*values.values())]
    parts = [
        (own, {part for size in (0, 1, 2) for part in itertools.combinations(own.items(), size)})
        for own in products
        if own.get("text_modulation", "none") == "none" or own["condition"] == "text"
    ]
    missing, found = set().union(*(of_own for _, of_own in parts)), []
    while missing:
        best, covered = max(parts, key=lambda one: len(missing & one[1]))
        found.append(best)
        missing -= covered
    return found


def label(value: Any) -> str:
    """The name of a combination in pytest's output."""
    if not isinstance(value, dict):
        return str(value)
    return "-".join(key if one is True else f"no_{key}" if one is False else one for key, one in value.items())


def _values(annotation: Any) -> tuple[Any, ...]:
    if annotation is bool:
        return (False, True)
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def fresh(name: str, seed: int = 0, **options: Any) -> nn.Module:
    """A network as it is built."""
    one, data = settings(name, **options), told(DATA, options.get("condition", "class"))
    one.check(SimpleNamespace(**vars(EXPERIMENT) | {"data": data}))
    torch.manual_seed(seed)
    return network(one, data, OUTPUTS).eval()


def trained(name: str, **options: Any) -> nn.Module:
    """A network whose zero-initialised layers say something."""
    model = fresh(name, **options)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def losses_of(model: nn.Module, loss: Callable[[], torch.Tensor], steps: int) -> list[float]:
    """Train a network by AdamW and return its losses."""
    optimiser, found = torch.optim.AdamW(model.parameters(), lr=3e-3), []
    for _ in range(steps):
        optimiser.zero_grad()
        value = loss()
        value.backward()
        optimiser.step()
        found.append(value.item())
    return found


def states() -> torch.Tensor:
    """Token states of four sentences, of lengths 2, 3, 4, 5, then padding."""
    found = torch.randn(4, 5, 12, generator=torch.Generator().manual_seed(3))
    return found * (torch.arange(5)[None] < torch.arange(2, 6)[:, None])[:, :, None]


def batch(count: int = 6, condition: str = "class", **_: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images, times, and classes with the null class among them, or their sentences."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 2, 8, 8, generator=generator)
    t, classes = torch.rand(count, generator=generator), torch.arange(count) % 4
    return x, t, states()[classes] if condition == "text" else classes
