"""Batch scripts from the readable templates in slurm/."""

import hashlib
import re
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcddm.config import trusted_submissions
from hpcddm.config.package_data import find_data_folder, find_user_file
from hpcddm.config.pretrained import CACHE_VARIABLE
from hpcddm.config.site import Resources, Site
from hpcddm.errors import UserError
from hpcddm.errors.printing import printable
from hpcddm.files import atomic, checked_reads, guarded_writes
from hpcddm.files.checked_reads import Unreadable
from hpcddm.launch.script_paths import check_line
from hpcddm.runs.run_dir import RunDir

if TYPE_CHECKING:
    import jinja2

JOB_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")


FUNCTIONS = "slurm/functions.sh"
PARTS = ("slurm/job.sbatch.j2", "slurm/resource_flags.sbatch.j2", "slurm/python_env.sh.j2", FUNCTIONS)
"""Template of the batch script, what it includes, and the file of functions that it sources."""


def user_parts() -> dict[str, str]:
    """Read the parts that the user has below the working directory, in place of the package's; part -> text.

    Raises `Unreadable` for what is not a file of text.
    """
    return {part: _text(path, follows_links=True) for part in PARTS if (path := find_user_file(part))}


def read_functions(parts: Mapping[str, str]) -> tuple[str, str]:
    """Return the text of the functions that scripts source, the user's own or the package's, and its digest."""
    text = parts.get(FUNCTIONS) or (find_data_folder() / FUNCTIONS).read_text()
    return text, hashlib.sha256(text.encode()).hexdigest()[:16]


def stored_part_path(run: RunDir, part: str) -> Path:
    """Return the path of the run's copy of a part; not the user's own, even if the run is the working directory."""
    return run.template / Path(part).name


def stored_parts(run: RunDir) -> dict[str, str]:
    """Read the user's own parts with which the run was last submitted; part -> text.

    Raises `Unreadable` for what is not a file of text.
    """
    parts = {}
    for part in PARTS:
        with suppress(FileNotFoundError):
            parts[part] = _text(stored_part_path(run, part))
    return parts


def _text(path: Path, follows_links: bool = False) -> str:
    try:
        return checked_reads.read_bytes(path, checked_reads.RECORD_BYTES, follows_links=follows_links).decode()
    except UnicodeDecodeError:
        raise Unreadable(path, "is not UTF-8") from None


def store_parts(run: RunDir, parts: Mapping[str, str]) -> None:
    """Store the user's own parts, so that a later retry follows them everywhere; the user vouches for them."""
    trusted_submissions.remember(run.root, parts)
    for part in PARTS:
        if part in parts:
            atomic.write_text(stored_part_path(run, part), parts[part], durable=False)
        else:
            guarded_writes.remove(stored_part_path(run, part))


def render(
    source: str, place: str, site: Site, resources: Resources, parts: Mapping[str, str] | None = None, **values: Any
) -> str:
    """Fill in a template for units with these `resources` at `site`.

    source: text of the template; place: file that it came from, for complaints; parts: texts of the user's own parts,
    by default those below the working directory.
    Raises `UserError` naming the template when it has a mistake or does what the sandbox forbids, or the path that a
    script cannot hold.
    """
    import jinja2

    parts = user_parts() if parts is None else parts
    python = resources.python or Path(sys.executable)
    for name, path in {"python": python, CACHE_VARIABLE: values["cache"]}.items():
        check_line(path, f"{name}={path}")
    try:
        return _compiled(source, frozenset(parts.items())).render(
            site=site.model_dump(),
            resources=resources.model_dump(),
            # The code has the user's own variants among the package's files.
            variants="",
            python=[*(resources.container or ()), python],
            **values,
        )
    except jinja2.TemplateError as error:
        part = f"{error.name or place}, line {error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else place
        raise UserError(f"{part}: {printable(error.message or error)}") from None
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        # Raised by the expressions of a template, which may divide or index.
        raise UserError(f"{place}: {printable(error) or type(error).__name__}") from None


@cache
def _compiled(source: str, parts: frozenset[tuple[str, str]]) -> "jinja2.Template":
    """Compile a template with the user's own parts, and the package's for all others.

    In jinja2's sandbox its expressions reach no Python beside the values that they are given; it includes `PARTS` only.
    """
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    own_texts = dict(parts)

    def text_of(name: str) -> str | None:
        return (own_texts.get(name) or (find_data_folder() / name).read_text()) if name in PARTS else None

    environment = ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        loader=jinja2.FunctionLoader(text_of),
    )
    environment.filters["quote"] = lambda value: shlex.quote(str(value))
    environment.filters["words"] = lambda values: " ".join(map(command_word, values))
    return environment.from_string(source)


def command_word(word: str | Path) -> str:
    """Quote a word of a command for bash, with the job's variables expanded and nothing else.

    A `Path` of this machine holds no variables, whatever it looks like. An unset variable ends the script with an error
    that names it.
    """
    if isinstance(word, Path):
        return shlex.quote(str(word))
    text, end = "", 0
    for match in JOB_VARIABLE.finditer(word):
        text += _literal(word[end : match.start()])
        text += f'"${{{match[1]}:?is not set in the job, but the site names it}}"'
        end = match.end()
    return (text + _literal(word[end:])) or "''"


def _literal(text: str) -> str:
    return shlex.quote(text) if text else ""
