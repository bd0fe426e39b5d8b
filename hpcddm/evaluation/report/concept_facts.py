"""Facts about the concepts, as in `concepts.json`, and what page and command line show of them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hpcddm.errors.printing import printable
from hpcddm.evaluation.concepts import analysis
from hpcddm.evaluation.concepts.analysis import MINUS
from hpcddm.evaluation.concepts.concept_table import HOME_ARM, ConceptRow
from hpcddm.evaluation.concepts.json_files import ConceptsFile
from hpcddm.evaluation.concepts.scores import REAL_ARM
from hpcddm.evaluation.concepts.summary_text import Summary, interval_text, summarise
from hpcddm.files import checked_reads

MAX_SHOWN, MAX_NEVER, MAX_SPLIT = 6, 4, 12
"""Maximum numbers of concepts shown: worst drawn, never seen, split."""
MAX_LETTERS = 80
"""Letters of a name that are shown."""
TITLES = {REAL_ARM: "real images", HOME_ARM: "expert alone"}
"""Titles of arms whose title differs from their name."""
FIT_COLUMNS = {
    "concepts": "n",
    "home_given_total": "partial r, inside expert",
    "total_given_home": "partial r, all data",
    "total": "per decade, all data",
    "home": "per decade, inside expert",
    "pearson": "r",
    "never": "never seen",
}
"""Titles of the columns of the table of fits."""


@dataclass(frozen=True)
class ConceptFacts:
    """Facts about the concepts of a run; content: of the file."""

    content: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> "ConceptFacts":
        """Read a run's file and make its fits again; raises `Unreadable` naming a file that is not usable."""
        content = checked_reads.read_required_mapping(path, ConceptsFile)
        return cls(content | {"fits": analysis.fits([content])})

    @cached_property
    def rows(self) -> list[ConceptRow]:
        """Return the rows of all concepts, by their numbers."""
        return [ConceptRow.from_json(row) for row in self.content["concepts"]]

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
        """Name of the difference between ensemble and monolith."""
        return f"{self.arm}{MINUS}{self.content['dense']}"

    @property
    def counted_by(self) -> str:
        """Source of the concepts of a training sample: its caption, its image, or both."""
        kinds = {"text": "caption", "image": "image", "joint": "caption and image"}
        # Without captions all three are the same.
        alike = all(row.text == row.image == row.joint for row in self.rows)
        return kinds["image" if alike else self.content["frequency"]]

    @property
    def answer(self) -> Summary:
        """Answer to the question which frequency counts."""
        return summarise(self.content["fits"], self.arm, self.difference)

    @property
    def fitted(self) -> dict[str, dict[str, Any]]:
        """Curves by total frequency of all arms except single experts; the plotted arms come first."""
        fits = self.content["fits"]["arms"]
        known = [arm for arm in fits if not arm.startswith("expert-")]
        first = [arm for arm in (*self.arms, self.difference, HOME_ARM) if arm in fits]
        return {arm: fits[arm] for arm in dict.fromkeys([*first, *known])}

    @cached_property
    def scored(self) -> list[ConceptRow]:
        """Concepts with a score by the ensemble, the worst drawn first."""
        known = [(score, row.concept) for row in self.rows if (score := row.relative(self.arm)) is not None]
        return [self.rows[concept] for _, concept in sorted(known)]

    @property
    def indistinct(self) -> int:
        """Number of drawn concepts without a score, because real images of them do not stand out."""
        return sum(self.arm in row.scores and row.relative(self.arm) is None for row in self.rows)

    @property
    def occurring(self) -> list[ConceptRow]:
        """Concepts with a score that some training sample has, the worst drawn first."""
        return [row for row in self.scored if row.frequency]

    @property
    def worst(self) -> list[ConceptRow]:
        """The worst drawn concepts that training samples have."""
        return self.occurring[:MAX_SHOWN]

    @property
    def never(self) -> list[ConceptRow]:
        """Concepts with a score that no training sample has, the worst drawn first."""
        return [row for row in self.scored if not row.frequency]

    @property
    def split(self) -> list[ConceptRow]:
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
    def moved_concepts(self) -> list[ConceptRow]:
        """Concepts whose samples it moves."""
        return [self.rows[concept] for concept in self.content["proposal"]["concepts"]]

    def fit_rows(self) -> dict[str, dict[str, str]]:
        """Make the rows of the table of fits by the titles of the arms: a text for each of `FIT_COLUMNS`."""
        rows = {}
        for arm, curves in self.fitted.items():
            against, never = self.content["fits"]["against"][arm], curves["total"]["zeros"]
            total, home = (curves[kind]["fit"] or {} for kind in ("total", "home"))
            estimates = {"pearson": total.get("pearson"), "total": total.get("slope"), "home": home.get("slope")}
            comparison = against["comparison"] or {}
            estimates |= {key: comparison.get(key) for key in ("home_given_total", "total_given_home")}
            rows[title_of(arm)] = {key: interval_text(estimate) for key, estimate in estimates.items()} | {
                "concepts": f"{curves['total']['concepts']}",
                "never": f"{interval_text(never['score'], '.2f')}, n {never['concepts']}" if never else "-",
            }
        return rows

    def bins(self) -> list[dict[str, str]]:
        """Make the rows of the table of half decades by total frequency; concepts that never occur come first.

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

    def pictured(self) -> dict[int, list[tuple[str, str]]]:
        """Return, by concept that is shown with pictures, the arms to show: by which name, and whose pictures."""
        return {row.concept: self._pictured_arms(row) for row in (*self.worst, *self.never[:MAX_NEVER])}

    def _pictured_arms(self, row: ConceptRow) -> list[tuple[str, str]]:
        home = [] if row.home is None else [(HOME_ARM, f"expert-{row.home:02d}")]
        return [(arm, arm) for arm in (REAL_ARM, *self.arms)] + home


def _bounds(entry: Mapping[str, Any]) -> str:
    """Format the counts of a bin; those on its upper bound are in the next one."""
    low, high = math.ceil(round(entry["low"], 6)), math.ceil(round(entry["high"], 6)) - 1
    return f"{low:,}" if low >= high else f"{low:,} to {high:,}"


def title_of(arm: str) -> str:
    """Return the title of an arm, or of the difference of two."""
    return MINUS.join(TITLES.get(part, part) for part in arm.split(MINUS))


def shown_name(name: str) -> str:
    """Return a concept's name as page and terminal show it: without control characters, and not without end."""
    return printable(name, MAX_LETTERS)
