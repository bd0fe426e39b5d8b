"""The verb selftest on this machine; tests/real has it on Slurm."""

import json

import pytest

from hpcddm.launch.selftest.evidence import FOLDER
from tests.helpers import hpcddm


@pytest.fixture
def site(tmp_path):
    def write(**lines: str):
        path = tmp_path / "here.yaml"
        text = {"name": "here", "scheduler": "local", "stages": "{train: {ranks_per_node: 2}}", **lines}
        path.write_text("".join(f"{key}: {value}\n" for key, value in text.items()))
        return path

    return write


def test_this_machine_passes_and_nothing_is_left(tmp_path, site):
    done = hpcddm("selftest", "--site", site(), "--folder", tmp_path / "runs", "--json")
    answer = json.loads(done.output)
    assert done.exit_code == 0 and answer["passed"] and answer["kept"] is None
    verdicts = {row["check"]: row["verdict"] for row in answer["checks"]}
    assert verdicts == dict.fromkeys(("ranks, rendezvous", "signals", "storage", "environment"), "ok")
    assert "2 ranks" in answer["checks"][0]["seen"]
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_failure_ends_with_1_names_key_and_path_and_keeps_what_the_jobs_said(tmp_path, site):
    done = hpcddm("selftest", "--site", site(scratch="/proc/1/scratch"), "--folder", tmp_path / "runs", "--json")
    answer = json.loads(done.output)
    assert done.exit_code == 1 and not answer["passed"]
    (storage,) = (row for row in answer["checks"] if row["check"] == "storage")
    assert storage["verdict"] == "FAIL" and "site key scratch: /proc/1/scratch cannot be written" in storage["seen"]
    (kept,) = (tmp_path / "runs").iterdir()
    assert answer["kept"] == str(kept)
    assert {FOLDER.fullmatch(path.name)["part"] for path in kept.iterdir() if path.is_dir()} == {"array", "nodes"}


def test_the_table_says_what_to_do(tmp_path, site):
    done = hpcddm("selftest", "--site", site(scratch="$NOWHERE"), "--folder", tmp_path / "runs")
    assert done.exit_code == 1
    assert (
        "does not pass" in done.output
        and "scripts and answers:" in done.output
        and "or leave the key out" in (" ".join(done.output.replace("│", " ").split()))
    )


def test_without_slurm_a_site_with_slurm_fails_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "nowhere.conf"))
    done = hpcddm("selftest", "--site", "testbed-home", "--folder", tmp_path / "runs", "--json")
    (row,) = json.loads(done.output)["checks"]
    assert done.exit_code == 1 and row["verdict"] == "FAIL" and "nowhere.conf does not exist" in row["seen"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path, site):
    (tmp_path / "file").touch()
    done = hpcddm("selftest", "--site", site(), "--folder", tmp_path / "file")
    assert done.exit_code == 1 and "choose another --folder" in done.output
