"""Sites and templates that this user has submitted with, remembered outside of every run: no run vouches for itself.

A digest of each is a file in a folder of the user; a job, which may not see that folder, has the digests of its own
submission from its script, of which Slurm keeps a copy.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpcddm.rundir.manifest import digest
from hpcddm.runtime import private
from hpcddm.site import Site

VARIABLE = "HPCDDM_SUBMITTED"
"""Environment variable of a job: the digests of the site and of the template's parts that it was submitted with."""


def values_of(site: Site) -> dict[str, Any]:
    """Return the keys of a site as a run stores them."""
    return site.model_dump(mode="json")


def digests(site: Site, parts: Mapping[str, str]) -> str:
    """Return the content of `VARIABLE` for jobs of a submission with this site and the user's parts of the template."""
    return f"{digest(values_of(site))} {digest(dict(parts))}"


def remember(value: Mapping[str, Any]) -> None:
    """Note that this user submits with the keys of a site, or with parts of a template."""
    folder = _folder()
    with suppress(OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        if private.make(folder):
            (folder / digest(dict(value))).touch()


def is_known(value: Mapping[str, Any]) -> bool:
    """Tell if this user has submitted with the keys of a site, or with parts of a template, by any run."""
    name, folder = digest(dict(value)), _folder()
    return name in os.environ.get(VARIABLE, "").split() or (private.is_own(folder) and (folder / name).is_file())


def _folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state, "hpcddm", "submitted")
