"""`pip install .` outside the checkout: experiments, sites, data and template travel with the package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
TRAVELS = ("hpcddm", "slurm", "experiments", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")


def test_an_installed_package_submits_from_any_folder(tmp_path):
    source, target = tmp_path / "source", tmp_path / "installed"
    for name in TRAVELS:
        copy = shutil.copytree if (CHECKOUT / name).is_dir() else shutil.copy
        source.mkdir(exist_ok=True)
        copy(CHECKOUT / name, source / name)
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
