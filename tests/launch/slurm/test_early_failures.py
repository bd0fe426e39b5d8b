"""Jobs that ended before Python began: how Slurm tells of them, whose fault it is, and which nodes are avoided then."""

import subprocess
import time

import pytest

from hpcddm.config.site import Site
from hpcddm.errors import UserError
from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.launch.array_items import ArrayItem
from hpcddm.launch.base import ArraySpec, SubmissionRefused
from hpcddm.launch.slurm import early_failures as module
from hpcddm.launch.slurm import launcher as slurm_launcher
from hpcddm.launch.slurm.client import SlurmUnavailable
from hpcddm.launch.slurm.early_failures import (
    EarlyFailure,
    blame_nodes,
    find_early_failures,
    is_node_fault,
    printed_reason,
)
from hpcddm.launch.slurm.slurm_cluster import SlurmCluster, SlurmPartition
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.job import JobId
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from tests.attempts import write_attempt
from tests.helpers import tiny

UNITS = ["train/expert-00", "train/expert-01"]
ENDED = "JobState=FAILED ExitCode=1:0 RunTime=00:00:02 BatchHost=n3"
PLAIN = {"scontrol": f"JobId=81 JobName=x {ENDED} NodeList=n3\n", "sacct": "81|FAILED|1:0|n3|2\n"}
ARRAY = {"scontrol": f"JobId=82 ArrayJobId=81 ArrayTaskId=0 {ENDED}\n", "sacct": "81_0|FAILED|1:0|n3|2\n"}
NOTICE = "Maintenance on Friday | see the wiki\n"
NOTICED = {program: f"{NOTICE}{answer}{NOTICE}" for program, answer in PLAIN.items()}


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path)


def submit(run, units=UNITS, cluster=None, site="here"):
    journal = Journal(run.journal)
    token = journal.record_intent("slurm", site, units, "x", cluster)
    journal.record_submitted(token, JobId.on_cluster("81", cluster))
    # Slurm opens the output before the script begins.
    run.jobs.mkdir(exist_ok=True)
    (run.jobs / f"{JobId.on_cluster('81_0', cluster)}.out").touch()
    return token


@pytest.mark.parametrize("cluster", [None, "annex"])
@pytest.mark.parametrize("program", ["scontrol", "sacct"])
@pytest.mark.parametrize("answers", [PLAIN, ARRAY, NOTICED], ids=["plain job", "array", "with notices"])
def test_an_early_end_is_found_where_there_are_no_arrays_too(run, monkeypatch, answers, program, cluster):
    def query(name, *flags):
        if name != program:
            raise SlurmUnavailable("no")
        return answers[name]

    monkeypatch.setattr(module, "query_slurm", query)
    submit(run, UNITS[:1], cluster)
    ends = find_early_failures(Journal(run.journal).submissions(), UNITS[:1])
    assert ends == {UNITS[0]: EarlyFailure(JobId.on_cluster("81_0", cluster), "n3", "FAILED", "1:0", 2)}
    assert "setup, python or container may be wrong" in ends[UNITS[0]].text


def begin(run, token, node, unit=UNITS[1]):
    """Write the attempt that a job began on a node."""
    open_attempt(run.logs(unit), Ranks(0, 0, 1, 1, f"slurm-x-{token}-81_1.0"), {"node_list": node})


def blames(run, exit_code="1:0", state="FAILED"):
    early = EarlyFailure(JobId("81_0"), "n3", state, exit_code, 2)
    return is_node_fault(early, UNITS[0], Journal(run.journal).submissions(), run)


def test_a_wrong_line_of_the_user_is_not_the_fault_of_a_node(run):
    earlier = submit(run)
    begin(run, earlier, "n1")
    token = submit(run)
    assert not blames(run), "with the setup of another submission"
    begin(run, token, "n3")
    assert not blames(run), "on the same node"
    begin(run, submit(run, UNITS[1:], site="there"), "n1")
    assert not blames(run), "at another site"
    begin(run, submit(run, ["router/all"]), "n1", "router/all")
    assert not blames(run), "another stage may have another setup"


def test_the_node_is_to_blame_where_the_script_did_not_begin_or_its_output_is_not_in_the_run(run):
    submit(run)
    assert [blames(run), blames(run, "0:53"), blames(run, state="NODE_FAIL")] == [False, True, True]
    (run.jobs / "81_0.out").unlink()
    assert blames(run)


@pytest.mark.parametrize("is_later", [False, True])
def test_the_node_is_to_blame_where_its_like_began_elsewhere(run, is_later):
    token = submit(run)
    begin(run, submit(run, UNITS[1:]) if is_later else token, "n[1-2]")
    assert blames(run)


def test_a_job_whose_script_printed_why_its_unit_ended_is_not_the_fault_of_a_node(run):
    token = submit(run)
    begin(run, token, "n[1-2]")
    early, reason = EarlyFailure(JobId("81_0"), "n3", "FAILED", "1:0", 2), "the ranks could leave no record in /x: full"
    assert blames(run) and printed_reason(early, run) == ""
    line = f"2026-11-30T12:00:00 81_0: exit code 1; failed: {reason}"
    (run.jobs / "81_0.out").write_text(f"a word of setup\n{line}\nthe hook's words\n")
    assert printed_reason(early, run) == reason and not blames(run)


def excluded(run, monkeypatch, cluster=None, **site):
    """Nodes that an array excludes at a site whose partition has four, behind its launcher and itself."""
    monkeypatch.setattr(SlurmCluster, "partitions", {"main": SlurmPartition("main", True, 60, 4, 4)})
    names = "hpcddm.launch.slurm.slurm_cluster.query_slurm"
    monkeypatch.setattr(names, lambda *command: command[-1].replace(",", "\n"))
    launcher = slurm_launcher.create(Site(**{"name": "here", "scheduler": "slurm", **site}), run)
    resources = launcher.site.resources_for("train").model_copy(update={"cluster": cluster})
    array = ArraySpec("x-train", UNITS, [], resources, [], 2)
    return launcher, array, launcher._resources(array).exclude


def lose(run, *nodes, **place):
    journal = Journal(run.journal)
    for node in nodes:
        journal.record_node_loss(submit(run, **place), UNITS[0], node)


def test_nodes_that_ended_attempts_are_avoided_by_what_is_submitted_next(run, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "query_slurm", lambda *command: "")
    token, day = submit(run), 86_400
    unit = next(unit for unit in plan_units(tiny(tmp_path)) if unit.key == UNITS[0])
    item = ArrayItem(run, unit, tiny(tmp_path), UNITS[0], ())
    ended = {"decision": "requeue", "reason": "refused", "by_slurm": True}
    for number, (node, age) in enumerate({"n1": 2 * day, "n2": 60, "n3": 60}.items(), start=1):
        verdict = ended | {"nodes": [node], "ended": time.time() - age}
        write_attempt(run, UNITS[0], number, token, "81_0", verdict=verdict)
    first, second = blame_nodes([item], run, 4)
    words = f"{UNITS[0]}: n2 ended attempt 2 (refused). Jobs avoid it from now on"
    assert first.startswith(words) and ": n3 " in second
    assert excluded(run, monkeypatch)[2] == "n2,n3"
    blame_nodes([item], run, 4)
    assert run.journal.read_text().count('"lost"') == 2


def test_nodes_of_another_cluster_or_site_are_not_named_to_this_one(run, monkeypatch):
    lose(run, "annex-n1", cluster="annex")
    lose(run, "there-n1", site="there")
    assert excluded(run, monkeypatch)[2] is None
    assert excluded(run, monkeypatch, "annex")[2] == "annex-n1"


def test_a_partition_keeps_the_nodes_that_a_unit_needs(run, monkeypatch):
    lose(run, "n1", "n2", "n3", "n4")
    assert excluded(run, monkeypatch)[2] == "n2,n3,n4"
    for resources, nodes in (({"nodes": 3}, "n4"), ({"nodes": 4}, None), ({"exclude": "n9,n8"}, "n9,n8,n4")):
        assert excluded(run, monkeypatch, resources=resources)[2] == nodes


def test_where_sbatch_has_no_nodes_left_the_key_that_allows_them_is_named(run, monkeypatch):
    lose(run, "n1")
    launcher, array, _ = excluded(run, monkeypatch)
    refusal = subprocess.CompletedProcess([], 1, "", "sbatch: error: Requested node configuration is not available")
    monkeypatch.setattr(slurm_launcher, "call_slurm", lambda *command, **options: refusal)
    with pytest.raises(UserError, match="avoids n1, .* max_excluded_nodes: 0"):
        launcher.check([array])
    monkeypatch.setattr("hpcddm.launch.slurm.executor.TemplateExecutor.submit_elements", refuse)
    monkeypatch.setattr(launcher.code, "make", lambda: "code")
    with pytest.raises(SubmissionRefused, match="Invalid node name; it avoids n1, .* max_excluded_nodes: 0"):
        launcher.submit(array, "0123456789ab", "0001-x.sbatch")


def refuse(executor):
    raise SubmissionRefused("sbatch refused x: Invalid node name")
