import numpy as np
import pytest

from hpcddm.config import variants
from hpcddm.config.image_encoders import ImageEncoderSettings
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.errors import UserError
from hpcddm.evaluation.comparisons import ArmComparison, summarise
from hpcddm.evaluation.evaluators import EncoderEvaluator

PIXELS = ImageEncoderSettings.model_validate({"name": "pixels", "size": 4})
IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)


def test_an_encoder_measures_what_it_encodes():
    measured = EncoderEvaluator("pixels-4", PIXELS).measure(IMAGES, np.zeros(0), ["a caption that it cannot read"] * 6)
    assert measured.keys() == {"features"}
    assert (measured["features"] == variants.create(ImageEncoder, PIXELS).encode(IMAGES)).all()


def test_images_that_a_package_prepares_otherwise_than_the_label_says_are_refused(monkeypatch):
    monkeypatch.setattr(ImageEncoder, "stated_preparation", "224-bicubic-aa")
    EncoderEvaluator("clip-224-bicubic-aa", PIXELS)
    for label in ("clip-224-bilinear-aa", "clip-256-crop-224-bicubic-aa"):
        complaint = f"the package of pixels prepares images by 224-bicubic-aa and not as in {label}"
        with pytest.raises(UserError, match=complaint):
            EncoderEvaluator(label, PIXELS)


@pytest.mark.parametrize("wild", [np.nan, np.inf])
def test_features_that_are_not_finite_are_refused_by_the_label_of_the_extractor(monkeypatch, wild):
    evaluator = EncoderEvaluator("pixels-4", PIXELS)
    monkeypatch.setattr(evaluator._encoder, "encode", lambda images: np.full((6, 48), wild, np.float32))
    with pytest.raises(UserError, match=r"evaluate.extractors: pixels-4 gives features that are NaN or infinite"):
        evaluator.measure(IMAGES, np.zeros(0), [])


def figure(metric: str, value: float) -> dict[str, object]:
    return {"metric": metric, "value": value, "left_out": [value + 0.001 * tenth for tenth in range(10)]}


def comparison(label: str, dimension: int, **arms: float) -> ArmComparison:
    figures = {}
    for arm, value in arms.items():
        figures[arm] = {f"fd@{label}": figure("fd", value), f"fd_ratio@{label}": figure("fd_ratio", 2 * value)}
    return ArmComparison(figures, {f"fd@{label}": figure("fd", 0.5)}, 400, dimension)


def test_short_keys_are_those_of_the_first_extractor_and_fid_is_that_of_one_network():
    own, other, inception = (
        comparison(label, dimension, monolith=first, ensemble=2.0)
        for label, dimension, first in (("own", 64, 1.0), ("pixels-4", 64, 3.0), ("inception-2015", 2048, 5.0))
    )
    found = summarise({"own": own, "pixels-4": other})
    values = found["arms"]["monolith"]
    assert values["fd"] == values["fd@own"] == 1.0 and values["fd@pixels-4"] == 3.0 and "fid" not in values
    assert values["fd_ratio@mean"] == np.mean([2.0, 6.0])
    assert (found["leading_metric"], found["few_images"]) == ("fd", {})
    with_graph = summarise({"pixels-4": other, "inception-2015": inception})
    assert with_graph["arms"]["monolith"]["fid"] == 5.0 and with_graph["arms"]["monolith"]["fd"] == 3.0
    assert with_graph["few_images"] == {"inception-2015": 2048}
    alone = summarise({"inception-2015": inception})
    assert alone["leading_metric"] == "kid", "400 images are too few for 2048 features"


def test_arms_are_compared_in_pairs_with_the_first_one():
    found = summarise({"own": comparison("own", 64, monolith=1.0, near=1.0, far=2.0)})
    verdicts = {arm: found["differences"][arm]["fd@own"]["verdict"] for arm in ("near", "far")}
    assert found["baseline"] == "monolith" and verdicts == {"near": "cannot tell", "far": "worse"}
    low, high = found["intervals"]["far"]["fd@own"]
    assert low < 2.0 < high
