"""Tests see neither a user's files nor packages that this machine has by chance, and a test that tries is named."""

import os
import subprocess
import sys
import sysconfig

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


def test_files_that_tests_open_elsewhere_are_listed_with_the_test(tmp_path):
    venv, home, opened = (tmp_path / name for name in ("venv", "home", "opened"))
    # An environment of its own, whose hook is not that of this run.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    home.mkdir()
    opened.mkdir()
    (tmp_path / "test_planted.py").write_text(PLANTED)
    environment = os.environ | {"HOME": str(home), "PYTHONPATH": sysconfig.get_path("purelib")}
    tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "test_planted.py")
    for arguments, code in (((PLACES, "watch", opened), 0), (tests, 0), ((PLACES, "report", opened), 1)):
        command = [venv / "bin" / "python", *arguments]
        report = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
        assert report.returncode == code, report.stdout + report.stderr
    assert not opened.exists()
    *lines, count = report.stdout.splitlines()
    listed = dict(line.split(maxsplit=1) for line in lines)
    assert listed.pop("/usr/share/datasets/x").endswith("::test_a_package_that_some_machines_have")
    assert listed.pop(f"{tmp_path}/home/.cache/y").endswith("::test_a_cache")
    assert listed.pop("/srv").endswith("::test_in_another_process")
    assert not listed and count.endswith(": 3")
