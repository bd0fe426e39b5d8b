"""The whole pipeline on this machine, on real images: complete, again, changed, killed, interrupted."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.whole_runs import TINY, hpcddm

EVALUATION = "draw/{}/evaluation.h5"
RANGES = ("0000000-0000200", "0000200-0000400")
DRAWN, MEASURED = ([f"{stage}{one}" for one in RANGES] for stage in ("draw/", "measure/own-"))
TRAINED = ["--until", "train"]
FINAL = [*DRAWN, *MEASURED, "compare/own", "report/all"]
"""What draws samples or reads them, in the order of the stages."""


def submit(run: Path, site: object, *arguments: str) -> subprocess.CompletedProcess:
    return hpcddm("submit", "quickstart", "--site", site, "--run-dir", run, *TINY, *arguments)


def metrics_of(run: Path) -> dict:
    return json.loads((run / "report/metrics.json").read_text())


def weights(run: Path, unit: str) -> bytes:
    return (run / "train" / unit / "weights.safetensors").read_bytes()


def test_the_metrics_name_every_arm_the_floor_and_what_measured_them(finished):
    metrics = metrics_of(finished)
    assert list(metrics["arms"]) == ["monolith", "top-1", "top-2"]
    for arm in metrics["arms"].values():
        assert arm["fd"] > metrics["floor"]["fd"] > 0
        assert 0 <= arm["agreement"] <= 1 and arm["images"] == metrics["floor"]["images"] == 400
    assert list(metrics["extractors"]) == ["own"]
    assert re.fullmatch("[0-9a-f]{64}", metrics["extractors"]["own"]["sha256"])
    assert metrics["extractors"]["own"]["sha256"] != metrics["classifier"]["sha256"]


def test_everything_is_written_with_the_permissions_that_the_umask_leaves(finished):
    """So that in a shared folder, whose jobs have umask 002, the group may go on with all of it."""
    mask = os.umask(0o022)
    os.umask(mask)
    files = [path for path in finished.rglob("*") if path.is_file() and finished / "code" not in path.parents]
    assert {path.name for path in files if stat.S_IMODE(path.stat().st_mode) != 0o666 & ~mask} == set()


def test_again_is_a_no_op_that_imports_no_torch(finished, two_ranks):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    again = submit(finished, two_ranks)
    assert again.returncode == 0 and "nothing to submit" in again.stdout
    assert before == {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    arguments = ["submit", "quickstart", *TINY, "--site", two_ranks, "--run-dir", finished]
    code = f"import sys\nfrom hpcddm.cli import main\ntry: main({list(map(str, arguments))!r})\n"
    code += "except SystemExit as end: assert not end.code and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_a_deleted_manifest_brings_back_that_expert_and_what_reads_it(run, two_ranks, finished):
    (run / "train/expert-01/manifest.json").unlink()
    dry = submit(run, two_ranks, "--dry-run")
    assert dry.stdout.split("would run here: ")[1].split() == [
        "train/expert-01",
        *FINAL,
    ]
    again = submit(run, two_ranks)
    assert again.returncode == 0, again.stdout + again.stderr
    assert weights(run, "expert-01") == weights(finished, "expert-01")
    assert metrics_of(run) == metrics_of(finished)


def test_a_changed_setting_is_refused_by_name_until_its_stage_is_redone(run, two_ranks):
    refused = submit(run, two_ranks, "evaluate.guidance=1.5")
    assert refused.returncode == 2
    assert "evaluate.guidance: 1.0 -> 1.5" in refused.stderr and "--redo draw" in refused.stderr
    redone = submit(run, two_ranks, "evaluate.guidance=1.5", "--redo", "draw", "--redo", "report")
    assert redone.returncode == 0, redone.stdout + redone.stderr
    assert metrics_of(run)["guidance"] == 1.5
    assert len(list(run.glob("superseded/*/report/metrics.json"))) == 1


def test_other_tars_of_the_same_samples_make_nothing_stale_that_was_learned_from_them(run, two_ranks):
    made = [
        path
        for stage in ("train", "evaluators", "draw", "measure_real", "measure", "compare")
        for path in run.glob(f"{stage}/*/manifest.json")
    ]
    made += [run / "router/manifest.json", run / "report/manifest.json"]
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in made}
    done = submit(run, two_ranks, "data.shards=3", "--redo", "shard")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (run / "shard/train-002/manifest.json").exists() and "expert_lists/all complete" in done.stdout
    assert len(before) >= 10
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in made} == before


def test_another_reading_and_kept_activations_make_nothing_stale_and_give_the_same_bits(run, two_ranks, finished):
    before = {path: path.stat().st_mtime_ns for path in run.glob("*/**/manifest.json")}
    materialised, staged = "data.read_from={name: expert_copy}", "data.read_from={name: node_disk}"
    copied = submit(run, two_ranks, materialised)
    assert copied.returncode == 0, copied.stdout + copied.stderr
    completed = re.findall(r"(\S+/\S+) complete \(", copied.stdout)
    assert sorted(completed) == [f"copy_lists/expert-{k:02d}" for k in range(4)]
    assert {path: path.stat().st_mtime_ns for path in before} == before

    undo_training(run, "expert-01")
    again = submit(run, two_ranks, materialised, *TRAINED)
    assert again.returncode == 0, again.stdout + again.stderr
    assert weights(run, "expert-01") == weights(finished, "expert-01")

    undo_training(run, "expert-01")
    keeping = run.with_name("keeping.yaml")
    keeping.write_text(two_ranks.read_text().replace(", checkpoint_blocks: 1", ""))
    again = submit(run, keeping, staged, *TRAINED)
    assert again.returncode == 0, again.stdout + again.stderr
    log, earlier = ((folder / "logs/train/expert-01/attempt-1/rank0.log").read_text() for folder in (run, finished))
    assert re.search("staged [0-9,]+ samples to /", log) and "recomputed" not in log
    assert "; activations of 2 of 2 blocks recomputed" in earlier
    assert weights(run, "expert-01") == weights(finished, "expert-01")


@pytest.mark.parametrize("units", [pytest.param(1, marks=pytest.mark.long), 3, pytest.param(7, marks=pytest.mark.long)])
def test_the_number_of_evaluation_units_changes_no_metric(run, two_ranks, finished, units):
    shutil.rmtree(run / "report")
    done = submit(run, two_ranks, f"evaluate.units={units}")
    assert done.returncode == 0, done.stdout + done.stderr
    for arm, expected in (metrics_of(finished)["arms"] | {"floor": metrics_of(finished)["floor"]}).items():
        found = (metrics_of(run)["arms"] | {"floor": metrics_of(run)["floor"]})[arm]
        for name in ("fd", "kid", "agreement"):
            assert found[name] == pytest.approx(expected[name], rel=1e-8)


THREE_ARE_ENOUGH = ["evaluate.min_experts=3", "experts.sites=[two-ranks, two-ranks, two-ranks, partner]"]
MISSING = "train/expert-03"


def test_the_final_step_goes_ahead_without_an_expert_and_takes_it_in_when_it_arrives(
    run, two_ranks, finished, tmp_path
):
    away = shutil.move(run / MISSING, tmp_path / "expert-03")
    partial = submit(run, two_ranks, *THREE_ARE_ENOUGH, "--redo", "draw", "--redo", "report")
    assert partial.returncode == 0, partial.stdout + partial.stderr
    said = f"made with 3 of 4 experts, without {MISSING}"
    assert said in partial.stdout and said in (run / "report/index.html").read_text()
    metrics, full = metrics_of(run), metrics_of(finished)
    assert (metrics["missing_experts"], full["missing_experts"]) == ([MISSING], [])
    cost = json.loads((finished / MISSING / "manifest.json").read_text())["results"]["train_flops"]
    for arm, expected in full["arms"].items():
        assert (metrics["arms"][arm] == expected) == (arm == "monolith")
        assert metrics["arms"][arm]["train_flops"] == expected["train_flops"] - (arm != "monolith") * cost
    for key in (*DRAWN, "report"):
        content = json.loads((run / key / "manifest.json").read_text())
        assert MISSING not in content["inputs"] and content["results"]["missing_experts"] == [MISSING]
    with h5py.File(run / EVALUATION.format(RANGES[0])) as file:
        usage = file["top-2"]["usage"][:]
    assert not usage[:, 3].any() and usage.sum(axis=1) == pytest.approx([200] * 4)
    oracle = hpcddm("sample", run, "--strategy", "oracle", "--num-images", 8, "--output", tmp_path / "grid.png")
    assert f"8 images, oracle without {MISSING}, 4 euler steps" in oracle.stdout
    again = submit(run, two_ranks, *THREE_ARE_ENOUGH)
    assert again.returncode == 0 and said in again.stdout and " complete (" not in again.stdout

    shutil.move(away, run / MISSING)
    rows = {row["unit"]: row for row in json.loads(hpcddm("status", run, "--json").stdout)["units"]}
    outdated = {key: row["reason"] for key, row in rows.items() if row["state"] != "complete"}
    behind = {key: f"{drawn} is not complete" for key, drawn in zip(MEASURED, DRAWN, strict=True)}
    behind["compare/own"] = f"{MEASURED[0]} is not complete"
    assert outdated == dict.fromkeys([*DRAWN, "report/all"], f"{MISSING} has arrived since") | behind
    whole = submit(run, two_ranks, *THREE_ARE_ENOUGH)
    assert whole.returncode == 0, whole.stdout + whole.stderr
    assert sorted(re.findall(r"(\S+/\S+) complete \(", whole.stdout)) == sorted(FINAL)
    for path in ("report/metrics.json", *map(EVALUATION.format, RANGES)):
        assert (run / path).read_bytes() == (finished / path).read_bytes(), path


def start(run: Path, site: object, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "hpcddm.cli", "submit", "quickstart", "--site", site, "--run-dir", run]
    return subprocess.Popen(
        [*map(str, command), *TINY, *arguments], stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for_a_saved_state(run: Path, unit: str) -> None:
    deadline = time.time() + 120
    while time.time() < deadline:
        if list((run / unit / "state").glob("images-*")):
            return
        time.sleep(0.02)
    raise AssertionError(f"{unit} never saved")


def undo_training(run: Path, unit: str) -> None:
    shutil.rmtree(run / "train" / unit)
    shutil.rmtree(run / "logs/train" / unit)


NOTICED_SECONDS = 3
"""Seconds after which a unit has been told that its submit is gone."""
SAVING_OFTEN = "experts.training.checkpoint_minutes=0.001"


def test_a_rank_killed_in_mid_training_continues_to_the_same_bits(run, two_ranks, finished):
    undo_training(run, "expert-01")
    process = start(run, two_ranks, SAVING_OFTEN, *TRAINED)
    wait_for_a_saved_state(run, "train/expert-01")
    owner = json.loads((run / "logs/train/expert-01/attempt-1/owner.json").read_text())
    os.kill(owner["pid"], signal.SIGKILL)
    assert process.wait(timeout=120) == 1
    assert not (run / "train/expert-01/manifest.json").exists()
    again = submit(run, two_ranks, SAVING_OFTEN, *TRAINED)
    assert again.returncode == 0, again.stdout + again.stderr
    log = (run / "logs/train/expert-01/attempt-2/rank0.log").read_text()
    assert int(re.search(r"(\d+) of 512 images seen", log).group(1)) > 0, log
    assert weights(run, "expert-01") == weights(finished, "expert-01")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_or_killed_submit_leaves_a_run_that_continues(run, two_ranks, finished, number):
    undo_training(run, "expert-02")
    process = start(run, two_ranks, SAVING_OFTEN, *TRAINED)
    wait_for_a_saved_state(run, "train/expert-02")
    # A fast machine would end the training before anybody has told it to stop.
    owner = json.loads((run / "logs/train/expert-02/attempt-1/owner.json").read_text())["pid"]
    os.kill(owner, signal.SIGSTOP)
    os.kill(process.pid, number)
    time.sleep(NOTICED_SECONDS)
    os.kill(owner, signal.SIGCONT)
    process.wait(timeout=120)
    deadline = time.time() + 60
    ended = run / "logs/train/expert-02/attempt-1/ended.json"
    while not ended.exists() and time.time() < deadline:
        time.sleep(0.1)
    assert json.loads(ended.read_text())["outcome"] == "stopped"
    again = submit(run, two_ranks, *TRAINED)
    assert again.returncode == 0, again.stdout + again.stderr
    assert weights(run, "expert-02") == weights(finished, "expert-02")


def test_where_the_clusters_cannot_be_shown_the_report_comes_all_the_same_and_says_so(run, two_ranks):
    inspected, partition = run / "cluster_report/manifest.json", run / "cluster/partition.h5"
    before, kept = inspected.read_bytes(), partition.read_bytes()
    for path in (inspected, run / "report/manifest.json"):
        path.unlink()
    partition.write_bytes(bytes(len(kept)))
    done = submit(run, two_ranks)
    assert (
        done.returncode == 1 and "error: cluster_report/all: " in done.stderr and "no readable partition" in done.stderr
    )
    assert "report/all complete (29 of 29)" not in done.stdout and "report/all complete" in done.stdout
    assert (
        "the stage cluster_report, which measures the clusters, was not complete"
        in (run / "report/index.html").read_text()
    )
    # When it is there, the report is to be made again.
    inspected.write_bytes(before)
    rows = {row["unit"]: row for row in json.loads(hpcddm("status", run, "--json").stdout)["units"]}
    assert (
        rows["report/all"]["state"] == "outdated" and "cluster_report/all has arrived" in rows["report/all"]["reason"]
    )


def test_sample_draws_a_picture_whose_images_depend_on_the_seed_alone(finished, tmp_path):
    from PIL import Image

    pictures = []
    for number in (8, 16):
        output = tmp_path / f"{number}.png"
        done = hpcddm(
            "sample", finished, "--strategy", "top2", "--class", 3, "--num-images", number, "--output", output
        )
        assert done.returncode == 0, done.stdout + done.stderr
        pictures.append(np.asarray(Image.open(output)))
    few, many = pictures
    difference = np.abs(few.astype(int) - many[: len(few)].astype(int))
    assert difference.mean() < 2, "the first images changed with the number of images"
