from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from hpcddm.config import variants
from hpcddm.config.concepts import TaggerSettings
from hpcddm.data.reader import ArrayReader
from hpcddm.errors import UserError
from hpcddm.evaluation.concepts.taggers.base import Tagger, TaggerContext
from hpcddm.evaluation.concepts.vocabulary import Concept, Vocabulary
from hpcddm.models import build_classifier
from hpcddm.runs import manifest
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CLASSIFIER
from hpcddm.sampling import load_ensemble
from tests.helpers import CLASSES, SIDE, tiny

CPU = torch.device("cpu")
LABELS = TaggerSettings.model_validate({"name": "labels"})
CONCEPTS = [Concept("shoe", 3), Concept("coat", 0), Concept("bag", 2)]
"""Not all classes, nor in their order."""
IMAGES = np.random.default_rng(0).integers(0, 256, (300, SIDE, SIDE, 1), dtype=np.uint8)


@pytest.fixture
def run(tmp_path):
    """A run with a classifier, and its experiment."""
    experiment, run = tiny(tmp_path), RunDir(tmp_path / "run")
    folder = run.unit(CLASSIFIER)
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    save_file(build_classifier.build(experiment, CLASSIFIER).state_dict(), folder / "weights.safetensors")
    outputs = manifest.describe_outputs(folder, ["weights.safetensors"])
    manifest.publish(folder, Manifest(*CLASSIFIER.split("/"), {}, {}, outputs))
    return experiment, run


def tagger(run, concepts=CONCEPTS):
    return variants.create(Tagger, LABELS, TaggerContext(run[0], Vocabulary(concepts), run[1].unit, CPU))


def test_scores_of_images_are_the_classifiers_probabilities(run):
    network = load_ensemble.load_evaluator(run[0], CLASSIFIER, run[1].unit, CPU)
    images = torch.from_numpy(IMAGES).permute(0, 3, 1, 2).float() / 127.5 - 1
    expected = network(images).softmax(1)[:, [3, 0, 2]].numpy()
    own = tagger(run)
    assert LABELS.networks(run[0]) == [CLASSIFIER]
    np.testing.assert_allclose(own.scores(IMAGES), expected, atol=1e-6)
    assert own.thresholds.tolist() == [0.5, 0.5, 0.5]


def test_scores_of_samples_are_their_classes_whatever_the_classifier_says(run):
    labels = np.arange(300) % CLASSES
    scores = tagger(run).scores_of(ArrayReader(IMAGES, labels, labels), range(10, 14))
    assert scores.tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 0]]


def test_what_is_no_class_is_refused(run):
    with pytest.raises(UserError, match="labels knows classes alone, and 'fire engine' of the vocabulary is none"):
        tagger(run, [*CONCEPTS, Concept("fire engine")])


def asked(num_classes, is_matched):
    concepts = SimpleNamespace(vocabulary=SimpleNamespace(name="captions", is_matched=is_matched))
    return SimpleNamespace(data=SimpleNamespace(num_classes=num_classes), concepts=concepts)


def test_images_without_classes_and_words_of_captions_are_refused_before_anything_runs():
    LABELS.check(asked(10, False))
    with pytest.raises(ValueError, match="data.num_classes is not set; take the tagger lit"):
        LABELS.check(asked(None, False))
    with pytest.raises(ValueError, match="not the concepts of the vocabulary captions"):
        LABELS.check(asked(10, True))
