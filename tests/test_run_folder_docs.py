"""The page about the run folder: every path of the layout, and no file name that the code does not know."""

import ast
import re
from pathlib import Path

from hpcddm.runs.run_dir import InsideRun, RunDir
from tests.helpers import REPOSITORY

PAGE = (REPOSITORY / "docs/run-folder.md").read_text()
ALWAYS, SOMETIMES, SWEEP = re.findall(r"```\n(.*?)```", PAGE, re.DOTALL)
RUN = RunDir(Path())
LAYOUT = [getattr(RUN, name) for name, value in vars(RunDir).items() if isinstance(value, InsideRun)]
LAYOUT += [RUN.site("home"), RUN.spec("train/expert-00"), RUN.unit("cluster/all"), RUN.logs("train/expert-00")]


def named(block: str) -> list[str]:
    """List the paths of a tree on the page."""
    return [line.split()[0] for line in block.splitlines()]


def pattern(path: str) -> re.Pattern[str]:
    """Compile a path of the page: names in <> stand for any name, a folder for all that is in it."""
    text = re.sub(r"<[a-z]+>", "[^/]+", re.escape(path))
    return re.compile(text + "(.+)?" if path.endswith("/") else text)


def matches(path: str, names: list[str]) -> bool:
    return any(pattern(name).fullmatch(path) for name in names)


def test_the_page_names_every_path_of_the_layout():
    names = named(ALWAYS) + named(SOMETIMES)
    names += [str(folder) for name in names for folder in Path(name).parents]
    assert [path for path in map(str, LAYOUT) if not matches(path, names)] == []


def test_the_page_names_no_file_that_the_code_does_not_know():
    texts = {file.read_text() for file in (REPOSITORY / "slurm").glob("*.j2")}
    for file in (REPOSITORY / "hpcddm").rglob("*.py"):
        constants = (node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant))
        texts |= {value for value in constants if isinstance(value, str) and "\n" not in value}
    files = {Path(name).name for block in (ALWAYS, SOMETIMES, SWEEP) for name in named(block)}
    parts = {part for file in files for part in re.split("<[a-z]+>", file) if part}
    assert {part for part in parts if part not in "\n".join(texts)} == set()


def test_a_finished_run_holds_what_the_page_names_and_nothing_else(finished):
    files = [str(path.relative_to(finished)) for path in finished.rglob("*") if path.is_file() or path.is_symlink()]
    assert [path for path in files if not matches(path, named(ALWAYS) + named(SOMETIMES))] == []
    assert [name for name in named(ALWAYS) if not any(pattern(name).fullmatch(path) for path in files)] == []
