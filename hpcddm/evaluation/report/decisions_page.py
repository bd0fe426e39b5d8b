"""Values of the report's part on decisions: who drew each sample, and when that was decided."""

from typing import Any

import numpy as np
from jaxtyping import Float
from markupsafe import Markup

from hpcddm.evaluation.report import image_grids, rendering
from hpcddm.sampling.decisions import Decisions

PIXELS = 32
"""Largest side of a picture; with twenty samples and eight experts the part stays below 2 MB."""
ESTIMATES_WIDTH, ALONE_WIDTH = 560, 56
LEVELS = (0.9, 0.5, 0.1)
"""Times of the posteriors by class."""
BAR, ASKED = (0.0, 9.5), (10.5, 12.0)
"""Heights of the posterior and of the line of evaluated experts, in a drawing that is 12 high."""


def template_values(content: Decisions, texts: list[str], asked_for: str) -> dict[str, Any]:
    """Return the values of the template.

    Args:
        content: Decisions about N samples.
        texts: Class or caption of each sample.
        asked_for: Kind of these texts.
    """
    rows = {text: [row for row, own in enumerate(texts) if own == text] for text in dict.fromkeys(texts)}
    nearest = list(dict.fromkeys(int(np.argmin(np.abs(np.subtract(content.times, level)))) for level in LEVELS))
    by_class = [
        (text, [content.posterior[own, step].mean(0).tolist() for step in nearest]) for text, own in rows.items()
    ]
    return {
        "arm": content.arm,
        "steps": len(content.times),
        "times": [f"{content.times[step]:.2f}" for step in content.shown],
        "levels": [f"{content.times[step]:.2f}" for step in nearest],
        "classes": by_class if asked_for == "class" else [],
        "groups": [(text, [_sample(content, row) for row in own]) for text, own in rows.items()],
    }


def render(name: str, how: str, content: Decisions, texts: list[str], asked_for: str) -> str:
    """Render a page of decisions alone as HTML in ASCII.

    Args:
        name: Title.
        how: Sentence about the samples.
        content: Decisions about N samples.
        texts: Class or prompt of each sample.
        asked_for: Kind of these texts.
    """
    clusters = [{"index": index} for index in range(content.posterior.shape[2])]
    values = template_values(content, texts, asked_for)
    return rendering.render("decisions.html.j2", name=name, how=how, decisions=values, clusters=clusters)


def _sample(content: Decisions, row: int) -> dict[str, Any]:
    estimates = image_grids.shrink(content.estimates[row], PIXELS)
    drawn, *alone = (_one(images[row : row + 1]) for images in (content.samples, *content.alone.values()))
    return {
        "verdict": verdict(content.posterior[row], content.times),
        "estimates": rendering.grid_image(estimates, len(estimates), ESTIMATES_WIDTH),
        "paths": stacked_paths(content.posterior[row], *BAR),
        "asked": stacked_paths(content.weights[row] / content.weights[row].sum(1, keepdims=True), *ASKED),
        "drawn": drawn,
        "alone": list(zip(content.alone, alone, strict=True)),
    }


def _one(image: np.ndarray) -> dict[str, Any]:
    return rendering.grid_image(image_grids.shrink(image, PIXELS), 1, ALONE_WIDTH, 1)


def verdict(posterior: Float[np.ndarray, "s k"], times: list[float]) -> str:
    """Say which expert has the largest probability at the end, and since when.

    Args:
        posterior: Probabilities of K experts in S steps.
        times: (S,) times of the steps, from noise to the sample.

    Examples:
        >>> verdict(np.array([[0.6, 0.4], [0.3, 0.7], [0.1, 0.9]]), [1.0, 0.6, 0.3])
        'expert 1, the most likely one from t = 0.60 on (90 % at the end)'
    """
    first = posterior.argmax(1)
    others = np.flatnonzero(first != first[-1])
    since = int(others[-1]) + 1 if len(others) else 0
    share = posterior[-1, first[-1]]
    return f"expert {first[-1]}, the most likely one from t = {times[since]:.2f} on ({100 * share:.0f} % at the end)"


def stacked_paths(shares: Float[np.ndarray, "s k"], top: float, bottom: float) -> list[Markup]:
    """Draw shares that sum to one as areas on top of each other, one SVG path per expert and one unit per step.

    Args:
        shares: Shares of K experts in S steps.
        top: Upper edge of the drawing.
        bottom: Lower edge of the drawing.
    """
    edges = top + (bottom - top) * np.concatenate([np.zeros((len(shares), 1)), shares.cumsum(1)], axis=1)
    return [Markup(_area(edges[:, expert], edges[:, expert + 1])) for expert in range(shares.shape[1])]


def _area(upper: Float[np.ndarray, " s"], lower: Float[np.ndarray, " s"]) -> str:
    """Return the path of steps between two edges; empty where no step is visible."""
    if np.all(lower - upper < 0.01):
        return ""
    forth = "".join(f"V{y:.2f}H{step + 1}" for step, y in enumerate(upper))
    back = "".join(f"V{y:.2f}H{step}" for step, y in reversed(list(enumerate(lower))))
    return f"M0 {upper[0]:.2f}{forth}{back}Z"
