"""The batch script as text; that Slurm takes it, and does what it says, is tested on the real Slurm."""

import subprocess

import pytest

from hpcddm.config.site import Site
from hpcddm.errors import UserError
from hpcddm.launch.base import ArraySpec
from hpcddm.launch.script_template import store_parts, stored_parts, user_parts
from hpcddm.launch.slurm import launcher as slurm_launcher
from hpcddm.launch.slurm.slurm_cluster import SlurmCluster
from hpcddm.runs.run_dir import RunDir


def create(folder, **site):
    return slurm_launcher.create(Site(**{"name": "here", "scheduler": "slurm", **site}), RunDir(folder))


def rendered(folder, keys=("train/expert-00", "train/expert-01"), stage="train", **site):
    launcher = create(folder, **site)
    specs = [launcher.run.spec(key) for key in keys]
    throttle = min(len(keys), launcher.site.max_parallel)
    array = ArraySpec("tiny-train", list(keys), specs, launcher.site.resources_for(stage), [], throttle)
    path = launcher.render(array, "0001-train.sbatch")
    assert path == folder / "scripts" / "0001-train.sbatch"
    return path.read_text()


def directives(script):
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH ")]


RESOURCES = {"nodes": 2, "ranks_per_node": 4, "cpus_per_rank": 3, "gpus_per_node": 4, "memory_gb": 100, "minutes": 90}
GRES = {"resources": RESOURCES, "gpus_flag": "gres"}

STAGE = {"extra_sbatch": ["-b now+1hour"], "nodes": 3}
NAMES = {"partition": "gpu", "account": "grp", "qos": "long", "constraint": "a100&ib"}
SITES = {
    "plain": ({}, "--nodes=1, --ntasks-per-node=1, --cpus-per-task=1, --time=60, --mem=4G"),
    "nodes": ({"resources": RESOURCES}, "--nodes=2, --cpus-per-task=3, --time=90, --mem=100G, --gpus-per-node=4"),
    "ranks": ({"resources": RESOURCES}, "--ntasks-per-node=4"),
    "gres": (GRES, "--gres=gpu:4"),
    "gres with type": (GRES | {"gpu_type": "a100"}, "--gres=gpu:a100:4"),
    "GPUs with type": ({"resources": RESOURCES, "gpu_type": "h100"}, "--gpus-per-node=h100:4"),
    "memory per CPU": ({"resources": RESOURCES, "memory_flag": "per_cpu"}, "--mem-per-cpu=8533M"),
    "names": (NAMES, "--partition=gpu, --account=grp, --qos=long, --constraint=a100&ib"),
    "nodes by name": ({"reservation": "course", "exclude": "n[1-3]"}, "--reservation=course, --exclude=n[1-3]"),
    "a cluster among several": ({"cluster": "north"}, "--clusters=north"),
    "all memory of a node": ({"memory_flag": "all"}, "--mem=0"),
    "further lines": ({"extra_sbatch": ["--exclusive", "--licenses=x"]}, "--exclusive, --licenses=x"),
    "of its stage": ({"extra_sbatch": ["--exclusive"], "stages": {"train": STAGE}}, "-b now+1hour, --nodes=3"),
    "two at a time": ({"max_parallel": 2, "signal_lead_seconds": 300}, "--array=0-1%2, --signal=USR2@300"),
    "one at a time": ({"max_parallel": 1, "requeue": "none", "hook": "mail 'x'"}, "--array=0-1%1"),
    "more on retry": ({"requeue": "resubmit", "raise_on_retry": {"minutes": 2}}, "--nodes=1"),
}


@pytest.mark.parametrize("site, lines", SITES.values(), ids=SITES)
def test_the_site_shapes_the_script(tmp_path, site, lines):
    script = rendered(tmp_path, **site)
    assert set(lines.split(", ")) <= set(directives(script)), script
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert script.startswith("#!/bin/bash\n#SBATCH") and script.endswith("\n")
    assert "#   element 0: train/expert-00\n#   element 1: train/expert-01\n" in script


def test_every_directive_stands_before_the_first_command_and_what_a_site_does_not_name_is_none(tmp_path):
    keys = {"setup": ["module load python"], "extra_sbatch": ["--comment=x"], "memory_flag": "none"}
    script = rendered(tmp_path, **keys)
    lines = script.splitlines()
    commands = [number for number, line in enumerate(lines) if line and not line.startswith("#")]
    assert max(number for number, line in enumerate(lines) if line.startswith("#SBATCH")) < min(commands)
    assert "module load python" in [lines[number] for number in commands] and script == rendered(tmp_path, **keys)
    words = ("gpu", "--mem", "--partition", "--account", "--qos", "--constraint", "None")
    assert not [line for line in directives(script) if any(word in line for word in words)]


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Write a part of the user's own template into the working directory, and return its path."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slurm").mkdir()

    def own(name, text):
        (tmp_path / "slurm" / name).write_text(text)
        return tmp_path / "slurm" / name

    return own


def test_a_template_below_the_working_directory_comes_first(tmp_path, own):
    own("job.sbatch.j2", "#!/bin/bash\n# own {{ array.name }}\n")
    assert rendered(tmp_path / "run") == "#!/bin/bash\n# own tiny-train\n"


ENV, START = "slurm/python_env.sh.j2", "# own way to start\n"


def test_the_users_own_template_is_kept_with_the_run_and_the_packages_is_not(tmp_path, own):
    run, mine = RunDir(tmp_path / "run"), own("python_env.sh.j2", START)
    assert user_parts() == {ENV: START}
    store_parts(run, user_parts())
    mine.unlink()
    launcher = create(run.root)
    array = ArraySpec("tiny-train", ["a/b"], [], launcher.site.resources, [], 1)
    assert START not in launcher.render(array, "1.sbatch").read_text()
    launcher.template_parts = stored_parts(run)
    assert START in launcher.render(array, "1.sbatch").read_text()
    store_parts(run, {})
    assert stored_parts(run) == {}


def test_a_run_in_the_project_folder_leaves_the_users_template_alone(tmp_path, own):
    run, mine = RunDir(tmp_path), own("python_env.sh.j2", START)
    for parts in (user_parts(), {}, {ENV: "# as submitted\n"}):
        store_parts(run, parts)
        assert mine.read_text() == START and stored_parts(run) == parts


@pytest.mark.parametrize("text", ["{{ arry.name }}", "{% if %}", "{{ site.queue.name }}"])
def test_a_mistake_in_the_template_is_named(tmp_path, own, text):
    own("job.sbatch.j2", f"#!/bin/bash\n{text}\n")
    with pytest.raises(UserError, match="slurm/job.sbatch.j2.*: "):
        rendered(tmp_path / "run")


def test_without_arrays_the_script_is_that_of_a_plain_job(tmp_path, monkeypatch):
    monkeypatch.setattr(SlurmCluster, "config", {"MaxArraySize": "0"})
    script = rendered(tmp_path, keys=["train/expert-00"])
    assert "--array" not in script and "known_as=$SLURM_JOB_ID\n" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
