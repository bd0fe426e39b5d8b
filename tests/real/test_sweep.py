"""A sweep on a real Slurm that takes three elements in an array, with an sbatch that dies after it was heard."""

import csv
import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from hpcddm.jobs.attempt_records import read_records
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from tests.controllers import partner_with
from tests.helpers import DATA_STAGES
from tests.whole_runs import TINY, hpcddm

pytestmark = pytest.mark.slurm
SETTINGS, MAX_ARRAY = 5, 3
VALUES = [round(1 + number / 20, 2) for number in range(SETTINGS)]
SHARED = (*DATA_STAGES, "evaluators", "train", "router")
SITE = """
name: small
scheduler: slurm
partition: main
has_sacct: false
resources: {memory_gb: 1, minutes: 10}
"""
DYING_SBATCH = """#!/bin/bash
# The third submission is accepted, and nobody hears of it.
case "$*" in *--test-only*) exec {real} "$@" ;; esac
echo >> {folder}/calls
said=$({real} "$@") || exit
[ "$(wc -l < {folder}/calls)" = 3 ] && kill -9 $$
echo "$said"
"""


@pytest.fixture
def sweep(tmp_path, finished) -> Path:
    """The file of a sweep over the guidance, and its folder with what all settings share, already made."""
    common = {key: yaml.safe_load(value) for key, _, value in (text.partition("=") for text in TINY)}
    del common["evaluate.guidance"]
    common |= {"evaluate.images": 40, "evaluate.batch": 40, "evaluate.steps": 1, "evaluate.units": 1, "name": "sweep5"}
    values = {"name": "five", "experiment": "quickstart", "set": common, "grid": {"evaluate.guidance": VALUES}}
    file = tmp_path / "five.yaml"
    file.write_text(yaml.safe_dump(values, sort_keys=False))
    (tmp_path / "small.yaml").write_text(SITE)
    for stage in SHARED:
        shutil.copytree(finished / stage, tmp_path / "home" / "guidance=1.0" / stage)
    return file


def submit(file: Path, conf: str, **environment: str) -> str:
    where = ["--site", file.parent / "small.yaml", "--dir", file.parent / "home"]
    done = hpcddm("sweep", file, *where, SLURM_CONF=conf, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wait_for_the_table(home: Path, minutes: float = 12) -> None:
    """The table is the last job of all."""
    deadline = time.time() + 60 * minutes
    while not (home / "table/manifest.json").exists():
        assert time.time() < deadline, [str(path.relative_to(home)) for path in home.glob("*/report")]
        time.sleep(1)


def test_five_settings_run_once_each_where_arrays_have_three_elements(sweep, partner, tmp_path):
    home = tmp_path / "home"
    (tmp_path / "small.yaml").write_text(SITE + f"hook: echo $HPCDDM_EVENT $HPCDDM_UNIT >> {tmp_path}/told\n")
    program = tmp_path / "bin" / "sbatch"
    program.parent.mkdir()
    program.write_text(DYING_SBATCH.format(real=shutil.which("sbatch"), folder=tmp_path))
    program.chmod(0o755)
    with partner_with(MaxArraySize=MAX_ARRAY):
        submit(sweep, partner, PATH=f"{program.parent}:{os.environ['PATH']}")
        submitted = Journal(home / "journal.jsonl").submissions()
        assert "nothing new to submit" in submit(sweep, partner)
        wait_for_the_table(home)
    assert (tmp_path / "told").read_text() == "complete table/all\n", "one word at the end, not one for each setting"
    assert [len(one.units) for one in submitted] == [3, 2, 3, 2, 1, 3, 2, 3, 2, 1], "the reference is one"
    assert len((tmp_path / "calls").read_text().splitlines()) == len(submitted), (
        "what was accepted is found, not redone"
    )
    for value in VALUES:
        run = RunDir(home / f"guidance={value}")
        for key in ("draw/0000000-0000040", "measure/own-0000000-0000040", "compare/own", "report/all"):
            assert [record.outcome for record in read_records(run.logs(key))] == ["complete"], f"{run.root} {key}"
    rows = list(csv.DictReader((home / "table.csv").read_text().splitlines()))
    assert {float(row["evaluate.guidance"]) for row in rows} == set(VALUES) and {row["state"] for row in rows} == {
        "complete"
    }
    assert len({row["fd"] for row in rows if row["arm"] == "top-1"}) > 1, "the settings differ"
    assert (home / "table.png").read_bytes().startswith(b"\x89PNG")
    assert f"everything is complete ({SETTINGS} settings); nothing to submit" in submit(sweep, partner)
    assert Journal(home / "journal.jsonl").submissions() == submitted


def test_two_who_start_it_at_once_submit_every_unit_once(sweep, partner, tmp_path):
    (tmp_path / "small.yaml").write_text(SITE + "extra_sbatch: ['--hold']\n")
    try:
        with ThreadPoolExecutor(4) as four:
            said = list(four.map(lambda _: submit(sweep, partner), range(4)))
        units = [unit for one in Journal(tmp_path / "home/journal.jsonl").submissions() for unit in one.units]
        assert len(units) == len(set(units)) == 4 * SETTINGS + 2
        assert sum("nothing new to submit" in words for words in said) == 3
    finally:
        hpcddm("cancel", tmp_path / "home", SLURM_CONF=partner)


def test_a_member_is_a_run_and_its_shared_units_are_seen_where_they_are_made(sweep, partner, tmp_path):
    site = tmp_path / "small.yaml"
    site.write_text(SITE + "extra_sbatch: ['--hold']\n")
    home = tmp_path / "home"
    (home / "guidance=1.0/train/expert-02/manifest.json").unlink()
    submit(sweep, partner)
    try:
        for label in ("guidance=1.0", "guidance=1.2"):
            answer = hpcddm("status", home / label, "--json", SLURM_CONF=partner)
            states = {row["unit"]: row["state"] for row in json.loads(answer.stdout)["units"]}
            assert states["train/expert-02"] == states["report/all"] == "held", label
            assert states["train/expert-01"] == "complete"
    finally:
        assert "cancelled" in hpcddm("cancel", home, SLURM_CONF=partner).stdout
