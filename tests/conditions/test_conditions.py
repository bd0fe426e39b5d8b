"""What every condition in the folder promises, and what each refuses."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hpcddm import plugins
from hpcddm.conditions import base as conditions
from hpcddm.conditions.settings import ConditionSettings, Form
from hpcddm.data.reader import ArrayReader
from hpcddm.errors import UserError
from tests.spaces.examples import network_data

OPTIONS = {"text": {"encoder": {"name": "words"}, "prompts": ["a hat", "a shoe", "a bag"]}}
READER = ArrayReader(np.zeros((4, 8, 8, 1), np.uint8), np.array([2, 0, 1, 1]), np.zeros(4, int))


@pytest.fixture(params=plugins.names("conditions"))
def condition(request):
    settings = ConditionSettings.model_validate({"name": request.param} | OPTIONS.get(request.param, {}))
    return conditions.build(SimpleNamespace(**vars(network_data(1, 8, 3)) | {"condition": settings}))


def test_its_tensors_have_the_shape_that_its_settings_tell_without_torch(condition):
    settings = condition.settings
    assert len(settings.shape) == (2 if settings.form is Form.TEXT else 0)
    for made in (condition.of(READER, [3, 0]), condition.null(2), condition.of_classes([1, 2])):
        assert made.shape == (2, *settings.shape)
        assert made.dtype == (torch.float32 if settings.shape else torch.int64)
        assert made.device.type == "cpu" and not made.requires_grad


def test_a_sample_has_the_condition_of_its_class(condition):
    if not condition.settings.reads_captions:
        assert torch.equal(condition.of(READER, [0, 2, 3]), condition.of_classes([2, 1, 1]))


def test_no_class_is_the_null_condition_where_classes_are_told(condition):
    if condition.settings.form is not Form.NONE:
        equal = (condition.of_classes([0, 1, 2]) == condition.null(3)).flatten(1) if condition.settings.shape else None
        ids = condition.of_classes([0, 1, 2]) == condition.null(3)
        assert not ids.any() if equal is None else not equal.all(1).any()


def test_what_is_told_no_text_refuses_words(condition):
    if condition.settings.form is not Form.TEXT:
        with pytest.raises(UserError, match=f"data.condition is {condition.settings.name}: "):
            condition.of_prompts(["a hat"])


def test_an_experiment_can_be_made_here(condition):
    condition.check()
