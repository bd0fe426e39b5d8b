"""Modules that only a text names exist: no import statement would notice a wrong one before a job runs it."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from hpcddm.config import variant_files
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


NAMED = sorted({(Path(file).name, name) for file, text in texts() for name in NAME.findall(text)})


def test_scripts_name_what_they_run():
    assert {"hpcddm.jobs.input_gate", "hpcddm.jobs.requeue_policy", "hpcddm.launch.selftest.node"} <= {
        name for _, name in NAMED
    }


@pytest.mark.parametrize("file, name", NAMED)
def test_a_module_that_a_text_names_is_imported(file, name):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        # A text may name what is in a module, too.
        module, _, inner = name.rpartition(".")
        assert hasattr(importlib.import_module(module), inner), f"{file} names {name}"


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_is_looked_up_by_its_name_can_run(stage):
    assert callable(variant_files.import_from_subpackages("stages", f"{stage}_job").run)


@pytest.mark.parametrize("scheduler", Site.model_fields["scheduler"].annotation.__args__)
def test_a_scheduler_that_is_looked_up_by_its_name_makes_launchers(scheduler):
    assert callable(importlib.import_module(f"hpcddm.launch.{scheduler}.launcher").create)
