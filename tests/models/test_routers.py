from types import SimpleNamespace

import pytest
import torch

from hpcddm import plugins

DATA = SimpleNamespace(channels=1, image_size=8, num_classes=3)
SMALL = {"router_dit": {"width": 32, "depth": 2, "heads": 2, "patch": 4}}

each_router = pytest.mark.parametrize("name", plugins.names("models", "router"))


def build(name, **changed):
    module = plugins.load("models", name)
    torch.manual_seed(0)
    return module.build(module.Settings(name=name, **SMALL.get(name, {}) | changed), DATA, num_outputs=5)


def trained(name, **changed):
    model = build(name, **changed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(6, 1, 8, 8, generator=generator), torch.rand(6, generator=generator), torch.arange(6) % 4


@each_router
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_starts_undecided(name, dtype):
    logits = build(name).to(dtype)(*batch())
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits.softmax(1), torch.full((6, 5), 0.2))


@each_router
def test_every_input_matters(name):
    model = trained(name)
    x, t, classes = batch()
    for inputs in [(x.flip(0), t, classes), (x, t.flip(0), classes), (x, t, (classes + 1) % 4)]:
        assert ((model(*inputs) - model(x, t, classes)).abs().amax(1) > 1e-4).all()


def test_a_class_blind_router_gives_every_class_the_null_classes_answer():
    model = trained("router_dit", condition="none")
    x, t, classes = batch()
    assert torch.equal(model(x, t, classes), model(x, t, torch.full_like(classes, 3)))


@each_router
def test_learns_which_cluster_a_noisy_image_belongs_to(name):
    model = build(name)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    clusters = torch.arange(64) % 5
    generator = torch.Generator().manual_seed(2)
    centres = torch.randn(5, 1, 8, 8, generator=generator)
    x = centres[clusters] + 0.3 * torch.randn(64, 1, 8, 8, generator=generator)
    t, classes = torch.rand(64, generator=generator), torch.full((64,), 3)
    for _ in range(30):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(x, t, classes), clusters).backward()
        optimiser.step()
    assert (model(x, t, classes).argmax(1) == clusters).float().mean() > 0.95
