"""What is written about sites: every key, none that there is not, examples that can be loaded."""

import re

import yaml

from hpcddm.config.schema import validate
from hpcddm.config.site import Resources, Site
from hpcddm.launch.checks.gpu_requests import all_resource_keys, gpu_remarks
from tests.helpers import REPOSITORY

KEYS = {*Site.model_fields, *Resources.model_fields}
PAGE = (REPOSITORY / "docs/sites.md").read_text()


def test_the_page_lists_every_key_and_no_other():
    rows = [line.split("|")[1] for line in PAGE.splitlines() if re.match(r"\| `", line)]
    assert sorted(key for row in rows for key in re.findall("`([a-z_]+)`", row)) == sorted(KEYS)


def test_the_sites_file_lists_every_key():
    text = (REPOSITORY / "slurm/sites/slurm.yaml").read_text()
    listed = set(re.findall(r"\b([a-z_]+):", text))
    assert {*Site.model_fields} - {"cores", "gpus"} <= listed, "those two are the embedded site's"
    assert {*Resources.model_fields} <= listed


def test_an_example_can_be_loaded():
    examples = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    sites = [validate(Site, yaml.safe_load(example), "docs/sites.md") for example in examples]
    assert sites and [remarks for site in sites if (remarks := gpu_remarks(site, all_resource_keys()))] == []
