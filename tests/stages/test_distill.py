"""What the student is asked to match."""

from types import SimpleNamespace

import pytest
import torch

from hpcddm.data.batch import NoisyBatch
from hpcddm.randomness.keyed import RandomDraws
from hpcddm.runs.files import list_name
from hpcddm.runs.unit_keys import EXPERT_LISTS
from hpcddm.stages.training import distill_job
from hpcddm.training import flops_budget
from tests.helpers import CLASSES, SIDE, tiny

COSINE = {"name": "epsilon", "schedule": {"name": "cosine"}}


def batch(count=12):
    torch.manual_seed(0)
    images = torch.randn(count, 1, SIDE, SIDE, dtype=torch.float64)
    drawn, numbers = RandomDraws(0, "distill/student"), range(count)
    classes, clusters = torch.arange(count) % CLASSES, torch.arange(count) % 2
    noise, time = drawn.noise(numbers, (1, SIDE, SIDE)), drawn.times(numbers)
    return NoisyBatch(numbers, images, classes, clusters, noise, time)


def teacher(scale):
    """A velocity that depends on state, time and class."""
    return lambda x, t, classes: scale * x + (t * (1 + classes)).view(-1, 1, 1, 1)


def ensemble():
    # The router finds the second expert likelier where the state's mean is positive.
    def router(x, t, classes):
        return torch.stack([torch.zeros(len(x)), x.mean((1, 2, 3)).float()], 1)

    return SimpleNamespace(experts=[teacher(0.5), teacher(-2.0)], router=router)


def student(x, t, classes):
    return 0.3 * x


@pytest.mark.parametrize("by", ["cluster", "router"])
def test_with_flow_matching_the_student_is_led_to_one_teachers_velocity(tmp_path, by):
    experiment, given = tiny(tmp_path, distill={"teacher": by, "share": 0.5}), batch()
    losses = distill_job._loss(experiment, experiment.expert_config(), lambda device: ensemble())(student, given)
    t, classes = given.time, given.condition
    time = t.view(-1, 1, 1, 1).double()
    x = (1 - time) * given.x0 + time * given.noise
    chosen = given.clusters if by == "cluster" else ensemble().router(x, t, classes).argmax(1)
    assert set(chosen.tolist()) == {0, 1}
    velocities = torch.stack([expert(x, t, classes) for expert in ensemble().experts], 1)
    target = velocities[torch.arange(len(x)), chosen]
    torch.testing.assert_close(losses, (0.3 * x - target).square().mean((1, 2, 3)), check_dtype=False)


def test_a_student_of_another_objective_is_asked_in_its_own_coordinates(tmp_path):
    experiment, given = tiny(tmp_path, distill={"share": 0.5}, experts__objective=COSINE), batch()
    losses = distill_job._loss(experiment, experiment.expert_config(), lambda device: ensemble())(student, given)
    angle = (given.time.double() * torch.pi / 2).view(-1, 1, 1, 1)
    noisy = angle.cos() * given.x0 + angle.sin() * given.noise
    # The same state on the linear path, where eps = x + (1 - t) v.
    scale = angle.cos() + angle.sin()
    x, time = noisy / scale, angle.sin() / scale
    velocities = torch.stack([expert(x, time.flatten(), given.condition) for expert in ensemble().experts], 1)
    target = x + (1 - time) * velocities[torch.arange(len(x)), given.clusters]
    expected = (0.3 * noisy - target).square().mean((1, 2, 3))
    torch.testing.assert_close(losses, expected, check_dtype=False, rtol=1e-4, atol=1e-6)


def test_the_teachers_share_is_counted_by_the_clusters_sizes(tmp_path):
    small = {"name": "dit", "width": 8, "depth": 1, "heads": 1, "patch": 4}
    experiment = tiny(tmp_path, distill={"share": 0.5}, experts__overrides=[{"clusters": [1], "model": small}])
    lists = {list_name(k): {"samples": count} for k, count in ((0, 30), (1, 10))}
    inputs = {EXPERT_LISTS: SimpleNamespace(results={"lists": lists})}
    flops = [flops_budget.evaluation_flops(experiment, experiment.expert_config(expert)) for expert in (0, 1)]
    assert flops_budget.teacher_flops(experiment, inputs) == (3 * flops[0] + flops[1]) / 4
