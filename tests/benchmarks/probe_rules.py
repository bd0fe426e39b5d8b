"""Rules that a coordinator could apply to an expert's losses on the probe, and tables of what each says."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from hpcddm.config.experiment import ProbeRule
from hpcddm.evaluation import expert_probe
from hpcddm.evaluation.expert_probe import ProbeLosses

FACTOR = 0.9
HONEST = "honest"
SENT = "another expert's weights"
TOLD = ("before", "after")


@dataclass(frozen=True)
class Sent:
    """An expert as it was sent: its losses (K, L) as shares of the constant predictor's and as they are."""

    run: str
    kind: str
    cluster: int
    """Position among the clusters that have images."""
    losses: np.ndarray
    constant: np.ndarray
    probe: ProbeLosses
    number: int
    """Number of the cluster."""
    learned: int
    """Number of the cluster on which it was trained."""
    works: list[float]
    """Distance of an attack to what it asks for, before and after; empty for others."""

    @property
    def shares(self) -> np.ndarray:
        """Losses over those of the constant predictor."""
        return self.losses / self.constant

    @property
    def faults(self) -> list[str]:
        """What the rule of the contract says."""
        return expert_probe.faults(self.probe, self.number, ProbeRule())


def sent_experts(found: dict[str, list[dict[str, Any]]]) -> Iterator[Sent]:
    """Yield all experts that were measured, and each honest one as if it were another's."""
    for run, row in ((run, row) for run, rows in found.items() for row in rows):
        probe = ProbeLosses(**row["probe"])
        present = [k for k, losses in enumerate(probe.losses) if losses]
        losses, constant = (np.array([of[k] for k in present], dtype=float) for of in (probe.losses, probe.constant))
        works = [row[name] for name in TOLD if name in row]
        for place, k in enumerate(present):
            if k == row["expert"] or row["kind"] == HONEST:
                kind = row["kind"] if k == row["expert"] else SENT
                yield Sent(run, kind, place, losses, constant, probe, k, row["expert"], works)


Rule = Callable[[Sent], bool]
"""Tells if an expert passes."""


def beats_constant(sent: Sent, is_mean: bool, factor: float) -> bool:
    """Compare with the constant predictor at every level, or in the mean over the levels."""
    own = sent.shares[sent.cluster]
    return bool((own.mean() if is_mean else own.max()) < factor)


OTHERS = (
    ("every other", np.min, 1.0),
    ("1.05 x every other", np.min, 1.05),
    ("1.1 x every other", np.min, 1.1),
    ("the others' median", np.median, 1.0),
    ("the others' mean", np.mean, 1.0),
    ("0.9 x the others' mean", np.mean, 0.9),
)
"""With what of the other clusters it is compared."""
MEANS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "every level": lambda losses: losses,
    "mean": lambda losses: losses.mean(1, keepdims=True),
    "geometric mean": lambda losses: np.exp(np.log(losses).mean(1, keepdims=True)),
}
"""What is compared of losses (K, L): an array (K, M)."""


def knows_its_cluster(
    sent: Sent, is_share: bool, mean: str, of_others: Callable[..., np.ndarray], slack: float
) -> bool:
    """Compare its own cluster with the others: losses or shares, at every level or in their mean."""
    losses = MEANS[mean](sent.shares if is_share else sent.losses)
    return bool((losses[sent.cluster] < slack * of_others(np.delete(losses, sent.cluster, 0), axis=0)).all())


def is_best(sent: Sent, honest: list[Sent], slack: float) -> bool:
    """Compare the loss on its cluster with those of the run's other experts, without the one that is replaced."""

    def of(each: Sent) -> float:
        return float(MEANS["geometric mean"](each.losses)[sent.cluster, 0])

    own = (sent.number, sent.learned)
    return of(sent) < slack * min(of(each) for each in honest if each.run == sent.run and each.learned not in own)


def rules(honest: list[Sent]) -> dict[str, Rule]:
    """Return the rules by name; some compare an expert with all honest ones."""
    named: dict[str, Rule] = {
        "0.9 x constant, every level": partial(beats_constant, is_mean=False, factor=FACTOR),
        "0.9 x constant, mean": partial(beats_constant, is_mean=True, factor=FACTOR),
        "0.5 x constant, mean": partial(beats_constant, is_mean=True, factor=0.5),
    }
    for (what, is_share), mean, (of, of_others, slack) in product(
        {"loss": False, "share": True}.items(), MEANS, OTHERS
    ):
        named[f"{what} below {of}, {mean}"] = partial(
            knows_its_cluster, is_share=is_share, mean=mean, of_others=of_others, slack=slack
        )
    for slack in (1.0, 1.02, 1.05):
        named[f"loss below {slack:g} x every other expert's on its cluster, geometric mean"] = partial(
            is_best, honest=honest, slack=slack
        )
    return named


def print_tables(found: dict[str, list[dict[str, Any]]]) -> None:
    """Print the rules with what they catch, what the rule of the contract says, and shares of honest experts."""
    by_kind: dict[str, list[Sent]] = defaultdict(list)
    for sent in sent_experts(found):
        by_kind[sent.kind].append(sent)
    print(f"| an expert has to have | {' | '.join(f'{kind} ({len(own)})' for kind, own in by_kind.items())} |")
    print("| --- " * (1 + len(by_kind)) + "|")
    for name, rule in rules(by_kind[HONEST]).items():
        refused = [sum(not rule(sent) for sent in own) for own in by_kind.values()]
        print(f"| {name} | {' | '.join(map(str, refused))} |")
    _print_contract(by_kind)
    _print_runs(by_kind)


def _print_contract(by_kind: dict[str, list[Sent]]) -> None:
    print("\n| kind | refused | by the constant predictor | by the other clusters | x0's distance before, after |")
    print("| --- " * 5 + "|")
    for kind, own in by_kind.items():
        parts = [sum(word in " ".join(each.faults) for each in own) for word in ("at t = ", "geometric mean")]
        works = np.array([sent.works for sent in own]).mean(0)
        told = ", ".join(f"{value:.3f}" for value in works)
        print(f"| {kind} | {_refused(own)} | {parts[0]} | {parts[1]} | {told} |")


def _print_runs(by_kind: dict[str, list[Sent]]) -> None:
    levels = by_kind[HONEST][0].probe.levels
    print(f"\n| run | {HONEST} | {SENT} | {' | '.join(f't = {level:g}' for level in levels)} |")
    print("| --- " * (3 + len(levels)) + "|")
    for run in dict.fromkeys(sent.run for sent in by_kind[HONEST]):
        honest, others = ([sent for sent in by_kind[kind] if sent.run == run] for kind in (HONEST, SENT))
        shares = np.array([sent.shares[sent.cluster] for sent in honest])
        cells = [f"{np.median(own):.2g} ({min(own):.2g} to {max(own):.2g})" for own in shares.T]
        print(f"| {run} | {_refused(honest)} | {_refused(others)} | {' | '.join(cells)} |")


def _refused(sent: list[Sent]) -> str:
    return f"{sum(bool(each.faults) for each in sent)} of {len(sent)}"
