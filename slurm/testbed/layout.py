"""What a testbed consists of: its folder, its files and its daemons. See testbed.py."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import string
import subprocess
from dataclasses import dataclass
from pathlib import Path

import late_names
import processes
from processes import Daemon, TestbedError

HERE = Path(__file__).resolve().parent
USER = pwd.getpwuid(os.geteuid()).pw_name
HOST = socket.gethostname().split(".")[0]


SLOTS = 20
"""How many testbeds may live side by side on one machine."""
SLOT_PORTS = 200
SLOT_JOBS = 3_000_000
"""Job ids of one slot; Slurm's MaxJobId is 67 million."""


@dataclass(frozen=True)
class SlurmCluster:
    name: str
    letter: str
    port: int  # the first of this cluster's: slurmctld, slurmdbd, then one per node
    accounting: str
    slot: int = 0
    count: int = 4  # of its nodes

    @property
    def numbers(self) -> range:
        return range(10 * self.slot + 1, 10 * self.slot + 1 + self.count)

    @property
    def nodes(self) -> list[str]:
        return [f"{self.letter}{number}" for number in self.numbers]

    @property
    def node_ports(self) -> list[int]:
        return [self.port + 11 + index for index in range(self.count)]


# How Slurm keeps track of a job's processes, best first: (is it there?, proctrack plugin, cgroup plugin).
TRACKING = {
    "cgroup/v1": (lambda: os.access(processes.CGROUPS / "freezer/cgroup.procs", os.W_OK), "cgroup", "cgroup/v1"),
    "cgroup/v2": (lambda: os.access(processes.CGROUPS / "cgroup.procs", os.W_OK), "cgroup", "cgroup/v2"),
    "linuxproc": (lambda: True, "linuxproc", "cgroup/v1"),  # slurmd wants the name of one even so
}

# Small, and never waiting for the disk: what is written survives a killed daemon, if not a power cut.
DATABASE_OPTIONS = (
    "--no-defaults",
    "--innodb-log-file-size=8M",
    "--innodb-buffer-pool-size=32M",
    "--debug-no-sync",
    "--innodb-flush-log-at-trx-commit=0",
)


class Layout:
    def __init__(self, folder: Path):
        self.folder = folder
        self.logs = folder / "logs"
        # Counts the lives of this folder. Its presence says that the folder is a testbed's.
        self.generation = folder / "generation"
        # The way of tracking that was found to work, so that a repair does not try all again.
        self.tracking = folder / "tracking"
        # Testbeds in other folders have other slots: other ports, names of nodes, cgroups and job ids.
        self.slot_file = folder / "slot"
        # Where this file is, nodes and login side are clients of a file system that shows names late by its seconds.
        self.late = folder / "late"
        self.shared = folder / "shared"
        # Where this file is, the testbed is an institution of its own with the one cluster that it names.
        self.isolated = folder / "isolated"

    @property
    def slot(self) -> int:
        return int(self.slot_file.read_text()) if self.slot_file.exists() else 0

    @property
    def home(self) -> SlurmCluster:
        return SlurmCluster("home", "h", 17010 + SLOT_PORTS * self.slot, "accounting_storage/slurmdbd", self.slot)

    @property
    def partner(self) -> SlurmCluster:
        return SlurmCluster("partner", "p", 17110 + SLOT_PORTS * self.slot, "accounting_storage/none", self.slot)

    @property
    def annex(self) -> SlurmCluster:
        return SlurmCluster("annex", "a", 17060 + SLOT_PORTS * self.slot, "accounting_storage/slurmdbd", self.slot, 2)

    @property
    def accounted(self) -> tuple[SlurmCluster, SlurmCluster]:
        """The clusters of one slurmdbd, which know of each other: 'sbatch -M annex' works on home."""
        return self.home, self.annex

    @property
    def clusters(self) -> tuple[SlurmCluster, ...]:
        if self.isolated.exists():
            return (self.home if self.isolated.read_text() == "home" else self.partner,)
        return self.home, self.annex, self.partner

    @property
    def user(self) -> str | None:
        """The Unix user of an institution of its own. The slot is in the name, for a slot has one testbed only."""
        if self.isolated.exists() and self.slot_file.exists():
            return f"hpcddm-{self.isolated.read_text()}-{self.slot}"
        return None

    def conf(self, cluster: SlurmCluster) -> Path:
        return self.folder / cluster.name / "slurm.conf"

    def basis(self) -> list[Daemon]:
        """What the clusters stand on, whatever their settings."""
        munges = [self.munge(cluster) for cluster in self.clusters if cluster != self.annex]
        return [*munges, *([self.database()] if self.home in self.clusters else []), *self.mounts()]

    def mounts(self) -> list[Daemon]:
        """One client of the late-names file system on the login side, and one for each node."""
        if not self.late.exists():
            return []
        nodes = [node for cluster in self.clusters for node in cluster.nodes]
        return [self.mount("login"), *map(self.mount, nodes)]

    def mount(self, client: str) -> Daemon:
        argv = late_names.command(
            self.folder / "late_names",
            self.folder / "server",
            self.shared,
            float(self.late.read_text()),
            f"late-{client}",
        )
        return Daemon(f"late-{client}", argv, self.conf(self.home), mount=f"late-{client}", alone=client != "login")

    def slurm_daemons(self, cluster: SlurmCluster) -> list[Daemon]:
        conf = self.conf(cluster)
        accounting = Daemon(f"{cluster.name}-slurmdbd", ("slurmdbd", "-D"), conf, cluster.port + 1)
        controller = Daemon(f"{cluster.name}-slurmctld", ("slurmctld", "-D"), conf, cluster.port)
        nodes = [
            Daemon(
                f"{cluster.name}-slurmd-{node}",
                ("slurmd", "-D", "-N", node),
                conf,
                port,
                beside=self.mount(node) if self.late.exists() else None,
            )
            for node, port in zip(cluster.nodes, cluster.node_ports, strict=True)
        ]
        return [*([accounting] if cluster.name == "home" else []), controller, *nodes]

    def munge(self, cluster: SlurmCluster) -> Daemon:
        """The munge daemon of a cluster; those of one slurmdbd trust each other."""
        cluster = self.home if cluster in self.accounted else cluster
        here = self.folder / cluster.name / "munge"
        argv = (
            "munged",
            "--foreground",
            "--force",
            f"--socket={here}/socket",
            f"--key-file={here}/key",
            f"--log-file={here}/log",
            f"--pid-file={here}/pid",
            f"--seed-file={here}/seed",
        )
        return Daemon(f"{cluster.name}-munged", argv, self.conf(cluster), socket=here / "socket")

    def database(self) -> Daemon:
        here = self.folder / "home/db"
        argv = (
            "mariadbd",
            *DATABASE_OPTIONS,
            f"--user={USER}",
            f"--datadir={here}/data",
            f"--socket={here}/socket",
            f"--pid-file={here}/pid",
            "--skip-networking",
        )
        return Daemon("home-mariadb", argv, self.conf(self.home), socket=here / "socket")

    def prepare(self) -> None:
        """Makes folders, keys and the empty database, where they are missing."""
        if any(self.folder.iterdir()) and not self.generation.exists():
            raise TestbedError(f"{self.folder} exists and is not a testbed: choose another folder")
        if len(str(self.folder)) > 60 or " " in str(self.folder):  # a socket's path ends at 107 characters
            raise TestbedError(f"{self.folder}: choose a path without spaces and of at most 60 characters")
        self.logs.mkdir(parents=True, exist_ok=True)
        if not any((self.folder / cluster.name).exists() for cluster in self.clusters):
            # A new life: see FirstJobId in slurm.conf.in.
            count = int(self.generation.read_text()) if self.generation.exists() else 0
            self.generation.write_text(f"{count + 1}\n")
            self.prepare_isolation()
        for cluster in self.clusters:
            for name in ("state", "spool", "munge"):
                (self.folder / cluster.name / name).mkdir(parents=True, exist_ok=True)
            key = self.folder / cluster.name / "munge/key"
            if not key.exists():
                key.touch(mode=0o600)
                key.write_bytes(os.urandom(128))
        data = self.folder / "home/db/data"
        if self.home in self.clusters and not data.exists():
            self.make_database(data)

    def prepare_isolation(self) -> None:
        """Asked for at the first 'up' of a testbed's life; a repair keeps it as it is."""
        wanted = os.environ.get("HPCDDM_TESTBED_ISOLATED")
        if wanted:
            if wanted not in ("home", "partner"):
                raise TestbedError(f"HPCDDM_TESTBED_ISOLATED={wanted}: write home or partner")
            self.isolated.write_text(wanted)
            self.logs.chmod(0o700)

    def make_database(self, data: Path) -> None:
        """Under another name first, so that a half-made one is never taken for whole."""
        half = data.with_name("half-made")
        shutil.rmtree(half, ignore_errors=True)
        data.parent.mkdir(mode=0o700, exist_ok=True)  # the database's root has no password
        log = self.logs / "home-mariadb-install.out"
        with log.open("wb") as output:
            made = subprocess.run(
                [
                    "mariadb-install-db",
                    *DATABASE_OPTIONS,
                    f"--user={USER}",
                    f"--datadir={half}",
                    "--auth-root-authentication-method=normal",
                    "--skip-test-db",
                ],
                env={"PATH": processes.PATH},
                stdout=output,
                stderr=output,
            )
        if made.returncode:
            raise TestbedError(f"mariadb-install-db failed:\n{processes.tail(log)}")
        # A database is a folder. slurmdbd would make it, but MariaDB 11.8.9 refuses the next query of that connection.
        (half / "testbed").mkdir()
        half.rename(data)

    def write_configuration(self, cluster: SlurmCluster, tracking: str) -> bool:
        """Fills in the templates; True if that changed anything that is there."""
        _, proctrack, cgroup_plugin = TRACKING[tracking]
        names = {
            "cluster": cluster.name,
            "host": HOST,
            "user": USER,
            "folder": self.folder / cluster.name,
            "logs": self.logs,
            "munge_socket": self.munge(cluster).socket,
            "ctld_port": cluster.port,
            "dbd_port": self.home.port + 1,
            "accounting": cluster.accounting,
            "nodes": f"{cluster.letter}[{cluster.numbers[0]}-{cluster.numbers[-1]}]",
            "node_ports": f"[{cluster.node_ports[0]}-{cluster.node_ports[-1]}]",
            "proctrack": f"proctrack/{proctrack}",
            "cgroup_plugin": cgroup_plugin,
            "communication": bind_to_loopback(),
            "more": os.environ.get("HPCDDM_TESTBED_HOME", "") if cluster.name == "home" else "",
            "max_array": os.environ.get("HPCDDM_TESTBED_MAX_ARRAY", "1001"),
            "first_job_id": SLOT_JOBS * self.slot + 10000 * int(self.generation.read_text()) + 1,
        }
        changed = False
        for template in sorted(HERE.glob("*.conf.in")):
            target = self.folder / cluster.name / template.stem
            text = string.Template(template.read_text()).substitute(names)
            if not target.exists() or target.read_text() != text:
                target.touch(mode=0o600 if "dbd" in target.name else 0o644)  # slurmdbd insists
                target.write_text(text)
                changed = True
        return changed


def bind_to_loopback() -> str:
    """Slurm can bind to the address of the host's own name only: loopback if that name is 127.0.0.1."""
    with contextlib.suppress(OSError):
        if socket.gethostbyname(socket.gethostname()) == "127.0.0.1":
            return "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny"
    return ""
