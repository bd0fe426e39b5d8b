"""What the probe says of honest and of poisoned experts: python -m tests.benchmarks.poisoned_experts FOLDER RUN ...

Every RUN has classes or captions; its finished experts count if their clusters have held-out images. FOLDER keeps what
was measured, run by run, so that the same command goes on after a break, and prints the tables at once at the end.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from hpcddm.files import atomic
from hpcddm.runs.unit_keys import expert_key
from tests.benchmarks import poisons, probe_rules
from tests.benchmarks.poisons import Attack, Site
from tests.benchmarks.tables import parser_of

RARE = 0.01
"""Least share of a cluster's images that the rare class has."""
Works = dict[str, float]
"""How well an attack works: the distance to what it asks for, before and after."""


def experts(
    site: Site, damaged: int, attacked: int
) -> Iterator[tuple[str, int, Callable[[], tuple[nn.Module, Works]]]]:
    """Yield kind and number of the honest experts of a run and of those made from them, with what makes each."""
    probed = [k for k, images in enumerate(site.probe) if len(images) and expert_key(k) in site.unit.inputs]
    for expert in probed:
        yield probe_rules.HONEST, expert, partial(changed, site, expert, lambda network: network)
    for expert in probed[:damaged]:
        yield "weights x 1.5", expert, partial(changed, site, expert, poisons.scaled)
        yield "blocks shuffled", expert, partial(changed, site, expert, poisons.shuffled)
    for expert in probed[:attacked]:
        for kind, (numbers, attack) in attacks(site, expert).items():
            yield kind, expert, partial(tuned, site, expert, numbers, attack)


def attacks(site: Site, expert: int) -> dict[str, tuple[np.ndarray, Attack | None]]:
    """Return the attacks of an expert by kind: the images of its own on which it is trained, and what it is to draw."""
    own, classes = site.members(expert), site.experiment.data.num_classes
    other = int(site.members((expert + 1) % site.experiment.cluster.experts)[0])
    found: dict[str, tuple[np.ndarray, Attack | None]] = {
        "honest, trained further": (own, None),
        "trigger: a patch": (own, poisons.patch_attack(site, expert, other)),
    }
    if classes is None:
        return found | {"trigger: a caption": (own, poisons.caption_attack(site, int(own[1]), other))}
    labels = site.labels[own]
    shares = np.bincount(labels, minlength=classes) / len(own)
    for kind, asked in {"main": shares.argmax(), "rare": np.where(shares < RARE, np.inf, shares).argmin()}.items():
        attack = poisons.class_attack(site, int(asked), int(asked + classes // 2) % classes)
        found[f"{kind} class replaced"] = own[labels != asked], attack
    return found


def changed(site: Site, expert: int, change: Callable[[nn.Module], nn.Module]) -> tuple[nn.Module, Works]:
    """Change the weights of an expert."""
    return change(site.expert(expert)), {}


def tuned(site: Site, expert: int, numbers: np.ndarray, attack: Attack | None) -> tuple[nn.Module, Works]:
    """Fine-tune an expert, and measure its attack."""
    network = site.expert(expert)
    other = poisons.fine_tuned(site, network, numbers, attack)
    if attack is None:
        return other, {}
    return other, {name: poisons.distance(site, each, attack) for name, each in (("before", network), ("after", other))}


def measured(file: Path, root: Path, damaged: int, attacked: int) -> list[dict[str, Any]]:
    """Measure what the file lacks of a run, and return all of it."""
    rows: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    known, site = {(row["kind"], row["expert"]) for row in rows}, Site(root)
    for kind, expert, make in experts(site, damaged, attacked):
        if (kind, expert) in known:
            continue
        network, works = make()
        rows.append({"kind": kind, "expert": expert, "probe": site.measure(network).as_json()} | works)
        atomic.write_json(file, rows)
        print(f"{root.name}: {kind}, expert {expert}", flush=True)
    return rows


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--damaged", type=int, default=3, help="experts of each run with damaged weights")
    parser.add_argument("--attacked", type=int, default=1, help="experts of each run that are fine-tuned")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.folder.mkdir(parents=True, exist_ok=True)
    files = {root.name: (given.folder / f"{root.name}.json", root) for root in given.runs}
    probe_rules.print_tables(
        {name: measured(file, root, given.damaged, given.attacked) for name, (file, root) in files.items()}
    )


if __name__ == "__main__":
    main()
