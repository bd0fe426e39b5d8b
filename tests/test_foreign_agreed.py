"""Folders that others put into a run with a contract, for a unit of another site: named, refused and never opened."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcddm.exchange.contract import Contract
from tests.foreign_agreed import AGREED, UNVERIFIED, Watch, agree, vouch
from tests.foreign_cases import UNIT, Beside, copy_of, tree_digest
from tests.foreign_units import CASES, WEIGHTS, scaled, weights
from tests.helpers import REPOSITORY, hpcddm

BESIDE_UNITS = ("hook", "template", "code of this digest", "code to be linked", "partition of 2 GiB", "tar elsewhere")
"""Cases in which the unit is as it was."""
OF_UNITS = [case for case in CASES if case not in BESIDE_UNITS]


@pytest.fixture(scope="session")
def watch() -> Watch:
    return Watch()


@pytest.fixture(scope="session")
def template(finished: Path, two_ranks: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Contract]:
    """A finished run, and the contract that it has."""
    folder = tmp_path_factory.mktemp("agreed")
    run = copy_of(finished, folder).run
    return run, agree(run, two_ranks, folder)


@pytest.fixture
def beside(template: tuple[Path, Contract], tmp_path: Path, watch: Watch) -> Iterator[Beside]:
    """A copy of it as its user has it; nothing of the unit may be opened meanwhile."""
    made = copy_of(template[0], tmp_path)
    vouch(made.run)
    yield made
    watch.noted = None
    assert not (tmp_path / "opened").exists(), (tmp_path / "opened").read_text()


def said(beside: Beside, watch: Watch, *arguments: object) -> tuple[int, str]:
    """Exit code and words of a command: printable, without a traceback, with nothing touched, opened or executed."""
    before, watch.noted = tree_digest(beside.victim), beside.run.parent / "opened"
    result = hpcddm(*arguments)
    watch.noted = None
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert result.output.replace("\n", "").isprintable() and beside.is_untouched(before), result.output
    assert not any(line.startswith("next: curl") for line in result.output.splitlines())
    return result.exit_code, str(result.output)


def submit(beside: Beside, watch: Watch, site: Path, *options: object) -> tuple[int, str]:
    return said(beside, watch, "submit", "quickstart", "--site", site, "--run-dir", beside.run, *AGREED, *options)


@pytest.mark.parametrize("case", OF_UNITS)
def test_every_folder_of_others_is_named_once_and_exported_by_nobody(beside, watch, case):
    CASES[case].make(beside)
    code, output = said(beside, watch, "status", beside.run)
    (line,) = [line for line in output.splitlines() if line.startswith(f"{UNIT}: ")]
    is_gone = not (beside.run / UNIT / "manifest.json").exists()
    assert code == 0 and (UNVERIFIED in line or is_gone or case.startswith(("manifest", "folder a link"))), output
    target = beside.run.parent / "exported"
    code, output = said(beside, watch, "export", beside.run, UNIT, "--output", target)
    assert code == 1 and UNIT in output and len(output.splitlines()) == 1 and not target.exists(), output


@pytest.mark.parametrize("case", ["scaled weights", "pickle as weights", "state scaled", "folder a link"])
def test_no_verb_reads_the_folder(beside, watch, case, two_ranks, tmp_path):
    CASES[case].make(beside)
    drawn = ("--num-images", 1, "--steps", 1, "--output", tmp_path / "grid.png")
    convert = ("convert", "--like", "quickstart", "--output", tmp_path / "start.safetensors")
    for command in (
        ("sample", beside.run, "--strategy", "expert-2", *drawn),
        ("sample", beside.run, "--strategy", "full", *drawn),
        (convert[0], beside.run / UNIT, *convert[1:]),
        (convert[0], beside.run / WEIGHTS, *convert[1:]),
    ):
        code, output = said(beside, watch, *command)
        assert code in (1, 2) and UNIT in output and len(output.splitlines()) == 1, output
    assert not (tmp_path / "grid.png").exists() and not (tmp_path / "start.safetensors").exists()
    for command in (("clean", beside.run, "--yes"), ("retry", beside.run), ("cost", beside.run), ("logs", beside.run)):
        said(beside, watch, *command)
    code, output = submit(beside, watch, two_ranks, "--dry-run")
    assert f"would run here: {UNIT}" not in output


STARTS = (
    "weights.safetensors",
    "snapshots/images-000000001000.safetensors",
    "snapshots/images-000000001000-x.safetensors",
)


@pytest.mark.parametrize("has_manifest", [True, False])
@pytest.mark.parametrize("name", STARTS)
def test_weights_that_are_named_by_their_path_are_refused_wherever_they_are_in_the_folder(
    beside, watch, two_ranks, tmp_path, name, has_manifest
):
    weights(scaled)(beside)
    if not has_manifest:
        (beside.run / UNIT / "manifest.json").unlink()
    path = beside.run / UNIT / name
    if not path.exists():
        shutil.copy(beside.run / WEIGHTS, path)
    (tmp_path / "link.safetensors").symlink_to(path)
    for given in (path, tmp_path / "link.safetensors"):
        start = (f"experts.init_from={{weights: {given}}}", "--dry-run", "--run-dir", tmp_path / "new")
        for command in (
            ("convert", given, "--like", "quickstart", "--output", tmp_path / "start.safetensors"),
            ("submit", "quickstart", "--site", two_ranks, *AGREED[:-2], *start),
        ):
            code, output = said(beside, watch, *command)
            assert code in (1, 2) and UNVERIFIED in output, (command[0], output)


@pytest.mark.long
def test_every_case_under_a_contract_with_every_verb_and_the_job_that_reads_it(finished, two_ranks, tmp_path):
    command = [sys.executable, "-m", "tests.foreign_folders", finished, two_ranks, tmp_path / "work", "--agreed"]
    done = subprocess.run(list(map(str, command)), cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, [line for line in done.stdout.splitlines() if not line.endswith("| ok")]
