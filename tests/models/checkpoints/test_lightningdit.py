"""LightningDiT's layout against its network, written down independently, and checkpoints that do not fit."""

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hpcddm.errors import UserError
from hpcddm.models import dit
from hpcddm.models.checkpoints import file_formats
from hpcddm.models.checkpoints.base import CheckpointContent
from tests.diffusion.spaces.examples import network_data
from tests.models.checkpoints import public
from tests.models.checkpoints.published_lightningdit import ALL, Published

FILE = Path("weights.pt")
NAMES = ("swiglu", "rms", "rotary", "qk_norm")
LIKE = SimpleNamespace(heads=public.HEADS, time_spacing="original", positions="sinusoidal")
RANDOM = torch.Generator().manual_seed(1)


def load(tensors, like=LIKE, **kept):
    stored = CheckpointContent(FILE, "0" * 64, dict(tensors), **kept)
    return file_formats.layout("lightningdit").load(stored, like)


def ours(tensors, info):
    model = dit.DiT(info.model, network_data(info.channels, public.SIDE, info.num_classes))
    model.load_state_dict(tensors)
    return model.to(tensors["head.weight"].dtype).eval()


def largest_error(theirs, found, dtype=torch.float32):
    """Difference of the velocities, relative to the largest, over times that include both ends."""
    x, _, classes = public.batch(dtype=dtype)
    t = torch.tensor([0.0, 0.2, 0.5, 0.83, 1.0], dtype=dtype)
    expected = -theirs(x, 1 - t, classes)
    assert expected.std() > 0.1
    return float((found(x, t, classes).to(dtype) - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("patch, qk_norm", itertools.product((1, 2), (False, True)))
@torch.no_grad()
def test_a_converted_network_computes_the_published_velocity(patch, qk_norm):
    theirs = Published(patch, qk_norm=qk_norm)
    tensors, info = load(theirs.state_dict(), None)
    found = (info.model.mlp, info.model.norm, info.model.positions, info.model.qk_norm, info.model.patch)
    assert found == ("swiglu", "rms", "rotary", qk_norm, patch)
    assert (info.image_size, info.channels, info.num_classes) == (public.SIDE, public.CHANNELS, public.NUM_CLASSES)
    # Two tables tell the heads, which no target gives here.
    assert info.model.heads == public.HEADS and not any("heads" in note for note in info.notes)
    assert (info.objective.name, info.objective.schedule.name) == ("flow_matching", "linear")
    assert largest_error(theirs, ours(tensors, info)) < 1e-6


@pytest.mark.parametrize("parts", [dict(zip(NAMES, own, strict=True)) for own in itertools.product((0, 1), repeat=4)])
@torch.no_grad()
def test_every_choice_of_parts_converts(parts):
    theirs = Published(**parts)
    if not any(parts.values()):
        # Such a file is one of SiT, to the last name.
        assert file_formats.recognise_layout(CheckpointContent(FILE, "", theirs.state_dict())) == "original_dit"
    tensors, info = load(theirs.state_dict())
    style = (info.model.mlp == "swiglu", info.model.norm == "rms", info.model.positions == "rotary", info.model.qk_norm)
    assert style == tuple(parts.values())
    # In float64, what is left is the fit of the waves of the time.
    assert largest_error(theirs.double(), ours(tensors, info).double(), torch.float64) < 1e-6


@torch.no_grad()
def test_the_order_of_the_planes_matters():
    theirs = Published(qk_norm=True)
    tensors, info = load(theirs.state_dict())
    for name in ("qkv.weight", "norm_q.weight"):
        key = f"trunk.blocks.0.attention.{name}"
        other = tensors | {key: theirs.state_dict()[f"blocks.0.attn.{name.replace('norm_q', 'q_norm')}"]}
        assert largest_error(theirs, ours(other, info)) > 1e-4


@torch.no_grad()
def test_outputs_of_sigma_are_read_and_left_out_of_the_velocity():
    theirs = Published(sigma=True)
    tensors, info = load(theirs.state_dict())
    assert info.model.learned_sigma and largest_error(theirs, ours(tensors, info)) < 1e-6


def test_without_tables_the_target_says_if_queries_and_keys_are_rotated():
    theirs = Published(qk_norm=True)
    tensors, info = load(theirs.state_dict())
    bare = {name: values for name, values in theirs.state_dict().items() if not name.startswith("feat_rope")}
    for positions in ("rotary", "sinusoidal"):
        again, other = load(bare, SimpleNamespace(**vars(LIKE) | {"positions": positions}))
        assert other.model.positions == positions
        assert any(f"positions are {positions}, as in the target" in note for note in other.notes)
        same = all(torch.equal(again[name], tensors[name]) for name in tensors)
        assert same == (positions == "rotary")


def test_the_settings_in_a_file_say_how_it_was_trained(tmp_path):
    transport = {"path_type": "Linear", "prediction": "velocity", "use_cosine_loss": False}
    average = Published().state_dict()
    content = {"model": Published(seed=1).state_dict(), "opt": {"state": {}}}
    content["ema"] = {f"module.{name}": values for name, values in average.items()}

    def stored(**changes):
        torch.save(content | {"config": {"transport": transport | changes}}, tmp_path / "ema.pt")
        return file_formats.read_checkpoint(tmp_path / "ema.pt")

    read = stored()
    assert file_formats.recognise_layout(read) == "lightningdit"
    tensors, info = file_formats.layout("lightningdit").load(read, LIKE)
    assert all(torch.equal(values, load(average)[0][name]) for name, values in tensors.items())
    assert not any("direction" in note or "nothing says how" in note for note in info.notes)
    _, info = load(average, arguments=transport | {"use_cosine_loss": True})
    assert any("a loss on the direction of the velocity" in note for note in info.notes)
    _, info = load(average)
    for said in ("nothing says how LightningDiT was trained", "a loss on the direction of the velocity"):
        assert any(said in note for note in info.notes)
    with pytest.raises(UserError, match="trained with path_type GVP; only Linear can be read"):
        file_formats.layout("lightningdit").load(stored(path_type="GVP"), LIKE)


WHOLE = Published(**ALL).state_dict()
COS, SIN = "feat_rope.freqs_cos", "feat_rope.freqs_sin"
DAMAGES = {
    "blocks.1.mlp.w12.weight": None,
    "blocks.0.mlp.w3.bias": torch.zeros(3),
    "blocks.0.norm1.weight": None,
    "blocks.1.norm2.weight": torch.ones(32),
    "final_layer.norm_final.weight": None,
    "blocks.0.attn.q_norm.weight": torch.ones(12),
    "blocks.1.attn.k_norm.weight": None,
    COS: WHOLE[COS].roll(1, dims=1),
    SIN: None,
    # Layer norm as QK norm, and adaLN without shifts, are options of the public code.
    "blocks.0.attn.q_norm.bias": torch.zeros(16),
    "blocks.0.adaLN_modulation.1.weight": torch.zeros(4 * 64, 64),
    "pos_embed": torch.randn(1, 16, 64, generator=RANDOM),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_one_line_that_names_the_tensor(name):
    tensors = {key: one for key, one in (WHOLE | {name: DAMAGES[name]}).items() if one is not None}
    with pytest.raises(UserError) as caught:
        load(tensors)
    said = str(caught.value)
    assert said.startswith("weights.pt: ") and f"'{name}'" in said and len(said.splitlines()) == 1, said


@pytest.mark.parametrize(
    "table", [torch.ones(15, 16), torch.ones(16, 0), torch.ones(0, 16), torch.ones(16, 12), torch.ones(16, 6)]
)
def test_tables_of_no_square_grid_are_refused(table):
    with pytest.raises(UserError, match=f"'{COS}' is not the table of a square grid"):
        load(WHOLE | {COS: table, SIN: table})


def test_tables_of_two_grids_are_refused_and_half_precision_is_not():
    other = Published(patch=1).state_dict()
    with pytest.raises(UserError, match=f"'{COS}' and 'pos_embed' are of different grids"):
        load(WHOLE | {name: other[name] for name in (COS, SIN)})
    for dtype in (torch.float16, torch.bfloat16):
        assert load({name: values.to(dtype).float() for name, values in WHOLE.items()})[1].model.positions == "rotary"
    only_norms = {name: values for name, values in WHOLE.items() if "feat_rope" not in name}
    with pytest.raises(UserError, match=r"'blocks.0.attn.q_norm.weight' is \(12,\)"):
        load(only_norms | {"blocks.0.attn.q_norm.weight": torch.ones(12)})
