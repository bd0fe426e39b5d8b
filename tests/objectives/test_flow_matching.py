import torch

from hpcddm import plugins

MODULE = plugins.load("objectives", "flow_matching")
OBJECTIVE = MODULE.Objective(MODULE.Settings(name="flow_matching"))


def batch():
    generator = torch.Generator().manual_seed(0)
    x0, noise = torch.randn(2, 5, 2, 4, 4, generator=generator, dtype=torch.float64)
    return x0, noise, torch.rand(5, generator=generator, dtype=torch.float64)


def test_path_ends_at_data_and_noise():
    x0, noise, t = batch()
    assert torch.equal(OBJECTIVE.perturb(x0, noise, torch.zeros_like(t)), x0)
    assert torch.equal(OBJECTIVE.perturb(x0, noise, torch.ones_like(t)), noise)


def test_target_is_the_derivative_of_the_path():
    x0, noise, t = batch()
    step = 1e-6
    derivative = (OBJECTIVE.perturb(x0, noise, t + step) - OBJECTIVE.perturb(x0, noise, t - step)) / (2 * step)
    assert OBJECTIVE.loss(derivative, x0, noise, t).max() < 1e-16


def test_loss_is_the_mean_squared_error_of_each_image():
    x0, noise, t = batch()
    error = torch.arange(5.0, dtype=torch.float64)
    prediction = noise - x0 + error.view(-1, 1, 1, 1)
    torch.testing.assert_close(OBJECTIVE.loss(prediction, x0, noise, t), error**2)


def test_velocity_asks_the_model_where_the_state_is():
    x0, noise, t = batch()
    classes = torch.arange(5)
    asked = []

    def model(*inputs):
        asked.append(inputs)
        return noise - x0

    velocity = OBJECTIVE.velocity(model, OBJECTIVE.perturb(x0, noise, t), t, classes)
    torch.testing.assert_close(velocity, noise - x0)
    assert torch.equal(asked[0][0], OBJECTIVE.perturb(x0, noise, t))
    assert torch.equal(asked[0][1], t) and torch.equal(asked[0][2], classes)
