"""Scores of concepts beside real images, the table, and the advice that follows."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from hpcddm.evaluation.concepts import advice, concept_scorer, concept_table
from hpcddm.evaluation.concepts.advice import advise, move_to_home, worst
from hpcddm.evaluation.concepts.concept_scorer import ConceptScorer, NearestTrainingImages
from hpcddm.evaluation.concepts.concept_table import ConceptRow
from hpcddm.evaluation.concepts.counting import Counts
from hpcddm.evaluation.concepts.presence import Pairs
from hpcddm.evaluation.concepts.scores import (
    OTHER_ARM,
    PROMPT_ARM,
    REAL_ARM,
    TRAIN_ARM,
    ChanceScores,
    Score,
    by_concept,
    relative,
)
from hpcddm.evaluation.concepts.taggers.base import Tagger
from hpcddm.evaluation.concepts.vocabulary import Concept, Vocabulary
from hpcddm.evaluation.metrics.neighbours import Points


def score(concept, arm, value, images=16, deviation=0.1, chance=None):
    return Score(concept, arm, images, value, deviation, 0.5, 0.1, chance=chance)


def of_concept(concept, arm_score, real=1.0, others=0.2, **more):
    """Scores of real images, of top-1, and of more arms; chance is the score of the others everywhere."""
    drawn = {PROMPT_ARM: real, "top-1": arm_score} | more
    scores = [score(concept, REAL_ARM, real), score(concept, OTHER_ARM, others)]
    return scores + [score(concept, arm, value, chance=others) for arm, value in drawn.items()]


def test_a_relative_score_is_one_for_real_images_and_nothing_for_those_of_other_prompts():
    known = by_concept([*of_concept(0, 0.6, train=1.1), score(0, "no chance", 0.5)])[0]
    assert relative(known, "top-1") == pytest.approx(0.5)
    assert relative(known, PROMPT_ARM) == pytest.approx(1)
    assert relative(known, TRAIN_ARM) == pytest.approx(0.9 / 0.8)
    assert relative(known, "monolith") is None and relative(known, "no chance") is None
    del known[PROMPT_ARM]
    assert relative(known, "top-1") is None


def test_chance_is_the_mean_over_captions_that_do_not_name_the_concept():
    """In one part, or in two that are merged; the caption of the second image names both concepts."""
    everything, parts, generator = ChanceScores(), [ChanceScores(), ChanceScores()], np.random.default_rng(0)
    drawn = generator.random((4, 2), np.float32)
    in_captions = np.array([[True, False], [True, True], [False, True], [False, True]])
    for place in range(4):
        for target in (everything, parts[place % 2]):
            target.add("top-1", drawn[[place]], in_captions[[place]])
    merged = ChanceScores()
    for part in parts:
        merged.merge(json.loads(json.dumps(part.as_json())))
    for chance in (everything, merged):
        assert chance.of("top-1", 0) == pytest.approx(drawn[2:, 0].mean(), rel=1e-6)
        assert chance.of("top-1", 1) == pytest.approx(drawn[0, 1], rel=1e-6)
        assert chance.of("monolith", 0) is None
    alone = ChanceScores()
    alone.add("top-1", drawn[:1, :1], in_captions[:1, :1])
    assert alone.of("top-1", 0) is None, "there is no other concept"


def test_nothing_is_relative_to_real_images_that_do_not_stand_out():
    # 3 standard errors of 16 images are 0.075.
    assert relative(by_concept(of_concept(0, 0.25, real=0.27))[0], "top-1") is None
    assert relative(by_concept(of_concept(0, 0.25, real=0.28))[0], "top-1") is not None
    assert relative(by_concept(of_concept(0, 0.25, real=0.1))[0], "top-1") is None
    # Those of the prompts must stand out from those of others, too.
    known = by_concept(of_concept(0, 0.5))[0]
    known[PROMPT_ARM] = replace(known[PROMPT_ARM], chance=0.95)
    assert relative(known, "top-1") is None
    # Images of one thing are one witness.
    known = of_concept(0, 0.5, real=0.35)
    assert relative(by_concept(known)[0], "top-1") is not None
    known[0] = replace(known[0], different=2)
    assert relative(by_concept(known)[0], "top-1") is None


class OfPixels(Tagger):
    """A tagger whose scores are the images' first pixels."""

    def __init__(self):
        pass

    @property
    def thresholds(self):
        return np.array([0.5, 0.5, np.inf], np.float32)

    def scores(self, images):
        return images[:, 0, :, 0].astype(np.float32)


def images_of(*rows):
    return np.array(rows, np.uint8)[:, None, :, None]


def test_rank_and_hits_are_those_among_the_concepts_that_can_be_seen():
    scorer = ConceptScorer(OfPixels(), lambda images: images[:, 0, :, 0], None, None)
    found = scorer.score(images_of([1, 2, 9], [3, 0, 9]), 0, "top-1")
    assert (found.score, found.deviation, found.hit_rate, found.images) == (2.0, 1.0, 1.0, 2)
    assert found.rank == pytest.approx((0.5 + 0) / 2), "the third concept can be seen nowhere"
    assert scorer.score(images_of([1, 2, 9]), 2, "top-1").hit_rate == 0


def test_copies_are_nearer_to_a_training_image_than_any_other_one_is():
    features = np.array([[0.0, 0], [10, 0], [0, 10]], np.float32)
    nearest = NearestTrainingImages(features, lambda images: images[:, 0, :, 0].astype(np.float32))
    distance, copies = nearest.measure(images_of([1, 0], [200, 0]))
    assert distance == pytest.approx((1 + 190) / 2) and copies == 0.5


def test_training_features_are_made_ready_once_for_all_concepts_and_arms(monkeypatch):
    made = []
    monkeypatch.setattr(concept_scorer, "Points", lambda points: made.append(points) or Points(points))
    rng = np.random.default_rng(0)
    features = rng.standard_normal((60, 2)).astype(np.float32)
    nearest = NearestTrainingImages(features, lambda images: images[:, 0, :, 0] / np.float32(9))
    measured = [nearest.measure(rng.integers(0, 20, (5, 1, 2, 1)).astype(np.uint8)) for _ in range(3)]
    assert len(made) == 1 and len(set(measured)) == 3


COUNTED = np.array([[8, 0], [5, 15], [0, 0], [2, 2]])
VOCABULARY = Vocabulary([Concept(name) for name in ("cat", "dog", "never", 'odd, "name"')])


def rows():
    counts = Counts(COUNTED, COUNTED, COUNTED, np.array([60, 20]))
    scores = [*of_concept(0, 0.9, **{"expert-00": 0.8}), *of_concept(1, 0.3, monolith=0.5), *of_concept(2, 0.2)]
    return concept_table.make_rows(VOCABULARY, counts, "joint", by_concept(scores), {0: ["a", "b"]})


def test_the_table_says_where_each_concept_is_at_home():
    cat, dog, never, odd = rows()
    assert (cat.home, cat.at_home, cat.share_at_home) == (0, 8, 1.0)
    assert (dog.home, dog.frequency, dog.share_at_home) == (1, 20, 0.75)
    assert (never.home, never.share_at_home, never.bin, never.at_home) == (None, None, -1, 0)
    assert odd.share_at_home == 0.5 and odd.scores == {}
    assert cat.relative(concept_table.HOME_ARM) == pytest.approx(0.75), "that of expert 0 alone"
    assert all(sum(row.experts) == row.frequency for row in rows())


def test_the_table_is_written_for_other_programs(tmp_path):
    polars = pytest.importorskip("polars")
    files = [tmp_path / "concepts.csv", tmp_path / "concepts.parquet"]
    assert concept_table.write(*files, rows()) == files
    read = list(csv.DictReader((tmp_path / "concepts.csv").read_text().splitlines()))
    assert [row["name"] for row in read] == ["cat", "dog", "never", 'odd, "name"']
    assert float(read[0]["top-1.relative"]) == pytest.approx(0.875) and read[2]["home"] == ""
    columns = polars.read_parquet(tmp_path / "concepts.parquet")
    assert columns["frequency"].to_list() == [8, 20, 0, 4] and columns["home"].to_list() == [0, 1, None, 1]
    assert json.loads(json.dumps([row.as_json() for row in rows()]))[1]["at_home"] == 15


def test_the_advice_names_split_concepts_starving_experts_and_what_is_drawn_worst(monkeypatch):
    found = advise(rows(), [60, 20], "top-1", "monolith")
    assert found.split == [] and [expert.starves for expert in found.experts] == [False, False]
    assert [expert.concepts for expert in found.experts] == [1, 2]
    assert found.experts[1].relative == pytest.approx(0.125) and found.experts[1].dense == pytest.approx(0.375)
    assert found.worst == [1], "the only one that is scored, occurs, and is not all at home"
    monkeypatch.setattr(advice, "SPLIT", 0.8)
    assert advise(rows(), [70, 10], "top-1", None).split == [1]
    assert [expert.starves for expert in advise(rows(), [70, 10], "top-1", None).experts] == [False, True]


def test_only_the_worst_tenth_is_moved_even_where_it_is_at_home_already():
    def row(concept, at_home, value):
        scores = {"top-1": {"relative": value}}
        return ConceptRow(concept, f"{concept:02d}", 4, 4, 4, 4, [at_home, 4 - at_home], 0, 1, scores, [])

    alone = [row(number, 4, number / 100) for number in range(10)]
    assert worst([*alone, *(row(10 + number, 3, 0.5) for number in range(10))], "top-1") == []
    assert worst([row(20, 3, -0.5), *alone], "top-1") == [20]


def test_of_equal_counts_the_smaller_cluster_is_the_home():
    counted = np.array([[2, 2, 1], [0, 3, 3], [0, 0, 0], [4, 3, 3]])
    counts = Counts(counted, counted, counted, np.array([50, 10, 40]))
    assert counts.homes("joint").tolist() == [1, 1, 0, 0]


def test_moved_samples_go_home_the_worst_concept_first_and_no_more_than_allowed():
    pairs = Pairs(np.array([0, 1, 2, 2, 3]), np.array([7, 7, 7, 9, 9]))
    clusters = np.array([0, 1, 1, 1, 0])

    def proposed(homes, most):
        target, taken = move_to_home(pairs, clusters, homes, most)
        return target.tolist(), taken

    assert proposed({7: 0, 9: 1}, 5) == ([0, 0, 0, 1, 0], [7, 9])
    assert proposed({9: 0, 7: 0}, 5) == ([0, 0, 0, 0, 0], [9, 7])
    assert proposed({7: 0, 9: 0}, 2) == ([0, 0, 0, 1, 0], [7]), "the second would need a third move"
    assert proposed({7: 0}, 1) == ([0, 1, 1, 1, 0], [])
    assert clusters.tolist() == [0, 1, 1, 1, 0]
