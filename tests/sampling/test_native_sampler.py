"""Walking on a model's own path, against its velocity on the linear path and against the data's distribution."""

import pytest
import torch

from hpcddm.config import variants
from hpcddm.config.sampling import SolverSettings
from hpcddm.diffusion.objectives.base import LINEAR
from hpcddm.errors import ConfigError
from hpcddm.sampling import native_sampler
from hpcddm.sampling.denoiser_velocity import DenoiserVelocity
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.sampler import integrate
from hpcddm.sampling.solvers.base import NativeSolver
from hpcddm.sampling.step_context import SampleStream
from tests.helpers import tiny
from tests.sampling.fields import conversion, evaluation
from tests.sampling.mixtures import Mixture, objective

PAIRS = [("epsilon", path) for path in ("cosine", "linear_beta", "linear_beta_1000")]
PAIRS += [("v_prediction", "cosine"), ("x0_prediction", "cosine")]
PAIRS += [("flow_matching", "linear"), ("flow_matching", "cosine")]
MIXTURE = Mixture(dimension=2, clusters=4)
DDIM = {"name": "ddim"}
CONDITION = torch.zeros(40, dtype=torch.long)


def alone(name, schedule, shifted=0.0, **guards):
    """The field of one ideal model of the whole mixture; with guidance its null half is a shifted model."""
    own = objective(name, schedule)
    ideal = MIXTURE.model(own)

    def model(y, tau, condition):
        return ideal(y, tau) + shifted * condition.view(-1, 1, 1, 1) * torch.tanh(y)

    denoiser = DenoiserVelocity(model, own, conversion(**guards))
    return own, Ensemble([denoiser], None, None, None, 1)


def walked(own, field, times, solver, start):
    """The end of a native walk that starts at a state of the linear path, as a state of the linear path."""
    at = [own.level(own.schedule.time_at(LINEAR.log_snr(torch.tensor([t], dtype=torch.float64)))) for t in times]
    scales = [(level.alpha + level.sigma).item() if t > 0 else 1.0 for t, level in zip(times, at, strict=True)]
    stream = SampleStream(0, range(len(start)))
    return native_sampler.integrate(field, scales[0] * start, stream, CONDITION, times, solver) / scales[-1]


@pytest.mark.parametrize("name, schedule", PAIRS)
@pytest.mark.parametrize("guidance, last, bound", [(1, 0.0, None), (3, 0.05, None), (3, 0.0, 0.5), (1, 0.05, 0.5)])
def test_ddim_at_times_of_the_same_snr_is_euler_on_the_linear_path(name, schedule, guidance, last, bound):
    own, ensemble = alone(name, schedule, shifted=0.3, x0_clamp=bound)
    evaluate = evaluation(solver=DDIM, guidance=guidance)
    times = [0.95, 0.7, 0.6, 0.3, 0.1, last]
    start = MIXTURE.states(torch.full((40,), times[0], dtype=torch.float64))
    (expert,), x = ensemble.experts, start
    null = torch.ones_like(CONDITION)
    for t, t_next in zip(times, times[1:], strict=False):
        time = torch.full((40,), t, dtype=torch.float64)
        x = x + (t_next - t) * expert.guided(x, time, CONDITION, null, guidance)
    reached = walked(own, ensemble.field("expert-0", evaluate), times, evaluate.solver, start)
    assert (reached - x).abs().max() < 1e-10


@pytest.mark.parametrize(
    "name, schedule, eta",
    [("v_prediction", "cosine", 0.0), *((*pair, 1.0) for pair in PAIRS[:3]), ("flow_matching", "linear", 1.0)],
)
def test_native_sampling_draws_from_the_data(name, schedule, eta):
    count, mixture = 2000, MIXTURE
    _, ensemble = alone(name, schedule)
    evaluate = evaluation(solver=DDIM | {"eta": eta}, steps=100)
    start = torch.randn(count, *mixture.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    condition = torch.zeros(count, dtype=torch.long)
    field = ensemble.field("expert-0", evaluate)
    x = integrate(field, start, SampleStream(0, range(count)), condition, evaluate).flatten(1)
    mean, covariance = mixture.moments()
    # Four standard errors, and a twentieth of a standard deviation for the 100 steps.
    assert ((x.mean(0) - mean).abs() < covariance.diag().sqrt() * (4 / count**0.5 + 0.05)).all()
    assert ((x.var(0) / covariance.diag() - 1).abs() < 0.15).all()


def test_ddim_with_fresh_noise_is_ddpms_posterior():
    """With eta = 1 a step between two levels of the table is arXiv 2006.11239, eq. 7, mean and variance."""
    own = objective("epsilon", "linear_beta_1000")
    solver = variants.create(NativeSolver, SolverSettings.model_validate({"name": "ddim", "eta": 1.0}))
    beta = torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)
    kept = (1 - beta).cumprod(0)
    x0, eps, fresh = torch.randn(3, 2, 1, 1, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for i in (1, 10, 500, 999):
        there, here = (own.level(torch.tensor([step / 1000], dtype=torch.float64)) for step in (i - 1, i))
        x = kept[i].sqrt() * x0 + (1 - kept[i]).sqrt() * eps
        found = solver.step(x0, eps, here, there, lambda: fresh)
        of_x0 = kept[i - 1].sqrt() * beta[i] / (1 - kept[i])
        of_x = (1 - beta[i]).sqrt() * (1 - kept[i - 1]) / (1 - kept[i])
        variance = (1 - kept[i - 1]) / (1 - kept[i]) * beta[i]
        torch.testing.assert_close(found, of_x0 * x0 + of_x * x + variance.sqrt() * fresh, rtol=0, atol=1e-10)


def test_native_sampling_believes_a_model_no_further_than_its_conversion_does():
    asked = []

    def model(y, tau, condition):
        asked.append(tau[0].item())
        return torch.zeros_like(y)

    own = objective("epsilon", "cosine")
    evaluate = evaluation(solver=DDIM, steps=4)
    ensemble = Ensemble([DenoiserVelocity(model, own, conversion(max_time=0.8))], None, None, None, 1)
    start = torch.randn(2, *MIXTURE.shape, dtype=torch.float64)
    integrate(ensemble.field("expert-0", evaluate), start, SampleStream(0, range(2)), CONDITION[:2], evaluate)
    believed = own.schedule.time_at(LINEAR.log_snr(torch.tensor([0.8], dtype=torch.float64))).item()
    assert asked[0] == pytest.approx(believed) and max(asked) == asked[0]


def test_fresh_noise_belongs_to_the_image_and_the_step():
    _, ensemble = alone("epsilon", "cosine")
    evaluate = evaluation(solver=DDIM | {"eta": 1.0}, steps=4)
    field = ensemble.field("expert-0", evaluate)
    start = torch.zeros(6, *MIXTURE.shape, dtype=torch.float64)

    def drawn(rows):
        return integrate(field, start[rows], SampleStream(0, range(6)[rows]), CONDITION[:6][rows], evaluate)

    whole = drawn(slice(6))
    torch.testing.assert_close(torch.cat([drawn(slice(4)), drawn(slice(4, 6))]), whole)
    assert len(whole.flatten(1).unique(dim=0)) == 6


def test_several_models_have_no_common_coordinates():
    _, ensemble = alone("epsilon", "cosine")
    both = Ensemble(ensemble.experts * 2, MIXTURE.router, None, None, 1)
    evaluate = evaluation(solver=DDIM)
    start = torch.zeros(2, *MIXTURE.shape)
    with pytest.raises(ConfigError, match="draw from one alone"):
        integrate(both.field("full", evaluate), start, SampleStream(0, range(2)), CONDITION[:2], evaluate)


def test_an_evaluation_by_a_native_solver_is_refused_with_what_to_do_instead(tmp_path):
    words = r"evaluate.solver: ddim walks .* 'hpcddm sample' takes --solver ddim --strategy"
    with pytest.raises(ConfigError, match=words):
        tiny(tmp_path, evaluate__solver=DDIM)
