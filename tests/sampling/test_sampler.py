import math

import pytest
import torch

from hpcddm.config import variants
from hpcddm.config.sampling import SolverSettings
from hpcddm.sampling.ensemble import Ensemble
from hpcddm.sampling.sampler import sample, time_grid
from hpcddm.sampling.solvers.base import Solver
from tests.diffusion.spaces.examples import pixels
from tests.sampling.fields import evaluation, experts_of
from tests.sampling.mixtures import Mixture

SHAPE = (1, 4, 4)
SPACE = pixels(*SHAPE)
ROOM = "sampling/solvers"
ORDERS = {"euler": 1, "heun": 2, "midpoint": 2}
SOLVERS = [name for name in variants.list_variants(ROOM) if not variants.settings_class(ROOM, name).native]


def solve(name, velocity, x, steps, shift=1.0):
    solver = variants.create(Solver, SolverSettings.model_validate({"name": name}))
    times = time_grid(steps, shift)
    for t, t_next in zip(times, times[1:], strict=False):
        x = solver.step(velocity, x, t, t_next)
    return x


def test_every_solver_is_covered():
    assert set(SOLVERS) == set(ORDERS)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("steps", [1, 3, 10])
def test_straight_paths_are_solved_exactly_from_noise_to_data(name, steps):
    target, start = torch.rand(2, *SHAPE, dtype=torch.float64), torch.randn(2, *SHAPE, dtype=torch.float64)
    # The velocity of the linear path when the data are one image.
    reached = solve(name, lambda x, t: (x - target) / t, start, steps, shift=2.0)
    torch.testing.assert_close(reached, target, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("shift", [1.0, 3.0])
def test_solvers_have_their_order(name, shift):
    # dx/dt = x cos(4 t): from x(1) = 1 to x(0) = exp(-sin(4) / 4).
    def error(steps):
        reached = solve(name, lambda x, t: x * math.cos(4 * t), torch.ones(1, 1, 1, 1).double(), steps, shift)
        return abs(reached.item() - math.exp(-math.sin(4) / 4))

    assert math.log2(error(1000) / error(2000)) == pytest.approx(ORDERS[name], abs=0.05)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_looks_as_often_as_it_says_and_never_without_noise(name):
    times = []
    solve(name, lambda x, t: times.append(t) or x, torch.zeros(1, 1, 1, 1), 4)
    nfe_per_step = variants.settings_class(ROOM, name).nfe_per_step
    assert 4 * nfe_per_step - 1 <= len(times) <= 4 * nfe_per_step and min(times) > 0
    assert times[0] == 1 and set(times) >= {1.0, 0.75, 0.5, 0.25}


def test_a_shift_lowers_log_snr_and_keeps_the_ends():
    plain, shifted = time_grid(8), time_grid(8, 3.0)
    assert (plain[0], plain[-1], shifted[0], shifted[-1]) == (1, 0, 1, 0)
    for t, moved in zip(plain[1:-1], shifted[1:-1], strict=True):
        lower = 2 * math.log((1 - t) / t) - 2 * math.log((1 - moved) / moved)
        assert lower == pytest.approx(2 * math.log(3))


def field(x, t, classes, context):
    return 0.5 * x + classes.view(-1, 1, 1, 1) * t.view(-1, 1, 1, 1)


@pytest.mark.parametrize("name", SOLVERS)
def test_an_image_depends_on_seed_and_index_and_class_only(name):
    evaluate, classes = evaluation(steps=5, solver={"name": name}), torch.arange(8) / 10
    whole = sample(field, 1, range(100, 108), classes, SPACE, evaluate)
    assert whole.shape == (8, *SHAPE) and whole.dtype == torch.float32
    assert torch.equal(sample(field, 1, range(104, 106), classes[4:6], SPACE, evaluate), whole[4:6])
    assert not torch.equal(sample(field, 2, range(100, 108), classes, SPACE, evaluate), whole)


@pytest.mark.parametrize(
    "arm, solver, guidance",
    [("sample-1", "euler", 1.0), ("sample-2-at-2", "heun", 2.0), ("nucleus-0.8", "midpoint", 1.0)]
    + [("per-trajectory", "heun", 1.0), ("per-trajectory", "euler", 2.0)],
)
def test_random_strategies_do_not_see_how_images_are_batched(arm, solver, guidance):
    mixture = Mixture(dimension=2, clusters=4)
    ensemble = Ensemble(experts_of(mixture), mixture.router, None, None, 0)
    evaluate = evaluation(steps=6, solver={"name": solver}, guidance=guidance, route_every_steps=2)

    def drawn(indices):
        own = ensemble.field(arm, evaluate)
        return sample(own, 3, indices, torch.zeros(len(indices), dtype=torch.long), pixels(*mixture.shape), evaluate)

    whole = drawn(range(20, 60))
    parts = torch.cat([drawn(range(20, 33)), drawn(range(33, 34)), drawn(range(34, 60))])
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(drawn(range(21, 61)), whole, rtol=1e-2, atol=1e-2)
