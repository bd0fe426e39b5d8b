"""The pages that people read: links that lead somewhere, commands, options, targets and files that exist."""

import ast
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import click
import pytest

from hpcddm.cli import VERBS
from hpcddm.pipeline.state import State
from tests.helpers import REPOSITORY, commands

README = REPOSITORY / "README.md"
INDEXED = ("results", "api")
"""Folders of pages, each with an index beside it."""
PAGES = [README, *sorted((REPOSITORY / "docs").rglob("*.md"))]
MADE_UP = {"slurm/sites/my-cluster.yaml"}
"""Files that a page tells its reader to make."""
FORBIDDEN = re.compile(r"\b((?:is|are) no(?! longer)|stands|lies|anew|of which)\b", re.IGNORECASE)
NAMES_ANY_FILE = {"variants-data.md", "variants-training.md", "variants-sampling.md"}
"""Pages that name files which the reader writes."""
PLACEHOLDERS = {"X.py", "X_job.py"}


def anchors(page: Path) -> set[str]:
    """List the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in titles}


@cache
def code_of(page: Path) -> str:
    """Join the code of a page, blocks without their comments and single words, one piece a line."""
    text = page.read_text()
    blocks = re.findall(r"^ *```\w*\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    inline = re.findall(r"`([^`]+)`", re.sub(r"^ *```.*?```", "", text, flags=re.DOTALL | re.MULTILINE))
    lines = [re.sub(r"(^|\s)# .*", "", line) for block in blocks for line in block.splitlines()]
    return "\n".join([*lines, *(" ".join(piece.split()) for piece in inline)])


def without_code(page: Path) -> str:
    """Return the text of a page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def prose_lines(page: Path) -> list[str]:
    """List the lines of a page that are neither code nor in a table, a heading or an image."""
    return [line for line in without_code(page).splitlines() if not line.startswith(("|", "#", "!["))]


def sentences(page: Path) -> list[str]:
    """Split the prose of a page into sentences, without the targets of its links."""
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", "\n".join(prose_lines(page)))
    texts = (re.sub(r"\]\([^)]*\)", "]", " ".join(paragraph.split())) for paragraph in paragraphs)
    split = (re.split(r"(?<=[.!?])(?:\*\*)?\s+(?=[A-Z`*\[(\"]|hpcddm\b)", text) for text in texts)
    return [sentence for parts in split for sentence in parts if sentence]


def test_the_readme_is_short_and_names_every_page():
    text = README.read_text()
    assert len(text.splitlines()) <= 190
    assert [line for block in text.split("```")[1::2] for line in block.splitlines() if len(line) > 100] == []
    pages = [page.relative_to(REPOSITORY).as_posix() for page in PAGES[1:] if page.parent.name not in INDEXED]
    assert [page for page in pages if f"({page})" not in text] == []


def failures(check: Callable[[Path], object]) -> dict[str, object]:
    """What a check of a page finds, by the names of the pages of which it finds something."""
    return {page.name: found for page in PAGES if (found := check(page))}


def broken_links(page: Path) -> list[str]:
    broken = []
    for target in re.findall(r"\]\((?!https://)([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        if not linked.is_file() or (anchor and anchor not in anchors(linked)):
            broken.append(target)
    return broken


def test_links_lead_somewhere():
    assert failures(broken_links) == {}


def test_pictures_are_small_and_each_is_shown():
    pictures = {path: path.stat().st_size for path in (REPOSITORY / "docs/pictures").iterdir()}
    shown = {page: set(re.findall(r"!\[[^\]]*\]\((?:docs/)?pictures/([^)]+)\)", page.read_text())) for page in PAGES}
    assert set.union(*shown.values()) == {path.name for path in pictures}
    assert sum(size for path, size in pictures.items() if path.name in shown[README]) <= 150_000
    assert sum(pictures.values()) <= 1_000_000


@pytest.mark.parametrize("folder", INDEXED)
def test_the_index_of_a_folder_links_every_page_once(folder):
    docs = REPOSITORY / "docs"
    linked = re.findall(rf"\[[\w-]+\]\({folder}/([\w-]+[.]md)\)", (docs / f"{folder}.md").read_text())
    assert linked and sorted(linked) == sorted(page.name for page in (docs / folder).glob("*.md"))


def test_a_page_is_short_and_its_prose_wrapped_and_plain():
    assert failures(lambda page: len(page.read_text().splitlines()) > 250) == {}
    assert failures(lambda page: [line for line in prose_lines(page) if len(line) > 120]) == {}
    assert failures(lambda page: FORBIDDEN.findall(without_code(page))) == {}


@pytest.mark.parametrize("folder", ["hpcddm", "slurm", "experiments"])
def test_the_texts_of_the_package_are_plain(folder):
    files = [file for kind in ("*.py", "*.yaml", "*.j2") for file in (REPOSITORY / folder).rglob(kind)]
    found = {file.name: words for file in files if (words := FORBIDDEN.findall(file.read_text()))}
    assert files and found == {}


def test_sentences_are_short():
    for pages, share in ((PAGES[:1], 0), (PAGES[1:], 0.01)):
        written = [sentence for page in pages for sentence in sentences(page)]
        too_long = [sentence for sentence in written if len(sentence.split()) > 30]
        assert written and len(too_long) <= share * len(written), too_long


def test_the_glossary_is_sorted():
    table = (REPOSITORY / "docs/glossary.md").read_text().partition("| --- | --- |\n")[2]
    terms = [row.split("|")[1].strip().lower() for row in table.splitlines()]
    assert len(terms) > 25 and terms == sorted(terms)


def exists(verb: str, rest: str) -> bool:
    """Tell if there is a verb, and all options in the rest of the line."""
    found, inner = commands().get(verb), (rest.split() or ["--help"])[0]
    if isinstance(found, click.Group) and inner != "--help":
        found = found.get_command(None, inner)
    options = {option for parameter in found.params for option in parameter.opts} if found else set()
    return found is not None and set(re.findall(r"(?<![\w-])--[a-z-]+", rest)) <= options | {"--help"}


def test_verbs_and_options_exist():
    calls = re.compile(r"\bhpcddm ([a-z][a-z-]+)\b([^\n|;]*)")
    assert failures(lambda page: [words for words in calls.findall(code_of(page)) if not exists(*words)]) == {}


def test_the_list_of_commands_is_complete():
    text = "\n".join(code_of(page) for page in PAGES)
    assert [verb for verb in VERBS if f"hpcddm {verb}" not in text] == []


def test_the_table_of_states_has_what_the_docstrings_say():
    source = (REPOSITORY / "hpcddm/pipeline/state.py").read_text()
    documented = re.findall(r'^    [A-Z_]+ = "([^"]+)"\n    """(.+)"""$', source, re.MULTILINE)
    assert [state for state, _ in documented] == [*State]
    page = (REPOSITORY / "docs/commands.md").read_text()
    table = page.split("| State | What it means, and what to do |\n|---|---|\n")[1].split("\n\n")[0]
    assert table.splitlines() == [f"| {state} | {meaning} |" for state, meaning in documented]


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    assert failures(lambda page: set(re.findall(r"\bmake ([a-z-]+)", code_of(page))) - targets) == {}


def missing_files(page: Path) -> list[str]:
    names = set(re.findall(r"(?<![\w./-])(?:hpcddm|tests|slurm|experiments)/[\w./-]+(?![\w./<-])", code_of(page)))
    names |= {f"{module.replace('.', '/')}.py" for module in re.findall(r"-m (tests\.[\w.]+)", code_of(page))}
    return [name for name in names - MADE_UP if not (REPOSITORY / name.rstrip(".")).exists()]


def test_files_exist():
    assert failures(missing_files) == {}


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
