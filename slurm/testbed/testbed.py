"""A real Slurm with two clusters on one machine, in one folder, listening on loopback only.

    home      nodes h1 to h4, with slurmdbd and a MariaDB of its own: sacct works
    partner   nodes p1 to p4, with a munge key of its own and no accounting: sacct fails

SLURM_CONF selects the cluster. All daemons run as the user who calls this, and so do the jobs.
'up' looks at what is there and starts what is missing, so it also repairs a testbed in which
something died; 'down' ends everything and removes all but the logs.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import getpass
import os
import shutil
import socket
import string
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from daemons import (CGROUPS, PATH, Daemon, TestbedError, cgroup_folders, cgroup_pids, end, end_gently,
                     owner_of_port, processes, remove_cgroups, running, start, tail, wait_until)

HERE = Path(__file__).resolve().parent
HOST = socket.gethostname().split(".")[0]


@dataclass(frozen=True)
class Cluster:
    name: str
    letter: str
    port: int  # the first of this cluster's: slurmctld, slurmdbd, then one per node
    accounting: str

    @property
    def nodes(self) -> list[str]:
        return [f"{self.letter}{number}" for number in range(1, 5)]

    @property
    def node_ports(self) -> list[int]:
        return [self.port + 10 + number for number in range(1, 5)]


HOME = Cluster("home", "h", 17010, "accounting_storage/slurmdbd")
PARTNER = Cluster("partner", "p", 17110, "accounting_storage/none")
CLUSTERS = (HOME, PARTNER)
NODES = [node for cluster in CLUSTERS for node in cluster.nodes]

# How Slurm keeps track of a job's processes, best first: (is it there?, proctrack plugin, cgroup plugin).
TRACKING = {
    "cgroup/v1": (lambda: os.access(CGROUPS / "freezer/cgroup.procs", os.W_OK), "cgroup", "cgroup/v1"),
    "cgroup/v2": (lambda: os.access(CGROUPS / "cgroup.procs", os.W_OK), "cgroup", "cgroup/v2"),
    "linuxproc": (lambda: True, "linuxproc", "cgroup/v1"),  # slurmd wants the name of one even so
}


class Testbed:
    def __init__(self, folder: Path):
        self.folder = folder
        self.logs = folder / "logs"
        # Counts the lives of this folder. Its presence says that the folder is a testbed's.
        self.generation = folder / "generation"
        # The way of tracking that was found to work, so that a repair does not try all again.
        self.tracking = folder / "tracking"

    def conf(self, cluster: Cluster) -> Path:
        return self.folder / cluster.name / "slurm.conf"

    # -- what runs ---------------------------------------------------------------------------

    def basis(self) -> list[Daemon]:
        """What both clusters stand on, whatever their settings."""
        return [*map(self.munge, CLUSTERS), self.database()]

    def slurm_daemons(self, cluster: Cluster) -> list[Daemon]:
        conf = self.conf(cluster)
        accounting = Daemon(f"{cluster.name}-slurmdbd", ("slurmdbd", "-D"), conf, cluster.port + 1)
        controller = Daemon(f"{cluster.name}-slurmctld", ("slurmctld", "-D"), conf, cluster.port)
        nodes = [Daemon(f"{cluster.name}-slurmd-{node}", ("slurmd", "-D", "-N", node), conf, port)
                 for node, port in zip(cluster.nodes, cluster.node_ports)]
        return [*([accounting] if cluster is HOME else []), controller, *nodes]

    def munge(self, cluster: Cluster) -> Daemon:
        here = self.folder / cluster.name / "munge"
        argv = ("munged", "--foreground", "--force", f"--socket={here}/socket", f"--key-file={here}/key",
                f"--log-file={here}/log", f"--pid-file={here}/pid", f"--seed-file={here}/seed")
        return Daemon(f"{cluster.name}-munged", argv, self.conf(cluster), socket=here / "socket")

    def database(self) -> Daemon:
        here = self.folder / "home/db"
        argv = ("mariadbd", "--no-defaults", f"--user={getpass.getuser()}", f"--datadir={here}/data",
                f"--socket={here}/socket", f"--pid-file={here}/pid", "--skip-networking",
                "--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0")
        return Daemon("home-mariadb", argv, self.conf(HOME), socket=here / "socket")

    def ensure(self, daemon: Daemon) -> bool:
        """Starts a daemon unless it runs; True if it had to."""
        if running(daemon, self.folder):
            return False
        start(daemon, self.logs, {"MYSQL_UNIX_PORT": str(self.database().socket)})
        return True

    # -- files -------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Makes folders, keys and the empty database, where they are missing."""
        if any(self.folder.iterdir()) and not self.generation.exists():
            raise TestbedError(f"{self.folder} exists and is not a testbed: choose another folder")
        self.logs.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "home").exists():  # a new life: see FirstJobId in slurm.conf.in
            count = int(self.generation.read_text()) if self.generation.exists() else 0
            self.generation.write_text(f"{count + 1}\n")
        for cluster in CLUSTERS:
            for name in ("state", "spool", "munge"):
                (self.folder / cluster.name / name).mkdir(parents=True, exist_ok=True)
            key = self.folder / cluster.name / "munge/key"
            if not key.exists():
                key.touch(mode=0o600)
                key.write_bytes(os.urandom(128))
        data = self.folder / "home/db/data"
        if not data.exists():
            self.make_database(data)

    def make_database(self, data: Path) -> None:
        """Under another name first, so that a half-made one is never taken for whole."""
        half = data.with_name("half-made")
        shutil.rmtree(half, ignore_errors=True)
        data.parent.mkdir(mode=0o700, exist_ok=True)  # the database's root has no password
        log = self.logs / "home-mariadb-install.out"
        with log.open("wb") as output:
            made = subprocess.run(["mariadb-install-db", "--no-defaults", f"--user={getpass.getuser()}",
                                   f"--datadir={half}", "--auth-root-authentication-method=normal",
                                   "--skip-test-db", "--innodb-log-file-size=8M"],
                                  env={"PATH": PATH}, stdout=output, stderr=output)
        if made.returncode:
            raise TestbedError(f"mariadb-install-db failed:\n{tail(log)}")
        half.rename(data)

    def write_configuration(self, cluster: Cluster, tracking: str) -> bool:
        """Fills in the templates; True if that changed anything that is there."""
        _, proctrack, cgroup_plugin = TRACKING[tracking]
        names = {
            "cluster": cluster.name, "host": HOST, "user": getpass.getuser(),
            "folder": self.folder / cluster.name, "logs": self.logs, "munge_socket": self.munge(cluster).socket,
            "ctld_port": cluster.port, "dbd_port": cluster.port + 1, "accounting": cluster.accounting,
            "nodes": f"{cluster.letter}[1-4]", "node_ports": f"[{cluster.node_ports[0]}-{cluster.node_ports[-1]}]",
            "proctrack": f"proctrack/{proctrack}", "cgroup_plugin": cgroup_plugin,
            "communication": bind_to_loopback(),
            "max_array": os.environ.get("HPCDDM_TESTBED_MAX_ARRAY", "1001"),
            "first_job_id": 10000 * int(self.generation.read_text()) + 1,
        }
        changed = False
        for template in sorted(HERE.glob("*.conf.in")):
            target = self.folder / cluster.name / template.stem
            text = string.Template(template.read_text()).substitute(names)
            if not target.exists() or target.read_text() != text:
                target.touch(mode=0o600)  # slurmdbd insists
                target.write_text(text)
                changed = True
        return changed

    # -- up ----------------------------------------------------------------------------------

    def up(self) -> None:
        began = time.monotonic()
        self.prepare()
        self.require_free_ports()
        started = sum(map(self.ensure, self.basis()))
        tracking = self.tracking.read_text() if self.tracking.exists() else ""
        if tracking:
            started += self.start_slurm(tracking)
            self.require_fit_nodes()
        else:
            tracking, more = self.find_tracking()
            started += more
            self.tracking.write_text(tracking)
        self.say_what_is_up(tracking, started, time.monotonic() - began)

    def require_free_ports(self) -> None:
        taken = []
        for daemon in [*self.slurm_daemons(HOME), *self.slurm_daemons(PARTNER)]:
            owner = None if running(daemon, self.folder) else owner_of_port(daemon.port)
            if owner:
                taken.append(f"port {daemon.port} on 127.0.0.1, meant for {daemon.name}, is taken by {owner}")
        if taken:
            raise TestbedError("\n".join(taken))

    def find_tracking(self) -> tuple[str, int]:
        """Tries the ways of tracking, best first. Whether one works shows only when a step starts."""
        for tracking in [name for name, (possible, _, _) in TRACKING.items() if possible()]:
            try:
                started = self.start_slurm(tracking)
                self.require_fit_nodes()
                for cluster in CLUSTERS:
                    self.run(cluster, "srun", "--immediate=15", "-N4", "-n4", "-J", "testbed-check", "true")
                return tracking, started
            except TestbedError as error:
                print(f"testbed: with processes tracked by {tracking}: {error}")
        raise TestbedError(f"the clusters do not come up; the logs are in {self.logs}")

    def start_slurm(self, tracking: str) -> int:
        """Starts what does not run; returns how many daemons that were."""
        changed = [cluster for cluster in CLUSTERS if self.write_configuration(cluster, tracking)]
        started = 0
        for cluster in CLUSTERS:
            daemons = self.slurm_daemons(cluster)
            if cluster in changed:  # jobs survive this, as they do on any cluster
                end_gently(lambda: [pid for daemon in daemons for pid in running(daemon, self.folder)])
            for daemon in daemons:
                started += self.ensure(daemon)
                if daemon.name == "home-slurmdbd":
                    self.register_home()
        return started

    def register_home(self) -> None:
        """slurmctld does not start before slurmdbd knows its cluster's name."""
        if "home" not in self.run(HOME, "sacctmgr", "-nP", "show", "cluster", "format=cluster").split():
            self.run(HOME, "sacctmgr", "-i", "add", "cluster", "home")

    def require_fit_nodes(self) -> None:
        """Waits until every node of both clusters takes jobs."""
        for cluster in CLUSTERS:
            if not wait_until(lambda: not self.unfit_nodes(cluster), seconds=20):
                raise TestbedError(f"on {cluster.name}: {', '.join(self.unfit_nodes(cluster))}; "
                                   f"the logs are in {self.logs}")

    def unfit_nodes(self, cluster: Cluster) -> list[str]:
        """Nodes that take no jobs now. Those that somebody drained or downed are resumed."""
        listed = self.run(cluster, "sinfo", "-hN", "-p", "main", "-o", "%N %T")
        states = dict(line.split() for line in listed.splitlines())
        unfit = {node: state for node, state in states.items()
                 if state not in ("idle", "mixed", "allocated", "completing", "planned")}
        for node, state in unfit.items():
            if state.startswith(("down", "drain")):
                self.run(cluster, "scontrol", "update", f"nodename={node}", "state=resume")
        return [f"{node} is {state}" for node, state in unfit.items()]

    def run(self, cluster: Cluster, *command: str) -> str:
        """Runs a Slurm command and returns what it prints, never hanging on a daemon that does not answer."""
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True,
                                  env={"PATH": PATH, "SLURM_CONF": str(self.conf(cluster))}).stdout
        except subprocess.CalledProcessError as error:
            raise TestbedError(f"{command[0]} on {cluster.name} failed: {error.stderr.strip()}") from None
        except subprocess.TimeoutExpired:
            raise TestbedError(f"{command[0]} on {cluster.name} does not answer") from None

    def say_what_is_up(self, tracking: str, started: int, seconds: float) -> None:
        what = f"{started} daemons started in {seconds:.1f} s" if started else "up already, both clusters answer"
        lines = [f"testbed: {what} (processes tracked by {tracking})"]
        if tracking == "linuxproc":
            lines.append("testbed: no usable cgroups here, so a signal to a job reaches all its processes, "
                         "not only srun's children")
        if not bind_to_loopback():
            lines.append(f"testbed: '{HOST}' is not 127.0.0.1 here (see /etc/hosts), so Slurm's ports are open "
                         "on all interfaces; its munge keys protect them")
        lines += [f"  export SLURM_CONF={self.conf(cluster)}" for cluster in CLUSTERS]
        lines.append("next: choose a cluster with one of these lines, then type 'SITE=testbed-home make submit' "
                     "(or testbed-partner)")
        print("\n".join(lines))

    # -- down --------------------------------------------------------------------------------

    def down(self) -> None:
        cgroups = cgroup_folders(NODES) if self.left() else []
        end(lambda: self.left() + cgroup_pids(cgroups))
        remove_cgroups(cgroups)
        for path in (self.folder / "home", self.folder / "partner"):
            shutil.rmtree(path, ignore_errors=True)
        self.tracking.unlink(missing_ok=True)
        print(f"testbed: down; its logs are in {self.logs}")

    def left(self) -> list[int]:
        return [process.pid for process in processes() if process.belongs_to(self.folder)]


def bind_to_loopback() -> str:
    """Slurm can bind to the address of the host's own name only: loopback if that name is 127.0.0.1."""
    with contextlib.suppress(OSError):
        if socket.gethostbyname(socket.gethostname()) == "127.0.0.1":
            return "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny"
    return ""


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Two calls at the same time (two test runs, say) take turns."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def require_programs() -> None:
    needed = ("slurmctld", "slurmd", "slurmdbd", "srun", "sacctmgr", "munged", "mariadbd", "mariadb-install-db")
    missing = [program for program in needed if not shutil.which(program, path=PATH)]
    if missing:
        raise TestbedError(f"{', '.join(missing)} not found: run {HERE / 'install.sh'} first")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("up", "down"))
    parser.add_argument("folder", nargs="?", default=os.environ.get("HPCDDM_TESTBED", "/tmp/hpcddm-testbed"))
    arguments = parser.parse_args()
    testbed = Testbed(Path(arguments.folder).resolve())
    try:
        if arguments.action == "up":
            require_programs()
            testbed.folder.mkdir(parents=True, exist_ok=True)
        elif not testbed.generation.exists():
            print(f"testbed: there is none in {testbed.folder}")
            return 0
        with only_one(testbed.folder):
            getattr(testbed, arguments.action)()
    except (TestbedError, OSError) as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
