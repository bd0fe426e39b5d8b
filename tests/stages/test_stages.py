import ast

import numpy as np
import pytest

from hpcddm.data import tar
from hpcddm.errors import UserError
from hpcddm.runtime.entry import COLLECTIVE_STAGES
from hpcddm.stages import samples, train
from hpcddm.stages.drawing import oracle_clusters
from tests.helpers import REPOSITORY, tiny


def test_exactly_the_stages_that_train_have_more_than_one_rank():
    training = set()
    for file in (REPOSITORY / "hpcddm" / "stages").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "hpcddm.training.loop":
                training |= {file.stem for alias in node.names if alias.name == "train"}
    assert training == set(COLLECTIVE_STAGES)


def rows(labels, clusters=None):
    found = np.zeros(len(labels), dtype=tar.SAMPLE)
    found["id"], found["label"] = range(len(labels)), labels
    found["cluster"] = 0 if clusters is None else clusters
    return found


def test_balanced_samples_are_the_first_of_every_class_in_turn():
    chosen = samples.balanced(rows([2, 0, 0, 1, 2, 1, 0, 1, 2]), num_classes=3, count=6)
    assert chosen["label"].tolist() == [0, 1, 2, 0, 1, 2] and chosen["id"].tolist() == [1, 3, 0, 2, 5, 4]


def test_too_few_of_a_class_are_named_with_what_would_do():
    with pytest.raises(UserError, match="6 images need 2 of class 1, there are 1; at most 3 can be balanced"):
        samples.balanced(rows([0, 0, 1, 2, 2]), num_classes=3, count=6)


def test_the_oracle_goes_round_the_heldout_images_of_a_class():
    heldout = rows([0, 1, 0, 1, 0], clusters=[5, 6, 7, 8, 9])
    assert oracle_clusters(heldout, [0, 0, 1, 0, 0, 1, 1]).tolist() == [5, 7, 6, 9, 5, 8, 6]


@pytest.mark.parametrize("images", [64, 70])
def test_the_experts_together_see_what_the_monolith_sees_without_the_routers_share(tmp_path, images):
    experiment = tiny(tmp_path, experts__training__images=images, experts__training__warmup_images=32)
    one, total = train.expert_training(experiment), experiment.experts.training
    experts = experiment.cluster.experts
    assert one.batch * experts == total.batch and one.images % one.batch == 0
    assert total.images <= one.images * experts < total.images + total.batch
    assert one.warmup_images * experts == total.warmup_images and one.learning_rate == total.learning_rate


def test_all_arms_cost_the_same(tmp_path):
    experiment = tiny(tmp_path, router__training__images=1600)
    flops = train.denoiser_flops(experiment)
    monolith = train.monolith_training(experiment, flops)
    experts = train.expert_training(experiment).images * experiment.cluster.experts * flops
    ensemble = experts + train.router_flops(experiment)
    assert abs(monolith.images * flops - ensemble) <= flops * monolith.batch / 2
    assert monolith.images % monolith.batch == 0 and monolith.images > experiment.experts.training.images
