"""GPUs of this machine, counted and handed out one unit each.

There is none here: the driver's program, its device files, the build of torch and the processes are fakes.
"""

from pathlib import Path

import pytest

from hpcddm.config.site import Resources, Site
from hpcddm.errors import ConfigError, UserError
from hpcddm.launch.array_items import make_items
from hpcddm.launch.base import ArraySpec
from hpcddm.launch.local import driver as local_driver
from hpcddm.launch.local import launcher as local_launcher
from hpcddm.launch.local import machine_gpus
from hpcddm.launch.local.driver import EmbeddedDriver
from hpcddm.launch.local.launcher import LocalLauncher
from hpcddm.launch.local.machine_gpus import VISIBLE_VARIABLE, GpuPool
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.run_dir import RunDir
from tests.helpers import DATA_STAGES, finish, tiny


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with a CUDA build of torch and nothing else; returns the folder of its devices and of its programs."""
    monkeypatch.setattr(machine_gpus, "package_version", lambda package: "2.13.0")
    monkeypatch.setattr(machine_gpus, "DEVICE_FILES", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(VISIBLE_VARIABLE, raising=False)
    return tmp_path


def test_gpus_are_counted_by_device_files_where_the_drivers_program_does_not_know_better(machine, monkeypatch):
    assert machine_gpus.visible_gpus() == []
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (machine / name).touch()
    assert machine_gpus.visible_gpus() == ["0", "1"]
    (machine / "nvidia1").unlink()
    program, list_two = machine / "nvidia-smi", "echo 'GPU 0: A100 (UUID: GPU-1)'\necho '  MIG 1g:'\necho 'GPU 1: A100'"
    for words, names in ((list_two, ["0", "1"]), ("echo 'NVIDIA-SMI has failed' >&2\nexit 9", [])):
        program.write_text(f"#!/bin/sh\n{words}\n")
        program.chmod(0o755)
        assert machine_gpus.visible_gpus() == names
    program.unlink()
    for value, names in (("2,GPU-ab", ["2", "GPU-ab"]), ("", []), ("-1", [])):
        monkeypatch.setenv(VISIBLE_VARIABLE, value)
        assert machine_gpus.visible_gpus() == names, "the user's own choice is believed"
    monkeypatch.delenv(VISIBLE_VARIABLE)
    monkeypatch.setattr(machine_gpus, "package_version", lambda package: "2.13.0+cpu")
    assert machine_gpus.visible_gpus() == [], "a torch without CUDA has no use for them"


@pytest.fixture
def pool(monkeypatch):
    """GPUs of a machine that shows so many, with a site's keys."""

    def made(shown, **site):
        monkeypatch.setattr(machine_gpus, "visible_gpus", lambda: [f"GPU-{n}" for n in range(shown)])
        return GpuPool(Site(name="here", scheduler="local", **site))

    return made


def test_every_rank_that_can_use_a_gpu_gets_one_and_what_the_site_asks_for_counts_more(pool):
    gpus = pool(4)
    two = Resources(ranks_per_node=2)
    assert [gpus.needed(stage, two) for stage in ("shard", "train", "draw", "table")] == [0, 2, 1, 0]
    keys = ("latents/train-000", "latents/scale", "encode_captions/000", "encode_captions/all", "concept_tags/tagger")
    assert [gpus.needed(key, Resources()) for key in keys] == [1, 0, 1, 0, 1]
    assert gpus.needed("draw", Resources(gpus_per_node=4)) == 4
    assert pool(0).needed("train", two) == 0 and pool(4, gpus=0).needed("train", two) == 0


def test_what_cannot_be_had_is_refused(pool):
    with pytest.raises(UserError, match="here: train needs 2 GPUs for 2 ranks and this machine shows 1 .* gpus: 0 for"):
        pool(1).needed("train", Resources(ranks_per_node=2))
    with pytest.raises(UserError, match="shows none to its torch; set gpus_per_node: 0"):
        pool(0).needed("train", Resources(gpus_per_node=1))
    with pytest.raises(ConfigError, match=r"site here: gpus: 3, but this machine shows 2 \(GPU-0, GPU-1\)"):
        pool(2, gpus=3).free([])
    # Torch may see what is no NVIDIA device: nobody counts GPUs that nobody knows of.
    assert [pool(0).device_ids, pool(0, gpus=0).device_ids, pool(2, gpus=1).device_ids] == [None, [], ["GPU-0"]]


@pytest.fixture
def started(tmp_path, monkeypatch, pool):
    """A launcher on a machine with two GPUs, and what each of its processes was given; they run until told to end."""
    pool(2)
    given, alive = {}, {}

    class Server:
        def __init__(self, environment):
            pass

        def start(self, folder, variables):
            number = len(given)
            given[str(number)], alive[str(number)] = variables[VISIBLE_VARIABLE], True
            return number

        def is_running(self, number):
            return bool(alive[str(number)])

    monkeypatch.setattr(local_launcher, "ForkServer", Server)
    launcher = LocalLauncher(Site(name="here", scheduler="local", cores=16), RunDir(tmp_path / "run"))
    return launcher, given, alive


def array(key, **resources):
    return ArraySpec("tiny", [key], [RunDir(Path("run")).spec("train/x")], Resources(**resources), [], 1)


def test_each_unit_sees_its_own_gpus_and_those_of_a_finished_one_are_free_again(started):
    launcher, given, alive = started
    jobs = [launcher.submit(array(key), "", "") for key in ("train/a", "shard/a", "setting/train/b")]
    assert [given[job] for job in jobs] == ["GPU-0", "", "GPU-1"]
    alive[jobs[0]] = 0
    assert given[launcher.submit(array("evaluators/classifier"), "", "")] == "GPU-0"
    with pytest.raises(UserError, match="train/a needs 4 GPUs"):
        launcher.check([array("train/a", ranks_per_node=4)])


def test_two_trainings_do_not_run_on_one_gpu_at_once(tmp_path, monkeypatch, started):
    """Sixteen cores would take them all at once."""
    launcher, given, alive = started
    experiment = tiny(tmp_path)
    units = plan_units(experiment)
    finish([unit for unit in units if unit.stage in DATA_STAGES], launcher.run)
    items = make_items([unit for unit in units if unit.stage == "train"], experiment, launcher.run)
    submit = lambda items, home, one, spec, script: one.submit(spec, "", script)  # noqa: E731
    monkeypatch.setattr(local_driver, "submit_array", submit)
    driver = EmbeddedDriver(items, launcher.run, launcher, 0, set())
    for _ in range(2):
        driver._start_what_fits()
        assert list(given.values()) == ["GPU-0", "GPU-1"] and len(driver.waiting) == 1
    alive["1"] = 0
    driver.running.pop("1")
    driver._start_what_fits()
    assert list(given.values()) == ["GPU-0", "GPU-1", "GPU-1"] and not driver.waiting
