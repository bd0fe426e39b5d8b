"""The examples in docstrings print what they show."""

import doctest
import functools
import importlib
import pdb

import pytest

from tests.helpers import REPOSITORY

LEAST_EXAMPLES = 20
"""Least number of classes and functions with an example that runs."""
FILES = sorted(file for file in (REPOSITORY / "hpcddm").rglob("*.py") if ">>>" in file.read_text())
MODULES = [".".join(file.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__") for file in FILES]


def examples_of(module: str) -> list[doctest.DocTest]:
    """List the docstrings of a module that have examples."""
    found = doctest.DocTestFinder().find(importlib.import_module(module))
    return [test for test in found if test.examples]


def shows_output(example: doctest.Example) -> bool:
    return bool(example.want) and not example.options.get(doctest.SKIP, False)


@pytest.mark.parametrize("module", MODULES)
def test_examples_print_what_they_show(module, monkeypatch):
    # doctest prepares a debugger for each docstring, which reads a .pdbrc in the home folder.
    monkeypatch.setattr(pdb.Pdb, "__init__", functools.partialmethod(pdb.Pdb.__init__, readrc=False))
    examples = examples_of(module)
    assert examples, "'>>>' is in no docstring of a class or function"
    for test in examples:
        report: list[str] = []
        assert doctest.DocTestRunner().run(test, out=report.append).failed == 0, "".join(report)


def test_many_classes_and_functions_have_an_example():
    names = [test.name for module in MODULES for test in examples_of(module) if any(map(shows_output, test.examples))]
    assert len(names) >= LEAST_EXAMPLES, names
