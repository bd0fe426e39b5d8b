"""The examples in docstrings print what they show."""

import doctest
import functools
import importlib
import pdb

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


def test_examples_print_what_they_show(monkeypatch):
    # doctest prepares a debugger for each docstring, which reads a .pdbrc in the home folder.
    monkeypatch.setattr(pdb.Pdb, "__init__", functools.partialmethod(pdb.Pdb.__init__, readrc=False))
    examples = {module: examples_of(module) for module in MODULES}
    assert [module for module in MODULES if not examples[module]] == [], "'>>>' is in no docstring there"
    report: list[str] = []
    tests = [test for found in examples.values() for test in found]
    failed = [test.name for test in tests if doctest.DocTestRunner().run(test, out=report.append).failed]
    assert failed == [], "".join(report)
    names = [test.name for test in tests if any(map(shows_output, test.examples))]
    assert len(names) >= LEAST_EXAMPLES, names
