"""Whoever opens weights asks the unit's manifest first, which is refused for another site's unit without a bundle."""

import ast

from tests.helpers import REPOSITORY

PACKAGE = REPOSITORY / "hpcddm"
OPENERS = {"TensorFile", "open_weights", "load_file", "safe_open", "load_model", "deserialize", "Unpickler"}
"""Names whose call opens a file of tensors."""
LOADERS = {"torch.load", "pickle.load", "pickle.loads", "safetensors.torch.load", "safetensors.numpy.load"}
"""The same, of modules that have other functions of these names."""
ASKING = {"recorded_digest", "counted_digest", "initial_weights.open_weights"}
"""What asks the manifest in the folder of a unit, whatever its state."""
READERS = {
    "clustering/partition.py": "the partition of a contract or an ensemble, by the digest that its caller knows",
    "encoders/image/efficientnet_lite0.py": "published weights, by their digest",
    "encoders/optional_packages.py": "published weights and those in a user's folder, by their digest",
    "encoders/perceptual/lpips_alex.py": "published weights, by their digest",
    "encoders/text/minilm.py": "published weights, by their digest",
    "evaluation/concepts/stage_outputs.py": "the tagger of this run, by its manifest",
    "exchange/tensor_check.py": "files in quarantine, and a site's own before it signs them",
    "files/tensors.py": "by the digest that its caller has from a manifest",
    "collaboration/agreed_experiment.py": "the probe of a contract, by the digest that the contract states",
    "models/build_denoiser.py": "weights that training starts from, and those to export, by their manifest",
    "models/checkpoints/file_formats.py": "files to convert; one in a unit's folder by its manifest",
    "publishing/published_ensemble.py": "networks of an ensemble, by the digests of its description",
    "runs/initial_weights.py": "headers of weights that training starts from, by their manifest",
    "sampling/posthoc_ema.py": "by their manifest",
    "stages/training/evaluators_job.py": "weights that the user names, by the digest of the submission",
    "stages/training/probe_job.py": "images in a contract, which are compared with those of the run",
    "training/checkpoints.py": "training states of this unit, in a run with a contract by their seals",
}


def opened_in(tree: ast.AST) -> set[str]:
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    bases = [base for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases]
    named = {name for call in [*calls, *bases] if (name := getattr(call, "attr", getattr(call, "id", None))) in OPENERS}
    return named | {name for call in calls if (name := ast.unparse(call)) in LOADERS}


def test_the_list_of_readers_is_complete():
    files = {file for file in PACKAGE.rglob("*.py") if opened_in(ast.parse(file.read_text()))}
    assert {str(file.relative_to(PACKAGE)) for file in files} == READERS.keys()


def test_whoever_opens_weights_by_their_manifest_asks_it():
    by_manifest = [file for file, reason in READERS.items() if "manifest" in reason and "caller" not in reason]
    texts = {file: (PACKAGE / file).read_text() for file in by_manifest}
    assert len(texts) > 4 and not [file for file, text in texts.items() if not any(name in text for name in ASKING)]
