"""The testbed itself: several side by side, and the Slurm that comes first in PATH."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.real.endless import slurm, wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.long]
DAEMONS = ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd")
WRAPPER = """#!/bin/bash
echo "$0" >> {log}
exec -a {program} {real} "$@"
"""


def call(action, folder, **environment):
    command = ["bash", f"slurm/testbed/{action}.sh", str(folder)]
    settings = os.environ | {"PYTHON": sys.executable} | environment
    return subprocess.run(command, env=settings, capture_output=True, text=True, timeout=300, check=True).stdout


def daemons(folder):
    """Process ids of the daemons of one testbed."""
    found = set()
    for process in psutil.process_iter():
        try:
            is_daemon = any(process.cmdline()[0].endswith(name) for name in DAEMONS)
            if is_daemon and process.environ().get("SLURM_CONF", "").startswith(f"{folder}/"):
                found.add(process.pid)
        except (psutil.Error, IndexError):
            continue
    return found


def start_sleeping(conf):
    """A job's id, once it runs."""
    flags = ("--parsable", "--output=/dev/null", "--array=0-0", "--job-name=side-by-side", "--wrap=exec sleep 300")
    job = slurm(conf, "sbatch", *flags).strip()
    wait_for(lambda: state(conf, job) == "RUNNING")
    return job


def state(conf, job):
    return slurm(conf, "squeue", "--noheader", f"--jobs={job}", "--format=%T").strip()


@pytest.fixture
def second(home, tmp_path):
    """Another testbed, with a slurmctld that comes first in PATH; its folder, and who was started that way."""
    programs, log = tmp_path / "programs", tmp_path / "started"
    programs.mkdir()
    real = shutil.which("slurmctld", path=f"{os.environ['PATH']}:/usr/sbin")
    wrapper = programs / "slurmctld"
    wrapper.write_text(WRAPPER.format(log=log, program="slurmctld", real=real))
    wrapper.chmod(0o755)
    # A socket's path is short.
    folder = Path(tempfile.mkdtemp(prefix="hpcddm-"))
    try:
        call("up", folder, PATH=f"{programs}:{os.environ['PATH']}")
        yield folder, log
    finally:
        call("down", folder)
        shutil.rmtree(folder)


def test_two_testbeds_live_side_by_side_and_each_ends_its_own(home, second):
    folder, log = second
    first, confs = Path(home).parent.parent, (home, f"{second[0]}/home/slurm.conf")
    clusters = len(list(folder.glob("*/slurm.conf")))
    assert len(log.read_text().splitlines()) == clusters, "every slurmctld is the one that PATH names first"
    before = daemons(first)
    assert len(before) == len(daemons(folder)) > 10
    jobs = [start_sleeping(conf) for conf in confs]
    try:
        nodes = [slurm(conf, "sinfo", "--noheader", "--Node", "--format=%N").split() for conf in confs]
        assert not set(nodes[0]) & set(nodes[1]) and jobs[0] != jobs[1]
        call("down", folder)
        assert not daemons(folder) and daemons(first) == before
        assert state(home, jobs[0]) == "RUNNING"
        assert call("up", first).startswith("testbed: up already")
    finally:
        slurm(home, "scancel", jobs[0])
