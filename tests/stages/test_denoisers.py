"""What a training starts from."""

from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from hpcddm.config import Start
from hpcddm.errors import UserError
from hpcddm.files import with_content, within_run
from hpcddm.rundir import atomic
from hpcddm.rundir.layout import RunDir
from hpcddm.stages import denoisers
from tests.helpers import CLASSES, SIDE, tiny, write_source

TEXT = {"encoder": {"name": "words"}, "prompts": [f"thing number {label}" for label in range(CLASSES)], "tokens": 6}


def unit_in(folder):
    return SimpleNamespace(run=RunDir(folder))


def weights_of(experiment, folder, **changed):
    weights = denoisers.build(experiment, experiment.recipe()).state_dict() | changed
    save_file({name: values for name, values in weights.items() if values is not None}, folder / "seed.safetensors")
    return weights


def test_a_denoiser_starts_from_the_weights_that_it_is_given(tmp_path):
    experiment = tiny(tmp_path)
    weights = weights_of(experiment, tmp_path)
    model = denoisers.build(experiment, experiment.recipe())
    assert not torch.equal(model.trunk.embed_patch.weight, weights["trunk.embed_patch.weight"])
    denoisers.start_from(model, Start(weights="../seed.safetensors"), unit_in(tmp_path / "run"))
    assert all(torch.equal(values, weights[name]) for name, values in model.state_dict().items())


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"head.bias": None}, "1 tensors missing, 0 unknown, 0 of another shape, the first head.bias"),
        ({"tail.bias": torch.zeros(1)}, "0 tensors missing, 1 unknown, 0 of another shape, the first tail.bias"),
        ({"head.bias": torch.zeros(3)}, "0 tensors missing, 0 unknown, 1 of another shape, the first head.bias"),
    ],
    ids=["missing", "unknown", "shape"],
)
def test_weights_of_another_network_are_refused_and_change_nothing(tmp_path, changed, words):
    experiment = tiny(tmp_path)
    weights_of(experiment, tmp_path, **changed)
    model = denoisers.build(experiment, experiment.recipe())
    before = {name: values.clone() for name, values in model.state_dict().items()}
    with pytest.raises(UserError, match=words):
        denoisers.start_from(model, Start(weights="seed.safetensors"), unit_in(tmp_path))
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())


@pytest.mark.parametrize("content", [None, b"", b"torn"])
def test_a_file_that_holds_no_weights_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / "seed.safetensors").write_bytes(content)
    experiment = tiny(tmp_path)
    with pytest.raises(UserError, match="seed.safetensors: no weights to start from"):
        denoisers.start_from(
            denoisers.build(experiment, experiment.recipe()), Start(weights="seed.safetensors"), unit_in(tmp_path)
        )


def test_a_text_model_learns_the_prompts_of_its_own_experiment(tmp_path):
    experiment = tiny(tmp_path, data__text=TEXT, experts__model__condition="text")
    other = tiny(tmp_path, data__text=TEXT | {"prompts": ["a", "b", "c", "d"]}, experts__model__condition="text")
    weights_of(other, tmp_path)
    started = tiny(
        tmp_path, data__text=TEXT, experts__model__condition="text", experts__start={"weights": "seed.safetensors"}
    )
    fresh, seeded = (denoisers.initial(one, one.recipe(), unit_in(tmp_path)) for one in (experiment, started))
    assert fresh.trunk.prompts.any() and torch.equal(fresh.trunk.prompts, seeded.trunk.prompts)
    x, t = torch.randn(2, 1, SIDE, SIDE), torch.rand(2)
    assert fresh(x, t, torch.tensor([0, CLASSES])).shape == x.shape


def test_the_bytes_of_a_start_are_under_the_fingerprint_and_its_place_is_not(tmp_path):
    write_source(tmp_path / "images")
    experiment = tiny(tmp_path, experts__start={"weights": "seed.safetensors"})
    weights_of(experiment, tmp_path)
    run = RunDir(tmp_path / "runs" / "one")
    known = with_content(experiment, run)
    assert known.experts.start.content == atomic.sha256(tmp_path / "seed.safetensors")
    assert within_run(known, run).experts.start.weights == "../../seed.safetensors"


def test_weights_that_changed_since_they_were_submitted_are_refused(tmp_path):
    experiment = tiny(tmp_path)
    weights_of(experiment, tmp_path)
    start = Start(weights="seed.safetensors", content="0" * 64)
    with pytest.raises(UserError, match="has changed since the run was submitted"):
        denoisers.starting_weights(start, unit_in(tmp_path))
