"""Tell an expert's training images from held-out ones by its weights: python -m tests.benchmarks.membership RUN ...

An attacker has the averaged weights of an expert, as a bundle carries them, and images with their captions or classes:
which of them was the expert trained on? Members are images of its list, others are held-out images of its cluster,
`--images` of each at most. An attack is a number per image that is small for members:

- loss: the training loss, averaged over `NOISES` noises (arXiv 2302.03262; several noises as in 2301.13188);
- SimA: the 4-norm of the noise that the expert sees in an image without noise (arXiv 2509.25003). Here the image is
  scaled as in noisy images of that level; without this, less was found at high levels;
- SimA-MC: the 4-norm of the mean of the noises that it sees in the noisy images of the loss;
- loss, compared: the loss less that of another cluster's expert, which partners have, too (arXiv 2111.08440).

Each is asked at `LEVELS`, times of the linear path; a score is the mean over these, each standardised within an expert
without a look at who is a member. Of two rows nothing should be found: `by another expert` asks the other cluster's
expert, which has seen neither side, and `others alone` splits the others into random halves.

An extra expert (`experts.extra`) is asked about its list and any held-out images, so choose its list at random. One
that is trained long on few images shows that the attacks find members where there is something to find.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int64

import hpcddm
from hpcddm.api import Run
from hpcddm.config.training import Expert
from hpcddm.data.columns import Column
from hpcddm.data.run_samples import CLUSTER, NUMBERS
from hpcddm.jobs.devices import current_device
from hpcddm.runs import manifest
from hpcddm.runs.files import list_file
from hpcddm.runs.ranges import HELDOUT, TRAIN
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_results import list_results
from hpcddm.runs.unit_keys import all_experts, expert_key, list_key, unit_name
from hpcddm.sampling import load_ensemble
from hpcddm.sampling.denoiser_velocity import DenoiserVelocity
from tests.benchmarks.roc import Estimate, Scores, area, found
from tests.benchmarks.tables import parser_of, print_header, print_row, run_main

LEVELS = (0.1, 0.4, 0.8)
"""The first two are steps 29 and 186 of DDPM's 1,000, between which attacks ask; at the last the caption tells most."""
NOISES, BATCH = 3, 50
AT_MOST = 100
LOSS, SIMA, SIMA_MC, COMPARED = "loss", "SimA", "SimA-MC", "loss, compared"
Asked = dict[str, Float[np.ndarray, "levels n"]]
"""Numbers of images at every level, by attack; small for members."""
Sides = dict[str, tuple[Scores, Scores]]
"""Scores of members and of others, by attack; large for members."""
POOLED, BY_ANOTHER, OTHERS_ALONE = "all experts", "by another expert", "others alone"


@dataclass(frozen=True)
class Row:
    """What an attack finds."""

    expert: str
    attack: str
    members: int
    others: int
    area: Estimate
    found: Estimate

    @classmethod
    def of(cls, expert: str, sides: Sides) -> "list[Row]":
        """Compute the rows of all attacks."""
        return [
            cls(expert, attack, len(members), len(others), area(members, others), found(members, others))
            for attack, (members, others) in sides.items()
        ]


def measure(root: Path, at_most: int = AT_MOST) -> Iterator[Row]:
    """Attack every finished expert of a run; the last rows are those of all clusters' experts together."""
    run, folder = hpcddm.open(root), RunDir(root)
    experts = [expert for expert in all_experts(run.experiment) if manifest.read(folder.unit(expert_key(expert)))]
    keys = [expert_key(expert) for expert in experts]
    ensemble = load_ensemble.load_ensemble(run.experiment, folder.unit, keys, current_device())
    clusters = [expert for expert in experts if isinstance(expert, int)]
    kept: dict[str, list[Sides]] = {POOLED: [], BY_ANOTHER: [], OTHERS_ALONE: []}
    for expert in experts:
        sides = images(run, folder, expert, at_most)
        if not all(len(numbers) for _, numbers in sides):
            continue
        if isinstance(expert, str):
            yield from Row.of(expert, scores(*(ask(ensemble.extra[expert], run, *side) for side in sides)))
            continue
        own = [ask(ensemble.experts[expert], run, *side) for side in sides]
        if len(clusters) > 1:
            another = ensemble.experts[clusters[(clusters.index(expert) + 1) % len(clusters)]]
            asked = [ask(another, run, *side) for side in sides]
            kept[BY_ANOTHER].append(scores(*asked))
            for mine, theirs in zip(own, asked, strict=True):
                mine[COMPARED] = mine[LOSS] - theirs[LOSS]
        kept[POOLED].append(scores(*own))
        kept[OTHERS_ALONE].append(scores(*halves(own[1])))
        yield from Row.of(unit_name(expert_key(expert)), kept[POOLED][-1])
    for name, parts in kept.items():
        if parts:
            yield from Row.of(name, pooled(parts))


def images(run: Run, folder: RunDir, expert: Expert, at_most: int) -> list[tuple[str, Int64[np.ndarray, " n"]]]:
    """Draw members and others at random: their splits and numbers."""
    key = list_key(expert)
    count = list_results({key: manifest.read(folder.unit(key))}, expert)["samples"]
    members = Column(NUMBERS, {folder.output(key, list_file(expert)): count}).gather(range(count))
    heldout = np.arange(len(run.data(HELDOUT)))
    if isinstance(expert, int):
        heldout = heldout[run.data(HELDOUT).column(CLUSTER, heldout).numpy() == expert]
    draw = np.random.default_rng(0)
    return [(split, draw.permutation(numbers)[:at_most]) for split, numbers in ((TRAIN, members), (HELDOUT, heldout))]


def ask(denoiser: DenoiserVelocity, run: Run, split: str, numbers: Int64[np.ndarray, " n"]) -> Asked:
    """Ask an expert about images of a split."""
    parts = np.split(numbers, range(BATCH, len(numbers), BATCH))
    return joined([_ask_batch(denoiser, run, split, part) for part in parts])


@torch.no_grad()
def _ask_batch(denoiser: DenoiserVelocity, run: Run, split: str, numbers: Int64[np.ndarray, " n"]) -> Asked:
    reader, objective, device = run.data(split), denoiser.objective, current_device()
    x0 = run.space.to_model(torch.from_numpy(reader.images(numbers)).to(device))
    condition = run.condition.of_samples(reader, numbers).to(device)
    # Another expert is asked with the same noise, so that losses compare.
    source = torch.Generator().manual_seed(int(numbers[0]))
    noises = torch.randn((NOISES, *x0.shape), generator=source).to(device)
    by_attack: dict[str, list[torch.Tensor]] = {LOSS: [], SIMA: [], SIMA_MC: []}
    for level in LEVELS:
        linear = torch.full((len(x0),), level, dtype=torch.float64, device=device)
        t = objective.native_time(linear).float()
        losses, seen = [], []
        for noise in [*noises, torch.zeros_like(x0)]:
            x = objective.perturb(x0, noise, t)
            prediction = denoiser.model(x, t, condition)
            losses.append(objective.loss(prediction, x0, noise, t))
            seen.append(objective.estimate(x, t, prediction)[1])
        by_attack[LOSS].append(torch.stack(losses[:-1]).mean(0))
        by_attack[SIMA].append(seen[-1].flatten(1).norm(p=4, dim=1))
        by_attack[SIMA_MC].append(torch.stack(seen[:-1]).mean(0).flatten(1).norm(p=4, dim=1))
    return {attack: torch.stack(values).double().cpu().numpy() for attack, values in by_attack.items()}


def joined(parts: list[Asked]) -> Asked:
    """Join the numbers of several batches."""
    return {attack: np.concatenate([part[attack] for part in parts], axis=1) for attack in parts[0]}


def scores(members: Asked, others: Asked) -> Sides:
    """Standardise every level over both sides, and average over levels."""
    sides: Sides = {}
    for attack in members:
        every = np.concatenate([members[attack], others[attack]], axis=1)
        # Where there are one or two images of a kind, all may be alike.
        spread = np.maximum(every.std(1, keepdims=True), 1e-12)
        score = -((every - every.mean(1, keepdims=True)) / spread).mean(0)
        sides[attack] = (score[: members[attack].shape[1]], score[members[attack].shape[1] :])
    return sides


def halves(asked: Asked) -> tuple[Asked, Asked]:
    """Split images into random halves."""
    count = next(iter(asked.values())).shape[1]
    first, second = np.split(np.random.default_rng(0).permutation(count), [count // 2])
    one, other = ({attack: values[:, half] for attack, values in asked.items()} for half in (first, second))
    return one, other


def pooled(parts: list[Sides]) -> Sides:
    """Join the scores of several experts, which are standardised."""
    return {
        attack: tuple(np.concatenate([part[attack][side] for part in parts]) for side in (0, 1)) for attack in parts[0]
    }


def main() -> None:
    """Print a row for every expert and attack."""
    parser = parser_of(__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--images", type=int, default=AT_MOST, help="members of each expert at most, and others")
    given = parser.parse_args()
    print_header("run", "expert", "attack", "members", "others", "AUC", "members found at 1 % false alarms")
    for root in given.runs:
        for row in measure(root, given.images):
            print_row(root.name, *(getattr(row, one.name) for one in fields(row)))


if __name__ == "__main__":
    run_main(main)
