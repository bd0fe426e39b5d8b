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
from tests.benchmarks.tables import print_header, print_row

FACTOR, SLACK = 0.9, 1.05
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
MEANS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "every level": lambda losses: losses,
    "mean": lambda losses: losses.mean(1, keepdims=True),
    "geometric mean": lambda losses: np.exp(np.log(losses).mean(1, keepdims=True)),
}
"""What is compared of losses (K, L): an array (K, M)."""


def beats_constant(sent: Sent) -> bool:
    """Compare with the constant predictor at every level."""
    return bool(sent.shares[sent.cluster].max() < FACTOR)


def knows_its_cluster(sent: Sent, is_share: bool, mean: str, slack: float, of_others: Callable = np.min) -> bool:
    """Compare its own cluster with the others: losses or shares, at every level or in their mean."""
    losses = MEANS[mean](sent.shares if is_share else sent.losses)
    return bool((losses[sent.cluster] < slack * of_others(np.delete(losses, sent.cluster, 0), axis=0)).all())


def is_best(sent: Sent, honest: list[Sent]) -> bool:
    """Compare the loss on its cluster with those of the run's other experts, without the one that is replaced."""

    def of(each: Sent) -> float:
        return float(MEANS["geometric mean"](each.losses)[sent.cluster, 0])

    own = (sent.number, sent.learned)
    return of(sent) < SLACK * min(of(each) for each in honest if each.run == sent.run and each.learned not in own)


def rules(honest: list[Sent]) -> dict[str, Rule]:
    """Return the rules by name; the last one compares an expert with all honest ones."""
    named: dict[str, Rule] = {"0.9 x constant, every level": beats_constant}
    for is_share, mean, slack in [*product((False, True), MEANS, (1.0, SLACK)), (True, "geometric mean", 1.1)]:
        what, other = "share" if is_share else "loss", "every other" if slack == 1 else f"{slack} x every other"
        named[f"{what} below {other}, {mean}"] = partial(knows_its_cluster, is_share=is_share, mean=mean, slack=slack)
    for_mean = partial(knows_its_cluster, is_share=True, mean="geometric mean", slack=1.0, of_others=np.mean)
    named["share below the others' mean, geometric mean"] = for_mean
    named["loss below 1.05 x every other expert's on its cluster, geometric mean"] = partial(is_best, honest=honest)
    return named


def print_tables(found: dict[str, list[dict[str, Any]]]) -> None:
    """Print the rules with what they catch, what the rule of the contract says, and shares of honest experts."""
    by_kind: dict[str, list[Sent]] = defaultdict(list)
    for sent in sent_experts(found):
        by_kind[sent.kind].append(sent)
    print_header("an expert has to have", *(f"{kind} ({len(own)})" for kind, own in by_kind.items()))
    for name, rule in rules(by_kind[HONEST]).items():
        print_row(name, *(sum(not rule(sent) for sent in own) for own in by_kind.values()))
    print()
    _print_contract(by_kind)
    print()
    _print_runs(by_kind)


def _print_contract(by_kind: dict[str, list[Sent]]) -> None:
    parts = "by the constant predictor", "by the other clusters"
    print_header("kind", "refused", *parts, "x0's distance before, after")
    for kind, own in by_kind.items():
        counts = [sum(word in " ".join(each.faults) for each in own) for word in ("at t = ", "geometric mean")]
        works = np.array([sent.works for sent in own]).mean(0)
        print_row(kind, _refused(own), *counts, ", ".join(f"{value:.3f}" for value in works))


def _print_runs(by_kind: dict[str, list[Sent]]) -> None:
    levels = by_kind[HONEST][0].probe.levels
    print_header("run", HONEST, SENT, *(f"t = {level:g}" for level in levels))
    for run in dict.fromkeys(sent.run for sent in by_kind[HONEST]):
        honest, others = ([sent for sent in by_kind[kind] if sent.run == run] for kind in (HONEST, SENT))
        shares = np.array([sent.shares[sent.cluster] for sent in honest])
        cells = [f"{np.median(own):.2g} ({min(own):.2g} to {max(own):.2g})" for own in shares.T]
        print_row(run, _refused(honest), _refused(others), *cells)


def _refused(sent: list[Sent]) -> str:
    return f"{sum(bool(each.faults) for each in sent)} of {len(sent)}"
