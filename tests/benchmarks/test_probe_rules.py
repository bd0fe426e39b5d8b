"""The benchmark's rows for the contract's rule are what the package decides."""

import numpy as np

from hpcddm.evaluation.expert_probe import ProbeLosses
from tests.benchmarks.probe_rules import SENT, rules, sent_experts

LEVELS = [0.1, 0.5]


def run(seed):
    """Losses of three honest experts near the borders of both parts; the second cluster of four has no images."""
    random = np.random.default_rng(seed)
    constant = [[] if k == 1 else [1.0, 2.0] for k in range(4)]
    for expert in (0, 2, 3):
        losses = [(random.uniform(0.6, 1.0, len(of)) * of).tolist() for of in constant]
        losses[expert] = [loss * random.uniform(0.8, 1.0) for loss in losses[expert]]
        yield {"kind": "honest", "expert": expert, "probe": ProbeLosses(LEVELS, losses, constant).as_json()}


def test_the_rule_of_the_contract_is_both_of_its_rows():
    sent = list(sent_experts({str(seed): list(run(seed)) for seed in range(30)}))
    assert sum(each.kind == SENT for each in sent) == 2 * sum(each.kind == "honest" for each in sent) == 180
    named = rules([each for each in sent if each.kind == "honest"])
    parts = [named["0.9 x constant, every level"], named["share below 1.05 x every other, geometric mean"]]
    verdicts = [(not each.faults, [part(each) for part in parts]) for each in sent]
    assert all(passes == all(said) for passes, said in verdicts)
    assert {tuple(said) for _, said in verdicts} == {(True, True), (True, False), (False, True), (False, False)}
