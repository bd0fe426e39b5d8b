"""Gradients of networks whose blocks are compiled, beside those of the same networks, and how much was compiled."""

import json
import sys
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch._dynamo.utils import counters

from hpcddm.models.base import prepare_blocks
from hpcddm.models.compiled_blocks import Compilation
from tests.models import examples

STRONG = {"mlp": "swiglu", "norm": "rms", "positions": "rotary", "qk_norm": True}
CONDITIONS = {name: (*forms, "class", "text") for name, forms in {"dit": ("none",), "mmdit": ()}.items()}
CAPTURED = [(name, {"condition": form, "modulation": "zero"}) for name, forms in CONDITIONS.items() for form in forms]
CAPTURED += [
    ("dit", STRONG | {"condition": form, "modulation": modulation})
    for form, modulation in (("none", "zero"), ("class", "single"), ("text", "zero"), ("text", "single"))
]
"""Networks and their options: with and without text, plain blocks and those of SwiGLU, RMS norm and rotation."""


def compared(name: str) -> dict[str, Any]:
    """Three steps of a network, plain and compiled."""
    options = {"depth": 3} | ({"condition": "class"} if name == "mmdit" else {})
    plain, compiled = (examples.trained(name, **options).train() for _ in range(2))
    said = prepare_blocks(compiled, 2, Compilation(active=True))
    counters.clear()
    for _ in range(3):
        for model in (plain, compiled):
            model(*examples.batch(6)).square().mean().backward()
    pairs = zip(plain.parameters(), compiled.parameters(), strict=True)
    worst = max(float((one.grad - other.grad).abs().max() / one.grad.abs().max()) for one, other in pairs)
    graphs, breaks = counters["stats"].get("unique_graphs", 0), sum(counters["graph_break"].values())
    names = [*plain.state_dict()] == [*compiled.state_dict()]
    return {"said": said, "graphs": graphs, "breaks": breaks, "worst": worst, "names": names}


def broken(name: str, options: dict[str, Any]) -> dict[str, int]:
    """Graphs and graph breaks of two steps of a network whose blocks are captured, and not compiled any further."""
    torch._dynamo.reset()
    counters.clear()
    model = examples.trained(name, **options).train()
    with patch("torch.compile", partial(torch.compile, backend="eager")):
        prepare_blocks(model, 0, Compilation(active=True))
    for _ in range(2):
        model(*examples.batch(6, **options)).square().mean().backward()
    stats = counters["stats"]
    return {"graphs": stats.get("unique_graphs", 0), "breaks": sum(counters["graph_break"].values())}


def main(which: str) -> Any:
    if which == "compared":
        return {name: compared(name) for name in ("dit", "router_dit", "mmdit")}
    return [(name, options, broken(name, options)) for name, options in CAPTURED]


if __name__ == "__main__":
    print("\nRESULT " + json.dumps(main(sys.argv[1])))
