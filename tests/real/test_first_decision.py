"""The first decision of one expert per trajectory, repeated and held to what the evaluation counted."""

import h5py
import numpy as np
import pytest

from hpcddm.errors import UserError
from tests.benchmarks.evaluated_run import EvaluatedRun
from tests.benchmarks.first_decision import BEST_EACH_STEP, KEPT, decide
from tests.whole_runs import TINY, hpcddm


@pytest.fixture
def evaluated(run):
    """Return the finished run, with both arms evaluated."""
    arms = f"evaluate.strategies=[{BEST_EACH_STEP}, {KEPT}]"
    anew = ("--redo", "draw", "--redo", "report")
    done = hpcddm("submit", "quickstart", "--site", "embedded", "--run-dir", run, *anew, *TINY, arms, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return run


def test_draws_are_those_of_the_evaluation_and_others_are_refused(evaluated):
    opened = EvaluatedRun(evaluated, (KEPT, BEST_EACH_STEP))
    decisions = decide(opened)
    experts = opened.run.experiment.cluster.experts
    assert decisions.posterior.shape == (len(opened.rows), experts)
    np.testing.assert_allclose(decisions.posterior.sum(1), 1, rtol=1e-6)
    counted = opened.usage(KEPT)
    drawn = np.bincount(decisions.expert, minlength=experts)
    assert np.abs(counted - drawn).max() <= 1, "one expert for all steps, and those that the evaluation drew"
    for file in (evaluated / "draw").glob("*/*.h5"):
        with h5py.File(file, "r+") as stored:
            stored[KEPT]["usage"][:] = np.roll(stored[KEPT]["usage"][:], 1, axis=1)
    with pytest.raises(UserError, match="of the draws differ from those of the evaluation"):
        decide(EvaluatedRun(evaluated, (KEPT, BEST_EACH_STEP)))


def test_a_run_without_the_arm_is_refused(run):
    with pytest.raises(UserError, match=f"has no arm {KEPT}; give a run that draws"):
        EvaluatedRun(run, (KEPT,))
