"""`make submit` hands every variable over as one word."""

import os
import subprocess
import sys

from tests.helpers import REPOSITORY


def make(*words):
    return subprocess.run(["make", "--silent", *words], cwd=REPOSITORY, capture_output=True, text=True)


def test_a_variable_is_one_word_and_set_is_several(tmp_path):
    command = tmp_path / "bin" / "hpcddm"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")
    command.chmod(0o755)
    (tmp_path / "installed").touch()
    for name in ("a b", "a'b", 'a"b', "a;b", "a*", "a&b (c)"):
        variables = [f"EXPERIMENT={name}.yaml", f"SITE={name}", f"RUN_DIR=runs/{name}", "SET=seed=1 name=x"]
        done = make("submit", f"VENV={tmp_path}", *variables)
        words = f"<submit><{name}.yaml><--site><{name}><--run-dir><runs/{name}><seed=1><name=x>"
        assert done.stdout == words, done.stderr


def test_an_unknown_part_of_the_long_tests_is_answered_with_the_valid_ones(tmp_path):
    for name in ("installed", "installed-test"):
        (tmp_path / name).touch()
    done = make("test-long", f"VENV={tmp_path}", "PART=storm")
    assert done.returncode != 0 and "error: PART=storm: valid parts are slurm clusters storms newer" in done.stderr


FAKE = """#!/bin/sh
case "$*" in
    -V) echo "Python {version}" ;;
    -c*) exit {is_old} ;;
    "-m venv --clear "*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" && cp "$0" "$4/bin/pip" && rm -f "$4/installed" ;;
esac
echo "$0 $*" >>{log}
"""


def test_a_python_that_is_too_old_is_refused_before_any_download_and_another_one_replaces_it(tmp_path):
    venv, log = tmp_path / "venv", tmp_path / "log"

    def python(name, version, is_old=0):
        path = tmp_path / name
        path.write_text(FAKE.format(version=version, is_old=is_old, log=log))
        path.chmod(0o755)
        return str(path)

    def install(*variables):
        log.write_text("")
        done = make("install", f"VENV={venv}", *variables)
        return done, [line for line in log.read_text().splitlines() if "/pip " in line]

    old, good, newer = python("old", "3.10.13", 1), python("good", "3.11.7"), python("newer", "3.13.0")
    for made_before in (False, True):
        done, downloads = install(f"PYTHON={old}")
        assert done.returncode and not downloads and len(done.stderr.splitlines()) == 2, "one line, and make's own"
        assert f"Python 3.11 or later, and {old} is Python 3.10.13; next: apt-get install" in done.stderr
        if not made_before:
            subprocess.run([old, "-m", "venv", "--clear", venv], check=True)
    for named in (good, newer):
        done, downloads = install(f"PYTHON={named}")
        assert not done.returncode and downloads and "Python" in (venv / "bin/python").read_text(), done.stderr
        assert (venv / "bin/python").read_text() == (tmp_path / named).read_text()
        assert install(f"PYTHON={named}")[1] == [], "nothing is installed twice"
    done, downloads = install()
    assert not done.returncode and not downloads, "another Python is taken only where it is named"


def test_the_check_of_gpus_ends_with_an_error_where_there_is_none():
    """What 'make gpu-check' calls, with all GPUs hidden."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "gpu", "tests/gpu"]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "no GPU is visible to torch here, so nothing was checked: " in done.stdout
    assert "skipped" not in done.stdout
