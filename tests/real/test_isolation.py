"""K experts, each in a network and a mount namespace of its own: nothing is shared but read-only shards."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXPERTS = [f"expert-{index:02d}" for index in range(4)]
NAMESPACE = """
set -e
ip link set lo up
mount --make-rprivate /
for shared in {run}/shard {run}/cluster; do
    mount --bind $shared $shared
    mount -o remount,bind,ro $shared
done
for hidden in {hidden}; do
    mount -t tmpfs none $hidden
done
if touch {run}/shard/proof 2>/dev/null; then echo 'the shards are writable' >&2; exit 9; fi
if [ "$(ls /sys/class/net 2>/dev/null | grep -vc '^lo$')" != 0 ] && ip route | grep -q .; then exit 8; fi
exec {hpcddm} run-unit {run} train/{name} --ranks 2
"""


@pytest.mark.root
def test_every_expert_finishes_alone_with_the_weights_of_a_plain_run(run, finished):
    if os.getuid() != 0:
        assert "CI" not in os.environ, "CI runs as root"
        pytest.skip("network and mount namespaces need root")
    for name in EXPERTS:
        shutil.rmtree(run / "train" / name)
        (run / "train" / name).mkdir()
    processes = [start_alone(run, name) for name in EXPERTS]
    for name, process in zip(EXPERTS, processes, strict=True):
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
        assert (run / "train" / name / "weights.safetensors").read_bytes() == (
            finished / "train" / name / "weights.safetensors"
        ).read_bytes(), name


def start_alone(run: Path, name: str) -> subprocess.Popen:
    hidden = " ".join(shlex.quote(str(run / "train" / other)) for other in (*EXPERTS, "monolith") if other != name)
    script = NAMESPACE.format(
        run=shlex.quote(str(run)), hidden=hidden, name=name, hpcddm=f"{shlex.quote(sys.executable)} -m hpcddm.cli"
    )
    return subprocess.Popen(
        ["unshare", "--net", "--mount", "bash", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
