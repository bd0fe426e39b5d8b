"""`make docs`: a site with every page, a search and an API reference, without broken links and without a network."""

import configparser
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import hpcddm
from tests.helpers import REPOSITORY

pytestmark = pytest.mark.long
PARTS = ("docs", "hpcddm", "Makefile", "README.md", "setup.cfg", "pyproject.toml", "constraints.txt")
LINKS = "\nThe [start](../README.md#results) and the [loop](../hpcddm/training/loop.py).\n"
"""Links out of docs/, which the site cannot have as they are."""


class Elements(HTMLParser):
    """Links, loaded files and anchors of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors |= {values["id"]} if "id" in values else set()
        self.links |= {values["href"]} if tag == "a" and "href" in values else set()
        self.loaded |= {values[name] for name in ("src", "href") if name in values and tag != "a"}


def copied(folder: Path) -> Path:
    """Copy what the site is made of."""
    for part in PARTS:
        (shutil.copytree if (REPOSITORY / part).is_dir() else shutil.copy2)(REPOSITORY / part, folder / part)
    return folder


def make_docs(checkout: Path, environment: Path) -> subprocess.CompletedProcess[str]:
    command = ["make", "--silent", "docs", f"VENV={environment}"]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment with the extra `docs` and nothing else; without torch the reference is the same."""
    folder = tmp_path_factory.mktemp("environment")
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    packages = setup["options.extras_require"]["docs"].split()
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [folder / "bin/pip", "install", "--quiet", "--constraint", REPOSITORY / "constraints.txt", *packages]
    subprocess.run(install, check=True, timeout=600)
    for mark in ("installed", "installed-docs"):
        (folder / mark).touch()
    return folder


@pytest.fixture(scope="module")
def site(environment, tmp_path_factory):
    checkout = copied(tmp_path_factory.mktemp("checkout"))
    with open(checkout / "docs/glossary.md", "a") as page:
        page.write(LINKS)
    done = make_docs(checkout, environment)
    assert done.returncode == 0, done.stderr[-5000:]
    return checkout / "build/docs"


def test_every_page_is_there_with_what_it_loads_and_links_and_none_is_loaded_from_elsewhere(site):
    docs = REPOSITORY / "docs"
    names = {page.relative_to(docs).with_suffix(".html") for page in docs.rglob("*.md")} | {Path("index.html")}
    assert {page.relative_to(site) for page in site.rglob("*.html")} == names | {Path("404.html")}
    pages = {site / name: Elements(site / name) for name in names}
    broken = []
    for page, elements in pages.items():
        broken += [(page.name, file) for file in elements.loaded if not (page.parent / unquote(file)).is_file()]
        for link in (link for link in elements.links if not link.startswith("https://")):
            path, _, anchor = unquote(link).partition("#")
            linked = (page.parent / path).resolve() if path else page
            if not linked.is_file() or (anchor and anchor not in pages[linked].anchors):
                broken.append((page.name, link))
    assert broken == []


def test_links_out_of_docs_lead_to_the_start_page_or_are_text(site):
    text = (site / "glossary.html").read_text()
    assert 'The <a href="index.html#results">start</a> and the loop.' in text


def test_the_search_finds_a_phrase(site):
    index = json.loads((site / "search/search_index.json").read_text())
    for text, page in (("requeue", "interruptions"), ("guidance", "method"), ("folder of images", "own-images")):
        places = {entry["location"].partition("#")[0] for entry in index["docs"] if text in entry["text"].lower()}
        assert f"{page}.html" in places


def test_the_reference_has_all_that_its_modules_define(site):
    missing = []
    for page in (REPOSITORY / "docs/api").glob("*.md"):
        anchors = Elements(site / "api" / f"{page.stem}.html").anchors
        for name in re.findall(r"^::: ([\w.]+)$", page.read_text(), re.MULTILINE):
            members = inspect.getmembers(importlib.import_module(name), lambda member: hasattr(member, "__module__"))
            own = {key for key, member in members if member.__module__ == name and re.match("_|[A-Z]$", key) is None}
            missing += [f"{name}.{key}" for key in own if f"{name}.{key}" not in anchors]
    assert missing == []
    assert hpcddm.open.__doc__.splitlines()[0] in (site / "api/run.html").read_text()


MISTAKES = [
    ("[a](gone.md) [b](method.md#gone)", ["link 'gone.md'", "link 'method.md#gone'", 'not included in the "nav"']),
    ("::: hpcddm.gone", ["hpcddm.gone could not be found"]),
]


def test_a_mistake_is_an_error_that_names_it(environment, tmp_path):
    copied(tmp_path)
    for text, problems in MISTAKES:
        (tmp_path / "docs/mistakes.md").write_text(f"# Mistakes\n\n{text}\n")
        done = make_docs(tmp_path, environment)
        assert done.returncode != 0 and [problem for problem in problems if problem not in done.stderr] == []
