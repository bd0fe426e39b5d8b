"""Site and template as a run last used them, for verbs that submit with these: only what the user can vouch for."""

import difflib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpcddm.config import trusted_submissions
from hpcddm.config.package_data import find_data_folder, is_file_path
from hpcddm.config.schema import validate
from hpcddm.config.site import Site
from hpcddm.errors import ConfigError
from hpcddm.errors.printing import echo, printable
from hpcddm.launch.load_site import load_site
from hpcddm.launch.script_template import stored_parts, user_parts
from hpcddm.launch.submission import stored_site_keys
from hpcddm.runs.run_dir import RunDir


def trusted_site_and_template(
    name: str, run: RunDir, trust_run: bool, in_job: bool = False
) -> tuple[Site, dict[str, str]]:
    """Return site and template with which the run was last submitted; both hold commands that jobs and hooks execute.

    Args:
        name: Name of the site.
        run: The run, or the folder of a sweep.
        trust_run: True where the user vouches for the run's copies.
        in_job: True where files below the working directory are not the user's word.

    Raises:
        ConfigError: For copies that are not known as those that this user submitted with here and that differ from the
            user's files, after printing what they would execute.
    """
    keys, parts = stored_site_keys(name, run), stored_parts(run)
    site = validate(Site, keys, str(run.site(name)))
    values, own_site = site.model_dump(mode="json"), None if in_job else _own_site(name)
    here = {} if in_job else user_parts()
    # By what is stored, without keys that a later version has beside it.
    is_site_known = values == own_site or trusted_submissions.is_known(run.root, keys)
    are_parts_known = not parts or parts == here or trusted_submissions.is_known(run.root, parts)
    if trust_run or (is_site_known and are_parts_known):
        return site, parts
    before = own_site or Site(name=site.name, scheduler=site.scheduler).model_dump(mode="json")
    changes = [f"site key {key}: {json.dumps(value)}" for key, value in values.items() if value != before[key]]
    lines = [] if is_site_known else changes
    lines += [] if are_parts_known else [*_of_template(parts, here)]
    echo(f"{run.root} would have executed:", *(f"  {line}" for line in lines), err=True)
    unknown = [f"the site '{printable(name)}'"] * (not is_site_known) + ["the template"] * (not are_parts_known)
    verb, reason = "are" if len(unknown) > 1 else "is", trusted_submissions.distrust_reason(run.root)
    raise ConfigError(
        f"{run.root}: {' and '.join(unknown)} that the run holds {verb} not known here: {reason}; name your site file"
        " with --site, or, if you trust what is printed above, repeat with --trust-run"
    )


def _own_site(name: str) -> dict[str, Any] | None:
    """Load the keys of the user's own site of this name, or of the package's; None where there is none."""
    # The name is the run's word, and only the user's is the path of a file.
    if is_file_path(name):
        return None
    with suppress(ConfigError):
        return load_site(name).model_dump(mode="json")
    return None


def _of_template(parts: Mapping[str, str], here: Mapping[str, str]) -> Iterator[str]:
    """Describe the lines of a template that differ from the user's, or from the package's."""
    for part in sorted(parts):
        before = here.get(part) or (find_data_folder() / part).read_text()
        changes = difflib.unified_diff(before.splitlines(), parts[part].splitlines(), n=0, lineterm="")
        yield from (f"{Path(part).name}: {line}" for line in changes if not line.startswith(("---", "@@")))
