"""Folders that others wrote, one thing wrong in each: one printable line names it, and all else goes on as before."""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.foreign_cases import (
    DAMAGED,
    FOR_ALL,
    KINDS,
    LINES,
    LOADED,
    SHOWN,
    UNIT,
    Beside,
    copy_of,
    spoil,
    tree_digest,
)
from tests.foreign_units import CASES
from tests.helpers import REPOSITORY, hpcddm
from tests.whole_runs import TINY

MOST_SECONDS = 60
"""More than any command takes on a busy machine, and less than for ever."""
MEMORY = 4 << 30


@pytest.fixture(scope="session")
def template(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the finished run that this session's cases are copied from."""
    return copy_of(finished, tmp_path_factory.mktemp("foreign")).run


@pytest.fixture
def beside(template: Path, tmp_path: Path) -> Beside:
    """A copy of the finished run with the user's files beside it."""
    return copy_of(template, tmp_path)


def said(beside: Beside, *arguments: object, codes: tuple[int, ...] = (0,)) -> str:
    """What a command says: in time, printable, without a traceback, with nothing of the user's touched."""
    before, started = tree_digest(beside.victim), time.monotonic()
    result = hpcddm(*arguments)
    assert time.monotonic() - started < MOST_SECONDS
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code in codes, result.output
    assert result.output.replace("\n", "").isprintable(), result.output
    assert not any(line.startswith("next: curl") for line in result.output.splitlines())
    assert beside.is_untouched(before)
    return str(result.output)


def states(beside: Beside) -> dict[str, dict]:
    """The rows of `status --json`, by unit."""
    return {row["unit"]: row for row in json.loads(said(beside, "status", beside.run, "--json"))["units"]}


def others_are_whole(beside: Beside) -> bool:
    """Tell if every unit but the wrong one is complete, or waits for it."""
    rows = states(beside)
    return all(row["state"] in ("complete", "waiting", "outdated") for unit, row in rows.items() if unit != UNIT)


def submit(beside: Beside, two_ranks: Path, codes: tuple[int, ...] = (0,)) -> str:
    """What submit would do."""
    arguments = ("submit", "quickstart", "--site", two_ranks, "--run-dir", beside.run, *TINY, "--dry-run")
    return said(beside, *arguments, codes=codes)


@pytest.mark.parametrize("case", DAMAGED)
def test_a_manifest_that_is_refused_makes_its_unit_damaged_and_no_other(beside, two_ranks, case):
    make, reason = DAMAGED[case]
    make(beside)
    row = states(beside)[UNIT]
    assert row["state"] == "damaged" and reason in row["reason"] and f"{UNIT}/manifest.json" in row["reason"]
    assert f"{UNIT}/manifest.json: " in said(beside, "status", beside.run) and others_are_whole(beside)
    assert f"would run here: {UNIT} " in submit(beside, two_ranks)


@pytest.mark.parametrize("case", SHOWN)
def test_what_others_wrote_is_shown_as_visible_letters_or_passed_over_by_name(beside, case):
    make, text = SHOWN[case]
    make(beside)
    lines = len((beside.run / "journal.jsonl").read_text().splitlines())
    output = said(beside, "status", beside.run)
    assert text.replace("{line}", str(lines)) in output and others_are_whole(beside)
    assert "--resource memory_gb" not in output and "[31m" not in output
    said(beside, "cost", beside.run, "--records")
    said(beside, "logs", beside.run, UNIT)
    said(beside, "clean", beside.run)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", LOADED)
def test_any_file_of_any_kind_is_named_and_nothing_waits_for_it(beside, file, kind):
    spoil(beside.run / file, kind)
    if file.startswith("logs/"):
        (beside.run / UNIT / "manifest.json").unlink()
    is_line = file == "journal.jsonl" and kind in LINES
    output = said(beside, "status", beside.run, codes=(1, 2) if file in FOR_ALL and not is_line else (0,))
    if file in FOR_ALL and not is_line:
        assert len(output.splitlines()) == 1
    # A line that is no JSON is one of a writer that died.
    if not is_line or kind == "wrong type":
        assert f"{LOADED[file]}: " in output


def test_submit_goes_on_beside_wrong_records_of_an_attempt_and_makes_the_unit(beside, two_ranks):
    for name in ("owner", "first_step", "ended", "verdict", "heartbeat"):
        spoil(beside.run / f"logs/{UNIT}/attempt-1/{name}.json", "pipe")
    (beside.run / UNIT / "manifest.json").unlink()
    assert f"would run here: {UNIT} " in submit(beside, two_ranks)


def test_a_sample_of_another_expert_is_drawn_beside_a_damaged_one(beside, tmp_path):
    spoil(beside.run / UNIT / "manifest.json", "pipe")
    image = tmp_path / "grid.png"
    arguments = ("--num-images", 1, "--steps", 1, "--output", image)
    said(beside, "sample", beside.run, "--strategy", "expert-0", *arguments)
    assert image.is_file()
    error = said(beside, "sample", beside.run, "--strategy", "expert-2", *arguments, codes=(1,))
    assert f"{UNIT}/manifest.json: is a pipe" in error and len(error.splitlines()) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_catalog_of_any_kind_is_one_line(beside, tmp_path, kind):
    spoil(beside.run / "catalog/catalog.json", kind)
    error = said(beside, "sample", beside.run, "--strategy", "oracle", "--output", tmp_path / "x.png", codes=(1, 2))
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("kind", ["huge", "deep", "link", "pipe"])
def test_a_manifest_of_any_size_needs_no_more_than_4_gib_and_a_few_seconds(beside, kind):
    spoil(beside.run / UNIT / "manifest.json", kind)
    command = [sys.executable, "-m", "hpcddm.cli", "status", str(beside.run)]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )
    assert done.returncode == 0 and f"{UNIT}: damaged" in done.stdout and not done.stderr


UNFIT = ("other bytes", "NaN in weights", "renamed tensor", "further tensor", "F64", "I64", "header of 2^60 bytes")
UNFIT += ("8 GiB of zeros", "link to another expert", "half of the weights")


@pytest.mark.parametrize("case", UNFIT)
def test_weights_that_are_not_the_networks_are_neither_exported_nor_drawn_from(beside, tmp_path, case):
    CASES[case].make(beside)
    error = said(beside, "export", beside.run, UNIT, "--output", tmp_path / "exported", codes=(1,))
    assert UNIT in error and "weights.safetensors" in error and len(error.splitlines()) == 1
    assert not (tmp_path / "exported").exists()
    drawn = ("--num-images", 1, "--steps", 1, "--output", tmp_path / "grid.png")
    # The progress is a line of its own.
    *_, error = said(beside, "sample", beside.run, "--strategy", "expert-2", *drawn, codes=(1,)).splitlines()
    assert error.startswith("error: ") and UNIT in error


@pytest.mark.long
def test_every_case_with_every_verb_and_the_job_that_reads_it(finished, two_ranks, tmp_path):
    command = [sys.executable, "-m", "tests.foreign_folders", finished, two_ranks, tmp_path / "work"]
    done = subprocess.run(list(map(str, command)), cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, [line for line in done.stdout.splitlines() if not line.endswith("| ok")]
