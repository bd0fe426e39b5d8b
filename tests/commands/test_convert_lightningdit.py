"""LightningDiT's checkpoints as users start from them, and its networks where diffusers has no layout."""

import pytest
import torch
from safetensors.torch import load_file

from hpcddm.config import variants
from hpcddm.models.base import Denoiser
from hpcddm.runs import initial_weights
from hpcddm.runs.initial_weights import init_request
from hpcddm.runs.unit_keys import MONOLITH, STUDENT
from tests.commands.test_convert import EXPERT, SMALL, convert, metadata, refused, trained
from tests.helpers import tiny
from tests.models.checkpoints import public
from tests.models.checkpoints.published_lightningdit import Published

BLOCK = {"mlp": "swiglu", "norm": "rms", "positions": "rotary"}
STRONG = {f"experts__model__{key}": value for key, value in BLOCK.items()}
SPACE = {"data__image_size": 16, "data__space": {"name": "latents"}, "data__num_classes": 10, "evaluate__images": 40}


@pytest.fixture
def checkpoint(tmp_path):
    """A file as the public train.py writes it."""
    average = {f"module.{name}": values for name, values in Published().state_dict().items()}
    transport = {"path_type": "Linear", "prediction": "velocity", "use_cosine_loss": True}
    content = {"ema": average, "model": Published(seed=1).state_dict(), "config": {"transport": transport}}
    torch.save(content, tmp_path / "lightningdit.pt")
    return tmp_path / "lightningdit.pt"


@torch.no_grad()
@pytest.mark.parametrize("layout", ["auto", "lightningdit"])
def test_a_checkpoint_starts_experts_monolith_and_student(tmp_path, checkpoint, layout):
    output, said = convert(tmp_path, checkpoint, "--layout", layout, **STRONG, **SPACE)
    assert metadata(output)["layout"] == "lightningdit" and "0 folded, 0 reset, 0 dropped" in said
    assert {verdict for verdict, _ in metadata(output)["verdicts"].values()} == {"kept"}
    start = {"experts__init_from": {"weights": str(output)}, "distill": {"teacher": "router", "share": 0.25}}
    experiment = tiny(tmp_path, **SMALL | STRONG | SPACE | start)
    for key in (EXPERT, MONOLITH, STUDENT):
        initial_weights.check_file(init_request(experiment, key), output, None)
    network = variants.create(Denoiser, experiment.experts.model, experiment.data).eval()
    network.load_state_dict(load_file(output))
    x, _, classes = public.batch()
    t = torch.linspace(0, 1, len(x))
    expected = -Published()(x, 1 - t, classes)
    torch.testing.assert_close(network(x, t, classes), expected, rtol=0, atol=1e-6 * float(expected.abs().max()))


def test_a_damaged_file_is_one_line_and_writes_nothing(tmp_path, checkpoint):
    content = torch.load(checkpoint)
    del content["ema"]["module.blocks.1.mlp.w3.bias"]
    torch.save(content, checkpoint)
    tiny(tmp_path, **SMALL, **STRONG)
    call = ("convert", checkpoint, "--like", tmp_path / "tiny.yaml", "--output", tmp_path / "seed.safetensors")
    assert "lightningdit.pt: no tensor 'blocks.1.mlp.w3.bias'" in refused(1, *call)
    assert not list(tmp_path.glob("*.safetensors"))


def test_a_target_with_another_block_is_a_note(tmp_path, checkpoint):
    output, _ = convert(tmp_path, checkpoint)
    notes = [note for note in metadata(output)["notes"] if "another network" in note]
    assert [note.split()[:5] for note in notes] == [
        [key, "is", value, "there,", plain]
        for (key, value), plain in zip(BLOCK.items(), ("gelu", "layer", "sinusoidal"), strict=True)
    ]


@pytest.mark.parametrize("key", BLOCK)
def test_an_export_says_what_to_use_where_diffusers_has_no_layout(tmp_path, key):
    run, _ = trained(tmp_path, **{f"experts__model__{key}": BLOCK[key]})
    said = refused(1, "export", run.root, EXPERT, "--output", tmp_path / "exported")
    assert f"{key} {BLOCK[key]}" in said and "use 'hpcddm publish'" in said
