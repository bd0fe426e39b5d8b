"""A collaboration of two sites: north coordinates and has its lists, south is to train expert 1."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcddm.config.experiment import Experiment
from hpcddm.exchange import contract as contracts
from hpcddm.exchange import signing, ssh_keys
from hpcddm.exchange.contract import FILE, Contract
from hpcddm.jobs.outcome import Outcome
from hpcddm.jobs.unit import Result, Unit
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.stored_experiment import with_relative_paths
from tests.exchange.hostile import sign_json
from tests.helpers import hpcddm, write_experiment, write_source
from tests.stages.routes import Bench

SITES = ["north", "south"]
CHANGES = {
    "site": "north",
    "experts__sites": SITES,
    "experts__training__snapshots": [32, 64],
    "data__shards": 1,
    "data__heldout_shards": 2,
    # Names are the coordinator's own, in any language: what crosses is ASCII.
    "data__class_names": ["caf\xe9", "th\xe9", "eau", "vin"],
}
IMAGES = 200


class DataStages(Bench):
    """The data stages of a submitted run, made in this process, and complete as those that their jobs make."""

    def experiment(self, **changes: object) -> Experiment:
        """The experiment as submit stores it."""
        experiment = load_experiment(str(self.root / "tiny.yaml"))
        return with_relative_paths(with_content_hashes(experiment, self.run), self.run)

    def publish(self, unit: Unit, result: Result, experiment: Experiment | None = None) -> None:
        """Write the manifest that the job writes."""
        planned = next(one for one in plan_units(self.settings) if one.key == unit.key)
        outputs = manifest.describe_outputs(unit.folder, result.outputs)
        expected = planned.expected(unit.inputs)
        manifest.publish(unit.folder, replace(expected, outputs=outputs, results=result.results))
        unit.attempt.close(Outcome.COMPLETE)


class Collaboration:
    """Folder of a collaboration: north's run with its lists, the keys of both sites, and the contract."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run, self.contract = folder, folder / "north", folder / "contract"
        self.images = folder / "images"

    def make(self, **changes: object) -> "Collaboration":
        """Run north's data stages, and write keys and contract; of the experiment some keys may be changed."""
        self.folder.mkdir(exist_ok=True)
        write_source(self.images, IMAGES, 80)
        write_experiment(self.folder, **CHANGES | changes)
        for site in SITES:
            (self.folder / f"{site}.yaml").write_text(f"name: {site}\nscheduler: local\n")
            ssh_keys.make_key(self.key(site))
        DataStages(self.folder, "north").make_data()
        done = hpcddm("site", "key", "south", "--key", self.key("south"), "--output", self.folder / "south-key")
        assert done.exit_code == 0, done.output
        trusted = ("--site", self.folder / "south-key", "--trust", self.fingerprint("south"))
        done = self.write_contract(self.contract, *trusted, "--license", "CC0")
        assert done.exit_code == 0, done.output
        return self

    def write_contract(self, output: Path, *options: object):
        """Call `hpcddm site contract`."""
        return hpcddm("site", "contract", self.run, "--output", output, "--sign", self.key("north"), *options)

    def submit(self, contract: Path, run: Path, *options: object):
        """Call `hpcddm submit --contract` at south."""
        own = ("--site", self.site("south"), "--run-dir", run, f"data.source.folder={self.images}")
        return hpcddm("submit", "--contract", contract, *own, *options)

    def key(self, site: str) -> Path:
        """The private key of a site."""
        return self.folder / f"{site}.key"

    def site(self, name: str) -> Path:
        """The file of a site."""
        return self.folder / f"{name}.yaml"

    def fingerprint(self, site: str) -> str:
        """The fingerprint of a site's key."""
        return ssh_keys.read_public(self.key(site)).fingerprint

    def read(self, folder: Path | None = None) -> Contract:
        """The contract."""
        return contracts.read_contract(folder or self.contract)[0]

    def forge(self, folder: Path, change: Callable[[dict[str, Any]], object], signer: str = "north") -> Path:
        """Copy the contract, change its content, and sign it again."""
        shutil.copytree(self.contract, folder)
        content = json.loads((folder / FILE).read_text())
        change(content)
        return self.sign(folder, json.dumps(content).encode(), signer)

    def sign(self, folder: Path, content: bytes, signer: str = "north", namespace: str = signing.CONTRACT) -> Path:
        """Write the signed JSON of a contract."""
        sign_json(folder / FILE, content, self.key(signer), namespace)
        return folder
