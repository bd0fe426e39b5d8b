"""Disturbs one expert over two nodes of the testbed, again and again, and compares its weights with an undisturbed one.

`python -m tests.real.storm --seed 0 --folder FOLDER` prints a table: disturbance, where it hit, steps repeated.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from hpcddm.config.variants import VARIANTS_VARIABLE
from hpcddm.jobs.attempt_records import AttemptRecord, read_records
from tests.helpers import DATA_STAGES, REPOSITORY
from tests.whole_runs import TINY, hpcddm

KEY, NEIGHBOUR = "train/expert-00", "train/expert-01"
BATCH = 16
PHASES = ("imports", "rendezvous", "step", "save")
GENTLE = ("usr2", "term", "scancel", "preemption", "time limit")
"""After these nothing may be repeated."""
KINDS = (*GENTLE, "sigkill", "slurmd killed", "slurmctld restarted")
BY_NODES = ("one slurmd killed", "launch refused", "credential expired")
"""These are the fault of a node, and nothing counts against the unit."""
STOPS = ("full disk", "unwritable logs")
"""These end the unit, and a person has to mend them; they need root."""
LAUNCH = "launch"
"""Phase in which the batch script is about to call srun."""
LONG = [
    "experts.training.images=480000",
    "experts.training.checkpoint_minutes=0.05",
    "experts.training.log_every_images=4096",
    "site=nobody",
]
SITE = """
name: {name}
scheduler: {scheduler}
{more}
stages:
  train: {shape}
"""
PACED = ("experts.objective={name: paced}",)
"""A training that takes its time while the storm lasts; alone, and after the storm, it hurries."""
ON_SLURM = "partition: main\nnetwork_interface: lo\nsignal_lead_seconds: 30\nresources: {memory_gb: 1, minutes: 30}"


@dataclass
class Disturbance:
    """One entry of the schedule, and what came of it."""

    kind: str
    phase: str
    delay: float
    hit: str = ""
    attempt: int = 0
    reached: int | None = None
    continued_from: int | None = None
    note: str = ""

    @property
    def repeated(self) -> int | None:
        """Steps that were made again; None while nobody knows."""
        if self.continued_from is None:
            return None
        return max(0, (self.reached or 0) - self.continued_from) // BATCH


def schedule(seed: int, kinds: list[str]) -> list[Disturbance]:
    """The disturbances in random order and phases; every phase is hit, fruitless ones never follow each other."""
    dice = random.Random(seed)
    movable = [kind for kind in kinds if kind in ("usr2", "term", "scancel", "sigkill")]
    phases = [PHASES[number % 4] for number in range(len(movable))]
    dice.shuffle(phases)
    for _ in range(10_000):
        dice.shuffle(kinds)
        hard = [kind not in (*GENTLE, *STOPS) for kind in kinds]
        if not any(one and other for one, other in zip(hard, hard[1:], strict=False)):
            break
    found = []
    for kind in kinds:
        phase = phases.pop() if kind in movable else "step"
        found.append(Disturbance(kind, phase, round(dice.uniform(0.0, 0.3 if phase != "step" else 3.0), 2)))
    return found


def schedule_of_nodes(seed: int, count: int) -> list[Disturbance]:
    """So many disturbances in random order, every second one by a node; a rank is killed only after some progress."""
    dice = random.Random(seed)
    others = [("usr2", "term", "scancel", "sigkill", "preemption")[number % 5] for number in range(count // 2)]
    dice.shuffle(others)
    while any(one == other == "sigkill" for one, other in zip(others, others[1:], strict=False)):
        dice.shuffle(others)
    kinds, rest = [""] * count, iter(others)
    for number in dice.sample(range(count), count - len(others)):
        kinds[number] = dice.choice(BY_NODES)
    found = []
    for kind in kinds:
        if kind in BY_NODES:
            phase = dice.choice(PHASES) if kind == BY_NODES[0] else LAUNCH
        else:
            kind, phase = next(rest), "step"
        found.append(Disturbance(kind, phase, round(dice.uniform(0.0, 0.3 if phase != "step" else 3.0), 2)))
    return found


@dataclass
class Storm:
    """One run on the testbed's cluster 'home', and the hand that disturbs it."""

    folder: Path
    conf: str
    seed: int
    log: list[Disturbance] = field(default_factory=list)
    images: int = 480_000
    keys: str = ON_SLURM
    """Of the site."""
    settings: tuple[str, ...] = ()
    """Further ones of the experiment."""
    finished: Path | None = None
    """A run from which everything before the training is taken."""
    has_neighbour: bool = True
    """True where another element of the array trains beside it."""
    targets: list[psutil.Process] = field(default_factory=list)
    """The ranks that a disturbance may strike."""
    neighbours_attempts: int = 0
    """How often the other element of the array was started by the end of the storm."""

    @property
    def run(self) -> Path:
        """The disturbed run."""
        return self.folder / "storm"

    @property
    def pace(self) -> Path:
        """The file that lets a paced training take its time on Slurm."""
        return self.folder / "pace"

    @property
    def gate(self) -> Path:
        """The file that keeps the training's batch scripts from srun, but the one whose number of restarts it holds."""
        return self.folder / "gate"

    @property
    def waits(self) -> Path:
        """The file in which a batch script at the gate writes its restarts and its nodes."""
        return self.folder / "waits"

    @property
    def environment(self) -> dict[str, str]:
        """What the command line is told."""
        return {"SLURM_CONF": self.conf, VARIANTS_VARIABLE: str(REPOSITORY / "tests/real/variants")}

    def settle_for_nodes(self) -> None:
        """Leave the neighbour out, and let batch scripts wait at the gate."""
        self.has_neighbour = False
        at_gate = f'echo "${{SLURM_RESTART_COUNT:-0}} $SLURM_JOB_NODELIST" >{self.waits}'
        # The stages before the training pass: nobody waits for one of them at the gate.
        closed = f"[[ $SLURM_JOB_NAME == *-train-* ]] && [ -e {self.gate} ]"
        closed += f' && [ "$(cat {self.gate})" != "${{SLURM_RESTART_COUNT:-0}}" ]'
        wait = f"while {closed}; do {at_gate}; sleep 0.1; done"
        self.keys += f"\nsetup: {json.dumps([wait, f'export HPCDDM_TEST_PACE={self.pace}'])}"

    def submit(self, run: Path, scheduler: str) -> None:
        """Submit the first expert of the tiny experiment, with a training long enough to be disturbed.

        On Slurm it has a neighbour; here it is left alone, and quick.
        """
        site = self.folder / f"{scheduler}.yaml"
        shape, more = ("{nodes: 2}", self.keys) if scheduler == "slurm" else ("{ranks_per_node: 2}", "")
        neighbour = "storm" if scheduler == "slurm" and self.has_neighbour else "nobody"
        site.write_text(SITE.format(name="storm", scheduler=scheduler, more=more, shape=shape))
        own = [
            *TINY,
            *LONG,
            f"experts.training.images={self.images}",
            f"experts.sites=[storm,{neighbour},nobody,nobody]",
            *self.settings,
        ]
        if self.finished:
            for stage in DATA_STAGES:
                shutil.copytree(self.finished / stage, run / stage)
        where = ["--site", site, "--run-dir", run]
        done = hpcddm("submit", "quickstart", *where, *own, **self.environment, timeout=1800)
        assert done.returncode == 0, done.stdout + done.stderr

    def rage(self, disturbances: list[Disturbance]) -> None:
        """Carry out the schedule, then let the training end."""
        for number, one in enumerate(disturbances, 1):
            self.disturb(one)
            self.log.append(one)
            place = f"[{number}/{len(disturbances)}]"
            print(f"{place} {one.kind} at {one.hit}, attempt {one.attempt} {one.note}", flush=True)
            (self.folder / "storm.json").write_text(json.dumps([asdict(done) for done in self.log], indent=1))
        if self.has_neighbour:
            self.neighbours_attempts = len(read_records(self.run / "logs" / NEIGHBOUR))
            # It has shown what it was there for, and would only take time.
            hpcddm("cancel", self.run, NEIGHBOUR, **self.environment)
        self.pace.unlink(missing_ok=True)
        self.gate.unlink(missing_ok=True)
        self.until(lambda: self.complete(KEY), 1800, "the training to end")
        self.settle()

    def disturb(self, one: Disturbance) -> None:
        """Wait for the phase, strike, and wait until the unit has begun anew."""
        if one.phase == LAUNCH:
            self.disturb_launch(one)
            return
        self.gate.unlink(missing_ok=True)
        aim = "step" if one.phase == "save" else one.phase
        self.until(lambda: self.complete(KEY) or self.phase() == aim, 600, aim)
        time.sleep(one.delay)
        # A save is over in a moment: everything that takes time is looked up before it.
        self.targets = self.ranks()
        if one.phase == "save":
            self.until(lambda: self.complete(KEY) or self.phase() == "save", 600, "a save", every=0.005)
        assert not self.complete(KEY), "the training was over before the storm was; give it more images"
        one.attempt, one.hit = self.last.number, self.phase()
        strike = getattr(self, "_" + one.kind.replace(" ", "_"))
        if strike(one) is not False:
            self.until(lambda: self.complete(KEY) or self.last.number > one.attempt, 300, "the next attempt")

    def disturb_launch(self, one: Disturbance) -> None:
        """Let the next execution wait before srun, strike one of its nodes, and wait for the verdict."""
        self.gate.touch()
        before = read_records(self.run / "logs" / KEY)
        number, restart = (before[-1].number, int(before[-1].owner["restart"])) if before else (0, -1)
        if before and not before[-1].verdict:
            self.until(lambda: self.last.verdict or len(self.ranks()) == 2, 300, "the ranks")
            for rank in self.ranks()[:1]:
                rank.send_signal(signal.SIGUSR2)
        self.until(lambda: self.waiting()[0] > restart, 600, "a batch script at the gate")
        node = self.slurm("scontrol", "show", "hostnames", self.waiting()[1]).split()[-1]
        daemon = self.daemon("slurmd", "-N", node)
        one.hit, one.note = LAUNCH, f"on {node}"
        getattr(self, "_" + one.kind.replace(" ", "_"))(daemon)
        # A late one, without ranks.
        self.until(lambda: self.phase() == "over" and self.last.number > number and self.last.verdict, 300, "a verdict")
        one.attempt = self.last.number
        self.repair()
        assert self.last.decision == "requeue", self.last.verdict

    def waiting(self) -> tuple[int, str]:
        """How often the job had been requeued that waited last at the gate, and its nodes."""
        words = self.waits.read_text().split() if self.waits.exists() else []
        return (int(words[0]), words[1]) if len(words) == 2 else (-1, "")

    def _launch_refused(self, daemon: psutil.Process) -> None:
        daemon.kill()
        self.gate.write_text(str(self.waiting()[0]))

    def _credential_expired(self, daemon: psutil.Process) -> None:
        """Let the node hang for longer than cred_expire after srun has begun."""
        daemon.suspend()
        restart = self.waiting()[0]
        self.gate.write_text(str(restart))
        self.until(lambda: list((self.run / "jobs").glob(f"*_0.{restart}.srun")), 300, "srun")
        time.sleep(9)
        daemon.resume()

    @property
    def last(self) -> AttemptRecord:
        """The newest attempt."""
        return read_records(self.run / "logs" / KEY)[-1]

    def phase(self) -> str:
        """What the newest attempt is at."""
        if not read_records(self.run / "logs" / KEY) or not self.last.owner:
            return "pending"
        folder, last = self.last.folder, self.last
        if last.ended or last.verdict:
            return "over"
        if not (folder / "rendezvous.json").exists():
            return "imports"
        if not last.begun:
            return "rendezvous"
        return "save" if list((self.run / KEY / "state").glob(".staged-*")) else "step"

    def complete(self, key: str) -> bool:
        """Whether a unit is complete."""
        return (self.run / key / "manifest.json").exists()

    def ranks(self) -> list[psutil.Process]:
        """The processes of the newest attempt, by rank."""
        element, restart = self.last.job, str(self.last.owner["restart"])
        found = {}
        for process in psutil.process_iter():
            try:
                values = process.environ()
                is_ours = values.get("SLURM_CONF") == self.conf and "SLURM_PROCID" in values
                if is_ours and "submitit.core._submit" in process.cmdline():
                    own = f"{values['SLURM_ARRAY_JOB_ID']}_{values['SLURM_ARRAY_TASK_ID']}"
                    if own == element and values.get("SLURM_RESTART_COUNT", "0") == restart:
                        found[int(values["SLURM_PROCID"])] = process
            except (psutil.Error, KeyError):
                continue
        return [found[rank] for rank in sorted(found)]

    def until(self, condition, seconds: float, what: str, every: float = 0.05) -> None:
        """Wait; to catch a save in the act one has to look more often than for the rest."""
        deadline = time.time() + seconds
        while not condition():
            assert time.time() < deadline, f"waited {seconds} s for {what}; see {self.run}"
            time.sleep(every)

    def slurm(self, *command: str) -> str:
        """Ask a Slurm command."""
        environment = os.environ | {"SLURM_CONF": self.conf}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout

    def repair(self) -> None:
        """Start the daemons that are dead."""
        command = ["bash", REPOSITORY / "slurm/testbed/up.sh", Path(self.conf).parent.parent]
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    def daemon(self, program: str, *words: str) -> psutil.Process:
        """A daemon of this cluster."""
        for process in psutil.process_iter():
            try:
                command = process.cmdline()
                if command and os.path.basename(command[0]) == program and set(words) <= set(command):
                    if process.environ().get("SLURM_CONF") == self.conf:
                        return process
            except psutil.Error:
                continue
        raise AssertionError(f"no {program} {' '.join(words)} runs")

    def _usr2(self, one: Disturbance) -> None:
        self._signal(one, signal.SIGUSR2)

    def _term(self, one: Disturbance) -> None:
        self._signal(one, signal.SIGTERM)

    def _sigkill(self, one: Disturbance) -> None:
        self._signal(one, signal.SIGKILL)

    def _signal(self, one: Disturbance, number: signal.Signals) -> None:
        rank = (one.attempt + self.seed) % len(self.targets)
        one.note = f"rank {rank}"
        self.targets[rank].send_signal(number)

    def _scancel(self, one: Disturbance) -> None:
        name = ("USR1", "USR2", "TERM")[one.attempt % 3]
        one.note = f"--signal={name}"
        self.slurm("scancel", f"--signal={name}", self.last.job)

    def _preemption(self, one: Disturbance) -> None:
        node = self.own_nodes()[0]
        one.note = f"on {node}"
        wanted = ["-p", "high", "-N1", "-w", node, "--exclusive", "-t", "1", "-o", "/dev/null"]
        self.slurm("sbatch", *wanted, "-J", "storm-high", "--wrap", "sleep 2")

    def _time_limit(self, one: Disturbance) -> None:
        elapsed = time.time() - self.last.started
        minutes = int((elapsed + 30) // 60) + 1
        self.slurm("scontrol", "update", f"JobId={self.last.job}", f"TimeLimit={minutes}")
        one.note = f"{minutes} min"
        self.until(lambda: self.last.verdict, 120, "the slot to end")
        # The next attempt has the same limit unless it is lifted while the job waits.
        self.slurm("scontrol", "update", f"JobId={self.last.job}", "TimeLimit=30")

    def _slurmd_killed(self, one: Disturbance) -> None:
        """Where the neighbour is not, on both nodes: then the old attempt's ranks go on as if nothing had happened."""
        self._lose(one, self.own_nodes())

    def _one_slurmd_killed(self, one: Disturbance) -> None:
        """That of the batch script's node, or of the other one."""
        self._lose(one, [self.nodes()[one.attempt % 2]])

    def _lose(self, one: Disturbance, nodes: list[str]) -> None:
        for node in nodes:
            self.daemon("slurmd", "-N", node).kill()
        self.until(lambda: self.last.number > one.attempt and self.last.owner, 300, "Slurm to give the nodes up")
        alive = sum(map(_lives, self.targets))
        # They leave by themselves; slurmd would kill them when it starts again.
        self.until(lambda: not any(map(_lives, self.targets)), 60, "the old attempt to leave")
        one.note = f"on {' and '.join(nodes)}; ranks alive when the next attempt began: {alive}"
        self.repair()

    def _slurmctld_restarted(self, one: Disturbance) -> bool:
        """Every other time a rank is told to leave while nobody answers: its batch script must be patient."""
        self.daemon("slurmctld").send_signal(signal.SIGTERM)
        tells = one.attempt % 2 == 0
        if tells:
            self.targets[0].send_signal(signal.SIGUSR2)
        time.sleep(4)
        self.repair()
        one.note = "and USR2 while it was down" if tells else "alone"
        return tells

    def _full_disk(self, one: Disturbance) -> None:
        """A save meets it."""
        self._stop(one, self.run / KEY / "state", "size=4k")

    def _unwritable_logs(self, one: Disturbance) -> None:
        """No attempt can be recorded."""
        self._stop(one, self.run / "logs" / KEY, "ro")

    def _stop(self, one: Disturbance, place: Path, options: str) -> None:
        """Put another disk over a folder, until its unit ends as promised; then mend it and retry."""
        job = self.last.job
        self.until(place.exists, 300, f"{place.name} of {KEY}")
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", place], check=True)
        try:
            with suppress(OSError):
                (place / "ballast").write_bytes(bytes(8192))
            self.targets[0].send_signal(signal.SIGUSR2)
            gone = "its job to leave the queue"
            self.until(lambda: job not in self.slurm("squeue", "-h", "-r", "-o", "%F_%K").split(), 300, gone, every=1)
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)
        said = (self.run / "jobs" / f"{job}.out").read_text().splitlines()[-1]
        assert "; failed: " in said and str(place.relative_to(self.run)) in said, said
        one.note = "stopped, mended and retried"
        done = hpcddm("retry", self.run, KEY, **self.environment)
        assert done.returncode == 0, done.stdout + done.stderr

    def own_nodes(self) -> list[str]:
        """The nodes of the newest attempt on which the neighbour is not."""
        taken = self.nodes(read_records(self.run / "logs" / NEIGHBOUR)[-1]) if self.has_neighbour else []
        return [node for node in self.nodes() if node not in taken] or self.nodes()[:1]

    def nodes(self, record: AttemptRecord | None = None) -> list[str]:
        """The nodes of an attempt, of the newest one unless told."""
        return self.slurm("scontrol", "show", "hostnames", (record or self.last).owner["node_list"]).split()

    def settle(self) -> None:
        """Fill in how far each disturbed attempt was and where the next one continued."""
        tried = {record.number: record for record in read_records(self.run / "logs" / KEY)}
        for one in self.log:
            record = tried[one.attempt]
            later = [tried[number] for number in sorted(tried) if number > one.attempt and tried[number].begun]
            if record.begun and later:
                # After a signal the last word says exactly how far it came; else the last sign of life, a second old.
                reached = record.ended["images"] if one.kind in GENTLE else record.beat.done
                one.reached, one.continued_from = int(reached), later[0].begun["images"]
            elif later or not record.begun:
                one.reached = one.continued_from = 0
        (self.folder / "storm.json").write_text(json.dumps([asdict(done) for done in self.log], indent=1))


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def weights(run: Path, key: str = KEY) -> bytes:
    """The final weights of a unit."""
    return (run / key / "weights.safetensors").read_bytes()


def table(log: list[Disturbance]) -> Table:
    """Make the table that docs/results/survival.md shows."""
    found = Table("#", "disturbance", "hit at", "attempt", "steps repeated", "remark")
    for number, one in enumerate(log, 1):
        repeated = "" if one.repeated is None else str(one.repeated)
        found.add_row(str(number), one.kind, one.hit, str(one.attempt), repeated, one.note)
    return found


def main() -> int:
    """Run a whole storm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--kinds", default=",".join(KINDS), help="comma-separated")
    parser.add_argument("--rounds", type=int, default=3, help="how often each kind strikes")
    parser.add_argument("--images", type=int, default=480_000)
    parser.add_argument("--nodes", type=int, default=0, help="so many disturbances instead, half of them by nodes")
    arguments = parser.parse_args()
    conf = f"{os.environ.get('HPCDDM_TESTBED', '/tmp/hpcddm-testbed')}/home/slurm.conf"
    arguments.folder.mkdir(parents=True, exist_ok=True)
    storm = Storm(arguments.folder, conf, arguments.seed, images=arguments.images)
    disturbances = schedule(arguments.seed, arguments.kinds.split(",") * arguments.rounds)
    if arguments.nodes:
        storm.settle_for_nodes()
        disturbances = schedule_of_nodes(arguments.seed, arguments.nodes)
    storm.submit(arguments.folder / "calm", "local")
    storm.submit(storm.run, "slurm")
    storm.rage(disturbances)
    Console(width=110).print(table(storm.log))
    same = weights(storm.run) == weights(arguments.folder / "calm")
    print(f"{len(storm.log)} disturbances, {storm.last.number} attempts; weights bit-identical: {same};", end=" ")
    print(f"attempts of the neighbour: {storm.neighbours_attempts}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
