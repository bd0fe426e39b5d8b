"""The batch script as text; that Slurm takes it, and does what it says, is tested on the real Slurm."""

import shlex
import subprocess
import sys

import pytest

from hpcddm.config import Site
from hpcddm.errors import UserError
from hpcddm.launch import slurm
from hpcddm.launch.base import ArraySpec
from hpcddm.rundir.layout import RunDir


def rendered(folder, keys=("train/expert-00", "train/expert-01"), stage="train", **site):
    run = RunDir(folder)
    launcher = slurm.create(Site(**{"name": "here", "scheduler": "slurm", **site}), run)
    specs = [run.spec(key) for key in keys]
    array = ArraySpec("tiny-train", list(keys), specs, launcher.site.resources_for(stage), [])
    path = launcher.render(array, "0001-train.sbatch")
    assert path == folder / "scripts" / "0001-train.sbatch"
    return path.read_text()


def directives(script):
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH ")]


RESOURCES = {"nodes": 2, "ranks_per_node": 4, "cpus_per_rank": 3, "gpus_per_node": 4, "memory_gb": 100, "minutes": 90}

SITES = {
    "plain": ({}, ["--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=1", "--time=60", "--mem=4G"]),
    "nodes and ranks": (
        {"resources": RESOURCES},
        ["--nodes=2", "--ntasks-per-node=4", "--cpus-per-task=3", "--time=90", "--mem=100G", "--gpus-per-node=4"],
    ),
    "gres": ({"resources": RESOURCES, "gpus_flag": "gres"}, ["--gres=gpu:4"]),
    "gres with type": ({"resources": RESOURCES, "gpus_flag": "gres", "gpu_type": "a100"}, ["--gres=gpu:a100:4"]),
    "GPUs with type": ({"resources": RESOURCES, "gpu_type": "h100"}, ["--gpus-per-node=h100:4"]),
    "memory per CPU": ({"resources": RESOURCES, "memory_flag": "per_cpu"}, ["--mem-per-cpu=8533M"]),
    "names": (
        {"partition": "gpu", "account": "grp", "qos": "long", "constraint": "a100&ib"},
        ["--partition=gpu", "--account=grp", "--qos=long", "--constraint=a100&ib"],
    ),
    "further lines": ({"extra_sbatch": ["--reservation=course", "--exclude=n[1-3]"]}, ["--reservation=course"]),
    "at most two at a time": ({"max_parallel": 2}, ["--array=0-1%2"]),
    "one at a time": ({"max_parallel": 1}, ["--array=0-1%1"]),
    "early signal": ({"signal_lead_seconds": 300}, ["--signal=USR2@300"]),
    "of its stage": ({"stages": {"train": {"nodes": 3}}}, ["--nodes=3"]),
}


@pytest.mark.parametrize("site, lines", SITES.values(), ids=SITES)
def test_the_site_shapes_the_script(tmp_path, site, lines):
    script = rendered(tmp_path, **site)
    assert set(lines) <= set(directives(script)), script
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
    assert script.startswith("#!/bin/bash\n") and script.endswith("\n")


@pytest.mark.parametrize(
    "site, word",
    [
        ({}, "gpu"),
        ({"memory_flag": "none"}, "--mem"),
        ({}, "--partition"),
        ({}, "--account"),
        ({}, "--qos"),
        ({}, "--constraint"),
        ({}, "None"),
    ],
)
def test_what_a_site_does_not_name_is_not_asked_for(tmp_path, site, word):
    assert not [line for line in directives(rendered(tmp_path, **site)) if word in line]


def test_every_directive_stands_before_the_first_command(tmp_path):
    lines = rendered(tmp_path, setup=["module load python"], extra_sbatch=["--comment=x"]).splitlines()
    commands = [number for number, line in enumerate(lines) if line and not line.startswith("#")]
    assert max(number for number, line in enumerate(lines) if line.startswith("#SBATCH")) < min(commands)
    assert lines[min(commands)] == "module load python"


def test_elements_are_listed_in_the_script(tmp_path):
    script = rendered(tmp_path)
    assert "#   element 0: train/expert-00\n#   element 1: train/expert-01\n" in script


@pytest.mark.parametrize("name", ["a b", "it's", "$HOME", 'say "x"', "semi;colon", "k\xe4se"])
def test_a_path_with_odd_characters_stays_one_word(tmp_path, name):
    folder = tmp_path / name
    script = rendered(folder)
    (command,) = [line for line in script.splitlines() if line.startswith("cd ")]
    assert shlex.split(command)[:2] == ["cd", str(folder)]
    srun = shlex.split(script[script.index("\nsrun ") :].replace("\\\n", " "))
    assert f"--output={folder}/jobs/%A_%a_%t.out" in srun
    assert srun[-5:] == [sys.executable, "-u", "-m", "submitit.core._submit", f"{folder}/jobs"]


def test_a_dry_run_in_the_same_run_gives_the_same_bytes(tmp_path):
    assert rendered(tmp_path) == rendered(tmp_path)


def test_a_template_below_the_working_directory_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "job.sbatch.j2").write_text("#!/bin/bash\n# own {{ array.name }}\n")
    assert rendered(tmp_path / "run") == "#!/bin/bash\n# own tiny-train\n"


@pytest.mark.parametrize("text", ["{{ arry.name }}", "{% if %}", "{{ site.queue.name }}"])
def test_a_mistake_in_the_template_is_named(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "job.sbatch.j2").write_text(f"#!/bin/bash\n{text}\n")
    with pytest.raises(UserError, match="slurm/job.sbatch.j2.*: "):
        rendered(tmp_path / "run")
