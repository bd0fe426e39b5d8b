"""Site and template as a run last used them, for verbs that submit with these: only what the user can vouch for."""

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpcddm.errors import ConfigError
from hpcddm.launch import vouching
from hpcddm.launch.submission import stored_site
from hpcddm.launch.template import own_parts, stored_part, stored_parts
from hpcddm.loading import load_site
from hpcddm.package_data import share_folder
from hpcddm.printing import echo, printable
from hpcddm.rundir.layout import RunDir
from hpcddm.site import Site


def stored_start(name: str, run: RunDir, trust_run: bool, in_job: bool = False) -> tuple[Site, dict[str, str]]:
    """Return site and template with which the run was last submitted; both hold commands that jobs and hooks execute.

    Args:
        name: Name of the site.
        run: The run, or the folder of a sweep.
        trust_run: True where the user vouches for the run's copies.
        in_job: True where files below the working directory are not the user's word.

    Raises:
        ConfigError: For copies that this user never submitted with and that differ from the user's files, after
            printing what they would execute.
    """
    site, parts = stored_site(name, run), stored_parts(run)
    looks_here = not in_job and not Path.cwd().is_relative_to(run.root.resolve())
    values, own_site = vouching.values_of(site), _own_site(name) if looks_here else None
    here = own_parts() if looks_here else {}
    is_site_known = values == own_site or vouching.is_known(values)
    are_parts_known = not parts or parts == here or vouching.is_known(parts)
    if trust_run or (is_site_known and are_parts_known):
        return site, parts
    lines = [] if is_site_known else [*_of_site(values, own_site)]
    lines += [] if are_parts_known else [*_of_template(parts, here, run)]
    echo(f"{run.root} would have executed:", *(f"  {line}" for line in lines), err=True)
    raise ConfigError(
        f"{run.root}: you have never submitted with the site '{printable(name)}' and the template that are stored"
        " there; name your site file with --site, or, if you trust what is printed above, repeat with --trust-run"
    )


def _own_site(name: str) -> dict[str, Any] | None:
    """Load the keys of the user's own site of this name, or of the package's; None where there is none."""
    try:
        return vouching.values_of(load_site(name))
    except ConfigError:
        return None


def _of_site(values: dict[str, Any], own: dict[str, Any] | None) -> Iterator[str]:
    """Describe the keys of a site that differ from the user's, or from the defaults."""
    before = own or vouching.values_of(Site(name=values["name"], scheduler=values["scheduler"]))
    for key, value in values.items():
        if value != before[key]:
            yield f"site key {key}: {json.dumps(value)}"


def _of_template(parts: Mapping[str, str], here: Mapping[str, str], run: RunDir) -> Iterator[str]:
    """Describe the lines of a template that differ from the user's, or from the package's."""
    for part in sorted(parts):
        before = here.get(part) or (share_folder() / part).read_text()
        changes = difflib.unified_diff(before.splitlines(), parts[part].splitlines(), n=0, lineterm="")
        yield from (f"{stored_part(run, part).name}: {line}" for line in changes if not line.startswith(("---", "@@")))
