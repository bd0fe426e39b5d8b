"""What conversion promises, exactly, and that it says of every tensor what became of it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from hpcddm.config import variants
from hpcddm.config.conditions import ConditionForm
from hpcddm.errors import UserError
from hpcddm.models import dit, mmdit
from hpcddm.models.checkpoints import original_dit
from hpcddm.models.checkpoints.base import CheckpointContent
from hpcddm.models.checkpoints.conversion import REFERENCE_TIME, VERDICTS, Target, convert
from hpcddm.models.checkpoints.file_formats import layout
from hpcddm.models.layers import sinusoids, unpatchify
from tests.diffusion.spaces.examples import network_data, told
from tests.models.checkpoints import public

DATA = network_data(4, 8, 10)
EPSILON = original_dit.original_objective()
FLOW = variants.settings_class("diffusion/objectives", "flow_matching")(name="flow_matching")


NETWORKS = {"dit": dit.DiT, "mmdit": mmdit.MMDiT}


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def source(outputs=2):
    tensors = public.random_original(outputs, torch.float64)
    return layout("original_dit").load(CheckpointContent(Path("weights.pt"), "0" * 64, tensors), public.LIKE)


TENSORS, INFO = source()


def build(tensors, model, data=DATA):
    """The network in float64."""
    network = NETWORKS[model.name](model, data).double()
    network.load_state_dict(tensors)
    return network.eval()


OLD = build(TENSORS, INFO.model)


def shaken(model, data=DATA):
    """The tensors of a network of random weights, nothing zero."""
    torch.manual_seed(1)
    network = dit.DiT(model, data).double()
    return {name: values + 0.3 * torch.randn_like(values) for name, values in network.state_dict().items()}


def converted(tensors=TENSORS, info=INFO, objective=EPSILON, data=DATA, form="class", keep_head=False, **changes):
    """What conversion says, its verdict of every tensor of either network, and the network that it makes."""
    model, own = info.model.model_copy(update=changes), told(data, form)
    made = convert(tensors, info, Target(model, own, objective), keep_head=keep_head)
    assert made.verdicts.keys() >= made.tensors.keys() | tensors.keys()
    assert all(verdict in VERDICTS and (why or verdict == "kept") for verdict, why in made.verdicts.values())
    assert sum(count for _, count, _, _ in made.table()) == sum(made.counts().values()) == len(made.verdicts)
    return made, {name: verdict for name, (verdict, _) in made.verdicts.items()}, build(made.tensors, model, own)


def outputs_of(network, classes=None, text=None):
    x, steps, given = public.batch(dtype=torch.float64)
    condition = given if classes is None else torch.full_like(given, classes)
    condition = condition if text is None else text
    patches = network.head(network.normalised(x, steps.double() / 1000, condition))
    return unpatchify(patches, network.patch, patches.shape[2] // network.patch**2, 8)


def near(found, expected, tolerance=1e-12, **words):
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance, **words)


def test_a_network_of_latents_with_four_channels_is_kept_in_those_of_an_autoencoder():
    latents = network_data(3, 32, 10, name="autoencoder", autoencoder={"name": "kl_small", "factor": 4, "channels": 4})
    assert latents.x_shape == (4, 8, 8)
    assert set(converted(data=latents, learned_sigma=False)[1].values()) == {"kept"}


def test_without_learned_sigma_the_prediction_is_the_first_channels():
    made, verdicts, network = converted(learned_sigma=False)
    assert set(verdicts.values()) == {"kept"} and "rows of sigma" in made.verdicts["head.weight"][1]
    near(outputs_of(network), outputs_of(OLD)[:, :4])


def test_with_learned_sigma_the_prediction_stays():
    tensors, info = source(outputs=1)
    _, verdicts, network = converted(tensors, info, learned_sigma=True)
    assert verdicts["head.weight"] == "folded"
    after = outputs_of(network)
    assert after.shape[1] == 8
    near(after[:, :4], outputs_of(build(tensors, info.model)))


def test_another_prediction_resets_the_last_linear_layer_alone():
    made, verdicts, _ = converted(objective=FLOW, learned_sigma=False)
    assert {name for name, verdict in verdicts.items() if verdict != "kept"} == {"head.weight", "head.bias"}
    assert made.verdicts["head.bias"] == ("reset", "predicted epsilon, shall predict flow_matching")
    assert not made.tensors["head.weight"].any()
    kept, verdicts, _ = converted(objective=FLOW, learned_sigma=False, keep_head=True)
    assert set(verdicts.values()) == {"kept"}
    assert torch.equal(kept.tensors["head.weight"], TENSORS["head.weight"][:16])


def test_with_text_it_begins_as_the_network_of_the_null_class_whatever_the_text():
    _, verdicts, network = converted(form="text")
    assert verdicts["trunk.embed_text.weight"] == verdicts["trunk.blocks.1.cross.out.weight"] == "reset"
    assert verdicts["trunk.blocks.0.attention.qkv.weight"] == "kept"
    text = torch.randn(len(public.batch()[0]), 3, 12)
    near(outputs_of(network, text=text), outputs_of(OLD, classes=10))


@pytest.mark.parametrize("form, null", [("class", 10), ("none", 0), ("text", 0)])
def test_folded_modulation_is_the_old_one_at_the_reference(form, null):
    _, verdicts, new = converted(form=form, modulation="single")
    assert verdicts["trunk.modulation.weight"] == verdicts["trunk.blocks.1.table"] == verdicts["table"] == "folded"
    t = torch.tensor([REFERENCE_TIME], dtype=torch.float64)
    each, last = new.trunk.conditions(t, torch.tensor([null]))
    active = F.silu(OLD.trunk.embed_time(sinusoids(1000 * t, 256).double()) + OLD.trunk.embed_class(torch.tensor([10])))
    for before, after in zip(OLD.trunk.blocks, new.trunk.blocks, strict=True):
        expected = torch.cat(before.vectors(active), dim=1)
        near(torch.cat(after.vectors(each), dim=1), expected)
        assert expected.std() > 0.1
    near(torch.cat(new.vectors(last)), torch.cat(OLD.vectors(active)))


def test_at_the_reference_the_folded_network_says_the_same_and_elsewhere_it_does_not():
    _, _, new = converted(modulation="single")
    x, null = torch.randn(5, 4, 8, 8, dtype=torch.float64), torch.full((5,), 10)

    def distance(t):
        times = torch.full((5,), t, dtype=torch.float64)
        return (new.normalised(x, times, null) - OLD.normalised(x, times, null)).abs().max()

    assert distance(REFERENCE_TIME) < 1e-11 and distance(0.9) > 1e-3


def test_blocks_that_share_their_modulation_get_none_of_their_own():
    single, _, _ = converted(modulation="single")
    between = replace(INFO, model=INFO.model.model_copy(update={"modulation": "single"}))
    with pytest.raises(UserError, match="modulation is zero and the source's is single; conversion keeps it"):
        converted(single.tensors, between, modulation="zero")


@pytest.mark.parametrize("modulation", ["zero", "single"])
@pytest.mark.parametrize("had_classes", [False, True])
def test_new_classes_begin_as_the_unconditional_network_and_others_as_the_null_class(had_classes, modulation):
    tensors, info, data = TENSORS, INFO, network_data(4, 8, 7)
    if not had_classes:
        plain, data = INFO.model.model_copy(update={"condition": "none"}), DATA
        tensors, info = shaken(plain), replace(INFO, model=plain, num_classes=0, condition=ConditionForm.NONE)
    _, verdicts, after = converted(tensors, info, data=data, condition="given", modulation=modulation)
    assert verdicts["trunk.embed_class.weight"] == "reset"
    x, t = torch.randn(3, 4, 8, 8, dtype=torch.float64), torch.full((3,), REFERENCE_TIME, dtype=torch.float64)
    expected = build(tensors, info.model).normalised(x, t, torch.full((3,), 10))
    near(after.normalised(x, t, torch.tensor([0, 5, data.num_classes])), expected, 1e-11)


@pytest.mark.parametrize("encoder, reset", [("words", False), (None, False), ("minilm", True)])
def test_another_text_encoder_resets_what_reads_its_states(encoder, reset):
    tensors = shaken(INFO.model, told(DATA, "text"))
    given = replace(INFO, condition=ConditionForm.TEXT, encoder=encoder)
    made, verdicts, _ = converted(tensors, given, form="text")
    embedding = {"trunk.embed_text.weight", "trunk.embed_text.bias"}
    assert {name for name, verdict in verdicts.items() if verdict == "reset"} == (embedding if reset else set())
    if reset:
        assert made.verdicts["trunk.embed_text.bias"][1] == "text encoder minilm there, words here"
        assert not torch.equal(made.tensors["trunk.embed_text.weight"].double(), tensors["trunk.embed_text.weight"])


ENDS = {"trunk.embed_patch.weight", "trunk.embed_patch.bias", "head.weight", "head.bias"}
NORMS = {f"trunk.blocks.{block}.attention.norm_{one}.weight" for block in (0, 1) for one in "qk"}


@pytest.mark.parametrize(
    "changes, data, reset",
    [
        ({}, {"num_classes": 7}, {"trunk.embed_class.weight"}),
        ({"patch": 4}, {}, ENDS),
        ({}, {"channels": 1}, ENDS),
        ({}, {"image_size": 16}, set()),
        ({"qk_norm": True}, {}, NORMS),
    ],
)
def test_what_does_not_fit_is_reset_and_nothing_else(changes, data, reset):
    wanted = network_data(**{"channels": 4, "image_size": 8, "num_classes": 10} | data)
    _, verdicts, _ = converted(data=wanted, **changes)
    assert {name for name, verdict in verdicts.items() if verdict != "kept"} == reset
