"""A real Slurm with three clusters on one machine, in one folder, listening on loopback only.

    home      nodes h1 to h4, with slurmdbd and a MariaDB of its own: sacct works
    annex     nodes a1 and a2, in home's slurmdbd and with its munge key: 'sbatch -M annex' works on home
    partner   nodes p1 to p4, with a munge key of its own and no accounting: sacct fails

SLURM_CONF selects the cluster. All daemons run as the user who calls this, and so do the jobs.
'up' looks at what is there and starts what is missing, so it also repairs a testbed in which
something died; 'down' ends everything and removes all but the logs. HPCDDM_TESTBED names another
folder than the default. Asked for at each 'up': HPCDDM_TESTBED_MAX_ARRAY lowers MaxArraySize, HPCDDM_TESTBED_HOME holds
further lines for slurm.conf of 'home'.

Every node has four GPUs on paper: Slurm hands them out and sets CUDA_VISIBLE_DEVICES, and no CUDA
finds them.

HPCDDM_TESTBED_LATE_NAMES=SECONDS at the first 'up' mounts FOLDER/shared on every node and on the login
side by the late-names file system: each of them is an NFS client of its own, see late_names.c.

HPCDDM_TESTBED_ISOLATED=CLUSTER at the first 'up' starts 'home' or 'partner' alone, as an institution of its own: in a
network namespace that has loopback only, with a Unix user whom 'down' removes. No other user may enter the cluster's
folder. 'enter FOLDER COMMAND ...' runs a command there as this user. Needs root.

Testbeds in different folders live side by side: each takes a slot with ports, job ids and names of
nodes of its own (h1 to h4 in the first one, h11 to h14 in the next). The Slurm that comes first in
PATH is the one that runs, for the clients and the tests as well.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import institution
import late_names
import processes
from layout import HERE, HOST, SLOTS, TRACKING, Layout, SlurmCluster, bind_to_loopback
from processes import PROGRAMS, Daemon, TestbedError


class Testbed(Layout):
    def up(self) -> None:
        began = time.monotonic()
        self.prepare()
        if self.isolated.exists():
            self.enter_network()
        self.take_slot()
        if self.user:
            institution.make_user(self.user, self.conf(self.clusters[0]).parent)
        self.prepare_late_names()
        started = sum(map(self.ensure, self.basis()))
        tracking = self.tracking.read_text() if self.tracking.exists() else ""
        if tracking:
            started += self.start_slurm(tracking)
            for cluster in self.clusters:
                self.require_fit_nodes(cluster)
        else:
            tracking, more = self.find_tracking()
            started += more
            self.tracking.write_text(tracking)
        self.say_what_is_up(tracking, started, time.monotonic() - began)

    def prepare_late_names(self) -> None:
        """Asked for at the first 'up' of a testbed's life; a repair keeps it as it is."""
        wanted = os.environ.get("HPCDDM_TESTBED_LATE_NAMES")
        if wanted and not self.late.exists() and not (self.folder / "home/slurm.conf").exists():
            for folder in (self.shared, self.folder / "server"):
                folder.mkdir(exist_ok=True)
            try:
                late_names.build(self.folder)
            except (OSError, subprocess.CalledProcessError) as error:
                raise TestbedError(f"late_names cannot be built ({error}): run tests/install.sh") from None
            self.late.write_text(f"{float(wanted)}\n")

    def enter_network(self) -> None:
        """Goes on in the network of this testbed's daemons, or in a new one."""
        inside = self.inside()
        if inside:
            institution.enter(inside[0])
        else:
            institution.make_network()

    def inside(self) -> list[int]:
        """Processes of this testbed, first one among the mounts of the login side."""
        return [*processes.running(self.munge(self.clusters[0]), self.folder), *self.left()]

    def take_slot(self) -> None:
        """Keeps the slot that this folder had, else takes the first one whose ports are free."""
        slots = [self.slot] if self.slot_file.exists() else range(SLOTS)
        for slot in slots:
            self.slot_file.write_text(f"{slot}\n")
            taken = self.taken_ports()
            if not taken:
                return
            if len(slots) > 1:
                self.slot_file.unlink()
        raise TestbedError("\n".join(taken))

    def taken_ports(self) -> list[str]:
        """What is in the way of this slot's daemons that do not run yet."""
        taken = []
        if self.slot in self.slots_of_others():
            taken.append(f"the names of nodes of slot {self.slot} are taken by another testbed")
        for daemon in [daemon for cluster in self.clusters for daemon in self.slurm_daemons(cluster)]:
            owner = None if processes.running(daemon, self.folder) else processes.owner_of_port(daemon.port)
            if owner:
                taken.append(f"port {daemon.port} on 127.0.0.1, meant for {daemon.name}, is taken by {owner}")
        return taken

    def slots_of_others(self) -> set[int]:
        """Slots of other testbeds, also of those in networks of their own, whose ports do not show here."""
        daemons = [process for process in processes.listing() if process.program in PROGRAMS]
        confs = {process.environment.get("SLURM_CONF") for process in daemons} - {None, ""}
        folders = {Path(conf).parent.parent for conf in confs} - {self.folder}
        return {Layout(folder).slot for folder in folders if Layout(folder).slot_file.exists()}

    def find_tracking(self) -> tuple[str, int]:
        """Tries the ways of tracking, best first. Whether one works shows only when a step starts."""
        for tracking in [name for name, (possible, _, _) in TRACKING.items() if possible()]:
            try:
                started = self.start_slurm(tracking)
                for cluster in self.clusters:
                    self.require_fit_nodes(cluster)
                    count = str(cluster.count)
                    self.run(cluster, "srun", "--immediate=15", "-N", count, "-n", count, "-J", "testbed-check", "true")
                return tracking, started
            except TestbedError as error:
                print(f"testbed: with processes tracked by {tracking}: {error}")
        raise TestbedError(f"the clusters do not come up; the logs are in {self.logs}")

    def ensure(self, daemon: Daemon) -> bool:
        """Starts a daemon unless it runs; True if it had to."""
        if processes.running(daemon, self.folder):
            return False
        processes.start(daemon, self.logs, {"MYSQL_UNIX_PORT": str(self.database().socket)}, self.folder)
        return True

    def start_slurm(self, tracking: str) -> int:
        """Starts what does not run; returns how many daemons that were."""
        changed = [cluster for cluster in self.clusters if self.write_configuration(cluster, tracking)]
        started = 0
        for cluster in self.clusters:
            if cluster in changed:
                self.end_slurm(cluster)
            for daemon in self.slurm_daemons(cluster):
                started += self.ensure(daemon)
                if daemon.name == "home-slurmdbd":
                    self.register()
        return started

    def end_slurm(self, cluster: SlurmCluster) -> None:
        """For a restart with other settings. Jobs survive it, as they do on any cluster."""
        daemons = self.slurm_daemons(cluster)
        processes.end_gently(lambda: [pid for daemon in daemons for pid in processes.running(daemon, self.folder)])

    def register(self) -> None:
        """slurmctld does not start before slurmdbd knows its cluster's name."""
        known = self.run(self.home, "sacctmgr", "-nP", "show", "cluster", "format=cluster").split()
        names = [cluster.name for cluster in self.accounted if cluster.name not in known]
        if names:
            self.run(self.home, "sacctmgr", "-i", "add", "cluster", ",".join(names))

    def require_fit_nodes(self, cluster: SlurmCluster) -> None:
        """Waits until every node takes jobs."""
        if not processes.wait_until(lambda: not self.unfit_nodes(cluster), seconds=20):
            raise TestbedError(f"{cluster.name}: {', '.join(self.unfit_nodes(cluster))}; the logs are in {self.logs}")

    def unfit_nodes(self, cluster: SlurmCluster) -> list[str]:
        """What keeps nodes from taking jobs now. Those that somebody drained or downed are resumed."""
        try:
            listed = self.run(cluster, "sinfo", "-hN", "-p", "main", "-o", "%N %T")
        except TestbedError as error:  # slurmctld listens a moment before it answers
            return [str(error)]
        states = dict(line.split() for line in listed.splitlines())
        unfit = {
            node: state
            for node, state in states.items()
            if state not in ("idle", "mixed", "allocated", "completing", "planned")
        }
        for node, state in unfit.items():
            if state.startswith(("down", "drain")):
                with contextlib.suppress(TestbedError):  # not every state can be left at once
                    self.run(cluster, "scontrol", "update", f"nodename={node}", "state=resume")
        return [f"{node} is {state}" for node, state in unfit.items()]

    def run(self, cluster: SlurmCluster, *command: str) -> str:
        """Runs a Slurm command and returns what it prints, never hanging on a daemon that does not answer."""
        try:
            return subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=30,
                check=True,
                env={"PATH": processes.PATH, "SLURM_CONF": str(self.conf(cluster))},
            ).stdout
        except subprocess.CalledProcessError as error:
            raise TestbedError(f"{command[0]} on {cluster.name} failed: {error.stderr.strip()}") from None
        except subprocess.TimeoutExpired:
            raise TestbedError(f"{command[0]} on {cluster.name} does not answer") from None

    def say_what_is_up(self, tracking: str, started: int, seconds: float) -> None:
        what = "up already, all clusters answer"
        if started:
            what = f"up, {started} of its daemons started in {seconds:.1f} s"
        lines = [f"testbed: {what} (processes tracked by {tracking})"]
        if tracking == "linuxproc":
            lines.append(
                "testbed: no usable cgroups here, so a signal to a job reaches all its processes, "
                "not only srun's children"
            )
        if not bind_to_loopback():
            lines.append(
                f"testbed: '{HOST}' is not 127.0.0.1 here (see /etc/hosts), so Slurm's ports are open "
                "on all interfaces; its munge keys protect them"
            )
        if self.user:
            enter = f"{sys.executable} {HERE / 'testbed.py'} enter {self.folder} COMMAND ..."
            print("\n".join([*lines, f"next: run commands of its user {self.user} with '{enter}'"]))
            return
        lines += [f"  export SLURM_CONF={self.conf(cluster)}" for cluster in self.clusters]
        lines.append(
            "next: choose a cluster with one of these lines, then type 'SITE=testbed-home make submit' "
            "(or testbed-partner)"
        )
        print("\n".join(lines))

    def enter(self, command: list[str]) -> NoReturn:
        """Replaces this process by a command of the user of an isolated testbed."""
        inside = self.inside()
        if not self.user or not inside:
            raise TestbedError(f"{self.folder} is not an isolated testbed that is up: see HPCDDM_TESTBED_ISOLATED")
        institution.enter(inside[0])
        institution.run_as(self.user, command, {"SLURM_CONF": str(self.conf(self.clusters[0]))})

    def down(self) -> None:
        # Cgroups and the user carry the slot only: they are ours unless another testbed has taken it.
        ours = self.slot not in self.slots_of_others()
        user = self.user if ours else None
        nodes = [node for cluster in self.clusters for node in cluster.nodes]
        cgroups = processes.cgroup_folders(nodes) if ours else []
        processes.end(lambda: self.left() + processes.cgroup_pids(cgroups) + institution.pids_of(user))
        processes.remove_cgroups(cgroups)
        if self.late.exists():
            subprocess.run(["umount", "--lazy", self.shared], check=False, capture_output=True)
            self.late.unlink()
            shutil.rmtree(self.folder / "server")
        for cluster in self.clusters:
            shutil.rmtree(self.folder / cluster.name, ignore_errors=True)
        if user:
            institution.remove_user(user)
        for file in (self.tracking, self.slot_file, self.isolated):
            file.unlink(missing_ok=True)
        print(f"testbed: down; its logs are in {self.logs}")

    def left(self) -> list[int]:
        return [process.pid for process in processes.listing() if process.belongs_to(self.folder)]


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
    missing = [program for program in needed if not shutil.which(program, path=processes.PATH)]
    if missing:
        raise TestbedError(f"{', '.join(missing)} not found: run {HERE / 'install.sh'} first")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("up", "down", "enter"))
    parser.add_argument("folder", nargs="?", default=os.environ.get("HPCDDM_TESTBED", "/tmp/hpcddm-testbed"))
    parser.add_argument("command", nargs=argparse.REMAINDER, help="of 'enter'")
    arguments = parser.parse_args()
    if bool(arguments.command) != (arguments.action == "enter"):
        parser.error("'enter' needs a command, and nothing else has one")
    testbed = Testbed(Path(arguments.folder).resolve())
    try:
        if arguments.action == "enter":
            testbed.enter(arguments.command)
        if arguments.action == "up":
            require_programs()
            testbed.folder.mkdir(parents=True, exist_ok=True)
        elif not testbed.generation.exists():
            print(f"testbed: there is none in {testbed.folder}")
            return 0
        # The folder's lock against two calls for one testbed, the other one against two that take the same slot.
        slots = Path(tempfile.gettempdir())
        with only_one(testbed.folder), only_one(slots) if arguments.action == "up" else contextlib.nullcontext():
            getattr(testbed, arguments.action)()
    except (TestbedError, OSError) as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
