"""Which weights of a file are read, under which names, and that the notes say so."""

import argparse

import pytest
import torch
from torch.optim.swa_utils import AveragedModel

from hpcddm.errors import UserError
from hpcddm.models import dit
from hpcddm.models.checkpoints import file_formats
from tests.diffusion.spaces.examples import network_data
from tests.models.checkpoints import public

AVERAGE, RAW = public.random_original(seed=0), public.random_original(seed=1)
COUNT = len(RAW)
OPTIMISER = {"state": {0: {"exp_avg": torch.ones(3), "step": torch.tensor(5.0)}}, "param_groups": [{"params": [0]}]}
LISTED = {"decay": 0.999, "optimization_step": 5, "shadow_params": list(AVERAGE.values())}
"""The state of the packages that keep an average as a list, torch_ema's and diffusers'."""
ALL = "weights taken: all of the file, which does not tell if they are averages"


def named(prefix, tensors):
    return {prefix + name: values for name, values in tensors.items()}


def equal(one, other):
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)


def saved(tmp_path, content):
    torch.save(content, tmp_path / "x.pt")
    return file_formats.read_checkpoint(tmp_path / "x.pt")


EMA = "'ema'; not taken: 'model'"
LUCIDRAINS = {"initted": torch.tensor([True]), "step": torch.tensor([9])}
LIGHTNING = {"state_dict": named("net.", RAW), "optimizer_states": [OPTIMISER]}


@pytest.mark.parametrize(
    "content, notes",
    [
        ({"ema": LISTED, "model": RAW}, ["'ema > shadow_params', a list that has the names of 'model'"]),
        ({"shadow_params": LISTED["shadow_params"], "model": RAW}, ["'shadow_params', a list that has the names"]),
        ({"ema": list(map(torch.nn.Parameter, AVERAGE.values())), "model": RAW}, ["'ema', a list that has the names"]),
        ({"ema": LISTED, "model": named("module.", RAW)}, ["'ema > shadow_params', a list", "prefix 'module.' taken"]),
        ({"ema": {"module": AVERAGE, "decay": 0.99}, "model": RAW}, ["'ema > module'; not taken: 'model'"]),
        ({"model": RAW, "ema": named("_orig_mod.", AVERAGE)}, [EMA, "prefix '_orig_mod.' taken"]),
        (
            {"model": RAW, "ema": LUCIDRAINS | named("online_model.", RAW) | named("ema_model.", AVERAGE)},
            [
                EMA,
                "counters, which are not weights: 'initted', 'step'",
                "names that begin with 'ema_model.'; not taken: 'online_model.'",
                "prefix 'ema_model.' taken",
            ],
        ),
        (
            {"state_dict": named("net.", RAW) | named("net_ema.module.", AVERAGE)},
            ["'state_dict'", "names that begin with 'net_ema.'; not taken: 'net.'", "prefix 'net_ema.module.' taken"],
        ),
        (
            LIGHTNING | {"callbacks": {"Averaging": {"ema_state_dict": named("net.", AVERAGE)}}},
            ["'callbacks > Averaging > ema_state_dict'; not taken: 'state_dict', 'opt", "prefix 'net.' taken"],
        ),
    ],
)
def test_averages_as_packages_keep_them_are_taken(tmp_path, content, notes):
    found = saved(tmp_path, content)
    assert equal(found.tensors, AVERAGE)
    assert len(found.notes) == len(notes)
    assert all(expected in note for expected, note in zip(notes, found.notes, strict=True))
    assert file_formats.recognise_layout(found) == "original_dit"
    assert not any(values.requires_grad for values in found.tensors.values())


@pytest.mark.parametrize(
    "content, message",
    [
        ({"ema": list(AVERAGE.values())[:-1], "model": RAW}, f"'ema' is a list .* {COUNT - 1} where 'model' has"),
        ({"ema": list(AVERAGE.values())[::-1], "model": RAW}, "'ema' is a list .* and has .* where 'x_embedder.proj.w"),
        ({"ema": LISTED, "opt": OPTIMISER}, "'ema > shadow_params' is a list .* and no entry model, .* has them"),
        ({"ema": LISTED, "model": LISTED["shadow_params"]}, "'ema > shadow_params' is a list .* and so is 'model'"),
        (list(AVERAGE.values()), "the whole file is a list .* and nothing beside it has them; save it as a state dict"),
        ({"ema": AVERAGE, "model_ema": RAW, "model": RAW}, "several averages, 'ema', 'model_ema'; save one of them"),
        ({"ema": {"layers": [AVERAGE, 1]}, "model": RAW}, "'ema' needs a state dict"),
        ({"params": RAW, "step": 1}, "tensors are in 'params': save the entry that you mean under the name 'model'"),
        ({"student": RAW, "teacher": AVERAGE}, "tensors are in 'student', 'teacher': save the entry that you mean"),
        ({"module": {"a": torch.empty(0)}, "step": 1}, "its tensors are empty, .*; merge .* zero_to_fp32.py"),
        ({"a": torch.empty(0)}, "its tensors are empty, .*; merge .* zero_to_fp32.py"),
        ({"ema": {1: torch.ones(2)}, "model": RAW}, "'ema' needs a state dict"),
        ({"model": RAW | {"a": torch.ones(2, 2, dtype=torch.int8)}}, "'a' is int8, .*; weights are read from dense fl"),
        ({"model": RAW | {"a": torch.ones(2).to(torch.float8_e4m3fn)}}, "'a' is float8_e4m3fn, .*; weights are read"),
        ({"model": RAW | {"a": torch.eye(2).to_sparse()}}, "'a' is float32, sparse_coo, .*; weights are read"),
        ({"model": RAW | {"a": torch.empty(2, device="meta")}}, "'a' is float32, strided, on the device meta; weights"),
    ],
)
def test_weights_that_cannot_be_told_apart_or_read_are_refused_by_name(tmp_path, content, message):
    with pytest.raises(UserError, match=f"x.pt: .*{message}"):
        saved(tmp_path, content)


def own_network():
    data = network_data(public.CHANNELS, public.SIDE, public.NUM_CLASSES)
    return dit.DiT(dit.DiTSettings(name="dit", width=64, depth=2, heads=4, patch=2), data)


@pytest.mark.parametrize(
    "wrapped, notes",
    [
        (torch.compile, ["prefix '_orig_mod.' taken"]),
        (AveragedModel, ["counters, which are not weights: 'n_averaged'", "prefix 'module.' taken"]),
        (lambda own: torch.compile(AveragedModel(own)), ["'_orig_mod.n_averaged'", "'_orig_mod.module.' taken"]),
    ],
)
def test_what_torchs_own_wrappers_save_is_the_network_in_them(tmp_path, wrapped, notes):
    network = own_network()
    found = saved(tmp_path, wrapped(network).state_dict())
    assert equal(found.tensors, network.state_dict())
    assert file_formats.recognise_layout(found) == "hpcddm"
    assert all(expected in note for expected, note in zip([ALL, *notes], found.notes, strict=True))


@pytest.mark.parametrize(
    "tensors, name",
    [
        (named("module.", AVERAGE) | {"pos_embed": AVERAGE["pos_embed"]}, "module.blocks.0"),
        (named("module.", AVERAGE) | named("teacher.", RAW), "module.blocks.0"),
        (named("ema.", AVERAGE) | {"pos_embed": AVERAGE["pos_embed"]}, "ema.blocks.0"),
        ({"module.conv.weight": torch.ones(2), "module.conv.bias": torch.ones(2)}, "module.conv.bias"),
    ],
)
def test_names_that_no_prefix_makes_those_of_a_layout_are_refused_as_they_are(tmp_path, tensors, name):
    with pytest.raises(UserError, match=f"none of the layouts .* has tensors such as {name}.*; {ALL}"):
        file_formats.recognise_layout(saved(tmp_path, tensors))


@pytest.mark.parametrize("wrap", [dict, lambda values: argparse.Namespace(**values)])
def test_arguments_as_mapping_or_namespace_tell_a_sit_from_a_dit(tmp_path, wrap):
    for arguments, name, tells in (
        (public.SIT_ARGUMENTS, "sit", True),
        ({"model": "SiT-B/4"}, "sit", True),
        ({"model": "DiT-XL/2"}, "original_dit", True),
        ({"lr": 1e-4}, "original_dit", False),
    ):
        found = saved(tmp_path, {"model": RAW, "ema": AVERAGE, "args": wrap(arguments)})
        assert file_formats.recognise_layout(found) == name
        _, info = file_formats.layout(name).load(found, public.LIKE)
        assert any("no tensor tells SiT from DiT" in note for note in info.notes) != tells
