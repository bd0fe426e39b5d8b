"""Concepts of captioned pictures are counted: the same for any number of ranges, and made again after a requeue."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from hpcddm.clustering.base import Clustering, Workspace
from hpcddm.clustering.samples import Samples
from hpcddm.config import variants
from hpcddm.config.experiment import ClusterSettings
from hpcddm.config.schema import validate
from hpcddm.data import run_samples
from hpcddm.data.catalog import Catalog
from hpcddm.data.run_samples import open_catalog
from hpcddm.evaluation.concepts import stage_outputs
from hpcddm.evaluation.concepts.advice import Advice
from hpcddm.evaluation.concepts.concept_selection import ConceptSelection
from hpcddm.evaluation.concepts.counting import Counts
from hpcddm.evaluation.concepts.scores import PROMPT_ARM, by_concept, relative
from hpcddm.evaluation.concepts.vocabulary import Vocabulary
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.stages.concepts import concept_analysis_job, concept_counts_job, concept_scores_job
from hpcddm.stages.concepts.concept_tags_job import largest
from tests import pictures
from tests.stages.routes import Bench

WORDS = ("face", "cat face", "black", "with", "moon", "cloud", "symbol", "bell", "bottle", "car", "zeppelin")
LIT = {"name": "lit", "image": {"name": "pixels", "size": 8}, "text": {"name": "words"}, "width": 16, "images": 2560}
CHANGES = {
    "data__source": {"name": "image_folder", "folder": "pictures"},
    "data__image_size": 16,
    "data__channels": 3,
    "data__num_classes": None,
    "data__condition": {"name": "text", "encoder": {"name": "words", "width": 8}, "tokens": 6},
    "evaluators__classifier": None,
    "concepts": {"vocabulary": {"name": "file", "concepts": "words.txt"}, "tagger": LIT, "frequency": "text"},
}
STAGES = ("concept_vocabulary", "concept_tags", "concept_counts")


@pytest.fixture(scope="module")
def benches(tmp_path_factory):
    """Runs of one range of training images, and of three."""
    root = tmp_path_factory.mktemp("concepts")
    pictures.write_folder(root / "pictures")
    (root / "words.txt").write_text("".join(f"{word}\n" for word in WORDS))
    made = {}
    for ranges in (1, 3):
        made[ranges] = Bench(root, f"run-{ranges}", data__shards=ranges, data__heldout_shards=min(ranges, 3), **CHANGES)
        made[ranges].make_data()
        made[ranges].make(*(unit.key for unit in plan_units(made[ranges].settings) if unit.stage in STAGES))
    return made


def counts_of(bench):
    return Counts.read(bench.run.unit("concept_counts/all") / "counts.h5")


def test_any_number_of_ranges_counts_the_same(benches):
    one, several = map(counts_of, benches.values())
    assert all((getattr(one, name) == getattr(several, name)).all() for name in vars(one))
    chosen = [bench.run.unit("concept_counts/all") / "selection.json" for bench in benches.values()]
    first, second = (json.loads(path.read_text()) for path in chosen)
    assert first == second


def test_counts_are_those_of_the_captions_and_the_experts_add_up(benches):
    run, counts = benches[3].run, counts_of(benches[3])
    vocabulary = Vocabulary.read(run.unit("concept_vocabulary/all") / "vocabulary.json")
    catalog = open_catalog(run, "train")
    every = range(len(catalog))
    clusters, captions = run_samples.clusters(catalog).gather(every), catalog.texts("caption").gather(every)
    for concept, name in enumerate(entry.name for entry in vocabulary.concepts):
        having = [int(own) for own, text in zip(clusters, captions, strict=True) if f" {name} " in f" {text.lower()} "]
        by_cluster = Counter(having)
        assert counts.text[concept].tolist() == [by_cluster[own] for own in range(counts.text.shape[1])], name
    assert counts.text.sum(1).min() == 0 and counts.text.sum(1).max() >= 8, "zeppelin, and with"
    assert (counts.joint <= counts.text).all() and (counts.joint <= counts.image).all()
    assert counts.samples.tolist() == np.bincount(clusters, minlength=4).tolist()


def test_what_is_tagged_are_the_largest_scores_and_equal_ones_keep_the_order_of_the_concepts(benches):
    scores = np.random.default_rng(0).integers(-3, 4, (50, 40)).astype(np.float32) / 4
    concepts, kept = largest(scores, 7)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :7]
    assert (concepts == expected).all() and (kept == np.take_along_axis(scores, expected, 1)).all()
    assert largest(scores[:, :3], 7)[0].shape == (50, 3)
    folder = benches[1].run.unit("concept_tags/train-000")
    assert len(json.loads((folder / "thresholds.json").read_text())["scores"]) == len(WORDS)


class OddKeys:
    """Keys of samples, which end in a byte that is no UTF-8, as names of files may."""

    def __init__(self, column):
        self.column = column

    def gather(self, numbers):
        return [f"{key}\udce9" for key in self.column.gather(numbers)]


def test_a_proposal_with_keys_that_are_no_utf_8_is_read_by_the_clustering(benches, monkeypatch):
    bench, texts = benches[3], Catalog.texts
    unit = replace(bench.unit("concept_counts/all"), key="concept_analysis/all")
    unit.folder.mkdir(parents=True)
    monkeypatch.setattr(Catalog, "texts", lambda catalog, name: OddKeys(texts(catalog, name)))
    concept_analysis_job._propose(bench.settings, unit, [], Advice([], [], []))
    table = {"file": str(unit.folder / "proposal.csv")}
    experts = bench.settings.cluster.experts
    made = validate(ClusterSettings, {"experts": experts, "clustering": {"name": "file", "table": table}}, "test")
    clustering = variants.create(Clustering, made.clustering)
    for split in ("train", "heldout"):
        catalog = open_catalog(bench.run, split)
        numbers = range(len(catalog))
        partition = clustering.fit(Samples(catalog), numbers, experts, 0, Workspace())
        assigned = partition.assign(Samples(catalog), numbers)
        assert np.array_equal(assigned, run_samples.clusters(catalog).gather(numbers))


class Drawing:
    """Draws, as the monolith, the real images of the prompts, and noise in all other arms."""

    def __init__(self, settings, unit):
        self.device, self.reader = torch.device("cpu"), run_samples.open_reader(unit, "heldout")

    def draw(self, arm, rows, shown):
        real = self.reader.images(shown)
        noise = np.stack([np.random.default_rng(row).integers(0, 256, real[0].shape, np.uint8) for row in rows])
        return (real if arm == "monolith" else noise), torch.zeros(2, 1)


def scores_of(bench, monkeypatch, units):
    """The scores by concept and arm, as the stage concept_analysis reads those of some units; and that stage's unit."""
    for name, value in {"UnitSampler": Drawing, "missing_experts": lambda *_: [], "nearest_keys": lambda _: []}.items():
        monkeypatch.setattr(concept_scores_job, name, value)
    monkeypatch.setattr(concept_scores_job.load_ensemble, "load_evaluator", lambda *_: None)
    # The small tagger tells no concept for sure.
    monkeypatch.setattr("hpcddm.evaluation.concepts.scores.MIN_SIGNAL", -1e9)
    own = bench.settings.concepts.model_copy(update={"units": units, "min_real": 2, "samples": 5})
    settings = bench.settings.model_copy(update={"concepts": own})
    base, keys = bench.unit("concept_counts/all"), [f"concept_scores/{part:03d}" for part in range(units)]
    made = [unit.key for unit in plan_units(bench.settings) if (bench.run.unit(unit.key) / "manifest.json").exists()]
    known = {key: manifest.read(bench.run.unit(key)) for key in made if not key.startswith("concept_scores")}
    base = replace(base, inputs=known)
    bench.publish(base, concept_counts_job.run(settings, base))
    for key in keys:
        unit = replace(base, key=key)
        unit.folder.mkdir(parents=True, exist_ok=True)
        bench.publish(unit, concept_scores_job.run(settings, unit), settings)
    scored = {key: manifest.read(bench.run.unit(key)) for key in keys}
    unit = replace(base, key="concept_analysis/all", inputs=known | scored)
    choice = ConceptSelection.read(bench.run.unit("concept_counts/all") / "selection.json")
    return by_concept(concept_analysis_job._scores(settings, unit, choice)), choice, unit


def test_scores_do_not_depend_on_the_number_of_units_and_real_images_score_one(benches, monkeypatch):
    alone, choice, unit = scores_of(benches[3], monkeypatch, 1)
    drawn = [own for own in choice.chosen if PROMPT_ARM in alone[own.concept]]
    assert len(drawn) >= 3
    for units in (3, len(choice.chosen) + 2):
        apart, *_ = scores_of(benches[3], monkeypatch, units)
        for concept, arms in alone.items():
            assert {arm: vars(score) for arm, score in apart[concept].items()} == {
                arm: vars(score) | {"chance": pytest.approx(score.chance)} for arm, score in arms.items()
            }
    known = [relative(alone[own.concept], "monolith") for own in drawn]
    perfect = [score for score in known if score is not None]
    # Images of other batches are tagged to rounding, which a small signal magnifies.
    assert len(perfect) >= 2 and perfect == pytest.approx([1] * len(perfect), abs=1e-3)

    catalog = open_catalog(benches[3].run, "heldout")
    names = [f" {entry.name} " for entry in stage_outputs.vocabulary(unit).concepts]
    captions = [f" {text.lower()} " for text in catalog.texts("caption").gather(range(len(catalog)))]
    prompts = [number for own in drawn for number in np.resize(own.real, 5).tolist()]
    tagger = stage_outputs.tagger(benches[3].settings, unit, torch.device("cpu"))
    tagged = tagger.scores(run_samples.open_reader(unit, "heldout").images(prompts))
    for own in drawn:
        without = [place for place, number in enumerate(prompts) if names[own.concept] not in captions[number]]
        assert alone[own.concept]["monolith"].chance == pytest.approx(tagged[without, own.concept].mean(), rel=1e-4)
    hashes = concept_analysis_job._captions(unit, choice)
    for first in drawn:
        for second in drawn:
            both = {captions[number] for number in first.real} & {captions[number] for number in second.real}
            assert bool(set(hashes[first.concept]) & set(hashes[second.concept])) == bool(both)
