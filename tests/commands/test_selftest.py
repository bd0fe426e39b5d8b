"""The verb selftest without Slurm; tests/real has it on Slurm."""

import json

from tests.helpers import hpcddm


def test_without_slurm_a_site_with_slurm_fails_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "nowhere.conf"))
    options = ("--site", "testbed-home", "--folder", tmp_path / "runs")
    done = hpcddm("selftest", *options, "--json")
    answer = json.loads(done.stdout)
    row = answer["checks"][0]
    assert done.exit_code == 1 and row["verdict"] == "FAIL" and "nowhere.conf does not exist" in row["seen"]
    (kept,) = (tmp_path / "runs").iterdir()
    assert answer["kept"] == str(kept) and not answer["passed"]
    done = hpcddm("selftest", *options)
    assert "does not pass" in done.output and "scripts and answers:" in done.output
    assert "try on a login node" in " ".join(done.output.replace("\u2502", " ").split())


def test_a_site_without_a_queue_is_refused_before_anything_is_written(tmp_path):
    done = hpcddm("selftest", "--site", "embedded", "--folder", tmp_path / "runs")
    assert done.exit_code == 2 and "name a site with Slurm" in done.stderr and not (tmp_path / "runs").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    done = hpcddm("selftest", "--site", "testbed-home", "--folder", tmp_path / "file")
    assert done.exit_code == 1 and "choose another --folder" in done.output
