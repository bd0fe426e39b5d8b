"""What scontrol prints, read right; and limits that hold for somebody else passed over."""

import os
import pwd

import pytest

from hpcddm.config.site import Site
from hpcddm.jobs.resource_requests import parse_minutes
from hpcddm.launch.slurm import slurm_cluster
from hpcddm.launch.slurm.client import SlurmUnavailable
from hpcddm.launch.slurm.slurm_cluster import UNLIMITED, SlurmCluster

ME = pwd.getpwuid(os.getuid()).pw_name
CONFIG = """Configuration data as of 2026-11-20T09:00:00
AccountingStorageEnforce = {enforce}
AccountingStorageTRES   = cpu,mem,energy,node,billing,fs/disk,vmem,pages
MaxArraySize            = 8
MaxJobCount             = 100
SlurmctldParameters     = a=b,c=d

Slurmctld(primary) at vm is UP
"""
PARTITIONS = """\
PartitionName=main AllowGroups=ALL Default=YES MaxNodes=UNLIMITED MaxTime=2-01:30:00 TotalNodes=4 TRES=cpu=16
PartitionName=tiny AllowGroups=ALL Default=NO MaxNodes=2 MaxTime=UNLIMITED TotalNodes=4 TRES=cpu=16
"""
LIMITS = f"""Current Association Manager state

Association Records

ClusterName=home Account=root UserName= Partition= Priority=0 ID=1
    MaxJobs= MaxJobsAccrue= MaxSubmitJobs=3(0) MaxWallPJ=
ClusterName=home Account=grp UserName={ME}({os.getuid()}) Partition= Priority=0 ID=2
    ParentAccount= Lft=2 DefAssoc=Yes
    GrpSubmitJobs=N(0) GrpWall=N(0.00)
    MaxJobs= MaxJobsAccrue= MaxSubmitJobs=40(2) MaxWallPJ=
ClusterName=home Account=rich UserName={ME}({os.getuid()}) Partition= Priority=0 ID=3
    ParentAccount= Lft=2 DefAssoc=No
    MaxJobs= MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=
"""


class Asked(dict):
    """Answers of a cluster, and what was asked."""

    def __init__(self):
        config = CONFIG.format(enforce="associations,limits")
        super().__init__(config=config, partition=PARTITIONS, assoc_mgr=LIMITS, queue="1_0\n1_1\n2\n")
        self.commands = []

    def query(self, *command):
        self.commands.append(command)
        answer = self[next((key for key in self if key in command), "queue")]
        if answer is None:
            raise SlurmUnavailable("no answer")
        return answer


@pytest.fixture
def asked(monkeypatch):
    answers = Asked()
    monkeypatch.setattr(slurm_cluster, "query_slurm", answers.query)
    return answers


def site(**keys):
    return Site(name="here", scheduler="slurm", **keys)


def limits(wanted=10, **keys):
    return SlurmCluster().limits(site(**keys), wanted)


def test_times():
    times = {"01:00:00": 60, "1-00:00:00": 1440, "UNLIMITED": UNLIMITED, "": UNLIMITED, "00:30:59": 30}
    assert {text: parse_minutes(text) or UNLIMITED for text in times} == times


def test_the_size_of_an_array_and_the_room_for_jobs_come_from_the_cluster(asked):
    found = limits()
    assert (found.max_array, found.free_jobs) == (8, 37) and "3 of 40 are taken" in found.reason


def test_a_site_key_comes_first_asks_for_no_limits_and_leaves_never_less_than_no_room(asked):
    found = limits(max_submitted=5)
    assert found.free_jobs == 2 and "site key max_submitted" in found.reason
    assert limits(max_submitted=1).free_jobs == 0
    assert not [command for command in asked.commands if "assoc_mgr" in command]


@pytest.mark.parametrize("max_parallel, limit, room", [(4, 40, 33), (256, 40, 17), (2, 5, 0), (4, 1, 0), (1, 10, 6)])
def test_a_place_is_kept_for_every_job_that_may_run_and_submit_itself_anew(asked, max_parallel, limit, room):
    keys = {"max_parallel": max_parallel, "max_submitted": limit}
    found = limits(requeue="resubmit", **keys)
    assert found.free_jobs == room
    in_queue = 3 + found.free_jobs
    assert room == 0 or in_queue + min(max_parallel, in_queue) <= limit
    assert limit == 1 or "kept free for jobs that resubmit themselves" in found.reason
    assert limits(**keys).free_jobs == max(limit - 3, 0)


@pytest.mark.parametrize("enforce", ["none", "associations"])
def test_limits_that_nobody_enforces_are_none_but_the_controllers_own_when_it_comes_near(asked, enforce):
    asked["config"] = CONFIG.format(enforce=enforce)
    assert limits().free_jobs is None and len(asked.commands) == 1, "one call to Slurm is enough"
    found = limits(51)
    assert found.free_jobs == 97 and "MaxJobCount 100" in found.reason


def test_a_controller_that_keeps_its_limits_to_itself_has_none_and_one_without_an_answer_is_no_such(asked):
    asked["assoc_mgr"] = None
    assert limits().free_jobs is None
    asked["config"] = None
    with pytest.raises(SlurmUnavailable):
        limits()
