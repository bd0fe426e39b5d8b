"""Words of a command in the batch script: one word each for bash, whatever they hold."""

import os
import subprocess

import pytest

from hpcddm.launch.template import command_word


def in_bash(words, **environment):
    """The words as a program sees them that bash starts."""
    script = f"command=({' '.join(map(command_word, words))})\nprintf '%s\\n' \"${{command[@]}}\""
    environment = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("word", ["--nv", "a*b?[c]", "x~", "{a,b}", "a&b|c>d<e", "!x", "#x", "k\xe4se", "--a=b%c"])
def test_a_word_stays_as_it_is(word):
    assert in_bash([word]).stdout == f"{word}\n"


@pytest.mark.parametrize("value", ["/scratch/me", "with blank", "$(echo evil)", "`echo evil`", "a;b", '"', "*"])
@pytest.mark.parametrize("word", ["--bind=$SCRATCH:/s", "--bind=${SCRATCH}:/s"])
def test_a_variable_is_filled_in_and_its_value_is_not_read_again(word, value):
    assert in_bash([word, "x"], SCRATCH=value).stdout == f"--bind={value}:/s\nx\n"


def test_a_variable_that_is_not_set_ends_the_script_with_its_name():
    done = in_bash(["--bind=$SCRATCH"])
    assert done.returncode != 0 and done.stdout == "" and "SCRATCH: is not set in the job" in done.stderr
