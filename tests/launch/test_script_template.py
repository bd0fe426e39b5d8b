"""Words of a command in the batch script: one word each for bash, whatever they hold."""

import os
import subprocess

import pytest

from hpcddm.config.site import Site
from hpcddm.errors import UserError
from hpcddm.launch.script_template import command_word, render


def in_bash(words, **environment):
    """The words as a program sees them that bash starts."""
    script = f"command=({' '.join(map(command_word, words))})\nprintf '%s\\n' \"${{command[@]}}\""
    environment = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment)


def test_a_word_stays_as_it_is_and_a_variable_that_is_not_set_ends_the_script_with_its_name():
    words = ["--nv", "a*b?[c]", "x~", "{a,b}", "a&b|c>d<e", "!x", "#x", "k\xe4se", "--a=b%c"]
    assert in_bash(words).stdout.splitlines() == words
    done = in_bash(["--bind=$SCRATCH"])
    assert done.returncode != 0 and done.stdout == "" and "SCRATCH: is not set in the job" in done.stderr


@pytest.mark.parametrize("value", ["/scratch/me", "with blank", "$(echo evil)", "`echo evil`", "a;b", '"', "*"])
def test_a_variable_is_filled_in_and_its_value_is_not_read_again(value):
    words = ["--bind=$SCRATCH:/s", "--bind=${SCRATCH}:/s", "x"]
    assert in_bash(words, SCRATCH=value).stdout.splitlines() == [f"--bind={value}:/s"] * 2 + ["x"]


EVIL = {
    "globals": "{{ cycler.__init__.__globals__.os.system('touch CANARY') }}",
    "classes": "{{ ().__class__.__mro__[1].__subclasses__() }}",
    "format": "{{ '{0.__class__.__init__.__globals__}'.format(site) }}",
    "filter": "{{ ''|attr('__class__') }}",
    "another file": "{% include '../../etc/passwd' %}",
    "a zero": "{{ 1 // 0 }}",
    "a wrong key": "{{ site['no such'] }}",
    "a long range": "{% for n in range(10000000) %}{% endfor %}",
}


@pytest.mark.parametrize("text", EVIL.values(), ids=EVIL)
def test_a_template_reaches_nothing_but_its_values(tmp_path, text):
    site, canary, place = Site(name="here", scheduler="slurm"), tmp_path / "canary", "slurm/python_env.sh.j2"
    parts, values = {place: text.replace("CANARY", str(canary))}, {"cache": tmp_path}
    with pytest.raises(UserError) as error:
        render(f"{{% include '{place}' %}}", "job.sbatch.j2", site, site.resources_for("train"), parts, **values)
    assert "\n" not in str(error.value) and "root:" not in str(error.value) and not canary.exists()
