"""Thousands of damaged and forged bundles and contracts: each is refused in one line, or is what was signed."""

import os
import shutil

import pytest

from tests.exchange.collaboration import Collaboration
from tests.exchange.fuzzed import HONEST_EVERY, run_fuzzing

SEED = int(os.environ.get("HPCDDM_FUZZ_SEED", 0))


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.long)])
def test_what_is_loaded_was_signed(agreed, tmp_path, count):
    folder = shutil.copytree(agreed.home.root.parent, tmp_path / "agreed")
    figures = run_fuzzing("bundles", folder, count, SEED)
    honest = -(-count // HONEST_EVERY)
    assert figures["cases"] == count + honest
    # The sums for coreutils are nobody's evidence, a loss may be another one, and a value of the weights, too.
    assert honest < figures["accepted"] < count / 2
    print(figures)


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.long)])
def test_what_a_contract_says_is_checked(shared, tmp_path, count):
    shutil.copytree(shared.folder, tmp_path, dirs_exist_ok=True)
    figures = run_fuzzing("contracts", Collaboration(tmp_path).folder, count, SEED)
    assert figures["cases"] == count and figures["accepted"] < count / 2
    print(figures)
