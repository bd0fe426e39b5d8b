"""What a report says against its own figures, from figures alone."""

import pytest

from hpcddm.evaluation.result_warnings import NO_GAIN_IMAGES, result_warnings
from hpcddm.evaluation.training_costs import TrainingCost
from hpcddm.runs.unit_keys import MONOLITH, expert_key
from tests.evaluation.report.test_page import compared
from tests.helpers import tiny

REAL = {"fd": 2.0, "kid": 0.0, "agreement": 0.9, "precision": 0.924, "density": 0.98}
USUAL = {"fd": 30.0, "kid": 0.1, "agreement": 0.7, "precision": 0.7, "density": 0.6}


def said(settings, dimension=32, passes=2.0, **arms):
    """Return the warnings about arms that differ from the usual figures; errors are a hundredth of a figure."""
    by_arm = {name.replace("_", "-"): USUAL | own for name, own in ({"monolith": {}} | arms).items()}
    metrics = compared(by_arm, REAL, dimension, step=0.00044) | {"classifier": {"chance": 0.1}}
    costs = {key: TrainingCost(round(100 * passes), 1, 100) for key in (MONOLITH, expert_key(0), expert_key(1))}
    return result_warnings(settings, metrics, costs, {})


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """An experiment that trains for long."""
    return tiny(tmp_path_factory.mktemp("long"), experts__training__images=8 * NO_GAIN_IMAGES)


def test_figures_of_a_usual_run_get_no_warning(long):
    better = {"fd": 20.0, "kid": 0.05, "agreement": 0.8, "precision": 0.9, "density": 0.9}
    assert said(long, top_1={}, top_2=better) == [], "equal figures, and better ones"


def test_arms_that_the_classifier_takes_by_chance_are_named(long):
    (line,) = said(long, top_1={"agreement": 0.12}, top_2={"agreement": 0.2})
    assert "hardly more often than by chance (10.0%): top-1 12.0%; these" in line and "top-2" not in line


def test_a_classifier_that_does_not_know_real_images_is_at_fault_itself(long, monkeypatch):
    monkeypatch.setitem(REAL, "agreement", 0.11)
    (line,) = said(long, top_1={"agreement": 0.1})
    assert line.startswith("the classifier names the class of 11.0% of the real images: train it longer")


@pytest.mark.parametrize("key, value, shown", [("precision", 0.976, "92.4%): top-1 97.6%"), ("density", 1.4, "0.98)")])
def test_what_exceeds_real_images_is_called_so(long, key, value, shown):
    (line,) = said(long, top_1={key: value}, top_2={key: REAL[key] * 1.0001})
    assert line.startswith(f"{key} exceeds that of real images (") and shown in line and "top-2" not in line


@pytest.mark.parametrize("dimension, believed", [(32, "believe FD, for which"), (1280, "believe KID, as FD needs")])
def test_one_of_two_figures_that_disagree_is_to_be_believed(long, dimension, believed):
    (line,) = said(long, dimension, top_1={"fd": 40.0, "kid": 0.05}, top_2={"fd": 40.0, "kid": 0.2})
    assert "FD calls top-1 worse than monolith, and KID the opposite: " in line and believed in line


def test_a_training_that_skipped_many_of_its_steps_is_named_with_the_key(long):
    costs = {key: TrainingCost(200, 1, 100) for key in (MONOLITH, expert_key(0), expert_key(1))}
    key = "evaluators/classifier"
    steps = long.evaluators.classifier.training.images // long.evaluators.classifier.training.batch
    metrics = compared({"monolith": USUAL}, REAL, 32, step=0.00044) | {"classifier": {"chance": 0.1}}
    assert result_warnings(long, metrics, costs, {key: steps // 20}) == []
    (line,) = result_warnings(long, metrics, costs, {key: steps // 2})
    assert line.startswith(f"{key} skipped {steps // 2} of its {steps} steps") and "lower its learning_rate" in line


def test_experts_that_train_little_are_warned_of_unless_they_start_from_weights(long, tmp_path):
    (line,) = said(long, passes=0.13)
    assert line == "2 of 2 experts saw less than all of their images (0.13 passes)"
    (plan,) = said(tiny(tmp_path))
    assert plan.startswith("an expert sees 32 images; ")
