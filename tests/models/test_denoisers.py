"""Every denoiser in the folder with every two values of its options."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from hpcddm.config import variants
from hpcddm.config.models import DenoiserModelSettings
from hpcddm.models import layers, mmdit
from tests.diffusion.spaces.examples import told
from tests.models.examples import DATA, EXPERIMENT, batch, combinations, fresh, label, losses_of, settings, trained

DENOISERS = combinations(DenoiserModelSettings)
TEXT = [(name, options) for name, options in DENOISERS if options["condition"] == "text"]
LEARNERS = [(name, options) for name, options in DENOISERS if options["qk_norm"] and not options["learned_sigma"]]

each_denoiser = pytest.mark.parametrize("name, options", DENOISERS, ids=label)
each_text_model = pytest.mark.parametrize("name, options", TEXT, ids=label)


@each_denoiser
def test_starts_as_zero_in_float32(name, options):
    output = fresh(name, **options)(*batch(**options))
    assert output.shape == (6, 2, 8, 8) and output.dtype == torch.float32 and not output.any()


@each_denoiser
def test_in_bf16_it_agrees_with_float32_and_tells_neighbouring_times_apart(name, options):
    model, (x, t, classes) = trained(name, **options), batch(**options)
    expected = model(x, t, classes)
    output = model.bfloat16()(x, t, classes)
    assert output.dtype == torch.float32
    assert (output - expected).std() < 0.03 * expected.std()
    late, later = (model(x, torch.full((6,), t), classes) for t in (0.998, 0.999))
    assert not torch.equal(late, later)


@each_denoiser
def test_every_input_matters_and_no_image_sees_another(name, options):
    model = trained(name, **options)
    x, t, classes = batch(**options)
    output = model(x, t, classes)
    for inputs in [(x.flip(0), t, classes), (x, t.flip(0), classes)]:
        assert ((model(*inputs) - output).flatten(1).abs().amax(1) > 1e-3).all()
    of_others = (model(x, t, classes.roll(1, 0)) - output).flatten(1).abs().amax(1)
    assert not of_others.any() if options["condition"] == "none" else (of_others > 1e-3).all()
    torch.testing.assert_close(model(x[2:3], t[2:3], classes[2:3]), output[2:3], rtol=1e-4, atol=1e-5)


@each_denoiser
def test_every_parameter_is_trained(name, options):
    model = trained(name, **options)
    model.with_sigma(*batch(**options)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


@pytest.mark.parametrize("name, options", LEARNERS, ids=label)
def test_learns_a_velocity(name, options):
    model = fresh(name, **options)
    x, t, classes = batch(12, **options)
    target = x + torch.linspace(-1, 1, 4)[torch.arange(12) % 4][:, None, None, None]
    losses = losses_of(model, lambda: (model(x, t, classes) - target).square().mean(), 25)
    assert losses[-1] < 0.3 * losses[0]


@each_denoiser
def test_sigma_comes_after_the_prediction(name, options):
    model = trained(name, **options)
    everything = model.with_sigma(*batch(**options))
    assert everything.shape == (6, 4 if options["learned_sigma"] else 2, 8, 8)
    assert torch.equal(everything[:, :2], model(*batch(**options)))


@each_denoiser
def test_attention_on_other_devices_says_the_same(name, options, monkeypatch):
    model = trained(name, **options).double()
    expected = model(*batch(**options))
    for module in (layers, mmdit):
        monkeypatch.setattr(module, "attend", lambda q, k, v, seen=None: F.scaled_dot_product_attention(q, k, v, seen))
    torch.testing.assert_close(model(*batch(**options)), expected)


@each_denoiser
def test_never_waits_for_the_device(name, options):
    model = trained(name, **options).to("meta")
    # Reading a value of a meta tensor raises, as .item() or a data-dependent shape would.
    assert model(*(x.to("meta") for x in batch(**options))).shape == (6, 2, 8, 8)


@each_denoiser
def test_initialisation_depends_on_torchs_seed_only(name, options):
    first, again, other = (list(fresh(name, seed, **options).parameters()) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(first, other, strict=True))


@each_text_model
def test_padding_changes_nothing(name, options):
    model = trained(name, **options)
    x, t, text = batch(**options)
    longer = torch.cat([text, torch.zeros(6, 3, 12)], dim=1)
    torch.testing.assert_close(model(x, t, longer), model(x, t, text))


@each_text_model
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_prompt_of_padding_only_is_one_of_its_own(name, options, dtype):
    model = trained(name, **options).to(dtype)
    x, t, classes = batch(**options)
    one, three = (model(x, t, torch.zeros(6, length, 12)) for length in (1, 3))
    assert one.isfinite().all() and (one - model(x, t, classes)).abs().max() > 1e-2
    torch.testing.assert_close(one, three, atol=1e-5 if dtype == torch.float32 else 0.1, rtol=1e-2)


@pytest.mark.parametrize("name", sorted({name for name, _ in TEXT}))
@pytest.mark.parametrize("kind", ["mean", "end"])
def test_pooled_text_modulates_and_changes_nothing_at_first(name, kind):
    without, model = (trained(name, condition="text", text_modulation=own) for own in ("none", kind))
    states = without.state_dict()
    missing, unknown = model.load_state_dict(states, strict=False)
    layers_of_it = {f"trunk.embed_pooled.{number}" for number in (0, 2)}
    assert not unknown and {own.rpartition(".")[0] for own in missing} == layers_of_it
    x, t, text = batch(condition="text")
    assert (model(x, t, text) - without(x, t, text)).abs().max() > 1e-3
    untrained = fresh(name, condition="text", text_modulation=kind)
    untrained.load_state_dict(states, strict=False)
    assert torch.equal(untrained(x, t, text), without(x, t, text))
    seen = {"mean": torch.stack([row[row.any(1)].mean(0) for row in text]), "end": text[0:1, 1]}
    made = layers.pooled_text(text, kind)
    torch.testing.assert_close(made[: len(seen[kind])], seen[kind])


@pytest.mark.parametrize(
    "name, options, form, words",
    [
        ("dit", {"patch": 3}, "class", "patch 3"),
        ("dit", {"width": 36}, "class", "width 36"),
        ("dit", {"text_modulation": "mean"}, "class", "text_modulation mean: this network gets no text"),
        ("dit", {"text_modulation": "end", "condition": "none"}, "none", "modulation end: this network gets no text"),
        ("mmdit", {}, "none", "mmdit needs a condition"),
    ],
)
def test_what_does_not_fit_is_refused(name, options, form, words):
    with pytest.raises(ValueError, match=words):
        settings(name, **options).check(SimpleNamespace(**vars(EXPERIMENT) | {"data": told(DATA, form)}))


@pytest.mark.parametrize("name, size, dimensions", [("dit", "B", (768, 12, 12)), ("mmdit", "3B", (2048, 30, 16))])
def test_a_named_size_fills_the_dimensions(name, size, dimensions):
    schema = variants.settings_class("models", name)
    filled = schema(name=name, size=size, patch=2)
    assert (filled.width, filled.depth, filled.heads) == dimensions
    assert schema.model_validate(filled.model_dump()) == filled


def test_a_named_size_and_another_width_are_refused():
    with pytest.raises(ValueError, match="width: 64, but size S has 384"):
        variants.settings_class("models", "dit")(name="dit", size="S", patch=2, width=64)
