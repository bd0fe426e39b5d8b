"""The pages that people read: links that lead somewhere, commands, options, targets and files that exist."""

import ast
import re
from pathlib import Path

import pytest

from hpcddm.cli import VERBS
from tests.helpers import REPOSITORY, commands

README = REPOSITORY / "README.md"
PAGES = [README, *sorted((REPOSITORY / "docs").rglob("*.md"))]
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
EVERY_VERB = set(VERBS)
MADE_UP = {"slurm/sites/my-cluster.yaml"}
"""Files that a page tells its reader to make."""
NAMES_ANY_FILE = {"changelog.md", "adding-a-variant.md"}
"""Pages that name files which are gone, or which the reader writes."""
PLACEHOLDERS = {"X.py", "X_job.py"}


def anchors(page: Path) -> set[str]:
    """List the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in titles}


def code_of(page: Path) -> str:
    """Join the code of a page, blocks without their comments and single words, one piece a line."""
    text = page.read_text()
    blocks = re.findall(r"^ *```\w*\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    inline = re.findall(r"`([^`]+)`", re.sub(r"^ *```.*?```", "", text, flags=re.DOTALL | re.MULTILINE))
    lines = [re.sub(r"(^|\s)# .*", "", line) for block in blocks for line in block.splitlines()]
    return "\n".join([*lines, *(" ".join(piece.split()) for piece in inline)])


def test_the_readme_is_short_and_names_every_page():
    text = README.read_text()
    assert len(text.splitlines()) <= 200
    pages = [page.relative_to(REPOSITORY).as_posix() for page in PAGES[1:]]
    assert [page for page in pages if f"({page})" not in text] == []


@EVERY_PAGE
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.is_file(), target
        assert not anchor or anchor in anchors(linked), target


def test_the_list_of_contents_of_the_results_has_every_section_in_its_place():
    text = (REPOSITORY / "docs" / "results.md").read_text()
    listed = re.findall(r"^- \[(.+)\]\(#", text.partition("\n## ")[0], re.MULTILINE)
    assert listed == re.findall(r"^## (.+)$", text, re.MULTILINE)


def test_lines_of_prose_are_wrapped():
    text = re.sub(r"^ *```.*?```", "", (REPOSITORY / "docs" / "running.md").read_text(), flags=re.DOTALL | re.MULTILINE)
    assert [line for line in text.splitlines() if len(line) > 140 and not line.startswith("|")] == []


@EVERY_PAGE
def test_verbs_and_options_exist(page):
    for verb, rest in re.findall(r"\bhpcddm ([a-z][a-z-]+)\b([^\n|;]*)", code_of(page)):
        assert verb in commands(), verb
        options = {option for parameter in commands()[verb].params for option in parameter.opts}
        assert set(re.findall(r"(?<![\w-])--[a-z-]+", rest)) <= options | {"--help"}, verb + rest


def test_the_list_of_commands_is_complete():
    text = "\n".join(code_of(page) for page in PAGES)
    assert {verb for verb in EVERY_VERB if f"hpcddm {verb}" not in text} == set()


@EVERY_PAGE
def test_make_targets_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)", code_of(page))) <= targets


@EVERY_PAGE
def test_files_exist(page):
    names = set(re.findall(r"(?<![\w./-])(?:hpcddm|tests|slurm|experiments)/[\w./-]+(?![\w./<-])", code_of(page)))
    assert [name for name in names - MADE_UP if not (REPOSITORY / name.rstrip(".")).exists()] == []
    modules = re.findall(r"-m (tests\.[\w.]+)", code_of(page))
    assert [module for module in modules if not (REPOSITORY / (module.replace(".", "/") + ".py")).is_file()] == []


def test_a_python_file_that_a_page_or_a_docstring_names_is_there():
    folders = ("hpcddm", "tests", "slurm", "experiments")
    there = {str(path.relative_to(REPOSITORY)) for folder in folders for path in (REPOSITORY / folder).rglob("*.py")}
    ends = {"/".join(parts[start:]) for parts in (name.split("/") for name in there) for start in range(len(parts))}
    texts = {page: page.read_text() for page in PAGES if page.name not in NAMES_ANY_FILE}
    for file in (REPOSITORY / "hpcddm").rglob("*.py"):
        strings = (node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant))
        texts[file] = "\n".join(value for value in strings if isinstance(value, str))
    names = {(file.name, name) for file, text in texts.items() for name in re.findall(r"`([\w./-]+[.]py)`", text)}
    gone = {(file, name) for file, name in names if name.removeprefix("share/hpcddm/") not in ends | PLACEHOLDERS}
    assert len(names) > 20 and gone == set()


def test_the_architecture_names_every_room_and_only_what_is_there():
    tree = README.read_text().partition("## Architecture")[2].partition("```\n")[2].partition("```")[0]
    package, found, own = REPOSITORY / "hpcddm", set(), REPOSITORY / "hpcddm"
    for line in tree.splitlines()[1:]:
        if re.match("  [a-z_]+/ ", line):
            own = package / line.split("/")[0].strip()
            found.add(own.name)
        names = re.findall(r"(?<![\w`])[a-z_]+(?:/|[.]py)", line.replace(f"  {own.name}/", ""))
        assert [
            name for name in names if not any(own.rglob(name.rstrip("/"))) and not (package / name).exists()
        ] == [], line
    assert found == {path.parent.name for path in package.glob("*/__init__.py")}
