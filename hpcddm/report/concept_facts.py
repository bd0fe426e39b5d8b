"""Facts about the concepts, as in `concepts.json`, and what page and command line show of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hpcddm.concepts import analysis
from hpcddm.concepts.analysis import MINUS
from hpcddm.concepts.answer import Answer, answer, interval_text
from hpcddm.concepts.content import Content
from hpcddm.concepts.scores import REAL_ARM
from hpcddm.concepts.table import HOME_ARM, Row
from hpcddm.concepts.tail import Misalignment
from hpcddm.printing import printable
from hpcddm.rundir import reading

MOST_SHOWN, MOST_NEVER, MOST_SPLIT = 6, 4, 12
"""Concepts that are shown at most: of the rarest and of the worst drawn ones; of those never seen; of those split."""
MOST_LETTERS = 80
"""Letters of a name that are shown."""
TITLES = {REAL_ARM: "real images", HOME_ARM: "expert alone"}
"""Titles of arms, of those that have another name than their own."""
FIT_COLUMNS = {
    "concepts": "n",
    "home_given_total": "partial r, inside expert",
    "total_given_home": "partial r, all data",
    "total": "per decade, all data",
    "home": "per decade, inside expert",
    "pearson": "r",
    "spearman": "Spearman",
    "criterion": "AIC",
    "never": "never seen",
}
"""Titles of the columns of the table of fits."""
COUNTED_BY = {"text": "captions", "image": "images", "joint": "both"}
"""Sources of a sample's concepts, by the names of the kinds of frequency."""


@dataclass(frozen=True)
class ConceptFacts:
    """Facts about the concepts of a run; content: of the file."""

    content: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> "ConceptFacts":
        """Read a run's file and make its fits again; raises `Unreadable` naming a file that is not usable."""
        content = reading.need_mapping(path, Content)
        return cls(content | {"fits": analysis.fits([content])})

    @cached_property
    def rows(self) -> list[Row]:
        """Return the rows of all concepts, by their numbers."""
        return [Row.from_json(row) for row in self.content["concepts"]]

    @property
    def arm(self) -> str:
        """Arm of the ensemble by which concepts are called well or badly drawn."""
        return str(self.content["arm"])

    @property
    def arms(self) -> list[str]:
        """The ensemble's arm, and the monolith where there is one."""
        return [self.arm, *([self.content["dense"]] if self.content["dense"] else [])]

    @property
    def difference(self) -> str:
        """Name of what the ensemble has more than the monolith."""
        return f"{self.arm}{MINUS}{self.content['dense']}"

    @property
    def counted_by(self) -> str:
        """Source of the concepts of a training sample: its caption, its image, or both."""
        kinds = {"text": "caption", "image": "image", "joint": "caption and image"}
        return kinds[self.content["frequency"]] if len(self.tails()) > 1 else kinds["image"]

    @property
    def answer(self) -> Answer:
        """Answer to the question which frequency counts."""
        return answer(self.content["fits"], self.arm, self.difference)

    @property
    def fitted(self) -> dict[str, dict[str, Any]]:
        """Curves by total frequency of the arms that are no experts alone, those on the plots first."""
        fits = self.content["fits"]["arms"]
        known = [arm for arm in fits if not arm.startswith("expert-")]
        first = [arm for arm in (*self.arms, self.difference, HOME_ARM) if arm in fits]
        return {arm: fits[arm] for arm in dict.fromkeys([*first, *known])}

    @cached_property
    def scored(self) -> list[Row]:
        """Concepts with a score by the ensemble, the worst drawn first."""
        known = [(score, row.concept) for row in self.rows if (score := row.relative(self.arm)) is not None]
        return [self.rows[concept] for _, concept in sorted(known)]

    @property
    def indistinct(self) -> int:
        """Number of concepts that were drawn, and of which real images do not stand out, so that there is no score."""
        return sum(self.arm in row.scores and row.relative(self.arm) is None for row in self.rows)

    @property
    def occurring(self) -> list[Row]:
        """Concepts with a score that some training sample has, the worst drawn first."""
        return [row for row in self.scored if row.frequency]

    @property
    def worst(self) -> list[Row]:
        """The worst drawn concepts that training samples have."""
        return self.occurring[:MOST_SHOWN]

    @property
    def rarest(self) -> list[Row]:
        """Concepts with a score that the fewest training samples have, but some."""
        return sorted(self.occurring, key=lambda row: (row.frequency, row.concept))[:MOST_SHOWN]

    @property
    def never(self) -> list[Row]:
        """Concepts with a score that no training sample has, the worst drawn first."""
        return [row for row in self.scored if not row.frequency]

    @property
    def split(self) -> list[Row]:
        """Concepts that the partition splits across experts, the most frequent first."""
        return [self.rows[concept] for concept in self.content["advice"]["split"]]

    @property
    def starving(self) -> list[int]:
        """Experts that starve."""
        return [expert["expert"] for expert in self.content["advice"]["experts"] if expert["starves"]]

    @property
    def moved(self) -> dict[str, int]:
        """Number of samples that the proposal moves, by split."""
        return dict(self.content["proposal"]["moved"])

    @property
    def moved_concepts(self) -> list[Row]:
        """Concepts whose samples it moves."""
        return [self.rows[concept] for concept in self.content["proposal"]["concepts"]]

    def fit_rows(self) -> dict[str, dict[str, str]]:
        """Make the rows of the table of fits by the titles of the arms: a text for each of `FIT_COLUMNS`."""
        rows = {}
        for arm, curves in self.fitted.items():
            against, never = self.content["fits"]["against"][arm], curves["total"]["zeros"]
            total, home = (curves[kind]["fit"] or {} for kind in ("total", "home"))
            estimates = {key: total.get(key) for key in ("pearson", "spearman")}
            estimates |= {"total": total.get("slope"), "home": home.get("slope")}
            estimates |= {
                key: (against["comparison"] or {}).get(key) for key in ("home_given_total", "total_given_home")
            }
            rows[title_of(arm)] = {key: interval_text(estimate) for key, estimate in estimates.items()} | {
                "concepts": f"{curves['total']['concepts']}",
                "criterion": _criterion(against["models"]),
                "never": f"{interval_text(never['score'], '.2f')}, n {never['concepts']}" if never else "-",
            }
        return rows

    def bins(self) -> list[dict[str, str]]:
        """Make the rows of the table of half decades by total frequency, those that never occur first.

        A row has a label, the number of concepts with a score and of all that were chosen, and by arm the mean with its
        interval.
        """
        rows: dict[float, dict[str, str]] = {}
        for arm in (arm for arm in self.arms if arm in self.fitted):
            curve = self.fitted[arm]["total"]
            never = [(0.0, "never", curve["zeros"] | {"unscored": 0})] if curve["zeros"] else []
            for low, label, entry in [*never, *((one["low"], _bounds(one), one) for one in curve["bins"])]:
                count = f"{entry['concepts']} of {entry['concepts'] + entry['unscored']}"
                row = rows.setdefault(low, {"label": label, "concepts": count})
                row[arm] = interval_text(entry["score"], ".2f")
        return [rows[low] for low in sorted(rows)]

    def tails(self) -> dict[str, Mapping[str, Any]]:
        """Return the shape of the long tail by what counts; only one where all are the same, as without captions."""
        tails = {COUNTED_BY[kind]: tail for kind, tail in self.content["summary"]["tails"].items()}
        first = next(iter(tails.values()))
        return {COUNTED_BY["image"]: first} if all(tail == first for tail in tails.values()) else tails

    def agreement(self) -> list[str]:
        """Say how far captions and images agree, and how alike the experts' data are, a sentence each."""
        summary, said = self.content["summary"], []
        apart = Misalignment.from_json(summary["misalignment"])
        by_expert = map(Misalignment.from_json, summary["misalignment_by_expert"])
        shares = [expert.of_all for expert in by_expert if expert.of_all is not None]
        if len(self.tails()) > 1 and apart.of_all is not None and apart.of_any is not None and shares:
            said.append(
                f"Caption and image have concepts, but none in common: {apart.of_all:.1%} of {apart.samples:,}"
                f" samples ({min(shares):.1%} to {max(shares):.1%} by expert), {apart.of_any:.1%} of those with a"
                f" concept in either (arXiv 2404.04125, section 5.2)."
            )
        for key, what in (("text_image", "by captions and by images"), ("between_experts", "in two clusters, mean")):
            if summary[key] is not None and (len(self.tails()) > 1 or key != "text_image"):
                said.append(f"Spearman's rho of the concepts' frequencies {what}: {summary[key]:.2f}.")
        return said

    def pictured(self) -> dict[int, list[tuple[str, str]]]:
        """Return, by concept that is shown with pictures, the arms to show: by which name, and whose pictures."""
        return {row.concept: self._pictured_arms(row) for row in (*self.worst, *self.rarest, *self.never[:MOST_NEVER])}

    def _pictured_arms(self, row: Row) -> list[tuple[str, str]]:
        home = [] if row.home is None else [(HOME_ARM, f"expert-{row.home:02d}")]
        return [(arm, arm) for arm in (REAL_ARM, *self.arms)] + home


def _criterion(models: Sequence[Mapping[str, Any]]) -> str:
    """Format how much better home frequency alone explains the scores than total frequency alone, by AIC."""
    known = {model["name"]: model["aic_difference"] for model in models}
    total, home = known.get("total"), known.get("home")
    return "-" if total is None or home is None else f"{total - home:+.1f}"


def _bounds(entry: Mapping[str, Any]) -> str:
    """Format the counts of a bin; those on its upper bound are in the next one."""
    low, high = math.ceil(round(entry["low"], 6)), math.ceil(round(entry["high"], 6)) - 1
    return f"{low:,}" if low >= high else f"{low:,} to {high:,}"


def title_of(arm: str) -> str:
    """Return the title of an arm, or of the difference of two."""
    return MINUS.join(TITLES.get(part, part) for part in arm.split(MINUS))


def shown_name(name: str) -> str:
    """Return a concept's name as page and terminal show it: without control characters, and not without end."""
    return printable(name, MOST_LETTERS)


def tail_rows(tails: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Make the rows of the table of the long tail: what is said, and a text for each kind of frequency."""
    first = next(iter(tails.values()))
    head, middle = first["least_head"], first["least_middle"]
    rows = (
        ("Concepts that occur", lambda tail: f"{tail['concepts'] - tail['zero']:,}"),
        (f"Head, {head:g} samples or more", lambda tail: f"{tail['head']:,}"),
        (f"Middle, {middle:g} or more", lambda tail: f"{tail['middle']:,}"),
        ("Tail, fewer", lambda tail: f"{tail['tail']:,}"),
        ("Never", lambda tail: f"{tail['zero']:,}"),
        ("Samples by concept, added up", lambda tail: f"{tail['mentions']:,}"),
        ("Share of the head", lambda tail: _or_dash(tail["head_mentions"], ".1%")),
        ("Gini coefficient", lambda tail: _or_dash(tail["gini"], ".2f")),
        ("Exponent of Zipf's law", lambda tail: _or_dash((tail["power_law"] or {}).get("zipf"), ".2f")),
        ("Distance from such a law (0 to 1)", lambda tail: _or_dash((tail["power_law"] or {}).get("distance"), ".2f")),
    )
    return [(label, [text(tail) for tail in tails.values()]) for label, text in rows]


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
