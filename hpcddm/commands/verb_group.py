"""Groups of verbs whose modules are imported when a verb is called."""

import ast
import importlib
import importlib.util
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import click


class VerbGroup(click.Group):
    """Verbs that are imported when they are called.

    Args:
        package: Package of their modules. Each verb is the function of its module's name.
        prefix: Beginning of the names of these modules, before the name of the verb.
        verbs: Their names, in the order of the table.
        hidden: Names of verbs that are not in the table.
        attributes: Attributes of a `click.Group`.
    """

    def __init__(
        self, *, package: str, verbs: Sequence[str], prefix: str = "", hidden: Collection[str] = (), **attributes: Any
    ) -> None:
        super().__init__(**attributes)
        self._package, self._prefix, self._verbs, self._hidden = package, prefix, verbs, hidden

    def list_commands(self, context: click.Context | None) -> list[str]:
        """Return the names of the verbs, in the order of the table."""
        return list(self._verbs)

    def get_command(self, context: click.Context | None, name: str) -> click.Command | None:
        """Import a verb; None for another name."""
        if name not in (*self._verbs, *self._hidden):
            return None
        module = self._module_of(name)
        command: click.Command = getattr(importlib.import_module(module), module.rpartition(".")[2])
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of the verbs, for which none is imported."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._summary_of(name)) for name in self._verbs])

    def _module_of(self, name: str) -> str:
        return f"{self._package}.{self._prefix}{name.replace('-', '_')}"

    def _summary_of(self, name: str) -> str:
        """Read the first line of a verb's help from its file."""
        module = self._module_of(name)
        spec = importlib.util.find_spec(module)
        assert spec and spec.origin, f"{module} is a file of this package"
        code = ast.parse(Path(spec.origin).read_text()).body
        functions = {node.name: node for node in code if isinstance(node, ast.FunctionDef)}
        return (ast.get_docstring(functions[module.rpartition(".")[2]]) or "").partition("\n")[0]
