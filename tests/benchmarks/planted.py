"""Rows of a budget curve that is known: exact lines of log ratios, with planted errors of samples and seeds."""

import math

import numpy as np

from tests.benchmarks import budget_rows

BUDGETS = (30720, 61440, 122880, 245760)
PARTS = 10


def planted(level, slope, seeds=3, noise=0.0, between=0.0, seed=0, arms=("top-1",)):
    """Rows whose log ratio is `level` at 86,889 images and changes by `slope` each time that the budget doubles.

    noise: standard error of a point by its samples; between: deviation of a seed's whole curve.
    """
    draw, rows = np.random.default_rng(seed), []
    middle = np.log2(BUDGETS).mean()
    for number in range(seeds):
        shift = draw.normal(0, between) if between else 0.0
        for images in BUDGETS:
            for arm in ("monolith", *arms):
                own = 0.0 if arm == "monolith" else noise * math.sqrt(PARTS)
                parts = draw.normal(0, own, PARTS) if own else np.zeros(PARTS)
                log_ratio = 0.0 if arm == "monolith" else level + shift + slope * (math.log2(images) - middle)
                fd = 20 * math.exp(log_ratio + parts.mean())
                without = 20 * np.exp(log_ratio + (parts.sum() - parts) / (PARTS - 1))
                rows.append(row(number, images, arm, fd, without))
    return rows


def row(seed, images, arm, fd, without):
    own = dict.fromkeys(budget_rows.COLUMNS, "1") | {"sweep": "budget", "identity": f"{seed}/{images}", "arm": arm}
    own |= {"seed": str(seed), "budget": str(images), "experts": "1" if arm == "monolith" else "4"}
    return own | {"fd": repr(float(fd)), "fd_without": " ".join(f"{value:.9g}" for value in without)}
