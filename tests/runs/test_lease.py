import resource
import subprocess
import sys

import pytest

from hpcddm.errors import UserError
from hpcddm.runs.lease import HeldElsewhere, lease

HOLD = """
import sys
from pathlib import Path
from hpcddm.runs.lease import lease
with lease(Path(sys.argv[1]), "the other one"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_second_is_told_who_holds_a_lease_which_goes_with_its_holder(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(HeldElsewhere, match=rf"the other one \(process {holder.pid} on .*\) is at work here"):
            with lease(tmp_path / "lock", "me"):
                pass
        holder.kill()
    with lease(tmp_path / "lock", "me"):
        pass


def test_a_lease_can_be_taken_again_after_an_error(tmp_path):
    for _ in range(2):
        with pytest.raises(KeyError), lease(tmp_path / "deep" / "lock", "me"):
            raise KeyError


def test_a_place_that_takes_no_lock_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file"), lease(tmp_path / "file" / "lock", "me"):
        pass


def test_a_full_disk_takes_no_name_of_the_holder_and_gives_the_lock(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with lease(tmp_path / "lock", "me"):
            assert (tmp_path / "lock").read_text() == ""
            with pytest.raises(HeldElsewhere, match="another process is at work"), lease(tmp_path / "lock", "you"):
                pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
