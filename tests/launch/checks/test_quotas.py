"""What a quota leaves, from answers written down after the manuals of quota(1), lfs-quota(1) and mmlsquota.

None of these texts was captured on a cluster.
"""

import os
import time
from pathlib import Path

import pytest

from hpcddm.errors import UserError
from hpcddm.launch.checks import disk_estimates, preflight, quotas
from hpcddm.pipeline.stage import DiskSpace
from hpcddm.runs.run_dir import RunDir

QUOTA = """Disk quotas for user ann (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
      /dev/sda1      12       0       0       0       4       0       0       0
nas:/export/home 8734212 10485760 11534336       0   99990*  90000  100000 1700000000
"""
LUSTRE = "  /lustre  1048576  0 3145728  -  [120]  0  100  -\n"
GPFS = """mmlsquota::HEADER:version:reserved:reserved:filesystemName:quotaType:id:name:blockUsage:blockQuota:\
blockLimit:blockInDoubt:blockGrace:filesUsage:filesQuota:filesLimit:filesInDoubt:filesGrace:\
remarks:quota:defQuota:fid:filesetname
mmlsquota::0:1:::fs1:GRP:100:team:1:2:3:0:none:1:2:3:0:none:e:on:off:::
mmlsquota::0:1:::fs1:USR:1000:ann:1024:4096:0:0:none:7:0:0:0:none:e:on:off:::
"""
MOUNTS = """22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 0:40 / /home rw shared:1 - nfs4 nas:/export/home rw
24 22 0:41 / /home/with\\040space rw - lustre mgs@tcp:/scratch rw
"""


ANSWERS = [
    (quotas.parse_quota_table, QUOTA, "nas:/export/home", (1024 * (11534336 - 8734212), 10)),
    (quotas.parse_quota_table, QUOTA, "/dev/sda1", (None, None)),
    (quotas.parse_quota_table, QUOTA, "elsewhere", (None, None)),
    (quotas.parse_quota_table, LUSTRE, "mgs@tcp:/lustre", (2 * 1024**3, 0)),
    (quotas.parse_mmlsquota, GPFS, "/dev/fs1", (3072 * 1024, None)),
    (quotas.parse_mmlsquota, "", "/dev/fs1", (None, None)),
    (quotas.parse_quota_table, "quota: error while getting quota from nas (timeout)\n", "nas:/x", (None, None)),
]


@pytest.mark.parametrize("parse, text, device, left", ANSWERS)
def test_what_is_left_is_read(parse, text, device, left):
    assert parse(text, device, "/lustre") == left


def test_the_file_system_of_a_folder_is_the_longest_mount_point():
    assert quotas.mount_of(Path("/home/ann"), MOUNTS) == ("nas:/export/home", "/home", "nfs4")
    assert quotas.mount_of(Path("/homes"), MOUNTS) == ("/dev/sda1", "/", "ext4")
    assert quotas.mount_of(Path("/home/with space/x"), MOUNTS)[2] == "lustre"


def command(folder, monkeypatch, body):
    """A program `quota` that comes before the real one."""
    (folder / "bin").mkdir()
    (folder / "bin" / "quota").write_text(f"#!/bin/bash\n{body}\n")
    (folder / "bin" / "quota").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


def test_a_quota_that_is_nearly_full_is_refused_before_anything_is_submitted(tmp_path, monkeypatch):
    device, place, kind = quotas.mount_of(tmp_path, quotas.MOUNTS.read_text())
    assert kind not in ("lustre", "gpfs")
    command(tmp_path, monkeypatch, f"echo '{device} 1000 0 1500 0 10 0 14 0'")
    assert disk_estimates.free_space(tmp_path / "not" / "yet") == (500 * 1024, 4)
    with pytest.raises(UserError, match="are needed and .* are free"):
        preflight.check_disk_space(DiskSpace(kept=10**6), RunDir(tmp_path))
    with pytest.raises(UserError, match="about 5 files are needed and 4 inodes are free"):
        preflight.check_disk_space(DiskSpace(files=5), RunDir(tmp_path))


def test_a_server_that_does_not_answer_costs_some_seconds_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(quotas, "TIMEOUT_SECONDS", 0.3)
    command(tmp_path, monkeypatch, "exec sleep 30")
    started = time.monotonic()
    assert quotas.remaining_quota(tmp_path) == (None, None) and time.monotonic() - started < 10
