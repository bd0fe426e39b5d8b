"""Odd paths in the batch scripts: what reaches sbatch, bash and Python is the path itself, or it is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcddm.config.site import Site
from hpcddm.errors import ConfigError
from hpcddm.launch import code_copy
from hpcddm.launch.base import ArraySpec
from hpcddm.launch.code_copy import Checkout
from hpcddm.launch.load_site import load_site
from hpcddm.launch.run_folder import make_folder
from hpcddm.launch.selftest.slurm_trial import SlurmTrial
from hpcddm.launch.slurm import launcher as slurm_launcher
from hpcddm.runs.run_dir import RunDir
from tests.helpers import hpcddm, write_experiment, write_source
from tests.launch.slurm.test_launcher import rendered

QUOTED = [" a  b ", 'it\'s "b"', "$HOME", "$(touch made)", "`touch made`", "a #b", "n[1-3]{a,b}(c)", "*?"]
QUOTED += ["a;b&c|d<e>f!g", "--array=0-9", "~", "k\xe4se \u65e5\u672c \U0001f600", "a=b,c+d@e"]
REFUSED = [
    ("a\\b", "'\\' in a path is taken away by Slurm, in quotes, too; take another name"),
    ("a\\", "'\\' in a path is taken away by Slurm"),
    ("100%", "'%' in a path means something to Slurm"),
    ("%j", "'%' in a path means something to Slurm"),
    ("12:30", "':' in a path means something to Python"),
    ("a\nb", "a path with control characters cannot be in a batch script"),
    ("a\tb", "a path with control characters"),
    ("a\x1b[31m", "a path with control characters"),
    ("a\u2028b", "a path with ends of lines"),
    ("a\x85b", "a path with control characters"),
    (os.fsdecode(b"a\xff"), "a path with bytes that are not UTF-8"),
    ("my-HetJob", "'hetjob' in a path is taken away by sbatch"),
    ("packjobs", "'packjob' in a path is taken away by sbatch"),
]


def sbatch_words(line):
    """Split a line of #SBATCH as sbatch does: a backslash vanishes even in quotes, and '#' begins a comment."""
    words, word, quote, escaped = [], None, "", False
    for character in line:
        if escaped:
            word, escaped = (word or "") + character, False
        elif character == "\\":
            escaped = True
        elif quote:
            word, quote = (word, "") if character == quote else (word + character, quote)
        elif character in "'\"":
            word, quote = word or "", character
        elif character == "#":
            break
        elif character.isspace():
            words, word = words + [word] * (word is not None), None
        else:
            word = (word or "") + character
    return words + [word] * (word is not None)


def in_bash(lines, variables, folder):
    """Return variables of bash after some lines of a script, executed in a folder."""
    code = "\n".join([*lines, f"printf '%s\\0' {' '.join(variables)}"])
    done = subprocess.run(["bash", "-c", code], cwd=folder, capture_output=True, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stderr
    return os.fsdecode(done.stdout).split("\0")[:-1]


def line_of(lines, words):
    """The number of the one line that begins so."""
    (number,) = [number for number, line in enumerate(lines) if line.startswith(words)]
    return number


@pytest.mark.parametrize("name", QUOTED)
def test_a_run_in_an_odd_folder_is_found_by_sbatch_and_by_bash(tmp_path, monkeypatch, name):
    cache, folder = tmp_path / "cache" / name, tmp_path / name
    monkeypatch.setenv("HPCDDM_CACHE", str(cache))
    make_folder(RunDir(folder))
    script = rendered(folder)
    assert subprocess.run(["bash", "-n"], input=script.encode()).returncode == 0
    lines = script.split("\n")
    (output,) = [line for line in lines if line.startswith("#SBATCH --output")]
    assert sbatch_words(output.removeprefix("#SBATCH")) == [f"--output={folder}/jobs/%A_%a.out"]
    start, end = (line_of(lines, words) for words in ("export OMP_NUM_THREADS", "python=("))
    own = [lines[line_of(lines, words)] for words in ("element=", "functions=", "run=")]
    names = "jobs run PWD HPCDDM_CACHE functions code_folder PYTHONPATH".split()
    got = in_bash([*own, *lines[start:end]], [f'"${name}"' for name in names], tmp_path)
    assert got[:4] == [f"{folder}/jobs", str(folder), str(folder), str(cache)]
    assert [os.path.dirname(path) for path in got[4:]] == [f"{folder}/scripts", f"{folder}/code", f"{folder}/code"]
    assert not list(tmp_path.rglob("made"))


@pytest.mark.parametrize("name, reason", REFUSED)
def test_a_run_in_a_folder_that_would_become_another_one_is_refused(tmp_path, name, reason):
    for folder in (tmp_path / name, tmp_path / name / "inner"):
        with pytest.raises(ConfigError) as caught:
            make_folder(RunDir(folder))
        assert str(caught.value).startswith("--run-dir ") and reason in str(caught.value)
        assert "\n" not in str(caught.value) and str(caught.value).isprintable()
        assert not folder.exists()


@pytest.mark.parametrize("name", ["-x", "-x/y", "~", "~/runs", "~me/runs"])
def test_a_folder_that_is_a_flag_or_an_unexpanded_home_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"--run-dir {name}: '{name[0]}' at the beginning"):
        make_folder(RunDir(Path(name)))
    assert not list(tmp_path.iterdir())
    make_folder(RunDir(Path(f"./{name}").absolute()))
    assert (tmp_path / name).is_dir()


@pytest.mark.parametrize("verb, option", [("submit", "--run-dir"), ("sweep", "--dir"), ("selftest", "--folder")])
def test_every_verb_that_makes_a_folder_refuses_a_backslash(tmp_path, monkeypatch, verb, option):
    monkeypatch.chdir(tmp_path)
    write_source(tmp_path / "images")
    write_experiment(tmp_path)
    (tmp_path / "sweep.yaml").write_text("name: trial\nexperiment: tiny.yaml\ngrid: {seed: [1]}\n")
    words = {"submit": ["tiny.yaml", "--dry-run"], "sweep": ["sweep.yaml", "--dry-run"], "selftest": []}[verb]
    done = hpcddm(verb, *words, "--site", "embedded", option, "runs/a\\b")
    assert done.exit_code == 2 and "'\\' in a path is taken away by Slurm" in done.stderr
    assert done.stderr.count("\n") == 1 and not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["a:b", "a\nb"])
def test_a_checkout_that_python_or_the_script_would_not_find_is_refused_where_jobs_run_it(tmp_path, monkeypatch, name):
    monkeypatch.setattr(code_copy, "AROUND", tmp_path / name)
    with pytest.raises(ConfigError, match="in a path means|control characters"):
        Checkout()
    monkeypatch.setattr("hpcddm.launch.selftest.slurm_trial.AROUND", tmp_path / name)
    with pytest.raises(ConfigError, match="in a path means|control characters"):
        SlurmTrial(Site(name="here", scheduler="slurm"), tmp_path).prepare()


@pytest.mark.parametrize("variable", ["HPCDDM_CACHE", "HPCDDM_VARIANTS"])
def test_a_folder_in_the_environment_that_no_line_can_hold_is_named(tmp_path, monkeypatch, variable):
    launcher = slurm_launcher.create(Site(name="here", scheduler="slurm"), RunDir(tmp_path / "run"))
    launcher.code = Checkout()
    launcher.code.variants = "" if variable == "HPCDDM_CACHE" else "/a\nb"
    monkeypatch.setenv("HPCDDM_CACHE", "/a\nb" if variable == "HPCDDM_CACHE" else "/a")
    array = ArraySpec("tiny-train", ["train/expert-00"], [tmp_path], launcher.site.resources_for("train"), [], 1)
    with pytest.raises(ConfigError, match=rf"^{variable}=/a\\nb: a path with control characters"):
        launcher.render(array, "a.sbatch")


@pytest.mark.parametrize("named", ["~no-such-user/cache", "cache"])
def test_a_cache_without_an_absolute_path_is_named(tmp_path, monkeypatch, named):
    monkeypatch.setenv("HPCDDM_CACHE", named)
    with pytest.raises(ConfigError, match=f"HPCDDM_CACHE: .*'{named}'"):
        rendered(tmp_path)


@pytest.mark.parametrize("name", [*QUOTED, "$proj", "${proj}", "a\\b", "a:b%c"])
def test_the_interpreter_that_submits_is_started_whatever_its_path_is(tmp_path, monkeypatch, name):
    interpreter = tmp_path / name / "python"
    interpreter.parent.mkdir()
    interpreter.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    lines = rendered(tmp_path / "run").split("\n")
    got = in_bash([lines[line_of(lines, "python=(")]], ['"${python[@]}"'], tmp_path)
    assert got == [str(interpreter), "-P"]


SCRATCH = {
    "$TMPDIR": "/local/x y",
    "${TMPDIR}/a b": "/local/x y/a b",
    "/local/$NAME/k\xe4se": "/local/z/k\xe4se",
    "/local/a;b&c(d)*#e": "/local/a;b&c(d)*#e",
}


@pytest.mark.parametrize("scratch, place", SCRATCH.items())
def test_scratch_names_variables_and_is_else_what_it_says(tmp_path, scratch, place):
    lines = rendered(tmp_path, scratch=scratch).split("\n")
    own = ["TMPDIR='/local/x y' NAME=z", lines[line_of(lines, "export HPCDDM_SCRATCH")]]
    assert in_bash(own, ['"$HPCDDM_SCRATCH"'], tmp_path) == [place]


ODD_SITES = {
    "scratch": ["", " /a", "/a\nb", *"~/x|a/b|-x|/a\"b|/a'b|/a`b`|$(mktemp)|${A:-/b}|/a$|/a\\b".split("|")],
    "python": ["~/v/bin/python", "-c", "v/bin/python", "./python", "a b", "a;b", "a\x07"],
    "container": [["--nv", "x.sif"], ["bin/run"], ["~/run"], ["run", "~/x.sif"]],
    "partition": ["a#b", "a b", "a\\b", "a$b", "a\x07", "a\nb", ""],
    "cluster": ["a&b", "../a", "a b", "-a"],
    "cpu_bind": ["a b", "$(a)", "a#b"],
    "mail": ["a b@c", "a#b@c"],
    "name": ["a b", "a/b", "-a", "a\n", "..", "a:b", "a%b", "a\\b", "~"],
}


@pytest.mark.parametrize("key", ODD_SITES)
def test_a_site_whose_words_a_shell_would_change_is_refused_with_its_line(tmp_path, key):
    for value in ODD_SITES[key]:
        words = {"name": "here", "scheduler": "slurm"} | {key: value}
        (tmp_path / "s.yaml").write_text("".join(f"{name}: {json.dumps(word)}\n" for name, word in words.items()))
        with pytest.raises(ConfigError) as caught:
            load_site(str(tmp_path / "s.yaml"))
        line = f"{tmp_path}/s.yaml:{list(words).index(key) + 1}: {key}"
        assert str(caught.value).startswith(line) and "\n" not in str(caught.value), value


def test_a_binding_of_ranks_is_one_word_for_bash(tmp_path):
    lines = rendered(tmp_path, cpu_bind="a&b(c)*").split("\n")
    start = line_of(lines, "ranks=(")
    assert "--cpu-bind=a&b(c)*" in in_bash(lines[start : start + 2], ['"${ranks[@]}"'], tmp_path)
