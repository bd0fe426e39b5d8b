import pytest
import torch

from hpcddm.data import noise
from hpcddm.ensemble.sampler import sample
from hpcddm.ensemble.solvers import euler

SHAPE = (1, 4, 4)


def towards(target):
    """The velocity of the linear path when the data are one image: (x - target) / t."""
    return lambda x, t: (x - target) / t.view(-1, 1, 1, 1)


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_straight_paths_are_solved_exactly_from_noise_to_data(steps):
    target = torch.rand(2, *SHAPE, dtype=torch.float64)
    reached = euler(towards(target), torch.randn(2, *SHAPE, dtype=torch.float64), steps)
    torch.testing.assert_close(reached, target, rtol=1e-6, atol=1e-6)


def test_euler_is_of_first_order():
    # dx/dt = x: from x(1) = 1 to x(0) = 1/e.
    errors = [abs(euler(lambda x, t: x, torch.ones(1, 1, 1, 1).double(), n).item() - 0.36787944) for n in (50, 100)]
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.05)


def test_times_go_from_one_towards_zero():
    times = []
    euler(lambda x, t: times.append(t.tolist()) or x, torch.zeros(2, *SHAPE), 4)
    assert times == [[1.0] * 2, [0.75] * 2, [0.5] * 2, [0.25] * 2]


def field(x, t, classes):
    return 0.5 * x + classes.view(-1, 1, 1, 1) * t.view(-1, 1, 1, 1)


def test_an_image_depends_on_seed_and_index_and_class_only():
    classes = torch.arange(8) / 10
    whole = sample(field, 1, range(100, 108), classes, SHAPE, steps=5)
    assert whole.shape == (8, *SHAPE) and whole.dtype == torch.float32
    assert torch.equal(sample(field, 1, range(104, 106), classes[4:6], SHAPE, steps=5), whole[4:6])
    assert not torch.equal(sample(field, 2, range(100, 108), classes, SHAPE, steps=5), whole)


def test_starts_from_the_numbered_noise_and_stays_in_range():
    images = sample(lambda x, t, classes: 0 * x, 1, [7, 3], torch.zeros(2), SHAPE, steps=2)
    assert torch.equal(images, noise.gaussian(1, "initial", [7, 3], SHAPE).clamp(-1, 1))
    assert images.abs().max() == 1
