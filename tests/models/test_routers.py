"""Every trained router in the folder with every two values of its options."""

import pytest
import torch

from hpcddm.config.models import RouterModelSettings
from tests.models.examples import OUTPUTS, batch, combinations, fresh, label, losses_of, trained

ROUTERS = combinations(RouterModelSettings)

each_router = pytest.mark.parametrize("name, options", ROUTERS, ids=label)


@each_router
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_starts_undecided(name, options, dtype):
    logits = fresh(name, **options).to(dtype)(*batch(**options))
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits.softmax(1), torch.full((6, OUTPUTS), 1 / OUTPUTS))


@each_router
def test_every_input_matters(name, options):
    model = trained(name, **options)
    x, t, classes = batch(**options)
    logits = model(x, t, classes)
    for inputs in [(x.flip(0), t, classes), (x, t.flip(0), classes)]:
        assert ((model(*inputs) - logits).abs().amax(1) > 1e-4).all()
    of_others = (model(x, t, classes.roll(1, 0)) - logits).abs().amax(1)
    assert not of_others.any() if options["condition"] == "none" else (of_others > 1e-4).all()


@each_router
def test_every_parameter_is_trained(name, options):
    model = trained(name, **options)
    model(*batch(**options)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


@each_router
def test_the_head_is_all_that_depends_on_the_number_of_clusters(name, options):
    model = fresh(name, **options)
    head = model.head_parameters()
    vectors = {"table"} if options["modulation"] == "single" else {"modulation.weight", "modulation.bias"}
    assert head.keys() == {"head.weight", "head.bias"} | vectors
    for key, parameter in model.named_parameters():
        assert (key in head) == (not key.startswith(("trunk.", "norm."))) and (
            OUTPUTS not in parameter.shape or key in head
        )


@each_router
def test_learns_which_cluster_a_noisy_image_belongs_to(name, options):
    model = fresh(name, **options)
    clusters = torch.arange(64) % OUTPUTS
    generator = torch.Generator().manual_seed(2)
    centres = torch.randn(OUTPUTS, 2, 8, 8, generator=generator)
    x = centres[clusters] + 0.3 * torch.randn(64, 2, 8, 8, generator=generator)
    t, classes = torch.rand(64, generator=generator), batch(4, **options)[2][3:].repeat_interleave(64, 0)
    losses_of(model, lambda: torch.nn.functional.cross_entropy(model(x, t, classes), clusters), 30)
    assert (model(x, t, classes).argmax(1) == clusters).float().mean() > 0.95
