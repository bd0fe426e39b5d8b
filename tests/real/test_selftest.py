"""The selftest on a real Slurm: good sites pass, and each deliberately broken one gets the verdict and the advice."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import yaml

from hpcddm.config.package_data import find_data_folder
from tests.whole_runs import hpcddm

pytestmark = pytest.mark.slurm

ON_SLURM = (
    "submit",
    "array",
    "ranks, rendezvous",
    "GPUs",
    "collective",
    "signals",
    "requeue",
    "storage",
    "environment",
    "time left",
    "accounting",
)
SWALLOW = '#!/bin/bash\n"$@"\nexit $?\n'


@dataclass(frozen=True)
class Broken:
    """A site with something wrong: the verdicts that are not ok, and words of what was seen and advised."""

    changes: dict
    verdicts: dict[str, str]
    check: str
    seen: str
    advice: str
    cluster: str = "home"
    arguments: list[str] = field(default_factory=list)


NOT_SUBMITTED = dict.fromkeys([check for check in ON_SLURM[1:-1] if check != "GPUs"], "not run")
BROKEN = {
    "wrong partition": Broken(
        {"partition": "gpu"}, {"submit": "FAIL"} | NOT_SUBMITTED, "submit", "invalid partition",
        "set partition",
    ),
    "time limit above the partition's": Broken(
        {"stages": {"train": {"nodes": 2, "minutes": 90}}}, {"submit": "FAIL"} | NOT_SUBMITTED, "submit",
        "90 minutes are above the time limit of main, 60 (train)", "set stages.train.minutes",
    ),
    "no requeue allowed": Broken(
        {"setup": ["scontrol update jobid=$SLURM_JOB_ID requeue=0"]}, {"requeue": "FAIL"}, "requeue",
        "scontrol requeue is refused", "set requeue: resubmit",
    ),
    "no sacct": Broken(
        {"has_sacct": True}, {"accounting": "warn"}, "accounting", "sacct does not answer", "set has_sacct: false",
        cluster="partner",
    ),
    "signals swallowed by a wrapper": Broken(
        {"container": ["WRAPPER"]}, {"signals": "FAIL"}, "signals", "did not reach Python", "'exec'",
    ),
    "unwritable scratch": Broken(
        {"scratch": "/proc/1/scratch"}, {"storage": "FAIL"}, "storage",
        "site key scratch: /proc/1/scratch cannot be written on h", "set scratch to a folder",
    ),
    "a network that is not there": Broken(
        {"network_interface": "ib7"}, {"ranks, rendezvous": "FAIL", "collective": "not run", "storage": "not run"},
        "ranks, rendezvous",
        "has no interface ib7", "set network_interface",
    ),
    "GPUs that torch does not see": Broken(
        {"stages": {"train": {"nodes": 2, "gpus_per_node": 1}}},
        {"GPUs": "FAIL", "collective": "not run", "environment": "FAIL"}, "GPUs",
        "sees no GPU and needs 1 of the 1", "--nv",
    ),
    "a module that is not there": Broken(
        {"setup": ["module load nix", "true"]}, {"environment": "FAIL"}, "environment",
        "'module load nix' ended with 127", "site key setup",
    ),
    "a queue without an end": Broken(
        {"extra_sbatch": ["--begin=now+1hour"]}, NOT_SUBMITTED, "signals", "pending because (BeginTime)",
        "longer --timeout", arguments=["--timeout", "0.1"],
    ),
}  # fmt: skip
GOOD = {"home": {}, "partner": {}, "home, resubmitting": {"requeue": "resubmit"}}


def write_site(folder: Path, name: str, cluster: str, changes: dict) -> Path:
    """The testbed's own site with some keys changed."""
    folder.mkdir()
    wrapper = folder / "wrapper.sh"
    wrapper.write_text(SWALLOW)
    wrapper.chmod(0o755)
    values = yaml.safe_load((find_data_folder() / f"slurm/sites/testbed-{cluster}.yaml").read_text()) | changes
    path = folder / "site.yaml"
    path.write_text(yaml.safe_dump(values).replace("WRAPPER", str(wrapper)))
    return path


@pytest.fixture(scope="module")
def answers(home, partner, tmp_path_factory) -> dict[str, dict]:
    """All sites are tried, a few at a time because the testbed is small; the answers by the name of the site."""
    root, conf = tmp_path_factory.mktemp("selftest"), {"home": home, "partner": partner}

    def run(name: str, cluster: str, changes: dict, arguments: list[str]) -> dict:
        folder = root / name.replace(" ", "-").replace("'", "")
        site = write_site(folder, name, cluster, changes)
        done = hpcddm(
            "selftest", "--site", site, "--folder", folder / "runs", "--json", "--timeout", 3, *arguments,
            SLURM_CONF=conf[cluster],
        )  # fmt: skip
        answer = json.loads(done.stdout)
        return answer | {"code": done.returncode, "left": [str(path) for path in (folder / "runs").iterdir()]}

    jobs = {name: (name.split(",")[0], changes, []) for name, changes in GOOD.items()}
    jobs |= {name: (one.cluster, one.changes, one.arguments) for name, one in BROKEN.items()}
    with ThreadPoolExecutor(4) as pool:
        futures = {name: pool.submit(run, name, *job) for name, job in jobs.items()}
    return {name: future.result() for name, future in futures.items()}


def verdicts(answer: dict) -> dict[str, str]:
    return {row["check"]: row["verdict"] for row in answer["checks"]}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_site_passes_and_nothing_is_left(answers, name):
    answer = answers[name]
    assert verdicts(answer) == dict.fromkeys(ON_SLURM, "ok"), answer
    assert answer["code"] == 0 and answer["passed"] and answer["left"] == []
    seen = {row["check"]: row["seen"] for row in answer["checks"]}
    assert "resubmitted itself" in seen["requeue"] if "resubmitting" in name else "restart 1" in seen["requeue"]
    assert seen["collective"].startswith("gloo sums 64 MB over 2 ranks at ")
    assert "2 ranks on" in seen["ranks, rendezvous"] and "cores 0" in seen["environment"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_site_gets_the_right_verdict_and_advice(answers, name):
    broken, answer = BROKEN[name], answers[name]
    assert verdicts(answer) == dict.fromkeys(ON_SLURM, "ok") | broken.verdicts, answer
    (row,) = (row for row in answer["checks"] if row["check"] == broken.check)
    assert broken.seen in row["seen"] and broken.advice in row["advice"], row
    has_failed = bool({"FAIL", "not run"} & set(broken.verdicts.values()))
    assert answer["code"] == int(has_failed)
    assert answer["left"] == ([answer["kept"]] if has_failed else [])


def queued(conf: str, name: str) -> list[str]:
    command = ["squeue", "-h", f"--name={name}", "-o", "%i %t"]
    done = subprocess.run(command, env=os.environ | {"SLURM_CONF": conf}, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if not line.endswith("CG")]


def test_interrupting_it_cancels_its_own_jobs(home, tmp_path):
    site = write_site(tmp_path / "site", "waiting", "home", {"extra_sbatch": ["--begin=now+1hour"]})
    command = [sys.executable, "-m", "hpcddm.cli", "selftest", "--site", str(site), "--folder", str(tmp_path / "runs")]
    # What a shell has started in the background ignores Ctrl-C, and so would this process.
    listen = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        command, env=os.environ | {"SLURM_CONF": home}, stderr=subprocess.PIPE, text=True, preexec_fn=listen
    )
    deadline, name = time.time() + 120, ""
    while time.time() < deadline and not (name and len(queued(home, name)) == 2):
        time.sleep(0.2)
        name = next((f"hpcddm-{path.name}" for path in (tmp_path / "runs").glob("selftest-*")), "")
    assert len(queued(home, name)) == 2, "two small arrays are all that it submits"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=120) == 130
    assert queued(home, name) == []
