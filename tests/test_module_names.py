"""Modules that only a text names exist: no import statement would notice a wrong one before a job runs it."""

import ast
import importlib
import re

from hpcddm.config import variants
from hpcddm.config.site import Site
from hpcddm.pipeline.unit_graph import STAGES
from tests.helpers import REPOSITORY

NAME = re.compile(r"(?<![\w./-])hpcddm(?:\.[a-z_]+)+(?![\w.])")


def texts():
    """Yield the texts that name modules: of batch scripts, of the API reference, and the strings of the package."""
    for file in sorted([*(REPOSITORY / "slurm").glob("*.*"), *(REPOSITORY / "docs/api").glob("*.md")]):
        yield file, file.read_text()
    for file in sorted((REPOSITORY / "hpcddm").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield file, node.value


def is_there(name: str) -> bool:
    """Tell if a name is that of a module, or of something in one."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, inner = name.rpartition(".")
        return hasattr(importlib.import_module(module), inner)
    return True


def test_modules_that_a_text_names_are_there():
    named = {(file.name, name) for file, text in texts() for name in NAME.findall(text)}
    assert {"hpcddm.jobs.input_gate", "hpcddm.jobs.requeue_policy", "hpcddm.launch.selftest.node"} <= {
        name for _, name in named
    }
    assert [(file, name) for file, name in sorted(named) if not is_there(name)] == []


def test_stages_and_schedulers_that_are_looked_up_by_their_names_are_there():
    for stage in STAGES:
        assert callable(variants.import_from_subpackages("stages", f"{stage}_job").run), stage
    for scheduler in Site.model_fields["scheduler"].annotation.__args__:
        assert callable(importlib.import_module(f"hpcddm.launch.{scheduler}.launcher").create), scheduler
