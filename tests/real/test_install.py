"""`pip install .`, also with --editable: what travels with the package, and where it can be imported."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
TRAVELS = ("hpcddm", "slurm", "experiments", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")


def copied_to(source):
    source.mkdir(parents=True)
    for name in TRAVELS:
        copy = shutil.copytree if (CHECKOUT / name).is_dir() else shutil.copy
        copy(CHECKOUT / name, source / name)
    return source


@pytest.fixture(scope="module", params=[("--editable",), ()], ids=["editable", "plain"])
def home(request, tmp_path_factory):
    """Folder with a checkout `hpcddm`, and an environment `venv` in which it is installed."""
    folder = tmp_path_factory.mktemp("home")
    checkout, venv = copied_to(folder / "hpcddm"), folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    site_packages = next(venv.glob("lib/python*/site-packages"))
    # Folders on a path file's lines are used as they are: an hpcddm that is installed there by a path file is not.
    dependencies = [path for path in sys.path if path.endswith("site-packages")]
    (site_packages / "dependencies.pth").write_text("\n".join(dependencies))
    pip = [sys.executable, "-m", "pip", "--python", venv, "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, *request.param, checkout], check=True)
    return folder


@pytest.mark.parametrize("place", [".", "hpcddm", "hpcddm/hpcddm", "hpcddm/experiments", "venv"])
def test_the_documented_import_works_in_any_folder(home, place):
    """As typed in a notebook or at a prompt, in a script that lies there, and with -m."""
    folder, python = home / place, home / "venv/bin/python"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    script = folder / "a_script_of_mine.py"
    script.write_text("import hpcddm\nprint(hpcddm.open.__module__, hpcddm.__version__)\n")
    commands = [["-c", script.read_text()], [script.name], [script], ["-m", "hpcddm.cli", "--version"]]
    for command in commands:
        done = subprocess.run(
            [python, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout in ("hpcddm 0.2.0\n", "python -m hpcddm.cli, version 0.2.0\n")


def test_an_installed_package_submits_from_any_folder(tmp_path):
    source, target = copied_to(tmp_path / "source"), tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", target]
    subprocess.run([*pip, source], check=True)
    shutil.rmtree(source)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    where = subprocess.run(
        [sys.executable, "-m", "hpcddm.cli", "submit", "quickstart", "--site", "embedded", "--dry-run"],
        env=os.environ | {"PYTHONPATH": str(target)}, cwd=elsewhere, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert where.returncode == 0, where.stderr
    assert "would run here: shard/train-000" in where.stdout
    assert sorted(path.name for path in (target / "share/hpcddm/slurm/sites").iterdir()) == sorted(
        path.name for path in (CHECKOUT / "slurm/sites").iterdir()
    )
    assert (target / "share/hpcddm/experiments/emoji/prepare.py").is_file()
    templates = {path.relative_to(CHECKOUT) for path in (CHECKOUT / "hpcddm").rglob("*.j2")}
    assert templates and {path for path in templates if not (target / path).is_file()} == set()
