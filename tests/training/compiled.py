"""Gradients of networks whose blocks are compiled, beside those of the same networks, and how much was compiled."""

import json

from torch._dynamo.utils import counters

from hpcddm.models.base import prepare_blocks
from hpcddm.models.compiled_blocks import Compilation
from tests.models import examples


def compared(name: str) -> dict[str, object]:
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


if __name__ == "__main__":
    print("\nRESULT " + json.dumps({name: compared(name) for name in ("dit", "router_dit", "mmdit")}))
