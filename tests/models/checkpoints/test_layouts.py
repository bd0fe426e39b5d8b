"""The public layouts against diffusers, which is an independent implementation; it must be installed."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from diffusers import DiTTransformer2DModel

from hpcddm.errors import UserError
from hpcddm.models import dit
from hpcddm.models.checkpoints import diffusers_dit, file_formats, original_dit
from hpcddm.models.checkpoints.base import CheckpointContent
from hpcddm.models.checkpoints.file_formats import layout
from hpcddm.models.layers import unpatchify
from tests.diffusion.spaces.examples import network_data
from tests.models.checkpoints import public
from tests.models.checkpoints.published_lightningdit import Published

FILE = Path("weights.pt")
ORIGINAL = public.random_original()
DIFFUSERS = public.as_diffusers(ORIGINAL)
CONFIG = public.diffusers_config()


def stored(tensors, config=None, own=None, arguments=None):
    return CheckpointContent(FILE, "0" * 64, dict(tensors), config or {}, own or {}, arguments or {})


def load(name, tensors=ORIGINAL, like=public.LIKE, **kept):
    return layout(name).load(stored(tensors, **kept), like)


def ours(tensors, info):
    model = dit.DiT(info.model, network_data(info.channels, info.image_size, info.num_classes))
    model.load_state_dict(tensors)
    return model.to(tensors["head.weight"].dtype).eval()


def everything(model, x, steps, classes):
    """All outputs in the parameters' own precision."""
    patches = model.head(model.normalised(x, steps.double() / 1000, classes))
    return unpatchify(patches, model.patch, patches.shape[2] // model.patch**2, model.size)


def peer(tensors, outputs=2, **config):
    model = DiTTransformer2DModel(**public.diffusers_config(outputs) | config)
    model.load_state_dict(tensors)
    public.use_the_originals_frequencies(model)
    return model.to(next(iter(tensors.values())).dtype).eval()


def test_every_layout_recognises_its_own_tensors_only():
    kinds = {
        "original_dit": stored(ORIGINAL),
        "sit": stored(ORIGINAL, arguments=public.SIT_ARGUMENTS),
        "lightningdit": stored(Published().state_dict(), arguments={"path_type": "Linear"}),
        "diffusers_dit": stored(DIFFUSERS),
        "hpcddm": stored(load("original_dit")[0]),
    }
    assert set(kinds) == set(file_formats.layout_names())
    for name, file in kinds.items():
        assert [file_formats.recognise_layout(file)] == [one for one in kinds if layout(one).recognises(file)] == [name]
    with pytest.raises(UserError, match="weights.pt: none of the layouts .* has tensors such as conv.weight"):
        file_formats.recognise_layout(stored({"conv.weight": torch.zeros(1)}))


@torch.no_grad()
def test_sit_becomes_the_velocity_of_our_convention():
    original = public.random_original(dtype=torch.float64)
    # The original network embeds 1000 t and SiT s, so that at t = s / 1000 it is SiT's.
    theirs = ours(*load("original_dit", original)).double()
    tensors, info = load("sit", original)
    found = ours(tensors, info).double()
    assert tensors["trunk.embed_time.0.weight"].abs().max() < 1e4
    x, _, classes = public.batch(dtype=torch.float64)
    for t in (0.0, 0.013, 0.3, 0.5, 0.97, 1.0):
        time = torch.full((len(x),), t, dtype=torch.float64)
        data_minus_noise = theirs(x, (1 - time) / 1000, classes)
        torch.testing.assert_close(found(x, time, classes), -data_minus_noise, rtol=1e-4, atol=1e-4)
    assert (info.objective.name, info.objective.schedule.name) == ("flow_matching", "linear")


def test_what_tells_sit_from_dit_is_used_and_its_lack_is_said():
    assert any("--layout sit" in note for note in load("original_dit")[1].notes)
    assert any("nothing says how SiT was trained" in note for note in load("sit")[1].notes)
    for name, arguments in (("original_dit", {"model": "DiT-XL/2"}), ("sit", public.SIT_ARGUMENTS)):
        assert not any("SiT" in note for note in load(name, arguments=arguments)[1].notes)
    for changed in ({"path_type": "GVP"}, {"prediction": "noise"}):
        with pytest.raises(UserError, match=f"trained with {next(iter(changed))} .*; only .* can be read"):
            load("sit", arguments=public.SIT_ARGUMENTS | changed)


@pytest.mark.parametrize("outputs, dtype, tolerance", [(1, torch.float32, 1e-5), (2, torch.float64, 1e-10)])
@torch.no_grad()
def test_an_original_checkpoint_is_the_network_that_diffusers_makes_of_it(outputs, dtype, tolerance):
    original = public.random_original(outputs, dtype)
    tensors, info = load("original_dit", original)
    assert info.model.learned_sigma == (outputs == 2)
    assert (info.image_size, info.channels, info.num_classes) == (8, 4, 10)
    x, steps, classes = public.batch(dtype=dtype)
    expected = peer(public.as_diffusers(original), outputs)(x, steps, classes).sample
    found = everything(ours(tensors, info), x, steps, classes)
    # Epsilon and sigma, and neither of them is trivially small.
    assert found.shape == expected.shape == (5, outputs * 4, 8, 8)
    assert expected.std() > 0.3
    assert (found - expected).abs().max() < tolerance * max(1, expected.abs().max())


def test_published_widths_tell_their_heads_and_others_need_the_targets():
    assert original_dit.HEADS == {384: 6, 768: 12, 1024: 16, 1152: 16}
    with pytest.raises(UserError, match="weights.pt: width 64 is not a published one; name the heads"):
        load("original_dit", like=None)
    _, info = load("original_dit", like=SimpleNamespace(heads=2))
    assert info.model.heads == 2 and any("number of heads: taken to be 2" in note for note in info.notes)


def test_the_targets_heads_come_before_those_of_a_published_width(monkeypatch):
    monkeypatch.setitem(original_dit.HEADS, public.WIDTH, 8)
    for like, heads, said in (
        (SimpleNamespace(heads=4), 4, "taken to be 4, as in the target; published networks of this width have 8"),
        (SimpleNamespace(heads=8), 8, None),
        (SimpleNamespace(), 8, None),
        (None, 8, None),
    ):
        for name in ("original_dit", "sit"):
            _, info = load(name, like=like)
            notes = [note for note in info.notes if "heads" in note]
            assert info.model.heads == heads
            assert notes == ([f"no tensor tells the number of heads: {said}"] if said else [])


HALF_ULP = {torch.float16: 2.0**-12, torch.bfloat16: 2.0**-9}
"""Half a unit in the last place below 1, from the 11 and 8 significant bits of the two."""


def with_table(change, dtype):
    """The tensors of a file in half precision, read in float32, whose table was changed before it was rounded."""
    tensors = public.random_original(dtype=torch.float64)
    tensors["pos_embed"] = change(tensors["pos_embed"])
    return {name: values.to(dtype).float() for name, values in tensors.items()}


@pytest.mark.parametrize("dtype, bound", HALF_ULP.items())
def test_a_table_of_positions_in_half_precision_is_known_by_the_bound_of_its_type(dtype, bound):
    tensors = with_table(lambda table: table, dtype)
    error = (tensors["pos_embed"].double() - public.positions(public.SIDE // public.PATCH)).abs().max()
    assert 0.5 * bound < error <= bound
    for values in (tensors, {name: one.to(dtype) for name, one in tensors.items()}):
        assert load("original_dit", values)[1].image_size == public.SIDE


def refused_table(tensors):
    with pytest.raises(UserError, match="weights.pt: .*'pos_embed' is not the fixed table"):
        load("original_dit", tensors)


@pytest.mark.parametrize("dtype, bound", [(torch.float32, 0), *HALF_ULP.items()])
def test_a_table_of_other_values_stays_refused_in_every_precision(dtype, bound):
    least = 2 * bound + 2e-4
    for change in (
        lambda table: torch.randn(table.shape, generator=torch.Generator().manual_seed(0)),
        lambda table: table.flip(1),
        lambda table: table * 0,
        lambda table: table + least,
        lambda table: table * torch.linspace(1, 1 - least, table.shape[1]).double()[:, None],
    ):
        refused_table(with_table(change, dtype))


def test_what_diffusers_stores_comes_back_to_the_bit_and_is_the_same_network_as_the_original_layout():
    tensors, info = load("diffusers_dit", DIFFUSERS, None, config=CONFIG)
    again, config = diffusers_dit.dump(tensors, info)
    original, of_original = load("original_dit")
    for one, other in ((again, DIFFUSERS), (tensors, original)):
        assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert {key: config[key] for key in CONFIG} == CONFIG
    assert (info.model, info.objective) == (of_original.model, of_original.objective)


@torch.no_grad()
def test_a_padded_class_table_changes_no_output_and_is_taken_off_again():
    tensors, info = load("original_dit")
    theirs, config = diffusers_dit.dump(tensors, info, 1000)
    assert config["num_embeds_ada_norm"] == 1000
    x, steps, classes = public.batch()
    padded = peer(theirs, **{"num_embeds_ada_norm": 1000})
    null = torch.where(classes == 10, 1000, classes)
    torch.testing.assert_close(padded(x, steps, null).sample, peer(DIFFUSERS)(x, steps, classes).sample)
    again, same = load("diffusers_dit", theirs, None, config=config, own={"data": {"num_classes": 10}})
    assert same.num_classes == 10
    assert all(torch.equal(again[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize("own, like, expected", [(None, "original", "original"), (None, "diffusers", "diffusers"),
    ("diffusers", "original", "diffusers"), ("original", "diffusers", "original")])  # fmt: skip
def test_the_spacing_of_times_is_the_files_own_or_else_the_targets_which_is_said(own, like, expected):
    said = {"model": {"time_spacing": own}} if own else {}
    _, info = load("diffusers_dit", DIFFUSERS, SimpleNamespace(time_spacing=like), config=CONFIG, own=said)
    assert info.model.time_spacing == expected
    assert any(f"spaced: taken to be {like}" in note for note in info.notes) == (own is None)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"activation_fn": "gelu"}, "config.json: activation_fn is 'gelu'; only 'gelu-approximate'"),
        ({"attention_bias": False}, "config.json: attention_bias is False"),
        ({"num_layers": None}, "config.json: needs whole numbers for num_layers"),
        ({"num_attention_heads": 8}, "8 heads of 16 are not the width 64"),
        ({"num_layers": 1}, "unknown tensor 'transformer_blocks.1"),
        ({"num_layers": 3}, "no tensor 'transformer_blocks.2"),
        ({"patch_size": 4}, "'pos_embed.proj.weight' is .* should be any x 4 x any x 4"),
    ],
)
def test_a_config_that_is_not_this_network_is_refused(changes, message):
    with pytest.raises(UserError, match=message):
        load("diffusers_dit", DIFFUSERS, None, config=CONFIG | changes)


@pytest.mark.parametrize(
    "name, values, message",
    [
        ("blocks.1.attn.qkv.bias", None, "no tensor 'blocks.1.attn.qkv.bias'"),
        ("blocks.0.extra", torch.zeros(1), "unknown tensor 'blocks.0.extra'"),
        ("x_embedder.proj.bias", torch.zeros(3), r"'x_embedder.proj.bias' is \(3,\)"),
    ],
)
def test_a_state_dict_that_is_not_quite_this_layout_is_refused(name, values, message):
    tensors = {key: one for key, one in (ORIGINAL | {name: values}).items() if one is not None}
    with pytest.raises(UserError, match=f"weights.pt: .*{message}"):
        load("original_dit", tensors)
