"""Tests see neither a user's files nor packages that this machine has by chance, and a test that tries is named."""

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

from tests.helpers import REPOSITORY

PLACES = REPOSITORY / "tests" / "isolation" / "places.py"
PLANTED = """
import contextlib, pathlib, subprocess, sys

def read(path):
    with contextlib.suppress(OSError):
        pathlib.Path(path).expanduser().read_bytes()

def test_a_package_that_some_machines_have():
    read("/usr/share/datasets/x")

def test_a_cache():
    read("~/.cache/y")

def test_in_another_process():
    subprocess.run([sys.executable, "-c", "import os; os.path.isdir('/srv') and os.listdir('/srv')"], check=True)

def test_what_is_allowed(tmp_path):
    (tmp_path / "mine").write_text("")
    read(__file__), read("/etc/hosts"), read(sys.executable), read("relative")
"""


@pytest.fixture
def call(tmp_path):
    """Run a Python of a virtual environment of its own, whose hook is not that of this run."""
    venv, home = tmp_path / "venv", tmp_path / "home"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    home.mkdir()
    environment = os.environ | {"HOME": str(home), "PYTHONPATH": sysconfig.get_path("purelib")}

    def run(*arguments):
        command = [venv / "bin" / "python", *arguments]
        return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)

    return run


def test_files_that_tests_open_elsewhere_are_listed_with_the_test(tmp_path, call):
    planted, opened = tmp_path / "test_planted.py", tmp_path / "opened"
    planted.write_text(PLANTED)
    for names, code in ((("allowed",), 0), (("datasets", "package", "cache", "another", "allowed"), 1)):
        opened.mkdir()
        assert call(PLACES, "watch", opened).returncode == 0
        tests = call("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", " or ".join(names), planted)
        assert tests.returncode == 0, tests.stdout
        report = call(PLACES, "report", opened)
        assert report.returncode == code, report.stdout + report.stderr
        assert not opened.exists()
    *lines, count = report.stdout.splitlines()
    listed = dict(line.split(maxsplit=1) for line in lines)
    assert listed.pop("/usr/share/datasets/x").endswith("::test_a_package_that_some_machines_have")
    assert listed.pop(f"{tmp_path}/home/.cache/y").endswith("::test_a_cache")
    assert listed.pop("/srv").endswith("::test_in_another_process")
    assert not listed and count.endswith(": 3")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces need root")
def test_what_packages_and_people_fill_is_empty_inside():
    own = Path(tempfile.mkdtemp(dir=tempfile.gettempdir(), prefix="hpcddm-"))
    theirs = Path(tempfile.mkdtemp(dir="/srv", prefix="hpcddm-"))
    try:
        # Not by Python, whose files outside of the allowed places are listed.
        subprocess.run(["touch", theirs / "file"], check=True)
        shown = f"ls -A /root /home /srv /opt; ls -d {own} {REPOSITORY}/setup.cfg; {sys.executable} -c 'import torch'"
        inside = subprocess.run(
            [sys.executable, PLACES, "enter", "sh", "-c", f"ls {theirs}; {shown}"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert inside.returncode == 0, inside.stderr
        assert "No such file" in inside.stderr and theirs.name not in inside.stdout
        assert str(own) in inside.stdout and f"{REPOSITORY}/setup.cfg" in inside.stdout
        assert (theirs / "file").exists()
    finally:
        (theirs / "file").unlink()
        theirs.rmdir()
        own.rmdir()
