"""Every router that is computed from the data: that it is a posterior, and what it is exact and good for."""

import numpy as np
import pytest
import torch

from hpcddm.config import variants
from hpcddm.config.image_encoders import ImageEncoderSettings
from hpcddm.config.models import PriorRouterSettings, RouterModelSettings
from hpcddm.data.reader import ArrayReader
from hpcddm.diffusion.spaces.base import create_space
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.models.base import ComputedRouter
from hpcddm.models.flops import forward_flops
from tests.diffusion.spaces.examples import network_data

DATA, LATENT_DATA = network_data(1, 8, 3), network_data(1, 8, 3, name="latents")
CLUSTERS = 4
NAMES = variants.list_variants("models", PriorRouterSettings)
OPTIONS = {"feature_router": {"encoder": {"name": "pixels", "size": 4}}}
each_router = pytest.mark.parametrize("name", NAMES)


def build(name, data=DATA, **options):
    settings = RouterModelSettings.model_validate({"name": name} | OPTIONS.get(name, {}) | options)
    return variants.create(ComputedRouter, settings, data, CLUSTERS)


def reader(count=400, seed=0):
    """Clusters of unequal size around pictures of their own, classes differently frequent in each."""
    rng = np.random.default_rng(seed)
    clusters = rng.choice(CLUSTERS, count, p=[0.4, 0.3, 0.2, 0.1])
    labels = (clusters + rng.choice(2, count)) % 3
    centres = np.random.default_rng(7).uniform(60, 195, (CLUSTERS, 8, 8, 1))
    images = centres[clusters] + 20 * rng.standard_normal((count, 8, 8, 1))
    return ArrayReader(images.clip(0, 255).astype(np.uint8), labels, clusters)


def fit(router, reader, data=DATA, advance=lambda done: None):
    to_model = create_space(data).to_model
    router.fit(reader, lambda rows: to_model(torch.from_numpy(reader.images(rows))), advance)


def fitted(name, data=DATA, **options):
    router = build(name, data, **options)
    fit(router, reader(), data)
    return router


def noisy(level, seed=1, data=DATA):
    """Images that no router was computed from: x, t, classes, clusters."""
    other = reader(seed=seed)
    rows = range(len(other))
    x0 = create_space(data).to_model(torch.from_numpy(other.images(rows)))
    eps = torch.randn(x0.shape, generator=torch.Generator().manual_seed(seed))
    return (1 - level) * x0 + level * eps, torch.full((len(x0),), level), other.labels(rows), other.clusters(rows)


@each_router
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("prior", ["equal", "natural", "class"])
def test_it_is_a_posterior_at_every_time_for_every_class(name, dtype, prior):
    router = fitted(name, prior=prior).to(dtype)
    for level in (0.0, 0.3, 0.999, 1.0):
        x, t, labels, _ = noisy(level)
        for classes in (labels, torch.full_like(labels, DATA.num_classes)):
            logits = router(x, t, classes)
            assert logits.dtype == torch.float32 and logits.isfinite().all()
            torch.testing.assert_close(logits.softmax(1).sum(1), torch.ones(len(x)))


@each_router
def test_what_is_stored_is_all_of_it(name):
    router, again = fitted(name), build(name)
    again.load_state_dict(router.state_dict())
    x, t, labels, _ = noisy(0.4)
    assert torch.equal(again(x, t, labels), router(x, t, labels))
    assert forward_flops(again, x[:1], t[:1], labels[:1]) >= 0
    assert not any(parameter.requires_grad for parameter in again.parameters())
    assert all(value.isfinite().all() and value.any() for value in router.state_dict().values())


def right(router, level, data=DATA):
    x, t, labels, clusters = noisy(level, data=data)
    nobody = torch.full_like(labels, DATA.num_classes)
    return (router(x, t, nobody).argmax(1) == clusters).float().mean().item()


@pytest.mark.parametrize("data", [DATA, LATENT_DATA], ids=lambda data: data.space.name)
@pytest.mark.parametrize("name, noise", [("distance_router", 0.5), ("feature_router", 0.3)])
def test_distances_tell_clusters_apart(name, noise, data):
    router = fitted(name, data)
    assert right(router, 0.1, data) > 0.95 and right(router, noise, data) > 0.8


def test_features_are_those_of_the_image_in_every_space():
    logits = []
    for data in (DATA, LATENT_DATA):
        x, t, labels, _ = noisy(0.0, data=data)
        logits.append(fitted("feature_router", data)(x, t, labels))
    assert torch.equal(*logits)


def test_the_prior_is_counts_plus_one_within_the_class_and_of_all_without():
    router, data = fitted("uniform_router", prior="class"), reader()
    labels, clusters = data.labels(range(400)), data.clusters(range(400))
    for label in range(DATA.num_classes):
        counts = torch.bincount(clusters[labels == label], minlength=CLUSTERS) + 1
        torch.testing.assert_close(router.log_prior[label].exp(), counts / counts.sum())
    counts = torch.bincount(clusters, minlength=CLUSTERS) + 1
    torch.testing.assert_close(router.log_prior[-1].exp(), counts / counts.sum())


def test_round_gaussians_have_exactly_the_posterior_of_the_distance_router():
    router = build("distance_router").double()
    generator = torch.Generator().manual_seed(3)
    weights = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    means = torch.randn(CLUSTERS, 64, generator=generator, dtype=torch.float64)
    variances = torch.tensor([0.01, 0.1, 0.5, 2.0], dtype=torch.float64)
    router.means.copy_(means)
    router.variances.copy_(variances)
    router.log_prior.copy_(weights.log().expand(4, -1))
    x = torch.randn(50, 1, 8, 8, generator=generator, dtype=torch.float64)
    for level in (1e-3, 0.1, 0.5, 0.9, 1 - 1e-3):
        t = torch.full((50,), level, dtype=torch.float64)
        # x_t = (1 - t) x0 + t eps of a Gaussian x0 is Gaussian.
        own = torch.distributions.Normal((1 - level) * means, (level**2 + (1 - level) ** 2 * variances[:, None]).sqrt())
        joint = own.log_prob(x.flatten(1)[:, None]).sum(2) + weights.log()
        found = router(x, t, torch.zeros(50, dtype=torch.long)).softmax(1)
        torch.testing.assert_close(found, joint.softmax(1), rtol=0, atol=1e-10)


def test_means_and_variances_are_those_of_the_images():
    router, data = fitted("distance_router"), reader()
    x0 = torch.from_numpy(data.images(range(400))).permute(0, 3, 1, 2).double().flatten(1) / 127.5 - 1
    for cluster in range(CLUSTERS):
        own = x0[data.clusters(range(400)) == cluster]
        torch.testing.assert_close(router.means[cluster].double(), own.mean(0), rtol=0, atol=1e-6)
        variance = own.var(0, correction=0).mean()
        torch.testing.assert_close(router.variances[cluster].double(), variance, rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", ["distance_router", "feature_router"])
def test_a_temperature_divides_the_score_and_not_the_prior(name):
    x, t, labels, _ = noisy(0.5)
    one, other = fitted(name, temperature=1.0), fitted(name, temperature=4.0)
    prior = one.log_prior[labels]
    torch.testing.assert_close((one(x, t, labels) - prior) / 4, other(x, t, labels) - prior, rtol=1e-4, atol=1e-4)


def test_the_feature_router_scores_the_denoised_image_among_centred_unit_features():
    router, data = fitted("feature_router", prior="equal", temperature=0.3), reader()
    rows = range(len(data))
    encoder = OPTIONS["feature_router"]["encoder"]
    encode = variants.create(ImageEncoder, ImageEncoderSettings.model_validate(encoder)).encode

    def unit(features):
        return features / np.linalg.norm(features, axis=1, keepdims=True)

    known = encode(data.images(rows)).astype(np.float64)
    mean, clusters = known.mean(0), data.clusters(rows).numpy()
    centroids = np.stack([unit(known - mean)[clusters == cluster].mean(0) for cluster in range(CLUSTERS)])
    x, t, labels, _ = noisy(0.4)
    left = ((x / 0.6).clamp(-1, 1) + 1) * 127.5
    seen = unit(encode(left.round().permute(0, 2, 3, 1).numpy().astype(np.uint8)).astype(np.float64) - mean)
    score = -np.square(seen[:, None] - centroids).sum(2) / 0.3
    found = router(x, t, labels).numpy()
    difference = found - score
    np.testing.assert_allclose(difference - difference.mean(1, keepdims=True), 0, atol=1e-3)
