"""What every condition in the folder promises, and what each refuses."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hpcddm.config import variants
from hpcddm.config.conditions import ConditionForm, ConditionSettings
from hpcddm.data.reader import ArrayReader
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.errors import UserError
from tests.diffusion.spaces.examples import network_data

WORDS = {"name": "text", "encoder": {"name": "words"}}
CONDITIONS = {name: {"name": name} for name in variants.list_variants("diffusion/conditions")}
CONDITIONS |= {"text": WORDS | {"prompts": ["a hat", "a shoe", "a bag"]}, "captions": WORDS}
CAPTIONS = ["a bag of leather", "an old hat", "a shoe", "a red shoe"]
READER = ArrayReader(np.zeros((4, 8, 8, 1), np.uint8), np.array([2, 0, 1, 1]), np.zeros(4, int), CAPTIONS)


@pytest.fixture(params=CONDITIONS)
def condition(request):
    settings = ConditionSettings.model_validate(CONDITIONS[request.param])
    return conditions.create_condition(SimpleNamespace(**vars(network_data(1, 8, 3)) | {"condition": settings}))


def test_its_tensors_have_the_shape_that_its_settings_tell_without_torch(condition):
    settings = condition.settings
    assert len(settings.shape) == (2 if settings.form is ConditionForm.TEXT else 0)
    for made in (condition.of_samples(READER, [3, 0]), condition.null(2)):
        assert made.shape == (2, *settings.shape)
        assert made.dtype == (torch.float32 if settings.shape else torch.int64)
        assert made.device.type == "cpu" and not made.requires_grad


def test_a_sample_has_the_condition_of_its_class(condition):
    if condition.settings.reads_captions:
        with pytest.raises(UserError, match="their own captions, which a class does not determine"):
            condition.of_classes([1])
    else:
        assert torch.equal(condition.of_samples(READER, [0, 2, 3]), condition.of_classes([2, 1, 1]))


def test_a_sample_has_the_condition_of_its_caption(condition):
    if condition.settings.reads_captions:
        assert torch.equal(condition.of_samples(READER, [0, 3]), condition.of_prompts([CAPTIONS[0], CAPTIONS[3]]))
        assert not torch.equal(condition.of_samples(READER, [2]), condition.of_samples(READER, [3]))


def test_no_sample_has_the_null_condition_where_networks_are_told_something(condition):
    if condition.settings.form is not ConditionForm.NONE:
        equal = condition.of_samples(READER, [0, 1, 2]) == condition.null(3)
        assert not equal.flatten(1).all(1).any() if equal.dim() > 1 else not equal.any()


def test_what_is_told_no_text_refuses_words(condition):
    if condition.settings.form is not ConditionForm.TEXT:
        with pytest.raises(UserError, match=f"data.condition is {condition.settings.name}: "):
            condition.of_prompts(["a hat"])


def test_an_experiment_can_be_made_here(condition):
    condition.check()
