"""Ratios of ensemble to monolith with the plain and the strong block: python -m tests.benchmarks.recipe SETTING ...

SETTING is a finished run of experiments/sweeps/recipe.yaml. Rows of trainings with the plain block that are not among
them come from docs/results/budget.csv, which has the same images, noise and recipe. Adds the rows to
docs/results/recipe.csv and draws docs/results/recipe.svg.
"""

import csv
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure
from scipy.special import stdtrit

from hpcddm.evaluation.sweep_results.plot import COLOURS
from hpcddm.files import atomic
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.stored_results import arm_metrics
from hpcddm.runs.unit_keys import MONOLITH_ARM, REPORT
from tests.benchmarks.budget_figure import LOOK, NO_DATE
from tests.benchmarks.tables import given_runs, print_header, print_row
from tests.benchmarks.velocities import errors
from tests.helpers import REPOSITORY

PLAIN, STRONG = "plain", "strong"
GUIDANCE = {MONOLITH_ARM: 1.5, "top-1": 1.5, "per-trajectory": 2.5}
"""Scales of the plain block, as budget_tuning and budget_guidance chose them at this budget."""
BUDGET = "122880"
ROWS = REPOSITORY / "docs/results/recipe.csv"
"""File of the rows of all seeds that were run so far."""
METRICS, ARMS = ("fd", "kid"), ("top-1", "per-trajectory")


@dataclass(frozen=True)
class Figures:
    """Figures of one arm of one seed with one block."""

    seed: int
    block: str
    arm: str
    fd: float
    kid: float
    loss: float | None = None
    """Mean squared distance of the velocities to eps - x0 on held-out images, over all levels; of monoliths alone."""


def of_run(run: RunDir) -> Iterable[Figures]:
    """Yield the figures of a setting of the sweep."""
    experiment = stored_experiment(run)
    block = STRONG if getattr(experiment.experts.model, "mlp", "gelu") == "swiglu" else PLAIN
    is_dense = experiment.cluster.experts == 1
    loss = float(np.mean(errors(run)["experts"])) if is_dense else None
    for arm, figures in arm_metrics(manifest.read(run.unit(REPORT)).results).items():
        name = MONOLITH_ARM if is_dense else arm
        yield Figures(experiment.seed, block, name, figures["fd"], figures["kid"], loss)


def of_budget() -> Iterable[Figures]:
    """Yield the figures of the plain block from the rows of the budget curve."""
    with open(REPOSITORY / "docs/results/budget.csv", newline="") as file:
        for row in csv.DictReader(file):
            is_chosen = row["sweep"] == "budget" and row["budget"] == BUDGET and row["experts"] in ("1", "4")
            if is_chosen and float(row["guidance"]) == GUIDANCE.get(row["arm"]):
                yield Figures(int(row["seed"]), PLAIN, row["arm"], float(row["fd"]), float(row["kid"]))


def kept_rows(found: Iterable[Figures]) -> dict[tuple[int, str, str], Figures]:
    """Add figures to the rows of `ROWS`, which several machines may have made, and return all of them."""
    rows: dict[tuple[int, str, str], Figures] = {}
    if ROWS.exists():
        with open(ROWS, newline="") as file:
            for row in csv.DictReader(file):
                loss = float(row["loss"]) if row["loss"] else None
                own = Figures(int(row["seed"]), row["block"], row["arm"], float(row["fd"]), float(row["kid"]), loss)
                rows[own.seed, own.block, own.arm] = own
    rows |= {(one.seed, one.block, one.arm): one for one in found}
    with atomic.replacing(ROWS) as staged, open(staged, "w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Figures)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(rows[key]) for key in sorted(rows))
    return rows


def interval(logs: list[float]) -> str:
    """Format the geometric mean of ratios with its 95 % interval over the seeds, by Student's t."""
    mean = float(np.mean(logs))
    if len(logs) < 2:
        return f"{math.exp(mean):.2f}"
    half = float(stdtrit(len(logs) - 1, 0.975) * np.std(logs, ddof=1) / math.sqrt(len(logs)))
    return f"{math.exp(mean):.2f} ({math.exp(mean - half):.2f} to {math.exp(mean + half):.2f})"


def draw(logs: dict[tuple[str, str], dict[str, list[float]]], file: Path) -> None:
    """Draw the ratio of every seed, and their geometric mean, by metric, arm and block."""
    with style.context(["default", LOOK | {"svg.hashsalt": "recipe"}]):
        figure = Figure(figsize=(6, 2.4), layout="constrained")
        for axes, metric in zip(figure.subplots(1, len(METRICS)), METRICS, strict=True):
            for place, arm in enumerate(ARMS):
                for block, colour, shift in ((PLAIN, COLOURS[0], -0.12), (STRONG, COLOURS[1], 0.12)):
                    ratios = np.exp(logs[metric, arm][block])
                    label = f"{block} block" if not place else None
                    axes.plot(np.full(len(ratios), place + shift), ratios, "o", color=colour, markersize=4, label=label)
                    mean = math.exp(float(np.mean(logs[metric, arm][block])))
                    axes.plot([place + shift - 0.08, place + shift + 0.08], [mean, mean], color=colour)
            axes.axhline(1, color="0.45", linestyle=(0, (4, 2)), linewidth=1)
            axes.set(
                xticks=range(len(ARMS)), xticklabels=ARMS, xlim=(-0.5, 1.5), ylabel=f"{metric.upper()} / monolith's"
            )
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        figure.savefig(file, metadata=NO_DATE[".svg"])


def main() -> None:
    """Print the figures, the ratios to the monolith, and how the strong block moves them."""
    found = {(one.seed, one.block, one.arm): one for one in of_budget()}
    found |= kept_rows(one for root in given_runs(__doc__) for one in of_run(RunDir(root)))
    print_header("seed", "block", "arm", "FD", "KID", "held-out loss")
    for one in sorted(found.values(), key=lambda one: (one.seed, one.block, one.arm)):
        print_row(
            one.seed,
            one.block,
            one.arm,
            f"{one.fd:.2f}",
            f"{one.kid:.3f}",
            "" if one.loss is None else f"{one.loss:.4f}",
        )
    seeds = sorted({seed for seed, block, _ in found if block == STRONG})
    print_header("metric", "arm", "plain / monolith", "strong / monolith", "paired: strong / plain of these ratios")
    logs = {
        (metric, arm): {
            block: [_log_ratio(found, seed, block, arm, metric) for seed in seeds] for block in (PLAIN, STRONG)
        }
        for metric in METRICS
        for arm in ARMS
    }
    for (metric, arm), by_block in logs.items():
        paired = [strong - plain for strong, plain in zip(by_block[STRONG], by_block[PLAIN], strict=True)]
        print_row(metric, arm, interval(by_block[PLAIN]), interval(by_block[STRONG]), interval(paired))
    draw(logs, ROWS.with_suffix(".svg"))
    print_header("metric", "monolith: strong / plain")
    for metric in ("fd", "kid", "loss"):
        pairs = [[getattr(found[seed, block, MONOLITH_ARM], metric) for block in (STRONG, PLAIN)] for seed in seeds]
        if all(None not in pair for pair in pairs):
            print_row(metric, interval([math.log(strong / plain) for strong, plain in pairs]))


def _log_ratio(found: dict[tuple[int, str, str], Figures], seed: int, block: str, arm: str, metric: str) -> float:
    return math.log(getattr(found[seed, block, arm], metric) / getattr(found[seed, block, MONOLITH_ARM], metric))


if __name__ == "__main__":
    main()
