"""The functions of the batch script, cut out of it and run by a shell whose clock goes as fast as it sleeps."""

import re
import subprocess

import pytest

from tests.launch.test_slurm import rendered

CLOCK = """
slept=0
sleep() { slept=$((slept + $1)); }
date() { echo $((1000 + slept)); }
"""
FULL = "sbatch: error: AssocMaxSubmitJobLimit\\nsbatch: error: Batch job submission failed: Job violates policy"
DOWN = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
REFUSED = "scontrol: error: Requested operation is presently disabled"


def function(script, name):
    """One function of a script as it stands there."""
    return re.search(rf"^{name}\(\) \{{\n.*?^\}}\n", script, re.MULTILINE | re.DOTALL)[0]


def patiently(folder, words, seconds, ends="", **site):
    """Try a command that says so and fails for so many seconds: whether it had success, and when that was clear."""
    code = CLOCK + function(rendered(folder, **site), "patiently")
    code += f"""
        HPCDDM_STOP_FILE={folder}/stop HPCDDM_ENDS={ends}
        attempt() {{ [ $slept -ge {seconds} ] || {{ printf '{words}\\n'; return 1; }}; }}
        patiently attempt; echo $? $slept
    """
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=20, check=True)
    code, slept = map(int, done.stdout.split())
    return code == 0, slept


@pytest.mark.parametrize("words", [FULL, DOWN], ids=["full queue", "no controller"])
def test_what_passes_is_waited_for_as_long_as_there_is_time(tmp_path, words):
    assert patiently(tmp_path, words, 100)[0]
    is_done, slept = patiently(tmp_path, words, 10_000)
    assert not is_done and 400 < slept <= 480
    assert patiently(tmp_path, words, 800, signal_lead_seconds=900)[0]


def test_before_the_slot_ends_there_is_time_for_the_verdict(tmp_path):
    is_done, slept = patiently(tmp_path, FULL, 10_000, ends=1090)
    assert not is_done and 40 < slept <= 75


def test_a_refusal_is_believed_after_a_few_tries(tmp_path):
    is_done, slept = patiently(tmp_path, REFUSED, 10_000)
    assert not is_done and slept < 10


def test_who_is_told_to_leave_waits_for_nobody(tmp_path):
    (tmp_path / "stop").touch()
    assert patiently(tmp_path, FULL, 10_000) == (False, 0)
