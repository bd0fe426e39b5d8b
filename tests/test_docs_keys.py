"""What pages, headers, templates and errors tell a reader to write is accepted: keys, mappings of YAML, commands."""

import ast
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hpcddm.cli import VERBS
from hpcddm.pipeline.unit_graph import STAGE_NAMES
from tests.documented_keys import accepted, all_words, wrong_keys, wrong_mappings
from tests.helpers import LOAD_VARIANTS, REPOSITORY
from tests.test_docs import NAMES_ANY_FILE, PAGES, code_of, exists

NOT_COMMANDS = {*"and bundle contract did ensemble has leaves reads run sets site stores submits there".split()}
"""What follows 'hpcddm' in sentences, and in the first lines of files."""
NOT_YAML = re.compile(r"x: \(N, C, H, W\)|scale: 0.18215, shift: 0|latents: \{gpus_per_node: 1\}|\w+: ClassVar.*")
"""Pieces of pages that have a colon and are no mapping of an experiment or a site."""
NOT_KEYS = {"experts.own_images", "scheduler.step"}
"""A value that is no key although a stale unit names it, and a line of Python in an export."""
NOT_SETTINGS = {"{path: 3}", "{arm: measures}", "{arm: {...}}"}
"""Dictionaries that docstrings describe."""

NO_SETTINGS = {"is", "reads", "time"}
"""Words that errors quote and that are none of an experiment or site: of filters, stages and tables."""
IN_USE = {"Settings", "assign", "digests", "first", "least", "synthetic_load", "texts"}
"""Words of the changelog that were the name of one thing and are still that of another."""


def strings_of(file: Path, also_docstrings: bool = True) -> Iterator[str]:
    """List the strings of a module; 'X' replaces what is put into one."""
    nodes = [*ast.walk(ast.parse(file.read_text()))]
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    docstrings = set() if also_docstrings else {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | docstrings:
            yield node.value


def comments_of(file: Path) -> Iterator[str]:
    """List the comments of a YAML file or a template."""
    for words in re.findall(r"\{#(.*?)#\}|(?<!\S)#(?!SBATCH)(.*)", re.sub("{{.*?}}", "X", file.read_text())):
        yield "".join(words)


def written_by_readers(page: Path) -> set[str]:
    """List the variants that a page lets its reader write, and those of the load test."""
    named = re.findall(r"\b(\w+)[.]py`", page.read_text()) if page.name in NAMES_ANY_FILE else []
    return {*named, *(file.stem for file in LOAD_VARIANTS.rglob("*.py"))}


def column(page: Path, title: str) -> str:
    """Join the cells of all columns of a page's tables that have a title."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", page.read_text(), re.MULTILINE):
        head, *rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)] for line in table.splitlines()]
        found += [row[head.index(title)] for row in rows if title in head]
    return "\n".join(found)


KINDS = (("hpcddm", "*.py", strings_of), ("experiments", "*.yaml", comments_of), ("slurm", "*.*", comments_of))
CURRENT = [page for page in PAGES if page.name != "changelog.md"]


@cache
def all_texts() -> dict[Path, str]:
    """Return what a user may read, by file: the code of pages, the strings of the package, comments of YAML."""
    found = {page: code_of(page) for page in CURRENT}
    for folder, kind, texts in KINDS:
        files = [file for file in (REPOSITORY / folder).rglob(kind) if file.suffix in (".py", ".yaml", ".j2")]
        found |= {file: "\n".join(texts(file)) for file in sorted(files)}
    return found


def failures(found: dict[Path, set[str]]) -> dict[str, set[str]]:
    return {file.name: words for file, words in found.items() if words}


def test_keys_with_dots_lead_to_a_setting():
    assert failures({file: wrong_keys(text) - NOT_KEYS for file, text in all_texts().items()}) == {}


def test_mappings_are_those_of_a_schema():
    found = {file: wrong_mappings(text, written_by_readers(file)) - NOT_SETTINGS for file, text in all_texts().items()}
    assert failures(found) == {}


def wrong_yaml(page: Path) -> set[str]:
    """List the blocks of YAML, and the lines of the form `key: value`, that no schema accepts."""
    blocks = [textwrap.dedent(block) for block in re.findall(r"^ *```yaml\n(.*?)```", page.read_text(), re.S | re.M)]
    pieces = [line for line in code_of(page).splitlines() if re.fullmatch(r"[a-z_]+: .+", line)]
    own = written_by_readers(page)
    return {text for text in blocks + pieces if not NOT_YAML.fullmatch(text) and not accepted(text, own)}


def test_the_yaml_of_pages_is_that_of_a_schema():
    assert failures({page: wrong_yaml(page) for page in CURRENT}) == {}


def test_tables_of_keys_list_only_keys():
    cells = {page: "\n".join(column(page, title) for title in ("key", "setting")) for page in CURRENT}
    listed = {page: {*re.findall(r"`([a-z_]+)[`:]", text)} for page, text in cells.items()}
    assert sum(map(len, listed.values())) > 50
    assert failures({page: words - all_words() for page, words in listed.items()}) == {}


def test_old_names_are_on_no_page_and_in_no_error():
    old = (
        {*re.findall(r"`(\w+)`", column(REPOSITORY / "docs/changelog.md", "before"))} - all_words() - {*VERBS} - IN_USE
    )
    assert len(old) > 40
    assert failures({file: old.intersection(re.findall(r"`(\w+)`", file.read_text())) for file in all_texts()}) == {}


def test_errors_quote_keys_stages_and_verbs_only():
    texts = {file: "\n".join(strings_of(file, False)) for file in (REPOSITORY / "hpcddm").rglob("*.py")}
    known = {*all_words(), *VERBS, *STAGE_NAMES, *NO_SETTINGS}
    assert failures({file: {*re.findall(r"`([a-z_]\w*)`", text)} - known for file, text in texts.items()}) == {}


def wrong_commands(file: Path) -> set[str]:
    commands = re.findall(r"\bhpcddm ([a-z][a-z-]+)\b([^\n|;,']*)", all_texts()[file])
    return {f"{verb}{rest}" for verb, rest in commands if verb not in NOT_COMMANDS and not exists(verb, rest)}


def test_commands_in_headers_and_errors_exist():
    assert failures({file: wrong_commands(file) for file in all_texts() if file not in CURRENT}) == {}
