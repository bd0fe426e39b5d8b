"""Every denoiser in the folder; a variant with required settings names small ones in SMALL."""

from types import SimpleNamespace

import pytest
import torch

from hpcddm import plugins

DATA = SimpleNamespace(channels=2, image_size=8, num_classes=3)
EXPERIMENT = SimpleNamespace(data=DATA, cluster=SimpleNamespace(experts=4))
SMALL = {"dit": {"width": 32, "depth": 2, "heads": 2, "patch": 4}}

each_denoiser = pytest.mark.parametrize("name", plugins.names("models", "denoiser"))


def fresh(name, seed=0):
    module = plugins.load("models", name)
    settings = module.Settings(name=name, **SMALL.get(name, {}))
    settings.check(EXPERIMENT)
    torch.manual_seed(seed)
    return module.build(settings, DATA).eval()


def trained(name):
    """A network whose zero-initialised layers say something."""
    model = fresh(name)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def batch(count=6):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 2, 8, 8, generator=generator)
    return x, torch.rand(count, generator=generator), torch.arange(count) % 4


@each_denoiser
def test_starts_as_zero_in_float32(name):
    output = fresh(name)(*batch())
    assert output.shape == (6, 2, 8, 8)
    assert output.dtype == torch.float32
    assert not output.any()


@each_denoiser
def test_bf16_parameters_agree_with_float32(name):
    model = trained(name)
    expected = model(*batch())
    output = model.bfloat16()(*batch())
    assert output.dtype == torch.float32
    assert (output - expected).std() < 0.03 * expected.std()


@each_denoiser
def test_bf16_tells_neighbouring_times_apart(name):
    model = trained(name).bfloat16()
    x, _, classes = batch()
    late, later = (model(x, torch.full((6,), t), classes) for t in (0.998, 0.999))
    assert not torch.equal(late, later)


@each_denoiser
def test_every_input_matters_and_no_image_sees_another(name):
    model = trained(name)
    x, t, classes = batch()
    output = model(x, t, classes)
    for inputs in [(x.flip(0), t, classes), (x, t.flip(0), classes), (x, t, (classes + 1) % 4)]:
        assert ((model(*inputs) - output).flatten(1).abs().amax(1) > 1e-3).all()
    torch.testing.assert_close(model(x[2:3], t[2:3], classes[2:3]), output[2:3], rtol=1e-4, atol=1e-5)


@each_denoiser
def test_never_waits_for_the_device(name):
    model = trained(name).to("meta")
    # Reading a value of a meta tensor raises, as .item() or a data-dependent shape would.
    assert model(*(x.to("meta") for x in batch())).shape == (6, 2, 8, 8)


@each_denoiser
def test_initialisation_depends_on_torchs_seed_only(name):
    first, again, other = (list(fresh(name, seed).parameters()) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_dit_refuses_patches_that_do_not_tile():
    settings = plugins.settings_class("models", "dit")
    with pytest.raises(ValueError, match="patch 3"):
        settings(name="dit", width=32, depth=1, heads=2, patch=3).check(EXPERIMENT)
    with pytest.raises(ValueError, match="width 36"):
        settings(name="dit", width=36, depth=1, heads=2, patch=4).check(EXPERIMENT)
