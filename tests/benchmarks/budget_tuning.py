"""Choice of learning rate, batch and guidance scales for the budget curve, from the rows of its tuning.

For each K, 1 being the monolith, the training of the lowest mean logarithm of FD over the tuned arms is chosen at one
budget, each arm at its best scale of the grid; then every arm has the scale of its lowest FD in that training, at each
budget by itself, among those of the grid and of the two sweeps that try larger ones and other budgets. Beside each
runner-up stands by how much it is worse, with the 95 % interval of the jackknife that leaves out a tenth of the
samples: where it holds 0, samples do not tell the two apart.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Float

from hpcddm.errors import UserError
from hpcddm.evaluation.statistics import jackknife
from hpcddm.runs.unit_keys import MONOLITH_ARM
from tests.benchmarks.budget_curve import CURVE_SWEEPS, Row, fd_parts

GRID_SWEEP, GUIDANCE_SWEEP, BY_BUDGET_SWEEP = "budget_tuning", "budget_guidance", "budget_scales"
TUNED_BUDGET = 122880
"""Budget at which trainings are chosen."""
TUNED_ARMS = ("top-1", "top-2", "per-trajectory")
"""Arms whose mean chooses a training; all of them draw from the same experts."""
GUIDED_AS = {"oracle": "top-1", "full": "top-2"}
"""Arms that are not tuned, and whose guidance scale they have."""
Recipe = tuple[float, int]
"""Learning rate and batch."""
LogFD = Float[np.ndarray, " 1+p"]
"""Logarithm of FD with all samples, and without each part of them."""
Arms = dict[str, dict[int, dict[float, LogFD]]]
"""Logarithm of FD by arm, budget and guidance scale, of one training."""
Key = TypeVar("Key")


@dataclass(frozen=True)
class Choice:
    """Training that the tuning chose for one K, and the scales of its arms.

    scores: mean logarithm of FD of every training of the grid; scales: of the chosen training.
    """

    recipe: Recipe
    scores: Mapping[Recipe, LogFD]
    scales: Arms

    def guidance(self, arm: str, budget: int) -> float:
        """Return the scale of an arm's lowest FD at a budget, or at the nearest one where scales were tried.

        The oracle has that of top-1, `full` that of top-2.
        """
        tried = self.scales[GUIDED_AS.get(arm, arm)]
        return _best(tried[min(tried, key=lambda own: abs(math.log(own / budget)))])

    def planned(self, arm: str, budget: int) -> tuple[float, int, float]:
        """Return learning rate, batch and guidance scale of an arm at a budget."""
        return (*self.recipe, self.guidance(arm, budget))


def chosen(rows: Iterable[Row]) -> dict[int, Choice]:
    """Choose for each K, 1 being the monolith."""
    grid: dict[int, dict[Recipe, Arms]] = {}
    further: dict[int, dict[Recipe, Arms]] = {}
    for row in rows:
        if row["sweep"] in (GRID_SWEEP, GUIDANCE_SWEEP, BY_BUDGET_SWEEP) and row["arm"] in (MONOLITH_ARM, *TUNED_ARMS):
            _add(row, (grid if row["sweep"] == GRID_SWEEP else further).setdefault(int(row["experts"]), {}))
    choices = {}
    for experts, trained in sorted(grid.items()):
        scores = {
            recipe: np.mean([tried[TUNED_BUDGET][_best(tried[TUNED_BUDGET])] for tried in arms.values()], axis=0)
            for recipe, arms in trained.items()
        }
        recipe = _best(scores)
        choices[experts] = Choice(recipe, scores, _merged(trained[recipe], further.get(experts, {}).get(recipe, {})))
    return choices


def _add(row: Row, trained: dict[Recipe, Arms]) -> None:
    """Place a row; raises `UserError` where there is one already."""
    recipe, scale = (float(row["learning_rate"]), int(row["batch"])), float(row["guidance"])
    scales = trained.setdefault(recipe, {}).setdefault(row["arm"], {}).setdefault(int(row["budget"]), {})
    if scale in scales:
        raise UserError(
            f"tuning, K={row['experts']}: two rows of {row['arm']} with rate {recipe[0]:g}, batch {recipe[1]} and"
            f" guidance {scale:g}; keep those of one code, by their column 'commit'"
        )
    scales[scale] = np.log([float(row["fd"]), *fd_parts(row)])


def _merged(grid: Arms, further: Arms) -> Arms:
    return {
        arm: {
            budget: {**tried.get(budget, {}), **further.get(arm, {}).get(budget, {})}
            for budget in sorted({*tried, *further.get(arm, {})})
        }
        for arm, tried in grid.items()
    }


def of_choice(rows: Iterable[Row], one_scale: bool = False) -> list[Row]:
    """Keep the curve's rows of the chosen trainings, each arm at the best scale of its budget.

    one_scale: instead at all budgets at the scale that was best where the trainings were chosen; `full` is drawn at
    this one alone. Raises `UserError` where a K has no tuning, and where a point has rows, but none of the choice.
    """
    rows = list(rows)
    choices, kept, wanted = chosen(rows), {}, {}
    for row in rows:
        if row["sweep"] in CURVE_SWEEPS:
            point = row["seed"], row["experts"], row["arm"], row["budget"]
            budget = TUNED_BUDGET if one_scale else int(row["budget"])
            wanted[point] = choice_for(choices, int(row["experts"])).planned(row["arm"], budget)
            if (float(row["learning_rate"]), int(row["batch"]), float(row["guidance"])) == wanted[point]:
                kept.setdefault(point, []).append(row)
    for seed, experts, arm, images in wanted.keys() - kept.keys():
        if one_scale or arm != "full":
            recipe = wanted[seed, experts, arm, images]
            raise UserError(
                f"K={experts} {arm}, {images} images, seed {seed}: the tuning chose learning rate, batch, guidance"
                f" {recipe}, and no row has them; run the sweep and add its rows by `budget rows`"
            )
    return [row for own in kept.values() for row in own]


def choice_for(choices: Mapping[int, Choice], experts: int) -> Choice:
    """Return the choice for one K; raises `UserError` where nothing was tuned for it."""
    if experts not in choices:
        raise UserError(f"no row of the tuning for K={experts}; run the sweep {GRID_SWEEP} and add its rows")
    return choices[experts]


def choose(rows: Iterable[Row]) -> None:
    """Print for each K the trainings and the scales of the chosen one, the best first."""
    for experts, choice in chosen(rows).items():
        best = choice.scores[choice.recipe]
        for rate, batch in sorted(choice.scores, key=lambda recipe: choice.scores[recipe][0]):
            own = choice.scores[rate, batch]
            print(f"K={experts} rate {rate:g}, batch {batch}: FD {_fd(own, best)} (geometric mean)")
        for arm, budgets in choice.scales.items():
            for budget, scales in budgets.items():
                best_there = scales[choice.guidance(arm, budget)]
                texts = ", ".join(f"{scale:g}: {_fd(scales[scale], best_there)}" for scale in sorted(scales))
                print(f"K={experts} {arm}, {budget:,} images: guidance {choice.guidance(arm, budget):g} ({texts})")


def _best(scores: Mapping[Key, LogFD]) -> Key:
    return min(scores, key=lambda key: scores[key][0])


def _fd(own: LogFD, best: LogFD) -> str:
    """Format an FD, with the interval of its excess over the best one."""
    value = f"{math.exp(own[0]):.2f}"
    if own is best or len(own) < 3:
        return value
    excess = jackknife.interval(own - best, len(own) - 2)
    low, high = (math.nan if end is None else math.expm1(end) for end in (excess.low, excess.high))
    return f"{value} [{low:+.0%} to {high:+.0%}]"
