"""Whoever opens weights asks the unit's manifest first, which is refused for another site's unit without a bundle."""

import ast

import pytest

from tests.helpers import REPOSITORY

PACKAGE = REPOSITORY / "hpcddm"
OPENERS = {"TensorFile", "open_weights", "load_file", "safe_open"}
"""Names whose call opens a file of tensors."""
READERS = {
    "clustering/contract.py": "the partition of a contract, by the digest that the contract states",
    "encoders/text/minilm.py": "published weights, by their digest",
    "evaluation/concepts/stage_outputs.py": "the tagger of this run, by its manifest",
    "exchange/tensor_check.py": "files in quarantine, and a site's own before it signs them",
    "files/tensors.py": "by the digest that its caller has from a manifest",
    "models/build_denoiser.py": "weights that training starts from, and those to export, by their manifest",
    "models/checkpoints/file_formats.py": "files to convert; one in a unit's folder by its manifest",
    "runs/initial_weights.py": "headers of weights that training starts from, by their manifest",
    "sampling/posthoc_ema.py": "by their manifest",
    "stages/training/evaluators_job.py": "weights that the user names, by the digest of the submission",
    "training/checkpoints.py": "training states of this unit",
}


def opened_in(tree: ast.AST) -> set[str]:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {name for call in calls if (name := getattr(call, "attr", getattr(call, "id", None))) in OPENERS}


def test_the_list_of_readers_is_complete():
    files = {file for file in PACKAGE.rglob("*.py") if opened_in(ast.parse(file.read_text()))}
    assert {str(file.relative_to(PACKAGE)) for file in files} == READERS.keys()


@pytest.mark.parametrize("call", ["TensorFile(path)", "tensors.open_weights(path)", "with safe_open(a) as b: pass"])
def test_a_reader_would_be_found(call):
    assert opened_in(ast.parse(call))
