"""The trial's own jobs: what they ask for, what Slurm's refusals and reasons to wait say, the line that tells."""

import re
import time

import pytest

from hpcddm.config.site import Site
from hpcddm.launch.base import ArraySpec
from hpcddm.launch.selftest import sbatch_refusals, slurm_trial
from hpcddm.launch.selftest.evidence import TrialJob, last_line
from hpcddm.launch.selftest.slurm_trial import SlurmTrial
from hpcddm.launch.slurm.launcher import create
from hpcddm.launch.slurm.slurm_cluster import site_key
from hpcddm.runs.run_dir import RunDir
from tests.launch.test_script import FUNCTIONS


@pytest.mark.parametrize(("seconds", "verdict"), [(0.4, ""), (60, "accepted, but pending because (InvalidAccount)")])
def test_a_reason_to_wait_for_ever_must_stand(tmp_path, site, monkeypatch, seconds, verdict):
    """Slurm shows InvalidAccount for a second and then runs the job; the queue's answers are made up."""
    trial, began = SlurmTrial(site, tmp_path), time.time()
    trial.evidence.submitted.update(array="7", nodes="8")
    monkeypatch.setattr(slurm_trial, "HOPELESS_SECONDS", 1.0)
    monkeypatch.setattr(trial, "_has_answered", lambda part: time.time() - began > max(seconds, 1.5) and seconds < 60)
    reason = lambda: "PD|InvalidAccount|" if time.time() - began < seconds else "R|None|h1"  # noqa: E731
    monkeypatch.setattr(slurm_trial, "query_slurm", lambda *command: f"7|{reason()}\n8|{reason()}\n")
    assert trial.wait(1, lambda text: None) == verdict
    for words in ("launch failed requeued held", "launch failure limit exceeded requeued held"):
        assert slurm_trial._is_hopeless(f"pending because ({words})")


REFUSALS = {
    "Batch job submission failed: Invalid partition name specified": "set partition",
    "Invalid account or account/partition combination specified": "set account",
    "Batch job submission failed: Invalid qos specification": "set qos",
    "accepted, but pending because (PartitionTimeLimit)": "set resources.minutes",
    "Requested time limit is invalid (missing or exceeds some limit)": "set resources.minutes",
    "Invalid feature specification": "set constraint",
    "Invalid generic resource (gres) specification": "set gpus_per_node, gpu_type or gpus_flag",
    "Memory specification can not be satisfied": "set resources.memory_gb",
    "unrecognized option '--bogus'": "set extra_sbatch",
    "Requested node configuration is not available": "set stages.train.nodes",
    "Zero Bytes were transmitted or received": "look at partition, account",
}


def test_a_refusal_names_the_key(site):
    for words, advice in REFUSALS.items():
        assert sbatch_refusals.advice(site, "train", words).startswith(advice), words


def test_a_key_of_one_stage_is_named_with_its_stage():
    site = Site(name="s", scheduler="slurm", partition="a", stages={"train": {"partition": "b"}})
    assert site_key(site, "train", "partition") == "stages.train.partition"
    assert site_key(site, "draw", "partition") == "partition"
    assert list(sbatch_refusals.shapes(site)) == ["train", ""]


def test_jobs_ask_for_what_trainings_ask_for_and_start_python_as_they_do(tmp_path):
    """The two templates must not drift apart: selftest would try flags that nobody uses."""
    resources = {"partition": "p", "account": "a", "qos": "q", "constraint": "c", "gpus_per_node": 2, "gpu_type": "x"}
    resources |= {"reservation": "r", "exclude": "n1", "cluster": "north", "extra_sbatch": ["--licenses=l"]}
    resources |= {"container": ["box", "--bind=$SCRATCH"], "python": "python3", "srun_args": ["--mpi=pmix"]}
    for flags in ({}, {"gpus_flag": "gres", "memory_flag": "per_cpu"}, {"memory_flag": "none"}, {"cpu_bind": "cores"}):
        keys = {"setup": ["module load x"], "scratch": "$SCRATCH", **flags}
        site = Site(name="s", scheduler="slurm", resources=resources, **keys)
        shape = site.resources_for("train")
        ours = SlurmTrial(site, tmp_path).text(TrialJob.NODES, shape)
        array = ArraySpec("train", ["train/a"], [], shape, [], 1)
        theirs = create(site, RunDir(tmp_path)).render(array, "1.sbatch").read_text() + FUNCTIONS.read_text()
        assert "--reservation=r" in ours and "--partition=p" in ours and "--licenses=l" in ours
        assert asked(ours) == asked(theirs)
        assert way_to_python(ours) == way_to_python(theirs)


def asked(script: str) -> list[str]:
    """The #SBATCH lines that say what is asked for; names, elements, whom to mail and where to write differ."""
    lines = [line for line in script.splitlines() if line.startswith("#SBATCH")]
    return [line for line in lines if not re.search("--(job-name|array|output|mail-user)", line)]


def way_to_python(script: str) -> list[str]:
    """Everything from the site's own lines to the words before Python; only the folder is another one."""
    lines = script.splitlines()
    (first,) = (number for number, line in enumerate(lines) if line.startswith("module load"))
    (last,) = (number for number, line in enumerate(lines) if line.startswith("    --cpus-per-task="))
    assert '    "${ranks[@]}" --output=' in script and '"${python[@]}" -u -m ' in script
    return [line for line in lines[first : last + 1] if not line.startswith(("cd ", "export PYTHONPATH="))]


def test_the_line_that_tells_is_not_slurms_remark_about_the_end():
    told = "slurmstepd-h2: error: execve(): /nix: No such file"
    assert last_line(f"{told}\nslurmstepd-h1: error: *** STEP 4.0 ON h1 CANCELLED AT x") == told
    told = "ModuleNotFoundError: no hpcddm"
    assert last_line(f"Traceback\n{told}\nsrun: error: task 0: Exited") == told
