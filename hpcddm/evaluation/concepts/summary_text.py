"""Answer to the question of the stage, in words: does total frequency count, or that inside the expert?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Fits = Mapping[str, Any]
"""Result of `analysis.fits`."""
Interval = Mapping[str, float | None]
"""An `Estimate` in its JSON form."""


@dataclass(frozen=True)
class Summary:
    """One sentence that is the answer, and the figures that it follows from, a sentence each."""

    headline: str
    reasons: list[str]

    @property
    def text(self) -> str:
        """Return headline and reasons as one text."""
        return " ".join([self.headline, *self.reasons])


def interval_text(estimate: Interval | None, form: str = "+.2f") -> str:
    """Format an estimate with its 95 % interval: '+0.31 (+0.12 to +0.48)'; a dash where it is undefined."""
    if estimate is None or estimate["value"] is None:
        return "-"
    low, high = estimate["low"], estimate["high"]
    within = "no interval" if low is None or high is None else f"{low:{form}} to {high:{form}}"
    return f"{estimate['value']:{form}} ({within})"


def sign_of(estimate: Interval | None) -> int:
    """Return the sign of an interval as 1 or -1, or 0 if it contains 0 or has no bounds."""
    if estimate is None or estimate["low"] is None or estimate["high"] is None:
        return 0
    return int(estimate["low"] > 0) - int(estimate["high"] < 0)


def summarise(fits: Fits, arm: str, difference: str) -> Summary:
    """Decide which frequency counts, by partial correlations whose 95 % intervals exclude 0.

    arm: of the ensemble; difference: name of what it has more than the monolith; may be in no fit. That concentrated
    concepts are drawn better is the partition's doing only where they are so more than by the monolith: it has no
    experts, so that its own gain says how easy they are.
    """
    runs = fits["runs"]
    cannot = "This run cannot tell" if runs == 1 else f"These {runs} runs cannot tell"
    against = fits["against"].get(arm)
    if against is None:
        return Summary(f"{cannot}.", [f"No concept has a score by {arm}."])
    curve = fits["arms"][arm]["total"]
    slope = (curve["fit"] or {}).get("slope")
    mean = f", of each the mean of {runs} runs" if runs > 1 else ""
    over = f"All by {arm}; 95 % intervals over {against['concepts']} concepts{mean}."
    if curve["effective_concepts"] < curve["concepts"]:
        over += f" They share captions: their mean is as certain as that of at least {curve['effective_concepts']:.0f}."
    if against["comparison"] is None:
        reason = against["not_identified"].removeprefix("not identified: ")
        return Summary(f"{cannot}: {reason}.", [*_rise(slope), over])
    home, total = (against["comparison"][key] for key in ("home_given_total", "total_given_home"))
    beyond = (fits["against"].get(difference) or {}).get("comparison")
    gain, spread = (beyond[key] if beyond else None for key in ("home_given_total", "total_given_home"))
    without = "No monolith says whether concepts of one expert are just easy."
    reasons = [
        f"Equally frequent in all the data, more so inside the expert: {_drawn(home)}.",
        f"Equally frequent inside the expert, more so in all the data: {_drawn(total)}.",
        f"The first, beyond what the monolith shows: {_drawn(gain)}." if beyond else without,
        *_rise(slope),
        over,
    ]
    return Summary(_headline(cannot, (home, total, gain, spread), beyond is not None, slope), reasons)


def _headline(cannot: str, effects: tuple[Interval | None, ...], has_beyond: bool, slope: Interval | None) -> str:
    home, total, gain, spread = map(sign_of, effects)
    if home > 0 and has_beyond and gain <= 0:
        return f"{cannot}: concepts of one expert are drawn better, but may just be easy."
    if home > 0:
        counts = "What counts is the frequency inside the expert" if total <= 0 else "Both frequencies count"
        return f"{counts}." if has_beyond else f"{counts}, unless concepts of one expert are just easy."
    if total > 0 and has_beyond and spread <= 0:
        return f"{cannot}: concepts of many experts are drawn better, but may just be easy."
    if total > 0:
        unless = "" if has_beyond else ", unless concepts of many experts are just easy"
        return f"What counts is the frequency in all the data{unless}."
    if sign_of(slope) > 0:
        return f"{cannot}: frequent concepts are drawn better, but frequent in all and inside the expert go together."
    return f"{cannot}: frequent concepts are not drawn better for sure."


def _drawn(effect: Interval | None) -> str:
    ways = {1: "drawn better", 0: "no clear difference", -1: "drawn worse"}
    return f"{ways[sign_of(effect)]}, partial r {interval_text(effect)}"


def _rise(slope: Interval | None) -> list[str]:
    return [f"Ten times as frequent in all the data: {interval_text(slope)} of relative score."] if slope else []
