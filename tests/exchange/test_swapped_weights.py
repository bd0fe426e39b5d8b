"""Imported weights that are swapped between any check and their loading: nothing but what was signed is loaded."""

import shutil

import pytest
from safetensors.numpy import load_file

from hpcddm.runs import import_records
from hpcddm.runs.files import CURVE
from hpcddm.runs.manifest import FILE_NAME
from tests.exchange.agreed_runs import KEY, train
from tests.exchange.hostile import row
from tests.helpers import hpcddm


@pytest.mark.parametrize("verb", ["export", "convert"])
def test_weights_that_are_swapped_after_any_check_are_not_loaded(runs, tmp_path, monkeypatch, verb):
    """Other weights, and a manifest that fits, are put in the place of the verified ones after one of the checks."""
    assert runs.take(runs.pack("sent")).exit_code == 0
    honest, check = shutil.copytree(runs.home.unit(KEY), tmp_path / "honest"), import_records.unverified_reason
    checks, swapped_after = 0, -1

    def checked(*arguments):
        nonlocal checks
        reason, checks = check(*arguments), checks + 1
        if checks == swapped_after:
            train(runs, runs.home, seed=5)
        return reason

    def loaded(number: int) -> tuple[int, str, dict[str, bytes]]:
        nonlocal checks, swapped_after
        checks, swapped_after = 0, number
        shutil.rmtree(runs.home.unit(KEY))
        shutil.copytree(honest, runs.home.unit(KEY))
        target, like = tmp_path / f"{number}.safetensors", runs.home.root.parent / "tiny.yaml"
        folder = ("export", runs.home.root, KEY, "--output", target)
        file = ("convert", runs.home.output(KEY, "weights.safetensors"), "--like", like, "--output", target)
        done = hpcddm(*(folder if verb == "export" else file))
        made = max(target.rglob("*.safetensors"), default=target) if target.is_dir() else target
        tensors = load_file(made) if made.is_file() else {}
        return done.exit_code, done.output, {name: values.tobytes() for name, values in tensors.items()}

    monkeypatch.setattr(import_records, "unverified_reason", checked)
    code, output, right = loaded(-1)
    assert code == 0 and right and checks > 0, output
    ends = [loaded(number) for number in range(1, checks + 1)]
    for code, output, content in ends:
        assert content in ({}, right) and (code == 0) == (content == right), output
        if code:
            assert KEY in output and len(output.splitlines()) == 1 and "Traceback" not in output
    assert ends[0][0] == 1


def test_weights_that_status_calls_complete_and_that_are_swapped_then_are_not_loaded(runs, tmp_path):
    assert runs.take(runs.pack("sent")).exit_code == 0
    assert row(runs.home.root, KEY)[0] == "complete"
    kept = {runs.home.output(KEY, name): runs.home.output(KEY, name).read_bytes() for name in (FILE_NAME, CURVE)}
    train(runs, runs.home, seed=5)
    for path, content in kept.items():
        path.write_bytes(content)
    done = hpcddm("export", runs.home.root, KEY, "--output", tmp_path / "exported")
    assert done.exit_code == 1 and f"{KEY}/weights.safetensors: its bytes are not those of its manifest" in done.output
    assert len(done.output.splitlines()) == 1 and not (tmp_path / "exported").exists()
