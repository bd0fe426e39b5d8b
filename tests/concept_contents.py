"""Contents of concepts.json with a planted answer, made by what the stage makes them of."""

from dataclasses import asdict

import numpy as np

from hpcddm.evaluation.concepts import analysis, concept_table
from hpcddm.evaluation.concepts.advice import advise
from hpcddm.evaluation.concepts.counting import Counts
from hpcddm.evaluation.concepts.presence import JOINT
from hpcddm.evaluation.concepts.scores import OTHER_ARM, PROMPT_ARM, REAL_ARM, Score
from hpcddm.evaluation.concepts.vocabulary import Concept, Vocabulary

ARM, DENSE = "top-2", "monolith"
SIDE = 8


def content(
    experts=4,
    concepts=90,
    scored=60,
    seed=0,
    dense=True,
    total=0.1,
    home=0.25,
    alone=0.1,
    named="concept {}",
    noise=0.05,
    shared=1,
):
    """Make the content of a run.

    total, home: rise of the ensemble's relative score per decade of total frequency, and of the share at home; alone:
    of the monolith's per decade of total frequency. scored: number of concepts, spread over all frequencies; shared: as
    many of these have the same captions.
    """
    random = np.random.default_rng(seed)
    counts, names = _counts(experts, concepts), [named.format(number) for number in range(concepts)]
    shares = counts.joint.max(1) / np.maximum(counts.joint.sum(1), 1)
    scores = {}
    for concept in np.linspace(0, concepts - 1, scored).round().astype(int).tolist() if scored else []:
        decades = np.log10(max(counts.joint[concept].sum(), 0.3))
        drawn = 0.3 + total * decades + home * np.log10(max(shares[concept], 0.1))
        arms = {ARM: drawn, "top-1": drawn - 0.05} | ({DENSE: 0.35 + alone * decades} if dense else {})
        arms |= {f"expert-{expert:02d}": 0.2 + 0.1 * decades - 0.05 * expert for expert in range(experts)}
        own = [Score(concept, REAL_ARM, 12, 0.8, 0.1, 0.9, 0.01), Score(concept, OTHER_ARM, 500, 0.1, 0.05, 0.0, 0.5)]
        own.append(Score(concept, PROMPT_ARM, 16, 0.8, 0.1, 0.9, 0.01, chance=0.1))
        for arm, value in arms.items():
            score = 0.1 + 0.7 * (value + noise * random.normal())
            own.append(Score(concept, arm, 16, score, 0.2, 0.4, 0.1, diversity=0.3, home_usage=0.6, chance=0.1))
        scores[concept] = {score.arm: score for score in own}
    captions = {concept: [f"{number // shared:016x}"] * 4 for number, concept in enumerate(scores)}
    rows = concept_table.make_rows(Vocabulary([Concept(name) for name in names]), counts, JOINT, scores, captions)
    dense_arm = DENSE if dense else None
    made = {
        "experiment": "emoji", "seed": seed, "settings": {"samples": 16},
        "frequency": JOINT, "arm": ARM, "dense": dense_arm,
        "concepts": [row.as_json() for row in rows], "alignment": alignment() if experts > 1 else None,
    }  # fmt: skip
    advice = advise(rows, counts.samples.tolist(), ARM, dense_arm)
    moved = {"train": 120, "heldout": 11} if advice.worst else {"train": 0, "heldout": 0}
    proposal = {"moved": moved, "concepts": advice.worst, "file": "proposal.csv"}
    return made | {"advice": asdict(advice), "proposal": proposal, "fits": analysis.fits([made])}


def _counts(experts, concepts):
    """Make counts that fall as Zipf's law says, some concepts in one cluster and others in all; the last ones at 0."""
    random = np.random.default_rng(7)
    counts = Counts.zeros(concepts, experts)
    totals = (3000 / np.arange(1, concepts + 1) ** 1.2).astype(int)
    totals[-concepts // 15 :] = 0
    for concept, count in enumerate(totals):
        counts.joint[concept] = random.multinomial(count, random.dirichlet(np.full(experts, 0.4)))
    counts.text[:], counts.image[:] = counts.joint * 2, counts.joint + 1
    counts.samples[:] = np.linspace(1, 5, experts).round() * 1000
    return counts


def alignment():
    """Make the content of alignment.json."""
    levels, times = [0.1, 0.3, 0.5, 0.7, 0.9], [1 - step / 10 for step in range(10)]
    errors = {
        name: [base - 0.1 * t for t in levels] for name, base in {"selected": 0.5, "others": 0.62, "best": 0.47}.items()
    }
    nearest = [0.9 - 0.5 * t for t in times]
    distances = {
        arm: {"asked": [20 - 4 * t + shift for t in times], "every": [24.0] * 10, "nearest_asked": nearest}
        for arm, shift in {ARM: 0.0, "top-1": 1.0}.items()
    }  # fmt: skip
    return {
        "levels": levels, "errors": errors | {"selected_is_best": [0.9, 0.8, 0.7, 0.5, 0.3]},
        "times": times, "distances": distances,
    }  # fmt: skip


def pictures(made, concepts, channels=3):
    """Make four pictures of some concepts in every arm that the page shows, another colour in each."""
    arms = ["real", made["arm"], *([made["dense"]] if made["dense"] else []), "home"]
    return {
        concept: {
            arm: np.full((4, SIDE, SIDE, channels), 40 * place + concept, np.uint8)
            for place, arm in enumerate(arms)
            if arm != "home" or made["concepts"][concept]["home"] is not None
        }
        for concept in concepts
        if made["concepts"][concept]["scores"]
    }
