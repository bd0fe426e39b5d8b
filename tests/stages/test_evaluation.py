"""The stages that measure and compare: what makes their units anew, and what comparisons count."""

import itertools

import numpy as np
import pytest

from hpcddm.errors import ConfigError
from hpcddm.launch.sweep_runs import identity_hashes
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.stages.evaluation.measure_job import merged
from tests.helpers import tiny

MEASURE_REAL = "measure_real/own-0000000-0000024"
PIXELS = {"name": "pixels", "size": 4}


def identities(folder, **changes):
    """The hash of all that shapes a unit's outputs, by unit."""
    return identity_hashes(plan_units(tiny(folder, **changes)))


OTHER_SAMPLES = [{"seed": 1}, {"evaluate__guidance": 2.0}, {"evaluate__steps": 3}, {"evaluate__strategies": ["full"]}]
OTHER_SAMPLES += [{"experts__model__depth": 2}, {"experts__training__learning_rate": 0.02}, {"cluster__experts": 4}]
OTHER_SAMPLES += [{"experts__training__images": 128}, {"evaluate__labels": "uniform"}]
OTHER_RULERS = [{"data__image_size": 12}, {"evaluators__extractor__model__features": 9}]
OTHER_RULERS += [{"evaluators__extractor__seed": 1}, {"evaluators__classifier__training__images": 32}]


@pytest.mark.parametrize("changes", OTHER_SAMPLES, ids=str)
def test_real_images_are_measured_once_whatever_draws_the_samples(tmp_path, changes):
    before, after = identities(tmp_path), identities(tmp_path, **changes)
    assert before[MEASURE_REAL] == after[MEASURE_REAL]
    assert before["compare/own"] != after["compare/own"], "which has other samples"


@pytest.mark.parametrize("changes", OTHER_RULERS, ids=str)
def test_other_images_and_another_extractor_are_measured_anew(tmp_path, changes):
    assert identities(tmp_path)[MEASURE_REAL] != identities(tmp_path, **changes)[MEASURE_REAL]


def test_one_more_extractor_draws_no_sample_again_and_measures_nothing_again(tmp_path):
    before, after = identities(tmp_path), identities(tmp_path, evaluate__extractors=[PIXELS])
    new = after.keys() - before.keys()
    assert sorted({key.split("/")[0] for key in new}) == ["compare", "measure", "measure_real", "reference_statistics"]
    assert {key for key in before if before[key] != after[key]} == {"report/all"}


@pytest.mark.parametrize("order", itertools.permutations(range(3)))
def test_an_image_that_several_parts_have_counts_once(order):
    parts = [
        (places, {"features": np.array([[place, place + 0.5] for place in places])})
        for places in (range(8, 16), range(12, 24), range(16, 24))
    ]
    features = merged(parts[number] for number in order).features
    assert features[:, 0].tolist() == list(range(8, 24)) and (features[:, 1] == features[:, 0] + 0.5).all()


WITHOUT_CLASSES = {"data__num_classes": None, "data__condition": {"name": "none"}, "evaluators__classifier": None}
PERCEPTUAL = WITHOUT_CLASSES | {"evaluate__perceptual": {"name": "lpips_alex"}}


def test_what_nothing_could_compute_is_refused_by_its_key(tmp_path):
    with pytest.raises(ConfigError, match="evaluators.extractor: nothing compares samples with real images; set it"):
        tiny(tmp_path, evaluators__extractor=None)
    with pytest.raises(ConfigError, match="evaluate.perceptual: .* samples of one class, and data.num_classes is not"):
        tiny(tmp_path, **PERCEPTUAL)
