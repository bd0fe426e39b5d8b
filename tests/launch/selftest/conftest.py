"""The site that checks and trial are tried on."""

import pytest

from hpcddm.config.site import Site


@pytest.fixture
def site() -> Site:
    return Site(name="s", scheduler="slurm", resources={"cpus_per_rank": 4}, stages={"train": {"nodes": 2}})
