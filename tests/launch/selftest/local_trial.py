"""The steps of the trial jobs as processes of this machine, which leave the same files."""

import os
import signal
import subprocess
import time
import uuid
from pathlib import Path

from hpcddm.config.site import Site
from hpcddm.files import atomic
from hpcddm.jobs.job_environment import LAUNCH_VARIABLE
from hpcddm.launch.base import PYTHON, clean_environment
from hpcddm.launch.selftest.checks.signals import SIGNALS
from hpcddm.launch.selftest.checks.storage import SCRATCH_VARIABLE
from hpcddm.launch.selftest.evidence import Element, Evidence, TrialJob
from hpcddm.launch.selftest.node import SPEC


class LocalTrial:
    """Trial that runs the same steps in processes of this machine, which leave the same files."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.evidence = Evidence(site, folder, {TrialJob.ARRAY: "0", TrialJob.NODES: "0"})
        self._running: list[subprocess.Popen] = []
        self._deadline = 0.0

    def run(self, seconds: float) -> None:
        """Run the steps one after the other; a process that still runs after `seconds` in all is ended."""
        self._deadline = time.time() + seconds
        site = self.evidence.site
        spec = {"network_interface": site.network_interface, "scratch": site.scratch, "gpus": 0}
        atomic.write_json(self.evidence.folder / SPEC, spec)
        self._run_step(TrialJob.ARRAY, Element.ENVIRONMENT, "environment", 1)
        for name in SIGNALS:
            self._run_step(TrialJob.ARRAY, Element.SIGNALS, name, 1)
        self._run_step(TrialJob.NODES, 0, "meet", self.evidence.resources.ranks)

    def cancel(self) -> None:
        """End what still runs."""
        for process in self._running:
            if process.poll() is None:
                process.kill()

    def _run_step(self, part: str, element: int, step: str, ranks: int) -> None:
        record = self.evidence.folder / f"{part}-0_{element}.0"
        record.mkdir(exist_ok=True)
        for name, text in (("started", str(time.time())), ("setup.done", ""), ("variables", "")):
            (record / name).write_text(text)
        command = [*PYTHON, "-u", "-m", "hpcddm.launch.selftest.node", str(record), step]
        launch = uuid.uuid4().hex[:12]
        with open(record / f"{step}.out", "a") as output:
            for rank in range(ranks):
                environment = self._environment(rank, ranks, launch)
                process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
                self._running.append(process)
        if step in SIGNALS:
            self._send(record, step)
        codes = [self._code(process) for process in self._running]
        self._running.clear()
        (record / f"{step}.exit").write_text(str(next((code for code in codes if code), 0)))

    def _code(self, process: subprocess.Popen) -> int:
        try:
            return process.wait(timeout=max(0.1, self._deadline - time.time()))
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def _send(self, record: Path, name: str) -> None:
        (process,) = self._running
        while not (record / f"{name}.ready.json").exists() and process.poll() is None:
            time.sleep(0.02)
        (record / f"{name}.sent").write_text(str(time.time()))
        process.send_signal(getattr(signal, f"SIG{name}"))

    def _environment(self, rank: int, ranks: int, launch: str) -> dict[str, str]:
        scratch = os.path.expandvars(self.evidence.site.scratch or "")
        return clean_environment() | {
            "SUBMITIT_EXECUTOR": "local",
            "SUBMITIT_LOCAL_GLOBALID": str(rank),
            "SUBMITIT_LOCAL_LOCALID": str(rank),
            "SUBMITIT_LOCAL_NTASKS": str(ranks),
            "SUBMITIT_LOCAL_JOB_ID": "0",
            LAUNCH_VARIABLE: launch,
            "OMP_NUM_THREADS": str(self.evidence.resources.cpus_per_rank),
            SCRATCH_VARIABLE: "" if "$" in scratch else scratch,
        }
