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
from hpcddm.models.checkpoints.base import CheckpointContent, CheckpointInfo
from hpcddm.models.checkpoints.conversion import REFERENCE_TIME, VERDICTS, Target, convert
from hpcddm.models.checkpoints.file_formats import layout
from hpcddm.models.layers import sinusoids, unpatchify
from tests.diffusion.spaces.examples import network_data, told
from tests.models.checkpoints import public

DATA = network_data(4, 8, 10)
EPSILON = original_dit.original_objective()
FLOW = variants.settings_class("diffusion/objectives", "flow_matching")(name="flow_matching")


def source(outputs=2, dtype=torch.float64):
    tensors = public.random_original(outputs, dtype)
    return layout("original_dit").load(CheckpointContent(Path("weights.pt"), "0" * 64, tensors), public.LIKE)


def target(info, objective=EPSILON, data=DATA, form="class", **changes):
    return Target(info.model.model_copy(update=changes), told(data, form), objective)


def build(tensors, model, data=DATA):
    """The network in float64."""
    network = dit.DiT(model, data).double()
    network.load_state_dict(tensors)
    return network.eval()


def outputs_of(network, classes=None, text=None):
    x, steps, given = public.batch(dtype=torch.float64)
    condition = given if classes is None else torch.full_like(given, classes)
    condition = condition if text is None else text
    patches = network.head(network.normalised(x, steps.double() / 1000, condition))
    return unpatchify(patches, network.patch, patches.shape[2] // network.patch**2, 8)


def checked(made, tensors):
    """Every tensor of either network has a verdict with a reason, and the table counts all of them."""
    assert made.verdicts.keys() >= made.tensors.keys() | tensors.keys()
    assert all(verdict in VERDICTS and (why or verdict == "kept") for verdict, why in made.verdicts.values())
    assert sum(count for _, count, _, _ in made.table()) == sum(made.counts().values()) == len(made.verdicts)
    return {name: verdict for name, (verdict, _) in made.verdicts.items()}


@torch.no_grad()
def test_the_same_network_is_kept_to_the_bit():
    tensors, info = source()
    made = convert(tensors, info, target(info))
    assert set(checked(made, tensors).values()) == {"kept"}
    assert all(torch.equal(made.tensors[name], tensors[name]) for name in tensors)


@torch.no_grad()
def test_a_network_of_latents_with_four_channels_is_kept_in_those_of_an_autoencoder():
    tensors, info = source()
    latents = network_data(3, 32, 10, name="autoencoder", autoencoder={"name": "kl_small", "factor": 4, "channels": 4})
    assert latents.x_shape == (4, 8, 8)
    made = convert(tensors, info, target(info, data=latents, learned_sigma=False))
    assert set(checked(made, tensors).values()) == {"kept"}
    build(made.tensors, info.model.model_copy(update={"learned_sigma": False}), latents)


@torch.no_grad()
def test_without_learned_sigma_the_prediction_is_the_first_channels():
    tensors, info = source()
    made = convert(tensors, info, target(info, learned_sigma=False))
    assert set(checked(made, tensors).values()) == {"kept"}
    assert "rows of sigma" in made.verdicts["head.weight"][1]
    before = outputs_of(build(tensors, info.model))
    after = outputs_of(build(made.tensors, info.model.model_copy(update={"learned_sigma": False})))
    torch.testing.assert_close(after, before[:, :4], rtol=0, atol=1e-12)


@torch.no_grad()
def test_with_learned_sigma_the_prediction_stays():
    tensors, info = source(outputs=1)
    made = convert(tensors, info, target(info, learned_sigma=True))
    assert checked(made, tensors)["head.weight"] == "folded"
    after = outputs_of(build(made.tensors, info.model.model_copy(update={"learned_sigma": True})))
    assert after.shape[1] == 8
    torch.testing.assert_close(after[:, :4], outputs_of(build(tensors, info.model)), rtol=0, atol=1e-12)


@torch.no_grad()
def test_another_prediction_resets_the_last_linear_layer_alone():
    tensors, info = source()
    made = convert(tensors, info, target(info, FLOW, learned_sigma=False))
    verdicts = checked(made, tensors)
    assert {name for name, verdict in verdicts.items() if verdict != "kept"} == {"head.weight", "head.bias"}
    assert made.verdicts["head.bias"] == ("reset", "predicted epsilon, shall predict flow_matching")
    assert not made.tensors["head.weight"].any()
    kept = convert(tensors, info, target(info, FLOW, learned_sigma=False), keep_head=True)
    assert set(checked(kept, tensors).values()) == {"kept"}
    assert torch.equal(kept.tensors["head.weight"], tensors["head.weight"][:16])


@torch.no_grad()
def test_without_classes_it_is_the_network_of_the_null_class():
    tensors, info = source()
    made = convert(tensors, info, target(info, condition="none"))
    verdicts = checked(made, tensors)
    assert verdicts["trunk.embed_class.weight"] == verdicts["trunk.embed_time.2.bias"] == "folded"
    after = outputs_of(build(made.tensors, info.model.model_copy(update={"condition": "none"})))
    before = build(tensors, info.model)
    torch.testing.assert_close(after, outputs_of(before, classes=10), rtol=0, atol=1e-12)
    assert (after - outputs_of(before, classes=3)).abs().max() > 1e-3


@torch.no_grad()
def test_with_text_it_begins_as_the_network_of_the_null_class_whatever_the_text():
    tensors, info = source()
    made = convert(tensors, info, target(info, form="text"))
    verdicts = checked(made, tensors)
    assert verdicts["trunk.embed_text.weight"] == verdicts["trunk.blocks.1.cross.out.weight"] == "reset"
    assert verdicts["trunk.blocks.0.attention.qkv.weight"] == "kept"
    network, before = build(made.tensors, info.model, told(DATA, "text")), build(tensors, info.model)
    text = torch.randn(len(public.batch()[0]), 3, 12)
    torch.testing.assert_close(outputs_of(network, text=text), outputs_of(before, classes=10), rtol=0, atol=1e-12)


@pytest.mark.parametrize("condition, null", [("class", 10), ("none", 0), ("text", 0)])
@torch.no_grad()
def test_folded_modulation_is_the_old_one_at_the_reference(condition, null):
    tensors, info = source()
    made = convert(tensors, info, target(info, form=condition, modulation="single"))
    verdicts = checked(made, tensors)
    assert verdicts["trunk.modulation.weight"] == verdicts["trunk.blocks.1.table"] == verdicts["table"] == "folded"
    changed = info.model.model_copy(update={"modulation": "single"})
    old, new = build(tensors, info.model), build(made.tensors, changed, told(DATA, condition))
    t = torch.tensor([REFERENCE_TIME], dtype=torch.float64)
    each, last = new.trunk.conditions(t, torch.tensor([null]))
    waves = sinusoids(1000 * t, 256).double()
    active = F.silu(old.trunk.embed_time(waves) + old.trunk.embed_class(torch.tensor([10])))
    for before, after in zip(old.trunk.blocks, new.trunk.blocks, strict=True):
        expected = torch.cat(before.vectors(active), dim=1)
        torch.testing.assert_close(torch.cat(after.vectors(each), dim=1), expected, rtol=0, atol=1e-12)
        assert expected.std() > 0.1
    torch.testing.assert_close(torch.cat(new.vectors(last)), torch.cat(old.vectors(active)), rtol=0, atol=1e-12)


@torch.no_grad()
def test_at_the_reference_the_folded_network_says_the_same_and_elsewhere_it_does_not():
    tensors, info = source()
    made = convert(tensors, info, target(info, modulation="single"))
    old, new = build(tensors, info.model), build(made.tensors, info.model.model_copy(update={"modulation": "single"}))
    x, null = torch.randn(5, 4, 8, 8, dtype=torch.float64), torch.full((5,), 10)

    def distance(t):
        times = torch.full((5,), t, dtype=torch.float64)
        return (new.normalised(x, times, null) - old.normalised(x, times, null)).abs().max()

    assert distance(REFERENCE_TIME) < 1e-11
    assert distance(0.9) > 1e-3


def shaken(model, data=DATA):
    """The tensors of a network of random weights, nothing zero."""
    torch.manual_seed(1)
    network = dit.DiT(model, data).double()
    with torch.no_grad():
        for values in network.parameters():
            values.add_(0.3 * torch.randn_like(values))
    return network.state_dict()


@pytest.mark.parametrize("spacing", ["original", "diffusers"])
@pytest.mark.parametrize("condition", ["class", "none"])
@torch.no_grad()
def test_unfolded_modulation_is_the_old_one_in_every_block_and_at_the_reference_in_the_last_layer(condition, spacing):
    _, info = source()
    single = info.model.model_copy(update={"modulation": "single", "time_spacing": spacing})
    zero, data = single.model_copy(update={"modulation": "zero"}), told(DATA, condition)
    tensors = shaken(single, data)
    made = convert(
        tensors, replace(info, model=single, condition=ConditionForm(condition)), Target(zero, data, EPSILON)
    )
    verdicts = checked(made, tensors)
    folded = {name for name, verdict in verdicts.items() if verdict == "folded"}
    assert {"table", "modulation.bias", "trunk.modulation.weight", "trunk.blocks.1.table"} <= folded
    assert "reset" not in verdicts.values() and "exact at t = 0.5" in made.verdicts["modulation.weight"][1]
    old, new = build(tensors, single, data), build(made.tensors, zero, data)
    t = torch.tensor([0.0, 0.1, REFERENCE_TIME, 0.9, 1.0], dtype=torch.float64)
    null = torch.full((5,), 10)
    (each, last), (each_new, last_new) = old.trunk.conditions(t, null), new.trunk.conditions(t, null)
    for before, after in zip(old.trunk.blocks, new.trunk.blocks, strict=True):
        expected = torch.cat(before.vectors(each), dim=1).flatten(1)
        found = torch.cat(after.vectors(each_new), dim=1).flatten(1)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        assert expected.std() > 0.1
    expected, found = (torch.cat(one.vectors(given), 1) for one, given in ((old, last), (new, last_new)))
    torch.testing.assert_close(found[2], expected[2], rtol=0, atol=1e-12)
    # Nearer than a layer that would only say the reference's vectors.
    error, constant = (found - expected).square().mean(), (expected[2:3] - expected).square().mean()
    assert 0 < error < 0.5 * constant
    x = torch.randn(1, 4, 8, 8, dtype=torch.float64)
    said = [one.normalised(x, t[2:3], null[:1]) for one in (old, new)]
    torch.testing.assert_close(said[1], said[0], rtol=0, atol=1e-11)


@torch.no_grad()
def test_folding_an_unfolded_network_gives_it_back_at_the_reference():
    tensors, info = source()
    single = convert(tensors, info, target(info, modulation="single"))
    between = replace(info, model=info.model.model_copy(update={"modulation": "single"}))
    again = convert(single.tensors, between, target(info))
    once = convert(again.tensors, info, target(info, modulation="single"))
    for name, values in single.tensors.items():
        torch.testing.assert_close(once.tensors[name], values, rtol=0, atol=1e-12, msg=name)


@pytest.mark.parametrize("modulation", ["zero", "single"])
@torch.no_grad()
def test_new_classes_begin_as_the_unconditional_network(modulation):
    _, info = source()
    plain = info.model.model_copy(update={"condition": "none"})
    tensors = shaken(plain)
    given = replace(info, model=plain, num_classes=0, condition=ConditionForm.NONE)
    made = convert(tensors, given, target(given, condition="given", modulation=modulation))
    assert checked(made, tensors)["trunk.embed_class.weight"] == "reset"
    x, t = torch.randn(3, 4, 8, 8, dtype=torch.float64), torch.full((3,), REFERENCE_TIME, dtype=torch.float64)
    wanted = info.model.model_copy(update={"modulation": modulation})
    before, after = build(tensors, plain), build(made.tensors, wanted)
    classes = torch.tensor([0, 5, 10])
    torch.testing.assert_close(after.normalised(x, t, classes), before.normalised(x, t, classes), rtol=0, atol=1e-11)


@torch.no_grad()
def test_classes_in_the_place_of_text_begin_as_zero():
    _, info = source()
    given = replace(info, condition=ConditionForm.TEXT, encoder="words")
    made = convert(shaken(info.model, told(DATA, "text")), given, target(given))
    assert made.verdicts["trunk.embed_class.weight"][0] == "reset"
    assert made.tensors["trunk.embed_class.weight"].shape == (11, public.WIDTH)
    assert not made.tensors["trunk.embed_class.weight"].any()


@pytest.mark.parametrize("encoder, reset", [("words", False), (None, False), ("minilm", True)])
@torch.no_grad()
def test_another_text_encoder_resets_what_reads_its_states(encoder, reset):
    _, info = source()
    tensors = shaken(info.model, told(DATA, "text"))
    given = replace(info, condition=ConditionForm.TEXT, encoder=encoder)
    made = convert(tensors, given, target(given, form="text"))
    embedding = {"trunk.embed_text.weight", "trunk.embed_text.bias"}
    found = {name for name, verdict in checked(made, tensors).items() if verdict == "reset"}
    assert found == (embedding if reset else set())
    if reset:
        assert made.verdicts["trunk.embed_text.bias"][1] == "text encoder minilm there, words here"
        assert not torch.equal(made.tensors["trunk.embed_text.weight"].double(), tensors["trunk.embed_text.weight"])


@pytest.mark.parametrize(
    "changes, data, reset",
    [
        ({}, {"num_classes": 7}, {"trunk.embed_class.weight"}),
        ({"patch": 4}, {}, {"trunk.embed_patch.weight", "trunk.embed_patch.bias", "head.weight", "head.bias"}),
        ({}, {"channels": 1}, {"trunk.embed_patch.weight", "trunk.embed_patch.bias", "head.weight", "head.bias"}),
        ({}, {"image_size": 16}, set()),
        (
            {"qk_norm": True},
            {},
            {f"trunk.blocks.{block}.attention.norm_{one}.weight" for block in (0, 1) for one in "qk"},
        ),
    ],
)
@torch.no_grad()
def test_what_does_not_fit_is_reset_and_nothing_else(changes, data, reset):
    tensors, info = source()
    wanted = network_data(**{"channels": 4, "image_size": 8, "num_classes": 10} | data)
    made = convert(tensors, info, target(info, data=wanted, **changes))
    assert {name for name, verdict in checked(made, tensors).items() if verdict != "kept"} == reset
    build(made.tensors, info.model.model_copy(update=changes), wanted)


@torch.no_grad()
def test_new_tensors_depend_on_the_seed_only():
    tensors, info = source()
    torch.manual_seed(11)
    makes = [convert(tensors, info, target(info, form="text"), seed).tensors for seed in (0, 0, 1)]
    state = torch.get_rng_state()
    torch.manual_seed(11)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(makes[0][name], makes[1][name]) for name in makes[0])
    assert not torch.equal(makes[0]["trunk.embed_text.weight"], makes[2]["trunk.embed_text.weight"])


@pytest.mark.parametrize("changes", [{"width": 128}, {"depth": 3}, {"heads": 8}, {"name": "mmdit"}])
def test_another_body_is_refused(changes):
    tensors, info = source()
    key, value = next(iter(changes.items()))
    with pytest.raises(
        UserError, match=f"experts.model.{key} is {value} and the source's is .*set experts.model.{key}"
    ):
        convert(tensors, info, target(info, **changes))


@pytest.mark.parametrize("modulation", ["zero", "single"])
@torch.no_grad()
def test_other_classes_begin_as_the_null_class(modulation):
    tensors, info = source()
    data = network_data(4, 8, 7)
    made = convert(tensors, info, target(info, data=data, modulation=modulation))
    network = build(made.tensors, info.model.model_copy(update={"modulation": modulation}), data)
    x, t = torch.randn(3, 4, 8, 8, dtype=torch.float64), torch.full((3,), REFERENCE_TIME, dtype=torch.float64)
    expected = build(tensors, info.model).normalised(x, t, torch.full((3,), 10))
    for number in (0, 7):
        found = network.normalised(x, t, torch.full((3,), number))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("modulation", ["zero", "single"])
def test_blocks_that_no_rule_knows_are_kept_where_they_fit_and_reset_where_not(modulation):
    settings = mmdit.MMDiTSettings(name="mmdit", width=64, depth=2, heads=4, patch=2, modulation="zero")
    tensors = mmdit.MMDiT(settings, DATA).state_dict()
    info = CheckpointInfo(settings, 4, 10, EPSILON, 8)
    made = convert(tensors, info, target(info, modulation=modulation))
    verdicts = checked(made, tensors)
    changed = settings.model_copy(update={"modulation": modulation})
    mmdit.MMDiT(changed, DATA).load_state_dict(made.tensors)
    assert {"kept"} <= set(verdicts.values()) <= {"kept", "reset", "dropped"}
    assert (set(verdicts.values()) == {"kept"}) == (modulation == "zero")
