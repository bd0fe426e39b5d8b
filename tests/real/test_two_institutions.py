"""Two clusters that are two institutions: what one has, the other can neither reach nor read nor vouch for."""

import os
import pwd
import re
import sys
from pathlib import Path

import psutil
import pytest

from tests.institutions import Institution, institution, start

pytestmark = [pytest.mark.slurm, pytest.mark.root]
CONNECT = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=5)"


def setting(site: Institution, key: str) -> str:
    """A value in a site's slurm.conf."""
    conf = (site.testbed / site.name / "slurm.conf").read_text()
    return re.search(rf"^{key}=(?:socket=)?([^,\n]+)", conf, re.MULTILINE)[1]


def test_jobs_run_as_the_user_of_their_institution(two_institutions):
    for site in two_institutions:
        site.run("srun", "sh", "-c", "id -un > who; cat /proc/net/dev > network")
        written = site.folder / "who"
        assert written.read_text().strip() == written.owner() == site.user != "root"
        interfaces = re.findall(r"^ *(\S+):", (site.folder / "network").read_text(), re.MULTILINE)
        assert interfaces == ["lo"]
        assert "submit" in site.run("srun", sys.executable, "-m", "hpcddm.cli", "--help").stdout
    assert len({site.user for site in two_institutions}) == 2


def test_a_credential_counts_at_its_own_institution_only(two_institutions):
    for site, other in (two_institutions, reversed(two_institutions)):
        ours, theirs = setting(site, "AuthInfo"), setting(other, "AuthInfo")
        credential = site.run("munge", "--no-input", f"--socket={ours}").stdout.strip()
        accept = 'unmunge --socket="$SOCKET" <<< "$CREDENTIAL"'
        assert site.user in site.run("bash", "-c", accept, SOCKET=ours, CREDENTIAL=credential).stdout
        refused = other.run("bash", "-c", accept, check=False, SOCKET=theirs, CREDENTIAL=credential)
        assert refused.returncode and "Invalid credential" in refused.stderr
        outside = site.run("munge", "--no-input", f"--socket={theirs}", check=False)
        assert outside.returncode and "Permission denied" in outside.stderr


@pytest.mark.parametrize("start_it", [(), ("srun",)], ids=["login", "job"])
def test_no_connection_leads_to_the_other_institution(two_institutions, start_it):
    for site, other in (two_institutions, reversed(two_institutions)):
        port = setting(other, "SlurmctldPort")
        other.run(*start_it, sys.executable, "-c", CONNECT, port)
        refused = site.run(*start_it, sys.executable, "-c", CONNECT, port, check=False)
        assert "ConnectionRefusedError" in refused.stderr


def test_no_user_reads_the_folder_of_the_other_institution(two_institutions):
    for site, other in (two_institutions, reversed(two_institutions)):
        secret = site.folder / "secret"
        assert site.run("sh", "-c", 'echo 42 > "$1"; cat "$1"', "sh", secret).stdout == "42\n"
        assert site.folder.stat().st_mode & 0o777 == 0o700
        for path in (secret, site.folder, site.testbed / site.name, site.testbed / "logs"):
            refused = other.run("ls", path, check=False)
            assert refused.returncode and "Permission denied" in refused.stderr, path


def test_an_institution_is_repaired_in_its_network_and_leaves_nothing(two_institutions, tmp_path_factory):
    testbed = two_institutions[0].testbed.parent / "third"
    with institution("partner", testbed) as site:
        user = pwd.getpwnam(site.user)
        temporary = Path(site.run("mktemp", "-d").stdout.strip())
        detached = int(site.run("sh", "-c", "setsid sleep 600 > /dev/null 2>&1 & echo $!").stdout)
        controller, *_ = (one for one in psutil.process_iter() if belongs_to(one, site, "slurmctld"))
        network = os.readlink(f"/proc/{controller.pid}/ns/net")
        assert os.readlink(f"/proc/{detached}/ns/net") == network != os.readlink("/proc/self/ns/net")
        controller.kill()
        assert "1 of its daemons started" in start("partner", testbed)
        assert site.run("srun", "readlink", "/proc/self/ns/net").stdout.strip() == network
    assert user.pw_name not in {one.pw_name for one in pwd.getpwall()}
    left = [one for one in psutil.process_iter() if one.status() != psutil.STATUS_ZOMBIE and user.pw_uid in one.uids()]
    assert not left and not temporary.exists() and not (testbed / "partner").exists()
    assert all(one.run("srun", "true") for one in two_institutions), "those that run beside it go on"


def belongs_to(process: psutil.Process, site: Institution, program: str) -> bool:
    try:
        conf = process.environ().get("SLURM_CONF", "")
        return process.name() == program and conf.startswith(f"{site.testbed}/")
    except psutil.Error:
        return False
