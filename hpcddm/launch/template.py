"""Batch scripts from the readable templates in slurm/."""

import re
import shlex
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcddm.errors import UserError
from hpcddm.share import share_file
from hpcddm.site import Resources, Site

if TYPE_CHECKING:
    import jinja2

VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")


def render(source: str, place: str, site: Site, resources: Resources, **values: Any) -> str:
    """Fill in a template for units that ask for `resources` at `site`.

    source: text of the template; place: file that it came from, for complaints.
    Raises `UserError` naming the template when it has a mistake.
    """
    import jinja2

    try:
        template = _compiled(source, Path.cwd())
        return template.render(
            site=site.model_dump(),
            resources=resources.model_dump(),
            python=[*(resources.container or ()), resources.python or sys.executable],
            **values,
        )
    except jinja2.TemplateError as error:
        is_syntax = isinstance(error, jinja2.TemplateSyntaxError)
        line = f", line {error.lineno}" if is_syntax else ""
        part = error.name if is_syntax and error.name else place
        raise UserError(f"{part}{line}: {error.message}") from None


@cache
def _compiled(source: str, folder: Path) -> "jinja2.Template":
    """Template whose parts are those of this working directory, or else the package's."""
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        loader=jinja2.FunctionLoader(lambda name: share_file(name).read_text()),
    )
    environment.filters["quote"] = lambda value: shlex.quote(str(value))
    environment.filters["words"] = lambda values: " ".join(map(command_word, values))
    return environment.from_string(source)


def command_word(word: str) -> str:
    """Word of a command as bash reads it as one, with the job's variables filled in and nothing else expanded.

    A variable that is not set ends the script with its name.
    """
    found, end = "", 0
    for match in VARIABLE.finditer(word):
        found += _literal(word[end : match.start()])
        found += f'"${{{match[1]}:?is not set in the job, but the site names it}}"'
        end = match.end()
    return (found + _literal(word[end:])) or "''"


def _literal(text: str) -> str:
    return shlex.quote(text) if text else ""
