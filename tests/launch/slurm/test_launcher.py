"""The batch script as text; that Slurm takes it, and does what it says, is tested on the real Slurm."""

import shlex
import subprocess
from pathlib import Path

import pytest

from hpcddm.config.site import Site
from hpcddm.errors import UserError
from hpcddm.launch.base import ArraySpec
from hpcddm.launch.script_template import store_parts, stored_parts, user_parts
from hpcddm.launch.slurm import launcher as slurm_launcher
from hpcddm.launch.slurm.slurm_cluster import SlurmCluster
from hpcddm.runs.run_dir import RunDir


def rendered(folder, keys=("train/expert-00", "train/expert-01"), stage="train", **site):
    run = RunDir(folder)
    launcher = slurm_launcher.create(Site(**{"name": "here", "scheduler": "slurm", **site}), run)
    specs = [run.spec(key) for key in keys]
    throttle = min(len(keys), launcher.site.max_parallel)
    array = ArraySpec("tiny-train", list(keys), specs, launcher.site.resources_for(stage), [], throttle)
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
    "nodes to take and not to take": (
        {"reservation": "course", "exclude": "n[1-3]"},
        ["--reservation=course", "--exclude=n[1-3]"],
    ),
    "a cluster among several": ({"cluster": "north"}, ["--clusters=north"]),
    "all memory of a node": ({"memory_flag": "all"}, ["--mem=0"]),
    "further lines": ({"extra_sbatch": ["--exclusive", "-b now+1hour"]}, ["--exclusive", "-b now+1hour"]),
    "further lines of its stage": (
        {"extra_sbatch": ["--exclusive"], "stages": {"train": {"extra_sbatch": ["--licenses=x"]}}},
        ["--licenses=x"],
    ),
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
    assert "module load python" in [lines[number] for number in commands]


@pytest.mark.parametrize(
    "way, words",
    [
        ("scontrol", "by 'scontrol requeue' in this script, or by Slurm; never again after 3 attempts in a row"),
        ("resubmit", "by 'sbatch' in this script; never again after 3 attempts in a row"),
        ("none", "not by this script"),
    ],
)
def test_name_dependencies_and_limit_of_requeueing_come_first(tmp_path, way, words):
    lines = rendered(tmp_path, requeue=way, max_excluded_nodes=7).splitlines()
    assert lines[1] == "#SBATCH --job-name=tiny-train" and "--job-name=tiny-train-TOKEN" in lines[2]
    assert lines[3] == "# Waits for  nothing" and words in lines[4]
    assert any("7 times at most" in line for line in lines[5:7]) == (way == "scontrol")
    assert any("12 where" in line for line in lines[4:6]) == (way != "none")


def test_elements_are_listed_in_the_script(tmp_path):
    script = rendered(tmp_path)
    assert "#   element 0: train/expert-00\n#   element 1: train/expert-01\n" in script


@pytest.mark.parametrize("name", ["a b", "it's", "$HOME", 'say "x"', "semi;colon", "k\xe4se"])
def test_a_path_with_odd_characters_stays_one_word(tmp_path, name):
    folder = tmp_path / name
    script = rendered(folder)
    (command,) = [line for line in script.splitlines() if line.startswith("cd ")]
    assert shlex.split(command)[:2] == ["cd", str(folder)]
    (jobs,) = [line for line in script.splitlines() if line.startswith("element=")]
    assert f"jobs={folder}/jobs" in shlex.split(jobs)
    (functions,) = [line for line in script.splitlines() if line.startswith("functions=")]
    (word,) = shlex.split(functions)
    assert Path(word.removeprefix("functions=")).parent == folder / "scripts"
    (folders,) = [line for line in script.splitlines() if line.startswith("run=")]
    words = shlex.split(folders)
    assert f"run={folder}" in words and words[1].startswith(f"code_folder={folder}/code/")


def test_a_dry_run_in_the_same_run_gives_the_same_bytes(tmp_path):
    assert rendered(tmp_path) == rendered(tmp_path)


def test_a_template_below_the_working_directory_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "job.sbatch.j2").write_text("#!/bin/bash\n# own {{ array.name }}\n")
    assert rendered(tmp_path / "run") == "#!/bin/bash\n# own tiny-train\n"


def test_the_users_own_template_is_kept_with_the_run_and_the_packages_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = RunDir(tmp_path / "run")
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "python_env.sh.j2").write_text("# own way to start\n")
    assert user_parts() == {"slurm/python_env.sh.j2": "# own way to start\n"}
    store_parts(run, user_parts())
    (tmp_path / "slurm" / "python_env.sh.j2").unlink()
    launcher = slurm_launcher.create(Site(name="here", scheduler="slurm"), run)
    array = ArraySpec("tiny-train", ["a/b"], [], launcher.site.resources, [], 1)
    assert "# own way to start" not in launcher.render(array, "1.sbatch").read_text()
    launcher.template_parts = stored_parts(run)
    assert "# own way to start" in launcher.render(array, "1.sbatch").read_text()
    store_parts(run, {})
    assert stored_parts(run) == {}


def test_a_run_in_the_project_folder_leaves_the_users_template_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, mine = RunDir(tmp_path), tmp_path / "slurm/python_env.sh.j2"
    mine.parent.mkdir()
    mine.write_text("# own way to start\n")
    store_parts(run, user_parts())
    store_parts(run, {})
    assert mine.read_text() == "# own way to start\n" and stored_parts(run) == {}
    store_parts(run, {"slurm/python_env.sh.j2": "# as submitted\n"})
    assert mine.read_text() == "# own way to start\n" and stored_parts(run) == {
        "slurm/python_env.sh.j2": "# as submitted\n"
    }


@pytest.mark.parametrize("text", ["{{ arry.name }}", "{% if %}", "{{ site.queue.name }}"])
def test_a_mistake_in_the_template_is_named(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "job.sbatch.j2").write_text(f"#!/bin/bash\n{text}\n")
    with pytest.raises(UserError, match="slurm/job.sbatch.j2.*: "):
        rendered(tmp_path / "run")


def test_without_arrays_the_script_is_that_of_a_plain_job(tmp_path, monkeypatch):
    monkeypatch.setattr(SlurmCluster, "config", {"MaxArraySize": "0"})
    script = rendered(tmp_path, keys=["train/expert-00"])
    assert "--array" not in script and "known_as=$SLURM_JOB_ID\n" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
