"""docs/tutorial.md in a clone: its files are saved and its commands run as they stand, with shorter trainings."""

import os
import re
import subprocess
import sys

import pytest
import yaml

from tests.checkouts import clone
from tests.helpers import REPOSITORY
from tests.whole_runs import TINY

pytestmark = pytest.mark.long
FILES = {"yaml": ["guidance.yaml", "shoes.yaml"], "python": ["shoes.py"]}
"""Files that the reader saves, by the language of their blocks, in the order of the page."""
LONG_AGO = 10**9


def blocks(language: str) -> list[str]:
    """List the blocks of code of a language; the empty one marks commands."""
    text = (REPOSITORY / "docs/tutorial.md").read_text()
    return [
        code
        for marked, code in re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        if marked == language
    ]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A clone with this environment and the tiny quickstart, in which all commands of the page have run."""
    checkout = clone(tmp_path_factory.mktemp("tutorial"))
    quickstart = checkout / "experiments/quickstart.yaml"
    values = yaml.safe_load(quickstart.read_text())
    for override in TINY:
        keys, _, value = override.partition("=")
        *sections, key = keys.split(".")
        inner = values
        for section in sections:
            inner = inner[section]
        inner[key] = yaml.safe_load(value)
    quickstart.write_text(yaml.safe_dump(values))
    for name in ("Makefile", "setup.cfg", "pyproject.toml", "constraints.txt"):
        (checkout / name).write_bytes((REPOSITORY / name).read_bytes())
        # Make would install again what is older than these.
        os.utime(checkout / name, (LONG_AGO, LONG_AGO))
    (checkout / ".venv").symlink_to(sys.prefix)
    for language, names in FILES.items():
        for name, code in zip(names, blocks(language), strict=True):
            (checkout / name).write_text(code.replace("images: 24576", "images: 1536"))
    script = "set -ex\n" + "".join(blocks(""))
    command, environment = ["bash", "-c", script], os.environ | {"PYTHONPATH": str(checkout)}
    done = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return checkout


def test_every_command_runs_and_makes_what_the_page_says(checkout):
    made = [
        "runs/quickstart/report/index.html",
        "sneakers.png",
        "expert-0.png",
        "bags.html",
        "runs/two/report/index.html",
    ]
    made += ["sweeps/guidance/table.csv", "runs/shoes/cluster_report/clusters.html", "runs/shoes/report/index.html"]
    assert [name for name in [*made, "shoes.png"] if not (checkout / name).is_file()] == []
    assert len((checkout / "sweeps/guidance/table.csv").read_text().splitlines()) > 3
    assert {path.name for path in (checkout / "shoes").iterdir()} == {"Sandal", "Sneaker", "Ankle boot"}


def test_the_parts_of_pages_that_become_pictures_are_there(checkout):
    report = (checkout / "runs/quickstart/report/index.html").read_text()
    for part in (
        'class="method"',
        'class="results"',
        'id="samples"',
        'id="decisions"',
        'id="training"',
        "pair clusters",
    ):
        assert part in report
