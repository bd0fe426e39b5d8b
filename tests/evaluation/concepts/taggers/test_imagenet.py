"""Classes of a small WordNet in the place of ImageNet's, and probabilities that are planted."""

from pathlib import Path

import numpy as np
import pytest
import torch

from hpcddm.config import variants
from hpcddm.config.concepts import TaggerSettings
from hpcddm.errors import UserError
from hpcddm.evaluation.concepts.taggers import imagenet
from hpcddm.evaluation.concepts.taggers.base import Tagger, TaggerContext
from hpcddm.evaluation.concepts.vocabulary import Concept, Vocabulary
from tests.evaluation.concepts import small_wordnet
from tests.helpers import tiny

CLASSES = ["cat", "dog", "polar_bear", "fire_engine", "sky"]
NOUNS = ["dog", "animal", "pet", "carnivore", "Fire engine", "entity", "unicorn", "ski", "leave"]
PROBABILITIES = np.array([[0.5, 0.2, 0.1, 0.15, 0.05], [0.0, 0.0, 0.25, 0.75, 0.0]], np.float32)
IMAGES = np.zeros((2, 32, 32, 3), np.uint8)


class Planted:
    """The network's place: its probabilities are known."""

    def __init__(self, settings):
        assert settings.size == 128

    def probabilities(self, images):
        return PROBABILITIES


@pytest.fixture
def tagger(tmp_path, monkeypatch):
    """A function from names of concepts to their tagger."""
    offsets = small_wordnet.write(tmp_path / "downloads" / "wordnet" / "3.0")
    monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path))
    listed = tmp_path / "classes.txt"
    listed.write_text("".join(f"n{offsets[name]:08d}\n" for name in CLASSES))
    monkeypatch.setattr(imagenet.pretrained, "find_verified", lambda file: listed)
    monkeypatch.setattr(imagenet.efficientnet_lite0, "ImageNetFeatures", Planted)

    experiment = tiny(tmp_path)

    def create(names, **changes):
        vocabulary = Vocabulary([Concept(name) for name in names])
        settings = TaggerSettings.model_validate({"name": "imagenet"} | changes)
        return variants.create(Tagger, settings, TaggerContext(experiment, vocabulary, Path, torch.device("cpu")))

    return create


def test_a_concept_is_as_likely_as_all_that_is_a_kind_of_it(tagger):
    expected = [[0.2, 0.8, 0.7, 0.8, 0.15, 1, 0, 0, 0], [0, 0.25, 0, 0.25, 0.75, 1, 0, 0, 0]]
    np.testing.assert_allclose(tagger(NOUNS).scores(IMAGES), expected, atol=1e-6)


def test_what_no_class_is_a_kind_of_is_never_seen(tagger):
    assert tagger(NOUNS, threshold=0.25).thresholds.tolist() == [0.25] * 6 + [np.inf] * 3


def test_the_most_frequent_sense_that_has_a_class_counts(tagger, monkeypatch):
    of_others = imagenet.wordnet_nouns.WordNet.synsets

    def senses(nouns, name):
        named = {"crane": ["leaf", "dog", "sky"]}.get(name, [name])
        return [synset for one in named for synset in of_others(nouns, one)]

    monkeypatch.setattr(imagenet.wordnet_nouns.WordNet, "synsets", senses)
    assert tagger(["crane"]).scores(IMAGES)[:, 0] == pytest.approx([0.2, 0])


def test_a_vocabulary_without_any_class_is_refused(tagger):
    with pytest.raises(UserError, match="no concept is a class of ImageNet, or above one"):
        tagger(["ski", "unicorn"])
