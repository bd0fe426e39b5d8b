"""`make submit` hands every variable over as one word."""

import subprocess

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
