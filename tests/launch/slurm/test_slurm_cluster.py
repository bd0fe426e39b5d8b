"""What scontrol prints, read right; and limits that hold for somebody else passed over."""

import os
import pwd

import pytest

from hpcddm.config.site import Site
from hpcddm.launch.slurm import slurm_cluster
from hpcddm.launch.slurm.client import SlurmUnavailable
from hpcddm.launch.slurm.slurm_cluster import UNLIMITED, SlurmCluster, parse_time_limit, submit_limit

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


@pytest.fixture
def asked(monkeypatch):
    """A cluster's answers; what was asked."""
    commands = []
    answers = {"config": CONFIG.format(enforce="associations,limits"), "partition": PARTITIONS, "assoc_mgr": LIMITS}
    answers["queue"] = "1_0\n1_1\n2\n"

    def query(*command):
        commands.append(command)
        what = next((key for key in answers if key in command), "queue")
        if answers[what] is None:
            raise SlurmUnavailable("no answer")
        return answers[what]

    monkeypatch.setattr(slurm_cluster, "query_slurm", query)
    commands.append(answers)
    return commands


def site(**keys):
    return Site(name="here", scheduler="slurm", **keys)


def test_partitions(asked):
    main, tiny = SlurmCluster().partitions.values()
    assert (main.name, main.is_default, main.max_minutes, main.max_nodes) == ("main", True, 49 * 60 + 30, 4)
    assert (tiny.is_default, tiny.max_minutes, tiny.max_nodes) == (False, UNLIMITED, 2)


@pytest.mark.parametrize(
    "text, value", [("01:00:00", 60), ("1-00:00:00", 1440), ("UNLIMITED", UNLIMITED), ("", UNLIMITED), ("00:30:59", 30)]
)
def test_times(text, value):
    assert parse_time_limit(text) == value


def test_the_size_of_an_array_and_the_room_for_jobs_come_from_the_cluster(asked):
    limits = SlurmCluster().limits(site(), 10)
    assert (limits.max_array, limits.free_jobs) == (8, 37) and "3 of 40 are taken" in limits.reason


def test_each_thing_is_asked_for_once_however_many_jobs_there_are(asked):
    counts = []
    for wanted in (3, 40, 4000):
        del asked[1:]
        SlurmCluster().limits(site(), wanted)
        counts.append(len(asked) - 1)
    assert counts == [3, 3, 3]


def test_a_site_key_comes_first_and_asks_for_no_limits(asked):
    limits = SlurmCluster().limits(site(max_submitted=5), 10)
    assert limits.free_jobs == 2 and "site key max_submitted" in limits.reason
    assert not [command for command in asked[1:] if "assoc_mgr" in command]


def test_no_room_is_never_less_than_none(asked):
    assert SlurmCluster().limits(site(max_submitted=1), 10).free_jobs == 0


@pytest.mark.parametrize("max_parallel, limit, room", [(4, 40, 33), (256, 40, 17), (2, 5, 0), (4, 1, 0), (1, 10, 6)])
def test_a_place_is_kept_for_every_job_that_may_run_and_submit_itself_anew(asked, max_parallel, limit, room):
    keys = {"max_parallel": max_parallel, "max_submitted": limit}
    limits = SlurmCluster().limits(site(requeue="resubmit", **keys), 10)
    assert limits.free_jobs == room
    in_queue = 3 + limits.free_jobs
    assert room == 0 or in_queue + min(max_parallel, in_queue) <= limit
    assert limit == 1 or "kept free for jobs that resubmit themselves" in limits.reason
    assert SlurmCluster().limits(site(**keys), 10).free_jobs == max(limit - 3, 0)


@pytest.mark.parametrize("enforce", ["none", "associations"])
def test_limits_that_nobody_enforces_are_none(asked, enforce):
    asked[0]["config"] = CONFIG.format(enforce=enforce)
    assert SlurmCluster().limits(site(), 10).free_jobs is None
    assert len(asked) - 1 == 1, "one call to Slurm is enough"


def test_the_controllers_own_limit_counts_when_it_comes_near(asked):
    asked[0]["config"] = CONFIG.format(enforce="none")
    limits = SlurmCluster().limits(site(), 51)
    assert limits.free_jobs == 97 and "MaxJobCount 100" in limits.reason


def test_a_controller_that_keeps_its_limits_to_itself_has_none(asked):
    asked[0]["assoc_mgr"] = None
    assert SlurmCluster().limits(site(), 10).free_jobs is None


def test_a_controller_without_an_answer_is_no_cluster_without_limits(asked):
    asked[0]["config"] = None
    with pytest.raises(SlurmUnavailable):
        SlurmCluster().limits(site(), 10)


@pytest.mark.parametrize("keys, limit", [({}, 40), ({"account": "grp"}, 40), ({"account": "rich"}, None)])
def test_the_limit_is_that_of_the_account_that_the_site_names(keys, limit):
    assert submit_limit(LIMITS, site(**keys)) == limit


def test_limits_of_others_are_not_mine():
    assert submit_limit(LIMITS.replace(f"{ME}({os.getuid()})", "x(4711)"), site()) is None
