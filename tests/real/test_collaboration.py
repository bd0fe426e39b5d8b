"""The ten commands of docs/collaboration.md, over two institutions: no key, user, network or disk in common."""

import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from hpcddm.loading.load_experiment import load_experiment
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from tests.helpers import REPOSITORY
from tests.institutions import Institution
from tests.whole_runs import TINY

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.long]
PAGE = REPOSITORY / "docs/collaboration.md"
SITES = ["uni-a", "uni-a", "uni-b", "uni-b"]
SITE = """
name: {name}
scheduler: slurm
partition: main
network_interface: lo
resources: {{memory_gb: 1, minutes: 10}}
stages:
  train: {{ranks_per_node: 2, checkpoint_blocks: 1}}
"""
"""As the session's finished run, whose bits are to come out: two ranks for every expert."""


def ten_commands() -> list[tuple[str, str, str]]:
    """Site, command and what the page says to do then."""
    section = PAGE.read_text().split("## Ten commands\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| uni-")]
    return [(at, command.strip("`"), then) for at, command, *then in rows for then in [*then, ""][:1]]


class Sites:
    """The two institutions as the page names them, and a courier between them."""

    def __init__(self, home: Institution, partner: Institution) -> None:
        self.of = {"uni-a": home, "uni-b": partner}
        self.fingerprints: dict[str, str] = {}
        for name, site in self.of.items():
            (site.folder / f"{name}.yaml").write_text(SITE.format(name=name))
            shutil.copytree(REPOSITORY / "experiments/quickstart", site.folder / "images")
        # Fewer units than those of the run with which it is compared, where they change no bit.
        few = ["monolith.enabled=false"]
        # Trained for seconds, no expert would pass the probe as it is by default.
        probe = "experts.probe={max_share: 100, max_of_others: 100}"
        changes = [f"experts.sites=[{', '.join(SITES)}]", "site=uni-a", "name=cells", probe, *few]
        values = load_experiment("quickstart", (*TINY, *changes)).model_dump(mode="json")
        values["data"]["source"]["folder"] = "images"
        (home.folder / "cells.yaml").write_text(yaml.safe_dump(values))
        self.own()

    def own(self) -> None:
        """Give each user what is in its folder."""
        for site in self.of.values():
            for path in (site.folder, *site.folder.rglob("*")):
                shutil.chown(path, site.user, site.user)

    def call(self, at: str, command: str) -> str:
        """Run a command of the page, and return what it says."""
        site = self.of[at]
        words = shlex.split(command.replace("/data/cells", str(site.folder / "images")))
        for name, fingerprint in self.fingerprints.items():
            words = [word.replace(f"SHA256:{name.upper()}", fingerprint) for word in words]
        assert words[0] == "hpcddm"
        said = site.run(sys.executable, "-m", "hpcddm.cli", *words[1:], timeout=600).stdout
        if words[1] == "submit":
            site.run(sys.executable, "-m", "hpcddm.cli", "wait", "runs/cells", timeout=600, check=False)
        return said

    def carry(self, at: str, folder: str) -> None:
        """Copy a folder to the other institution."""
        other = next(name for name in self.of if name != at)
        shutil.copytree(self.of[at].folder / folder, self.of[other].folder / folder)
        self.own()
        self.of[other].run(
            "sh", "-c", f"cd {folder} && sha256sum -c SHA256SUMS --quiet" if "key" not in folder else ":"
        )


@pytest.fixture(scope="module")
def collaboration(two_institutions):
    """Both institutions after the ten commands, and what each command said."""
    sites, said = Sites(*two_institutions), []
    for at, command, then in ten_commands():
        said.append(sites.call(at, command))
        words = shlex.split(command)
        if words[1:3] == ["site", "key"]:
            sites.fingerprints[at] = next(word for word in said[-1].split() if word.startswith("SHA256:"))
        if "send" in then or words[1:3] == ["site", "bundle"]:
            sites.carry(at, words[words.index("--output") + 1] if "--output" in words else f"{at}-key")
    return sites, said


def test_there_are_ten_commands():
    assert len(ten_commands()) == 10


def test_weights_and_metrics_are_those_of_one_site(collaboration, finished):
    sites, _ = collaboration
    run, alone = RunDir(sites.of["uni-a"].folder / "runs/cells"), RunDir(finished)
    for number in range(4):
        key = f"train/expert-{number:02d}"
        here, there = (manifest.read(one.unit(key)) for one in (run, alone))
        weights = [
            {each.path: each.sha256 for each in made.outputs if each.path != "curve.json"} for made in (here, there)
        ]
        assert weights[0] == weights[1] and len(weights[0]) == 9, key
        assert (here.settings, here.inputs) == (there.settings, there.inputs)
        counted = ("images", "train_flops", "samples", "class_counts", "snapshots")
        assert [here.results[name] for name in counted] == [there.results[name] for name in counted]
    metrics = [json.loads(Path(one.root, "report/metrics.json").read_text()) for one in (run, alone)]
    arms = metrics[0]["arms"]
    assert len(arms) == 2 and arms == {name: metrics[1]["arms"][name] for name in arms}


def test_every_expert_was_trained_where_the_contract_says(collaboration):
    sites, _ = collaboration
    for name, site in sites.of.items():
        trained = {path.name for path in (site.folder / "runs/cells/logs/train").iterdir()}
        own = {f"expert-{number:02d}" for number, at in enumerate(SITES) if at == name}
        assert trained == own


def test_both_sites_probe_the_experts_that_cross_and_the_bundle_tells_what_the_sender_found(collaboration):
    sites, _ = collaboration
    for name, site in sites.of.items():
        run = RunDir(site.folder / "runs/cells")
        assert {path.name for path in (run.root / "probe").iterdir()} == {"expert-02", "expert-03"}, name
    for expert in ("expert-02", "expert-03"):
        sent = json.loads((sites.of["uni-a"].folder / f"cells-{expert}/bundle.json").read_text())["word"]
        measured = [
            json.loads((site.folder / f"runs/cells/probe/{expert}/probe.json").read_text())["losses"]
            for site in sites.of.values()
        ]
        assert measured[0] == measured[1]
        assert sent["probe_losses"] == [[float(f"{loss:.6g}") for loss in row] for row in measured[0]]
    report = json.loads((sites.of["uni-a"].folder / "runs/cells/report/metrics.json").read_text())
    passed = {"faults": [], "accepted": None}
    assert report["probes"] == {"probe/expert-02": passed, "probe/expert-03": passed}
    page = (sites.of["uni-a"].folder / "runs/cells/report/index.html").read_text()
    assert "train/expert-02 of uni-b, train/expert-03 of uni-b" in page


def test_status_tells_imported_from_trained_here(collaboration):
    sites, _ = collaboration
    home = sites.of["uni-a"]
    said = home.run(sys.executable, "-m", "hpcddm.cli", "status", "runs/cells").stdout
    assert "train/expert-02, train/expert-03: complete, imported from uni-b (bundle 1), by its word with" in said, said
