"""`make submit` hands every variable over as one word."""

import os
import subprocess
import sys

import pytest

from tests.helpers import REPOSITORY


@pytest.mark.parametrize("name", ["a b", "a'b", 'a"b', "a;b", "a*", "a&b (c)"])
def test_a_variable_is_one_word_and_set_is_several(tmp_path, name):
    command = tmp_path / "bin" / "hpcddm"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")
    command.chmod(0o755)
    (tmp_path / "installed").touch()
    variables = [f"EXPERIMENT={name}.yaml", f"SITE={name}", f"RUN_DIR=runs/{name}", "SET=seed=1 name=x"]
    done = subprocess.run(
        ["make", "--silent", "submit", f"VENV={tmp_path}", *variables], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.stdout == f"<submit><{name}.yaml><--site><{name}><--run-dir><runs/{name}><seed=1><name=x>", done.stderr


def test_the_check_of_gpus_ends_with_an_error_where_there_is_none():
    """What 'make gpu-check' calls, with all GPUs hidden."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "gpu", "tests/gpu"]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "no GPU is visible to torch here, so nothing was checked: " in done.stdout
    assert "skipped" not in done.stdout
