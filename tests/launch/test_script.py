"""The batch script and its functions, run by bash: whole, or cut out, with a clock that goes as fast as it sleeps."""

import os
import re
import subprocess

import pytest

from hpcddm.config.site import Site
from hpcddm.launch.slurm import launcher as slurm_launcher
from hpcddm.runs.run_dir import RunDir
from tests.helpers import REPOSITORY
from tests.launch.slurm.test_launcher import rendered

FUNCTIONS = REPOSITORY / "slurm/functions.sh"

CLOCK = """
slept=0
sleep() { slept=$((slept + $1)); }
date() { echo $((1000 + slept)); }
"""
FULL = "sbatch: error: AssocMaxSubmitJobLimit\\nsbatch: error: Batch job submission failed: Job violates policy"
DOWN = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
REFUSED = "scontrol: error: Requested operation is presently disabled"


def function(script, name):
    """One function of a script, as it is there."""
    return re.search(rf"^{name}\(\) \{{(?: [^\n]*|\n.*?^)\}}\n", script, re.MULTILINE | re.DOTALL)[0]


def in_bash(code):
    return subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=20, check=False)


def patiently(folder, words, seconds, ends="", **site):
    """Try a command that says so and fails for so many seconds: whether it had success, and when that was clear."""
    code = CLOCK + "".join(function(rendered(folder, **site), name) for name in ("unsignalled", "patiently"))
    code += f"""
        HPCDDM_STOP_FILE={folder}/stop HPCDDM_ENDS={ends}
        attempt() {{ [ $slept -ge {seconds} ] || {{ printf '{words}\\n'; return 1; }}; }}
        patiently attempt; echo $? $slept
    """
    code, slept = map(int, in_bash(code).stdout.split())
    return code == 0, slept


@pytest.mark.parametrize("words", [FULL, DOWN], ids=["full queue", "no controller"])
def test_what_passes_is_waited_for_as_long_as_there_is_time(tmp_path, words):
    assert patiently(tmp_path, words, 100)[0]
    is_done, slept = patiently(tmp_path, words, 10_000)
    assert not is_done and 400 < slept <= 480
    assert patiently(tmp_path, words, 800, signal_lead_seconds=900)[0]


def test_less_is_waited_before_the_slot_ends_after_a_refusal_and_when_told_to_leave(tmp_path):
    is_done, slept = patiently(tmp_path, FULL, 10_000, ends=1090)
    assert not is_done and 40 < slept <= 75, "there is time for the verdict"
    is_done, slept = patiently(tmp_path, REFUSED, 10_000)
    assert not is_done and slept < 10
    (tmp_path / "stop").touch()
    assert patiently(tmp_path, FULL, 10_000) == (False, 0)


CONTROLLER = """
known_as=7_0 job=7_0 SLURMD_NODENAME=n9 HPCDDM_ENDS=
scontrol() {
    case $1 in
        show)
            [ $2 = hostnames ] && tr , '\\n' <<<"$3" && return
            echo "$state PreemptTime=None ExcNodeList=$avoided NodeList=n9"
            ;;
        requeue)
            [ $slept -ge $busy ] && echo requeue >>"$calls" && return
            echo "Unable to contact slurm controller"
            false
            ;;
        update) echo "$*" >>"$calls" ;;
    esac
}
"""


def elsewhere(folder, excluded="(null)", restarts=0, state="JobState=RUNNING Reason=None", busy=0, exclude=None):
    """Commands of scontrol with which a script that could not begin makes its job run elsewhere."""
    script = rendered(folder, resources={"exclude": exclude} if exclude else {})
    code = CLOCK + CONTROLLER + f"HPCDDM_STOP_FILE={folder}/stop calls={folder}/calls avoided='{excluded}'\n"
    code += f"state='{state}' SLURM_RESTART_COUNT={restarts} busy={busy}\n"
    # All that the trap needs stands above it.
    head = script[: script.index("trap go_elsewhere EXIT")]
    code += re.search(r"^hostnames.*\n", head, re.MULTILINE)[0]
    code += "".join(function(head, name) for name in ("unsignalled", "patiently", "is_cancelled", "go_elsewhere"))
    (folder / "calls").write_text("")
    in_bash(code + "go_elsewhere")
    return (folder / "calls").read_text().splitlines()


def test_a_job_leaves_a_node_that_cannot_see_the_run_however_often_its_slots_ended(tmp_path):
    calls = ["requeue", "update JobId=7_0 ExcNodeList=n1,n2,n3,n9"]
    assert elsewhere(tmp_path, "n1,n2,n3", restarts=9) == calls
    # It avoids so many nodes and no more beside those that the site excludes.
    assert elsewhere(tmp_path, "n1,n2,n3,n4") == []
    assert elsewhere(tmp_path, "n1,n2,n3,n4", exclude="n1,n2") != []
    busy = elsewhere(tmp_path, busy=40)
    assert busy == ["requeue", "update JobId=7_0 ExcNodeList=n9"], "a busy controller does not end the unit"


def test_a_job_that_is_stop_requested_in_its_setup_goes_nowhere(tmp_path):
    for state in ("COMPLETING", "CANCELLED"):
        assert elsewhere(tmp_path, state=f"JobState={state} Reason=None") == []
    (tmp_path / "stop").touch()
    assert elsewhere(tmp_path) == []


def test_a_job_never_leaves_the_last_nodes_of_its_partition(tmp_path, monkeypatch):
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    for others, leaves in (("idle n1\\nmixed n2", True), ("idle n1\\ndown* n2", False), ("idle n1\\nidle n8", False)):
        (tools / "sinfo").write_text(f"#!/bin/bash\nprintf 'idle n9\\n{others}\\n'\n")
        (tools / "sinfo").chmod(0o755)
        assert bool(elsewhere(tmp_path, "n8")) == leaves, others


GATE = """
requeue_decision() { echo requeue_decision "$@"; }
patiently() { words='?|annex'; }
python=(gate)
gate() { case $* in *start*) echo "$later" ;; *) echo "$first" ;; esac; }
timeout() { false; }
element=7_0
"""


def test_a_unit_that_waits_no_longer_ends_before_its_ranks_start():
    script = function(FUNCTIONS.read_text(), "wait_for_others")
    silent = ("annex|x", "!annex is silent", "requeue_decision 1 wait annex is silent\n")
    for first, start, words in (("!|cancelled", "", "requeue_decision 143\n"), silent):
        done = in_bash(f"{GATE}first='{first}' later='{start}' map=m job=7_0\n{script}wait_for_others; echo trains")
        assert (done.stdout, done.returncode) == (words, 1)


def checked(folder):
    """Hash the code as a script does; return the launcher, what was printed, and the exit code."""
    launcher = slurm_launcher.create(Site(name="here", scheduler="slurm"), RunDir(folder))
    (values,) = [line for line in rendered(folder).splitlines() if line.startswith("run=")]
    done = in_bash(f"{FUNCTIONS.read_text()}{values}\ncheck_code\necho runs")
    return launcher, done.stdout, done.returncode


def test_a_job_hashes_its_code_before_it_runs_it(tmp_path):
    launcher, said, code = checked(tmp_path)
    assert (f"error: {launcher.code.folder}: files there were changed" in said, code) == (True, 1), "it is not there"
    launcher.code.make()
    assert checked(tmp_path)[1:] == ("runs\n", 0)
    more = launcher.code.folder / "more"
    for plant in (more.touch, lambda: more.symlink_to("/"), lambda: os.mkfifo(more)):
        plant()
        _, said, code = checked(tmp_path)
        assert code == 1 and "nothing is run" in said and said.count("\n") == 1
        more.unlink()
    one = launcher.code.folder / "hpcddm/cli.py"
    one.chmod(0o644)
    one.write_text("")
    assert checked(tmp_path)[2] == 1


COMMANDS = {
    # Python is asked what a unit waits for, and for the verdict; submitit's module is what the ranks run.
    "python": """
        case "$*" in
            *requeue_policy*) cat >/dev/null; echo "$VERDICT" ;;
            *input_gate*) ;;
            *) echo "$*" >>"$CALLS" ;;
        esac
    """,
    "srun": """
        while [ $# -gt 0 ]; do
            case $1 in --output=*) ;; -*) ;; *) break ;; esac
            shift
        done
        echo "srun: words" >&2
        "$@"
        exit $SRUN_CODE
    """,
    "scontrol": """
        echo "scontrol $*" >>"$CALLS"
        [ "$1 $2" = "show hostnames" ] && tr , '\\n' <<<"$3"
        [ "$1 $2" = "show job" ] && echo "JobState=RUNNING Reason=None PreemptTime=None ExcNodeList=n1"
        exit 0
    """,
    "squeue": "exit 0",
    "sbatch": 'echo "sbatch $* ${SLURM_JOB_ID:-clean}" >>"$CALLS"; echo 99',
}


class Job:
    """A job as Slurm runs it: a copy of the script in a spool, with commands of Slurm that note their calls."""

    def __init__(self, folder, **site):
        self.folder = folder / "a run"
        self.folder.mkdir(exist_ok=True)
        self.commands, self.spool, self.calls = folder / "bin", folder / "spool", folder / "calls"
        self.commands.mkdir(exist_ok=True)
        for name, text in COMMANDS.items():
            (self.commands / name).write_text(f"#!/bin/bash\n{text}\n")
            (self.commands / name).chmod(0o755)
        code = slurm_launcher.create(Site(name="here", scheduler="slurm"), RunDir(self.folder)).code
        code.make()
        text = rendered(self.folder, python=str(self.commands / "python"), **site)
        (self.folder / "jobs").mkdir(exist_ok=True)
        self.spool.mkdir(exist_ok=True)
        (self.spool / "slurm_script").write_text(text)
        (self.functions,) = (self.folder / "scripts").glob("functions-*.sh")

    def run(self, verdict="complete||unit||", code=0, restarts=0):
        """Run it; return the exit code, what was printed, and the calls."""
        self.calls.write_text("")
        values = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "0", "SLURM_JOB_NAME": "tiny-train-abc"}
        values |= {"SLURM_JOB_ID": "8", "SLURM_RESTART_COUNT": str(restarts), "SLURMD_NODENAME": "n9"}
        values |= {"VERDICT": verdict, "SRUN_CODE": str(code), "CALLS": str(self.calls)}
        values |= {"PATH": f"{self.commands}:{os.environ['PATH']}", "HOME": os.environ["HOME"]}
        command = ["bash", self.spool / "slurm_script"]
        done = subprocess.run(command, env=values, capture_output=True, text=True, timeout=60, cwd=self.spool)
        return done.returncode, done.stdout + done.stderr, self.calls.read_text().splitlines()


def test_a_copy_of_the_script_runs_its_ranks_and_cleans_up(tmp_path):
    job = Job(tmp_path)
    code, said, calls = job.run()
    assert code == 0 and "exit code 0; complete" in said and "srun: words" in said
    assert [call for call in calls if "submitit" in call] == [f"-P -u -m submitit.core._submit {job.folder}/jobs/"]
    assert list((job.folder / "jobs").iterdir()) == []


def test_what_is_to_come_back_comes_back_in_each_way(tmp_path):
    job = Job(tmp_path, hook='echo "$HPCDDM_EVENT of $HPCDDM_UNIT: $HPCDDM_REASON"')
    code, said, calls = job.run("requeue||unit|NumNodes=2|slot ends", 143)
    assert code == 0 and calls[-2:] == ["scontrol requeue 7_0", "scontrol update JobId=7_0 NumNodes=2"]
    assert "exit code 143; requeue: slot ends" in said and " of unit" not in said
    code, said, calls = job.run("resubmit||unit|--mem=9G|too little", 1, restarts=1)
    (sbatch,) = [call for call in calls if call.startswith("sbatch")]
    flags = "--parsable --array=0 --job-name=tiny-train-abc --dependency=afterany:7_0 --mem=9G"
    assert code == 0 and sbatch == f"sbatch {flags} {job.spool}/slurm_script clean"
    code, said, calls = job.run("failed|stopped|unit||broken", 1)
    assert code == 1 and "stopped of unit: broken" in said and not any("requeue" in call for call in calls)


def test_a_job_without_a_decision_goes_to_another_node_where_the_site_lets_it(tmp_path):
    ways = {"scontrol": ["scontrol requeue 7_0", "scontrol update JobId=7_0 ExcNodeList=n1,n9"], "none": []}
    for way, expected in ways.items():
        code, _, calls = Job(tmp_path, requeue=way).run("", 1)
        assert code == 1 and [call for call in calls if " requeue " in call or " update " in call] == expected


def test_slurms_term_after_a_requeue_loses_no_change_of_the_next_attempt(tmp_path):
    job = Job(tmp_path)
    scontrol = job.commands / "scontrol"
    ended = scontrol.read_text().replace("\n", '\n[ "$1" = update ] && kill -TERM $$\n', 1)
    scontrol.write_text(ended)
    changes = ["ExcNodeList=n2", "StartTime=now+15"]
    for verdict in (f"requeue||unit|{' '.join(changes)}|n2 is broken", "superseded||unit|ExcNodeList=n2|n2 is broken"):
        _, _, calls = job.run(verdict, 143)
        assert "scontrol update JobId=7_0 ExcNodeList=n2" in calls
        assert ("scontrol update JobId=7_0 StartTime=now+15" in calls) == verdict.startswith("requeue")
    _, _, calls = job.run("", 1)
    assert "scontrol update JobId=7_0 ExcNodeList=n1,n9" in calls, "before Python, too"


def test_functions_that_others_changed_are_not_executed(tmp_path):
    job, elsewhere = Job(tmp_path), tmp_path / "elsewhere"
    own = job.functions.read_text()
    for words in ("echo owned", ""):
        job.functions.write_text(f"{own}{words}\n\n")
        code, said, calls = job.run()
        assert code == 1 and calls == [] and "owned" not in said
        assert f"error: {job.functions} was changed since the job was submitted; nothing is run" in said
    # The next submission writes it again, and a link that is in its place is replaced.
    elsewhere.write_text("echo owned\n")
    job.functions.unlink()
    job.functions.symlink_to(elsewhere)
    assert Job(tmp_path).run()[0] == 0 and elsewhere.read_text() == "echo owned\n" and not job.functions.is_symlink()


def test_a_job_without_its_functions_names_the_file_and_a_moved_run_is_looked_for_on_other_nodes(tmp_path):
    job = Job(tmp_path)
    job.functions.unlink()
    code, said, calls = job.run()
    assert code == 1 and calls == [] and f"error: {job.functions} cannot be read: was the run moved" in said
    job.folder.rename(tmp_path / "moved")
    code, said, calls = job.run()
    assert code == 1 and f"{job.folder}: No such file" in said and "scontrol requeue 7_0" in calls
    assert "n9 cannot see the run" in said


def test_functions_of_an_earlier_submission_stay_for_its_jobs(tmp_path, monkeypatch):
    job = Job(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm/functions.sh").write_text("run_unit() { echo my own functions; }\n")
    own = rendered(job.folder, python=str(job.commands / "python"))
    assert job.run()[0] == 0 and job.functions.exists()
    (job.spool / "slurm_script").write_text(own)
    assert job.run()[:2] == (0, "my own functions\n")
