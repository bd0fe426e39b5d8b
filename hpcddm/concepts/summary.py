"""Summary of counts: the long tail, how far captions and images agree, and how alike the experts' data are."""

from itertools import combinations
from typing import Any

import numpy as np

from hpcddm.concepts.counting import Counts
from hpcddm.concepts.presence import IMAGE, KINDS, TEXT
from hpcddm.concepts.tail import Misalignment, long_tail
from hpcddm.uncertainty.jackknife import rank_correlation


def summary(counts: Counts, kind: str) -> dict[str, Any]:
    """Describe counts as JSON holds it; kind: of the samples that count.

    `text_image`: Spearman's rho of the concepts' frequencies by captions and by images; `between_experts`: that of two
    clusters' frequencies, the mean over pairs (arXiv 2404.04125, sec. 5.3, compares data sets so).
    """
    own = counts.table(kind)
    totals = {name: counts.table(name).sum(1) for name in KINDS}
    misaligned = Misalignment(*(int(own.sum()) for own in (counts.misaligned, counts.any_either, counts.samples)))
    by_expert = zip(*(own.tolist() for own in (counts.misaligned, counts.any_either, counts.samples)), strict=True)
    experts = combinations(own.T, 2) if len(own) > 1 else []
    known = [rho for pair in experts if (rho := rank_correlation(*pair)) is not None]
    return {
        "samples": int(counts.samples.sum()),
        "tails": {name: long_tail(total).as_json() for name, total in totals.items()},
        "misalignment": misaligned.as_json(),
        "misalignment_by_expert": [Misalignment(*each).as_json() for each in by_expert],
        "text_image": rank_correlation(totals[TEXT], totals[IMAGE]) if len(own) > 1 else None,
        "between_experts": float(np.mean(known)) if known else None,
    }
