"""What a plan says of a run, against the manifests of that run; and where its times come from."""

import json
import math
from types import SimpleNamespace

import pytest
import yaml

from hpcddm.commands.expert_costs import override_lines, shift_line, shift_of_space
from hpcddm.commands.plan import LEGEND
from hpcddm.commands.planning import benchmark, timing
from hpcddm.evaluation.result_warnings import NO_GAIN_IMAGES, few_images_warning
from hpcddm.jobs.devices import visible_gpus
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import EXPERT_LISTS
from hpcddm.training import flops_budget
from tests.helpers import DATA_STAGES, hpcddm, tiny, write_experiment, write_source
from tests.pictures import IMG2DATASET
from tests.whole_runs import TINY

SPEED = 1e9
UNLABELLED = {"data__num_classes": None, "data__condition": {"name": "none"}, "evaluators__classifier": None}
WITHOUT_WORK = ("catalog", "cluster", "assign", "expert_lists", "compare")
"""Stages that see no image."""


def content_of(experiment, folder, *arguments, at="slurm"):
    """Plan an experiment; return the object for programs."""
    done = hpcddm("plan", experiment, "--site", at, "--run-dir", folder / "run", "--json", *arguments)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def rows_of(content):
    return {row["stage"]: row for row in content["stages"]}


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """A function that plans the tiny experiment and returns the rows by name, and the totals."""
    write_source(tmp_path / "images")

    def plan(*arguments, at="slurm", measures=False, **changes):
        if not measures:
            monkeypatch.setattr(benchmark.Benchmark, "seconds", lambda *question: 60.0)
        content = content_of(write_experiment(tmp_path, **changes), tmp_path, *arguments, at=at)
        return rows_of(content), content["total"]

    return plan


@pytest.fixture
def site(tmp_path):
    """A function that writes a Slurm site with some keys and returns its path."""

    def write(**keys):
        path = tmp_path / "site.yaml"
        path.write_text(yaml.safe_dump({"name": "here", "scheduler": "slurm", **keys}))
        return path

    return write


def test_the_training_flops_are_those_of_the_manifests(finished, tmp_path):
    rows = rows_of(content_of("quickstart", tmp_path, *TINY, "--flops-per-second", SPEED, at="embedded"))
    trained = {path.parent.name: manifest.read(path.parent).results for path in finished.glob("train/*/manifest.json")}
    assert rows["train/monolith"]["flops"] == trained.pop("monolith")["train_flops"]
    assert rows["train"]["flops"] == sum(results["train_flops"] for results in trained.values())
    # The router's accuracy is measured, too, which is no training.
    assert rows["router"]["flops"] > manifest.read(finished / "router").results["train_flops"]


def test_a_given_speed_makes_hours_of_flops(planned):
    rows, total = planned("--flops-per-second", SPEED)
    train = rows["train"]
    assert train["units"] == 2 and train["nodes"] == 2 and train["time_source"] == "given"
    assert train["unit_hours"] == pytest.approx(train["flops"] / 2 / SPEED / 2 / 3600)
    assert train["cpu_hours"] == pytest.approx(train["flops"] / SPEED / 3600)
    assert total["cpu_hours"] == pytest.approx(sum(row["cpu_hours"] or 0 for row in rows.values()))
    assert "1e+09 FLOPs per second" in train["time_detail"]


def test_slots_are_the_time_over_what_the_limit_leaves_before_the_signal(planned, site):
    path = site(resources={"minutes": 3}, signal_lead_seconds=120)
    slow, _ = planned("--flops-per-second", 1e4, at=path)
    for row in slow.values():
        if row["time_source"] == "given":
            jobs = max(math.ceil(row["unit_hours"] * 3600 / 60), 1)
            is_resumed = row["stage"].split("/")[0] in ("train", "router", "evaluators")
            assert row["slots"] == (jobs if is_resumed else int(jobs == 1))
    assert slow["train"]["slots"] > 1
    fast, _ = planned("--flops-per-second", 1e15, at=path)
    assert fast["train"]["slots"] == 1 and fast["train"]["files"] < slow["train"]["files"]


def test_a_unit_that_starts_again_and_takes_longer_than_its_slot_is_warned_of(tmp_path, site):
    write_source(tmp_path / "images")
    arguments = ("--site", site(resources={"minutes": 3}), "--flops-per-second", 1e4, "--run-dir", tmp_path / "run")
    said = hpcddm("plan", write_experiment(tmp_path), *arguments).stdout
    warned = next(line for line in said.splitlines() if line.startswith("warning   draw: a unit takes"))
    assert "starts again in each job of 3 minutes; give site here stages: {draw: {minutes: " in warned
    assert "warning   train" not in said


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("MAX_IMAGE_FLOPS", 1000.0, "too many for a measurement here; give --flops-per-second"),
        ("psutil.virtual_memory", lambda: SimpleNamespace(available=1000), "more than this machine has free"),
    ],
)
def test_networks_too_large_for_this_machine_are_counted_and_not_built(planned, monkeypatch, name, value, words):
    monkeypatch.setattr(f"{timing.__name__}.{name}", value)
    monkeypatch.setattr(benchmark.Benchmark, "_measure", lambda benchmark, line: 1.0 if "true" not in line else 1 / 0)
    rows, _ = planned(measures=True)
    assert rows["train"]["flops"] > 0 and rows["train"]["unit_hours"] is None
    assert words in rows["train"]["time_detail"]


def test_a_time_limit_shorter_than_the_signal_lead_is_refused(tmp_path, site):
    write_source(tmp_path / "images")
    done = hpcddm("plan", write_experiment(tmp_path), "--site", site(resources={"minutes": 2}))
    assert done.exit_code == 2 and "minutes: 2 do not exceed signal_lead_seconds, 120" in done.output


def tars(folder, **heldout):
    return UNLABELLED | {"data__source": {"name": "webdataset", "folder": str(folder), "heldout": heldout}}


def test_the_images_as_a_whole_and_an_epoch_of_one_expert(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark.Benchmark, "seconds", lambda self, work, *others: work.images / 10)
    experiment = write_experiment(tmp_path, **tars(IMG2DATASET, shards=1))
    said = content_of(experiment, tmp_path)["collection"]
    assert said["files"] == 4 and said["bytes"] == sum(path.stat().st_size for path in IMG2DATASET.glob("*.tar"))
    assert said["index_units"] == 4 and said["index_hours"] == pytest.approx(said["samples"]["train"] / 3 / 36000, 0.1)
    assert said["epoch_samples"] == -(-said["samples"]["train"] // 2)
    assert said["epoch_hours"] == pytest.approx(said["epoch_samples"] / 36000)
    assumed = content_of(experiment, tmp_path, "--assume", "samples=400000000")["collection"]
    assert assumed["epoch_hours"] == pytest.approx(2e8 / 36000)
    per_sample = said["bytes"] / sum(said["samples"].values())
    assert assumed["files"] == 40_000 + 1 and assumed["bytes"] == pytest.approx(4e8 * per_sample, 0.1)
    shown = hpcddm("plan", experiment, "--site", "slurm", "--run-dir", tmp_path / "run").output
    assert "images    4 files, " in shown and f"an epoch of one expert, {said['epoch_samples']} samples: " in shown


def test_what_is_not_here_has_no_bytes_and_no_speed_of_reading_and_all_else_is_planned(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "MIN_SECONDS", 0.0)
    experiment = write_experiment(tmp_path, **tars("/nowhere", share=0.01))
    content = content_of(experiment, tmp_path, "--assume", "samples=1000000")
    said, rows = content["collection"], rows_of(content)
    assert said["bytes"] is said["epoch_hours"] is None and said["files"] == 100
    why = "data.source.folder: /nowhere is not a folder; with a few of its tars there this is measured"
    unknown = {name for name, row in rows.items() if row["unit_hours"] is None}
    assert unknown == {"shard", "encode", "cluster_report", "measure_real", *WITHOUT_WORK}
    assert said["epoch_detail"] == rows["shard"]["time_detail"] == rows["encode"]["time_detail"] == why
    assert all(row["bytes_kept"] > 0 and row["files"] > 0 for row in rows.values())
    assert all(row["flops"] > 0 for name, row in rows.items() if name not in unknown)


def test_without_a_speed_it_is_measured_here_and_said_so(planned, monkeypatch):
    monkeypatch.setattr(benchmark, "MIN_SECONDS", 0.0)
    rows, _ = planned(measures=True)
    assert {row["time_source"] for name, row in rows.items() if name not in WITHOUT_WORK} == {"benchmark"}
    assert "no communication, reading or start-up" in rows["train"]["time_detail"]
    assert all(row["unit_hours"] > 0 for name, row in rows.items() if name not in WITHOUT_WORK)


def test_what_measures_imports_nothing_from_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "hpcddm").mkdir()
    for name in ("hpcddm/__init__", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('executed')")
    monkeypatch.chdir(tmp_path)
    with benchmark.Benchmark(load_experiment("quickstart")) as measured:
        child = measured._started()
        child.communicate()
        assert child.returncode == 0


def test_a_measurement_that_fails_leaves_the_time_unknown_and_says_why(planned, monkeypatch):
    monkeypatch.setattr(benchmark.sys, "executable", "/bin/false")
    rows, _ = planned(measures=True)
    assert rows["train"]["unit_hours"] is None and rows["train"]["time_source"] == "unknown"
    assert "no measurement here, exit code 1" in rows["train"]["time_detail"]


def test_a_time_without_a_source_is_none(planned, site):
    path = site(stages={"train": {"gpus_per_node": 1}})
    rows, total = planned(at=path)
    assert rows["cluster"]["unit_hours"] is None and rows["cluster"]["time_source"] == "unknown"
    if visible_gpus():
        pytest.skip("a GPU is here: the site's can be measured")
    assert rows["train"]["unit_hours"] is rows["train"]["slots"] is rows["train"]["gpu_hours"] is None
    assert "no GPU here" in rows["train"]["time_detail"] and "--flops-per-second" in rows["train"]["time_detail"]
    assert rows["train"]["flops"] > 0 and rows["train"]["bytes_kept"] > 0


def beat(run, key, **changes):
    """An attempt that is half done at 10 images a second on 4 ranks."""
    folder = RunDir(run).logs(key) / "attempt-1"
    folder.mkdir(parents=True)
    values = {"time": 1.0, "owner": "me", "attempt": 1, "host": "node7", "done": 500, "total": 1000, "rate": 10.0}
    (folder / "heartbeat.json").write_text(json.dumps(values | changes))
    (folder / "owner.json").write_text(json.dumps({"owner": "me", "ranks": 4}))


def test_the_runs_own_attempts_come_before_a_measurement(planned, tmp_path):
    beat(tmp_path / "run", "train/expert-01")
    rows, _ = planned()
    # 1000 images at 10 a second on 4 ranks, here on 2.
    assert rows["train"]["unit_hours"] == pytest.approx(200 / 3600)
    assert rows["train"]["time_source"] == "this run"
    assert "train/expert-01 attempt 1: 10 images/s on 4 ranks, node7" in rows["train"]["time_detail"]
    monolith, train = rows["train/monolith"], rows["train"]
    assert monolith["unit_hours"] / train["unit_hours"] == pytest.approx(monolith["flops"] / (train["flops"] / 2))


def test_only_the_sites_own_units_are_planned(planned, site, tmp_path):
    rows, _ = planned("--flops-per-second", SPEED, at=site(), site="elsewhere", experts__sites=["here", "elsewhere"])
    assert set(rows) == {*DATA_STAGES, "train"} and rows["train"]["units"] == 1


def test_weights_that_are_not_there_leave_the_encoder_unknown(planned, monkeypatch, tmp_path):
    monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path / "empty"))
    rows, _ = planned("--flops-per-second", SPEED, encode__encoder={"name": "efficientnet_lite0"})
    assert rows["encode"]["flops"] is rows["encode"]["unit_hours"] is None
    assert "hpcddm prefetch" in rows["encode"]["time_detail"]


def test_the_page_names_every_stage_every_column_the_source_of_every_time_and_whose_images_a_batch_counts(tmp_path):
    write_source(tmp_path / "images")
    run = tmp_path / "run"
    done = hpcddm("plan", write_experiment(tmp_path), "--site", "slurm", "--run-dir", run, "--flops-per-second", SPEED)
    assert done.exit_code == 0 and not run.exists()
    for stage in {unit.stage for unit in plan_units(tiny(tmp_path))} | {"train/monolith"}:
        assert f"│ {stage} " in done.output, stage
    assert "time      given (1e+09 FLOPs per second and rank): " in done.output
    assert "inodes free" in done.output and "without the stages of unknown time" in done.output
    assert "batch     16 images per step over all 2 experts, 8 each" in done.output.splitlines()
    assert "times     objective.shift 1; the size of x suggests sqrt(1 x 8 x 8 / 4096) = 0.125" in done.output
    for column in "nodes x ranks|CPUs|GPUs|FLOPs|a unit takes|CPU-h|GPU-h|slots|kept|at work".split("|"):
        assert column in "\n".join(LEGEND), column
    assert all(line in done.output for line in LEGEND)
    assert "over all experts" in " ".join(hpcddm("plan", "--help").output.split())


@pytest.mark.parametrize(
    "channels, factor, side, fits", [(4, 8, 256, 1), (16, 8, 256, 2), (32, 16, 256, 2**0.5), (768, 16, 256, 48**0.5)]
)
def test_the_shift_that_fits_a_space_is_said_and_set_nowhere(tmp_path, channels, factor, side, fits):
    kind = {"name": "diffusers_kl", "channels": channels, "factor": factor, "weights": {"folder": "/nowhere"}}
    space = {"name": "autoencoder", "autoencoder": kind}
    extra = [{"clusters": [1], "objective": {"name": "flow_matching", "shift": 3.0}}]
    sizes = {"data__image_size": side, "data__channels": 3, "data__space": space, "experts__overrides": extra}
    experiment = tiny(tmp_path, **sizes)
    assert shift_of_space(experiment) == pytest.approx(fits)
    assert experiment.experts.objective.shift == 1
    (side,) = {experiment.data.x_shape.height, experiment.data.x_shape.width}
    said = f"objective.shift 1, 3; the size of x suggests sqrt({channels} x {side} x {side} / 4096) = {fits:.3g}"
    assert shift_line(experiment) == said


def test_the_own_numbers_of_an_expert_are_planned_and_shown(planned, tmp_path):
    changes = {"experts__overrides": [{"clusters": [1], "images": 96, "batch": 12, "learning_rate": 0.002}]}
    rows, _ = planned("--flops-per-second", SPEED, **changes)
    per_image = flops_budget.train_flops(tiny(tmp_path), tiny(tmp_path).expert_config())
    assert rows["train"]["flops"] == (32 + 96) * per_image
    spent = rows["train"]["flops"] + flops_budget.router_flops(tiny(tmp_path))
    assert abs(rows["train/monolith"]["flops"] - spent) <= 8 * per_image
    (line,) = override_lines(tiny(tmp_path, **changes))
    assert line == "expert 1 sees 96 images in batches of 12, learning rate 0.002"
    assert override_lines(tiny(tmp_path)) == []


def test_experts_that_see_few_images_are_warned_of(tmp_path):
    write_source(tmp_path / "images")
    warning = few_images_warning(tiny(tmp_path))
    assert warning is not None and warning.startswith("an expert sees 32 images; with up to 30,720 each")
    done = hpcddm("plan", write_experiment(tmp_path), "--site", "slurm", "--flops-per-second", SPEED)
    assert f"warning   {warning[:40]}" in done.output
    many = {"experts__training__images": 8 * NO_GAIN_IMAGES}
    assert few_images_warning(tiny(tmp_path, **many)) is None
    one_short = many | {"experts__overrides": [{"clusters": [1], "images": NO_GAIN_IMAGES}]}
    assert few_images_warning(tiny(tmp_path, **one_short)) is not None
    assert few_images_warning(tiny(tmp_path, cluster__experts=1)) is None, "one expert is a monolith"


def test_a_data_set_that_is_not_here_is_planned_by_its_numbers(tmp_path, site, monkeypatch):
    monkeypatch.setattr(benchmark.Benchmark, "seconds", lambda *question: 60.0)
    source = {"name": "webdataset", "folder": "/nowhere", "heldout": {"share": 0.01}}
    experiment, options = write_experiment(tmp_path, data__source=source), ("--flops-per-second", SPEED, "--assume")
    small, great = (
        rows_of(content_of(experiment, tmp_path, *options, f"samples={count}", at=site()))
        for count in (1_000_000, 153_600_000)
    )
    assert (small["shard"]["units"], great["shard"]["units"]) == (100 + 1, 256 + 1)
    assert great["train"]["flops"] == small["train"]["flops"], "the budget is that of the settings"
    growth = great["encode"]["bytes_kept"] / small["encode"]["bytes_kept"]
    assert 140 < growth < 156, "features, and a few small files for each unit"
    assert "/nowhere" in hpcddm("plan", experiment, "--site", site()).output
    for wrong, error in (("samples=-1", "N of 1 and more"), ("heldout=5", "samples=N is missing"), ("x=1", "x=1")):
        refused = hpcddm("plan", experiment, "--site", site(), *options, wrong)
        assert refused.exit_code != 0 and error in refused.output


def test_experts_are_planned_beside_the_sizes_of_their_clusters(tmp_path, site, monkeypatch):
    monkeypatch.setattr(benchmark.Benchmark, "seconds", lambda *question: 60.0)
    write_source(tmp_path / "images")
    experiment, run = write_experiment(tmp_path), RunDir(tmp_path / "run")
    at, speed = site(resources={"gpus_per_node": 2, "ranks_per_node": 2}), ("--flops-per-second", SPEED)
    assert content_of(experiment, tmp_path, *speed, at=at)["experts"] == []
    lists = {"expert-00": {"samples": 64}, "expert-01": {"samples": 24, "other_clusters": 8}}
    results = {"lists": lists, "sizes": [64, 24]}
    run.unit(EXPERT_LISTS).mkdir(parents=True)
    manifest.publish(run.unit(EXPERT_LISTS), manifest.Manifest("expert_lists", "all", {}, {}, [], results))
    content = content_of(experiment, tmp_path, *speed, at=at)
    flops = rows_of(content)["train"]["flops"] / 2
    hours = flops / SPEED / 3600
    first, second = ({"expert": number, "flops": flops, "gpu_hours": pytest.approx(hours)} for number in (0, 1))
    # 64 images are seen by both together, so 32 by each.
    assert content["experts"] == [first | {"images": 64, "passes": 0.5}, second | {"images": 24, "passes": 1.0}]
    said = "expert 0 sees each of its 64 images 0.5 times, expert 1 sees each of its 24 images 1 times"
    shown = hpcddm("plan", experiment, "--site", at, "--run-dir", run.root, *speed).output
    assert f"clusters  {said}; {flops:.3g} FLOPs, {hours:.3g} GPU-hours at most for one" in shown
