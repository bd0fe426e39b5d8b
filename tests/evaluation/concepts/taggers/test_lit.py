"""The lit-score on planted images: a concept is a pattern, and an image shows those of its concepts with noise."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hpcddm.config import variants
from hpcddm.config.concepts import TaggerSettings
from hpcddm.config.cross_checks import validate_experiment
from hpcddm.data.reader import ArrayReader
from hpcddm.errors import UserError
from hpcddm.evaluation.concepts.taggers import lit
from hpcddm.evaluation.concepts.taggers.base import Mentions, Tagger, TaggerContext
from hpcddm.evaluation.concepts.vocabulary import Concept, Vocabulary
from tests.helpers import EXPERIMENT, changed

NAMES = ["ant", "bee", "cat", "dog", "eel", "fox", "fire engine", "gnu"]
SMALL = {"name": "lit", "image": {"name": "pixels", "size": 4}, "text": {"name": "words", "width": 32}}
SMALL |= {"width": 16, "images": 4096, "batch": 64, "learning_rate": 0.01}
CPU = torch.device("cpu")
COLOURED = validate_experiment(changed(EXPERIMENT, data__channels=3), "test")
PATTERNS = np.random.default_rng(5).integers(0, 256, (len(NAMES), 4, 4, 3))


class Planted:
    """Images, their concepts and captions, which every two samples share; the first concepts are frequent."""

    def __init__(self, count=600, seed=0, noise=30.0, split="train"):
        generator = np.random.default_rng(seed)
        frequency = 1 / np.arange(1, len(NAMES) + 1)
        share = frequency / frequency.sum()
        pairs = [generator.choice(len(NAMES), generator.integers(1, 3), False, share) for _ in range(count // 2)]
        self.concepts = [own.astype(np.int64) for own in pairs for _ in range(2)]
        names = [", ".join(NAMES[one] for one in own) for own in self.concepts]
        self.captions = [f"{seed} number {number // 2}: {name}" for number, name in enumerate(names)]
        clean = np.stack([PATTERNS[own].mean(0) for own in self.concepts])
        noisy = clean + noise * generator.standard_normal((count, 4, 4, 3))
        self.images = np.clip(noisy, 0, 255).astype(np.uint8).repeat(2, 1).repeat(2, 2)
        self.split = split

    @property
    def reader(self):
        nothing = np.zeros(len(self.images), np.int64)
        reader = ArrayReader(self.images, nothing, nothing, self.captions)
        reader.split = self.split
        return reader

    @property
    def mentions(self):
        return Mentions(np.arange(len(self.images)), self.concepts, self.captions)

    @property
    def shown(self):
        return np.stack([np.isin(np.arange(len(NAMES)), own) for own in self.concepts])


def tagger(names=NAMES, **changes):
    settings = TaggerSettings.model_validate(SMALL | changes)
    context = TaggerContext(COLOURED, Vocabulary([Concept(name) for name in names]), Path, CPU)
    return variants.create(Tagger, settings, context)


def fitted(planted, seed=0, **changes):
    own = tagger(**changes)
    arrays = own.fit(planted.reader, planted.mentions, seed, lambda done, total: None)
    loaded = tagger(**changes)
    loaded.load(arrays)
    return loaded, arrays


@pytest.fixture(scope="module")
def trained():
    return fitted(Planted())


def top(scores, shown):
    """The share of images whose highest score is that of a concept that they show."""
    return shown[np.arange(len(scores)), scores.argmax(1)].mean()


def test_concepts_of_unseen_images_are_found_rare_ones_too(trained):
    own, unseen = trained[0], Planted(300, seed=1, split="heldout")
    scores = own.scores(unseen.images)
    assert scores.shape == (300, len(NAMES)) and scores.dtype == np.float32 and np.abs(scores).max() <= 1 + 1e-6
    rare = unseen.shown[:, -2:].any(1)
    assert top(scores, unseen.shown) > 0.97 and top(scores[rare], unseen.shown[rare]) > 0.9
    tagged = scores >= own.thresholds
    assert 2 * (tagged & unseen.shown).sum() / (tagged.sum() + unseen.shown.sum()) > 0.9
    assert np.allclose(own.scores_of(unseen.reader, [3, 200]), scores[[3, 200]], atol=1e-6)


def test_a_sample_is_scored_by_the_head_that_never_saw_its_caption():
    """Images without any pattern can only be remembered, which the other head cannot."""
    planted = Planted(80, noise=1000.0)
    own, arrays = fitted(planted, weight_decay=0.0)
    halves, features = lit.halves_of(planted.captions), own.encoder.encode(planted.images)
    remembered = np.where((halves == 0)[:, None], own._cosines(features, 0), own._cosines(features, 1))
    assert top(remembered, planted.shown) > 0.9
    chance = top(own.scores(Planted(600, seed=2, noise=1000.0).images), Planted(600, seed=2).shown)
    assert top(own.scores_of(planted.reader, range(80)), planted.shown) < chance + 0.2 < 0.7
    # Not a bit of a head comes from the samples that it scores.
    planted.images[halves == 0] = 255 - planted.images[halves == 0]
    _, changed = fitted(planted, weight_decay=0.0)
    for name in (lit.IMAGES, lit.NAMES):
        assert [np.array_equal(*heads) for heads in zip(changed[name], arrays[name], strict=True)] == [False, True]


def test_the_same_caption_is_in_the_same_half_whatever_its_spaces_and_case():
    captions = [f"a caption of {number}" for number in range(400)]
    halves = lit.halves_of(captions)
    assert np.array_equal(lit.halves_of([f" {one.upper()}  " for one in captions]), halves)
    assert 150 < halves.sum() < 250


def test_it_is_a_function_of_the_seed():
    planted = Planted(200)
    first, again, other = (fitted(planted, seed, images=640)[1] for seed in (0, 0, 1))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first[lit.IMAGES], other[lit.IMAGES])


def test_fewer_features_are_held_than_there_are_images_and_rare_concepts_keep_theirs():
    planted, read = Planted(), []
    own, reader = tagger(max_images=100), planted.reader
    images = reader.images
    reader.images = lambda numbers: read.extend(numbers) or images(numbers)
    progress = []
    own.load(own.fit(reader, planted.mentions, 0, lambda done, total: progress.append((done, total))))
    assert 90 <= len(read) <= 100 and read == sorted(set(read))
    assert planted.shown[read].sum(0).min() >= 5
    assert progress[-1][0] == progress[-1][1] and progress == sorted(progress)
    unseen = Planted(300, seed=1)
    assert top(own.scores(unseen.images), unseen.shown) > 0.9


def test_captions_that_mention_too_little_are_told():
    planted = Planted(40)
    only = Mentions(np.arange(40), [np.zeros(1, np.int64)] * 40, planted.captions)
    with pytest.raises(UserError, match="one of them mentions 1 of 1 concepts, where it needs two"):
        tagger(["ant"]).fit(planted.reader, only, 0, lambda done, total: None)
    nothing = Mentions(np.arange(40), [np.empty(0, np.int64)] * 40, planted.captions)
    with pytest.raises(UserError, match="mentions 0 of 8 concepts"):
        tagger().fit(planted.reader, nothing, 0, lambda done, total: None)
    planted.captions = None
    with pytest.raises(UserError, match="no captions"):
        fitted(Planted(40), images=64)[0].scores_of(planted.reader, [0])


def test_features_beyond_float16_are_told(monkeypatch):
    own = tagger()
    monkeypatch.setattr(own.encoder, "encode", lambda images: np.full((len(images), 48), 1e6, np.float32))
    with pytest.raises(UserError, match="concepts.tagger.image: features of pixels are not finite, or beyond float16"):
        own.fit(Planted(40).reader, Planted(40).mentions, 0, lambda done, total: None)


def test_concepts_that_no_caption_mentions_are_refused_before_anything_runs():
    settings = TaggerSettings.model_validate(SMALL)
    asked = SimpleNamespace(concepts=SimpleNamespace(vocabulary=SimpleNamespace(name="classes", is_matched=False)))
    with pytest.raises(ValueError, match="the vocabulary classes are looked for in none; take the tagger labels"):
        settings.check(asked)
