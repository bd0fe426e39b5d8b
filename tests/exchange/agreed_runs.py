"""Two runs of one contract: uni-a coordinates and imports, uni-b has trained expert 1 and packs it."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import save_file

from hpcddm.config.experiment import Experiment
from hpcddm.config.trusted_submissions import make_secret
from hpcddm.exchange import contract as contracts
from hpcddm.exchange import signed_folder, signing, ssh_keys
from hpcddm.exchange.bundle import SiteWord
from hpcddm.exchange.contract import AgreedData, AgreedExpert, AgreedSite, AgreedTensor, Contract, flat_name
from hpcddm.files import atomic
from hpcddm.files.tensors import tensor_specs
from hpcddm.launch.submission import store_experiment
from hpcddm.models import build_denoiser
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import contracts as run_contracts
from hpcddm.runs import manifest
from hpcddm.runs.files import CURVE
from hpcddm.runs.journal import Journal
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.state_seals import output_seal
from hpcddm.runs.stored_results import list_results
from hpcddm.runs.unit_keys import EXPERT_LISTS, expert_keys, expert_of
from hpcddm.runs.unit_training import resolve_training
from hpcddm.runs.weights_files import training_costs, weights_names
from tests.helpers import DATA_STAGES, finish, hpcddm, tiny

KEY = "train/expert-01"
SITES = ["uni-a", "uni-b"]
CHANGES = {"site": "uni-a", "experts__sites": SITES, "experts__training__snapshots": [32]}
LISTS = {"lists": {f"expert-{number:02d}": {"samples": 12, "class_counts": [3, 3, 3, 3]} for number in range(2)}}
LISTS |= {"digests": {f"expert-{number:02d}": f"{number}" * 64 for number in range(2)}}
FINISHED = "2026-01-01T00:00:00Z"
FLOPS = 1_000_003
"""FLOPs of a training image in the contracts of the tests."""


@dataclass(frozen=True)
class Agreed:
    """The runs, and what they agreed on."""

    experiment: Experiment
    home: RunDir
    partner: RunDir
    contract: Contract

    def key(self, site: str) -> Path:
        """The private key of a site."""
        return self.home.root.parent / f"key-{site}"

    def put(self, run: RunDir, changed: Contract, signer: str = "uni-a") -> None:
        """Put a revision of the contract into a run."""
        arguments = (contracts.FILE, changed, {}, self.key(signer), signing.CONTRACT)
        signed_folder.write_folder(run_contracts.revision_folder(run, changed.revision), *arguments)

    def sign_contract(self, changed: Contract) -> "Agreed":
        """Put another contract into both runs."""
        for run in (self.home, self.partner):
            self.put(run, changed)
        return replace(self, contract=changed)

    def change_expert(self, **changes: object) -> "Agreed":
        """Put a contract with another recipe into both runs."""
        experts = self.contract.experts | {KEY: replace(self.contract.experts[KEY], **changes)}
        return self.sign_contract(replace(self.contract, experts=experts))

    def change_revision(self, revision: int, **changes: object) -> "Agreed":
        """Put a revision of the contract with another entry of uni-b into both runs."""
        sites = self.contract.sites | {"uni-b": replace(self.contract.sites["uni-b"], **changes)}
        return self.sign_contract(replace(self.contract, revision=revision, sites=sites))

    def put_forged(self, run: RunDir, revision: int) -> None:
        """Put a revision into a run that a stranger has signed as coordinator, with its key for every site."""
        key = self.contract.sites["uni-b"].key
        sites = {name: replace(site, key=key) for name, site in self.contract.sites.items()}
        self.put(run, replace(self.contract, revision=revision, sites=sites), "uni-b")

    def pack(self, name: str, site: str = "uni-b") -> Path:
        """Pack the expert with the command, and return the folder."""
        folder = self.home.root.parent / name
        done = hpcddm("site", "bundle", self.partner.root, KEY, "--sign", self.key(site), "--output", folder)
        assert done.exit_code == 0, done.output
        return folder

    def take(self, folder: Path, *options: str):
        """Import a bundle with the command."""
        return hpcddm("site", "import", self.home.root, folder, *options)


def agreed_runs(folder: Path) -> Agreed:
    """Make both runs, whose lists are complete; uni-b's expert is complete in its own run alone."""
    experiment = tiny(folder, **CHANGES)
    home, partner = RunDir(folder / "home"), RunDir(folder / "partner")
    units = plan_units(experiment)
    for run, site in zip((home, partner), SITES, strict=True):
        store_experiment(experiment, run)
        finish([unit for unit in units if unit.stage in DATA_STAGES], run)
        lists = manifest.read(run.unit(EXPERT_LISTS))
        manifest.publish(run.unit(EXPERT_LISTS), replace(lists, results=LISTS))
        Journal(run.journal).record_intent("local", site, [expert_keys(experiment)[SITES.index(site)]])
    for site in SITES:
        ssh_keys.make_key(folder / f"key-{site}")
    contract = hand_made_contract(folder, experiment, home)
    runs = Agreed(experiment, home, partner, contract).sign_contract(contract)
    for run, site in zip((home, partner), SITES, strict=True):
        run_contracts.vouch(run, contract, site)
    train(runs, runs.partner, seed=1)
    return runs


def table_of(experiment: Experiment, key: str) -> dict[str, AgreedTensor]:
    with torch.device("meta"):
        network = build_denoiser.build(experiment, experiment.expert_config(expert_of(key)))
    specs = tensor_specs(network.state_dict())
    return {name: AgreedTensor(spec.dtype, list(spec.shape)) for name, spec in specs.items()}


def expected(experiment: Experiment, run: RunDir, key: str) -> Manifest:
    """The manifest that a training should have, without outputs."""
    unit = next(unit for unit in plan_units(experiment) if unit.key == key)
    return unit.expected({name: manifest.read(run.unit(name)) for name in unit.inputs})


def hand_made_contract(folder: Path, experiment: Experiment, run: RunDir) -> Contract:
    tables, experts = {}, {}
    for key, site in zip(expert_keys(experiment), SITES, strict=True):
        table, training = table_of(experiment, key), resolve_training(experiment, key).settings
        name = atomic.digest({own: asdict(tensor) for own, tensor in table.items()})
        tables[name] = table
        wanted = expected(experiment, run, key)
        files = sorted(map(flat_name, weights_names(training)))
        numbers = (12, training.images, training.batch, FLOPS)
        parameters = sum(torch.Size(tensor.shape).numel() for tensor in table.values())
        experts[key] = AgreedExpert(site, wanted.settings, wanted.inputs, *numbers, files, name, parameters)
    keys = {site: ssh_keys.read_public(folder / f"key-{site}").text for site in SITES}
    sites = {site: AgreedSite(key, "2020-01-01", "2999-12-31") for site, key in keys.items()}
    data = AgreedData("0" * 64, 24, 24, "CC0", "")
    said = list(SiteWord.__dataclass_fields__)
    return Contract(
        "hpcddm contract 1", "0" * 32, 1, None, "uni-a", sites, {}, experts, tables, data, {"torch": ">=2"}, said, {}
    )


def random_weights(experiment: Experiment, key: str, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(tensor.shape, generator=generator) for name, tensor in table_of(experiment, key).items()}


def train(runs: Agreed, run: RunDir, seed: int, **changed: torch.Tensor) -> None:
    """Make the expert complete, as its training would have; weights are random, some of them given."""
    folder, training = run.unit(KEY), replace(resolve_training(runs.experiment, KEY), flops_per_image=FLOPS)
    names = weights_names(training.settings)
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        save_file(random_weights(runs.experiment, KEY, 10 * seed + number) | changed, folder / name)
    atomic.write_json(folder / CURVE, [[16, 0.5], [32, 0.001234567890123456]])
    wanted = expected(runs.experiment, run, KEY)
    seen = list_results({EXPERT_LISTS: manifest.read(run.unit(EXPERT_LISTS))}, expert_of(KEY))
    results = seen | training_costs(training) | {"skipped_steps": 1}
    record = {"world_size": 2, "code": "c0de", "torch": "2.13.0", "commit": "f" * 40, "finished": FINISHED}
    outputs = manifest.describe_outputs(folder, [*names, CURVE])
    make_secret()
    record |= output_seal(run, KEY, outputs)
    manifest.publish(folder, replace(wanted, outputs=outputs, results=results, record=record))
