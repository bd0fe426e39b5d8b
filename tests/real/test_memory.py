"""A rank that is killed for want of memory is named, and the next attempt asks for more, on a real Slurm."""

import re
import shutil
import signal

import pytest

from hpcddm.jobs.attempt_records import read_records
from hpcddm.runs.unit_keys import expert_key
from tests.real.endless import is_training, prepare, slurm, submit, wait_for, write_site
from tests.real.storm import Storm

pytestmark = [pytest.mark.slurm, pytest.mark.long]
KEY = expert_key(0)
KILL_THE_SCRIPT_AT_ITS_FIRST_UPDATE = """#!/bin/bash
[ "$1" = update ] && mkdir {tools}/killed 2>/dev/null && kill -9 $(ps -o ppid= $PPID) && exit 1
exec {scontrol} "$@"
"""


class Killer(Storm):
    """The hand that kills ranks of a run."""

    @property
    def run(self):
        return self.folder / "run"

    def kill_rank_1(self):
        """Kill it; return its node, the verdict's reason, and the memory of the next execution, which must come."""
        number, node = self.last.number, self.nodes()[1]
        self.ranks()[1].send_signal(signal.SIGKILL)
        self.until(lambda: read_records(self.run / "logs" / KEY)[number - 1].decision, 120, "a verdict")
        wait_for(lambda: is_training(self.made, KEY, number + 1), 180)
        said = self.slurm("scontrol", "show", "job", "-o", self.last.job)
        return (
            node,
            read_records(self.run / "logs" / KEY)[number - 1].reason,
            re.search(r"MinMemoryNode=(\S+)", said)[1],
        )


def test_a_rank_without_memory_is_named_the_next_attempt_has_more_and_the_job_is_never_held(home, tmp_path):
    tools = tmp_path / "tools"
    site = write_site(tmp_path, raise_on_retry={"memory_gb": 1.5}, stages={"train": {"nodes": 2}})
    killer = Killer(tmp_path, home, 0)
    killer.made = prepare(tmp_path, str(site))
    array = submit(killer.made, KEY, str(site), home)
    try:
        wait_for(lambda: is_training(killer.made, KEY))
        node, reason, memory = killer.kill_rank_1()
        assert reason.startswith(f"out of memory on {node}, it seems: rank 1") and "asks for 2 GB now" in reason
        assert memory == "2G"

        # Whatever becomes of the script between the requeue and the change: the job comes back, as it was.
        wrapper = KILL_THE_SCRIPT_AT_ITS_FIRST_UPDATE.format(tools=tools, scontrol=shutil.which("scontrol"))
        (tools / "scontrol").write_text(wrapper)
        (tools / "scontrol").chmod(0o755)
        assert killer.kill_rank_1()[2] == "2G" and (tools / "killed").exists()
    finally:
        slurm(home, "scancel", array)
