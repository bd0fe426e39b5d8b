"""Parameters and operations of the backbones beside the published ones: python -m tests.benchmarks.backbones

Inputs are latents of 256 x 256 images, 4 x 32 x 32; 1,000 classes, or text of 77 tokens of 768 numbers. Nothing is
computed, so the largest network takes no memory.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from hpcddm.config import variants
from hpcddm.config.conditions import ConditionSettings
from hpcddm.models.flops import forward_flops, training_flops
from tests.benchmarks.tables import print_header, print_row
from tests.diffusion.spaces.examples import network_data
from tests.models.examples import network as built

TEXT = {"name": "text", "encoder": {"name": "words", "width": 768}, "tokens": 77, "prompts": [""]}
CONDITIONS = {"class": {"name": "class_label"}, "none": {"name": "none"}, "text": TEXT}
CLUSTERS = 8
MILLION, GMAC = 1e6, 2e9
"""Parameters; operations, a multiply-add being two. The papers' 'Gflops' are multiply-adds."""


@dataclass(frozen=True)
class Backbone:
    """A network and what a paper says of it, as it is printed there: millions of parameters, 10^9 multiply-adds."""

    name: str
    variant: str
    options: dict[str, Any]
    parameters: str
    gmacs: str = ""
    counts_positions: bool = False
    """Whether the published count takes the fixed table of positions for parameters."""


def _xl_text(name: str, parameters: str, **options: str) -> Backbone:
    own = {"size": "XL", "patch": 2, "condition": "text", **options}
    return Backbone(f"DiT-XL/2 text{name}", "dit", own, parameters, counts_positions=True)


def _router(name: str, condition: str, parameters: str) -> Backbone:
    return Backbone(f"router B/2, CLS{name}", "router_dit", {**B2, "condition": condition, "pool": "cls"}, parameters)


B2, MMDIT = {"size": "B", "patch": 2}, {"size": "3B", "patch": 2}
# arXiv 2212.09748, table 4; learned sigma.
DITS = {
    "S": {8: ("33", "0.36"), 4: ("33", "1.41"), 2: ("33", "6.06")},
    "B": {8: ("131", "1.42"), 4: ("130", "5.56"), 2: ("130", "23.01")},
    "L": {8: ("459", "5.01"), 4: ("458", "19.70"), 2: ("458", "80.71")},
    "XL": {8: ("676", "7.39"), 4: ("675", "29.05"), 2: ("675", "118.64")},
}
PUBLISHED = [
    Backbone(f"DiT-{size}/{patch}", "dit", {"size": size, "patch": patch, "learned_sigma": True}, *printed)
    for size, patches in DITS.items()
    for patch, printed in patches.items()
] + [
    # arXiv 2510.03434 and 2603.06741; counted in the public port of the former's weights.
    _xl_text(", adaLN-single", "605.97", modulation="single"),
    # What the 891 M of arXiv 2603.06741 would be without what the paper does not say.
    _xl_text("", "824"),
    # arXiv 2510.03434: "129M"; arXiv 2501.05450: "158M".
    _router("", "none", "129"),
    _router(", text", "text", "158"),
    # arXiv 2501.05450, sec. 4: "3B", of another shape; see hpcddm/models/mmdit.py.
    *(Backbone(f"MMDiT 3B, {given}", "mmdit", {**MMDIT, "condition": given}, "3000") for given in ("text", "class")),
]


def network(backbone: Backbone) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The network and its inputs for one image, on the meta device."""
    options = dict(backbone.options)
    told = ConditionSettings.model_validate(CONDITIONS[options.pop("condition", "class")])
    settings = variants.settings_class("models", backbone.variant)(name=backbone.variant, **options)
    with torch.device("meta"):
        data = SimpleNamespace(**vars(network_data(4, 32, 1000)) | {"condition": told})
        model = built(settings, data, CLUSTERS)
        condition = torch.zeros(1, *told.shape) if told.shape else torch.zeros(1, dtype=torch.long)
        return model, (torch.zeros(1, 4, 32, 32), torch.zeros(1), condition)


def parameters(backbone: Backbone) -> float:
    """Millions of parameters, with the fixed table of positions where the published count has it."""
    model, _ = network(backbone)
    positions = model.trunk.positions.numel() if backbone.counts_positions else 0
    return (positions + sum(parameter.numel() for parameter in model.parameters())) / MILLION


def gmacs(backbone: Backbone) -> float:
    """10^9 multiply-adds of one image forward."""
    model, inputs = network(backbone)
    return forward_flops(model, *inputs) / GMAC


def training_gmacs(backbone: Backbone) -> float:
    """10^9 multiply-adds of one image forward and backward."""
    model, inputs = network(backbone)
    return training_flops(model, *inputs) / GMAC


def row(backbone: Backbone) -> list[str]:
    """One line of the table; a ratio is ours to the published number."""
    known, forward = parameters(backbone), gmacs(backbone)
    of_parameters = [f"{known:.2f}", backbone.parameters, f"{known / float(backbone.parameters):.4f}"]
    ratio = f"{forward / float(backbone.gmacs):.4f}" if backbone.gmacs else ""
    of_operations = [f"{forward:.2f}", backbone.gmacs, ratio, f"{training_gmacs(backbone):.1f}"]
    return [backbone.name, *of_parameters, *of_operations]


def main() -> None:
    """Count and print a row for each backbone."""
    print("Parameters in millions, 10^9 multiply-adds per image. Text with CLIP's 77 x 768.")
    print("The fixed table of positions counts as parameters for DiT-XL/2 with text only.\n")
    print_header("name", "parameters", "published", "ratio", "forward", "published", "ratio", "training")
    for backbone in PUBLISHED:
        print_row(*row(backbone))


if __name__ == "__main__":
    main()
