"""The probe of an expert of another site: it fails, nothing reads the expert, and somebody accepts that."""

import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hpcddm.collaboration.contract_settings import with_agreed_probe
from hpcddm.data.run_samples import clusters, open_catalog, probe_samples
from hpcddm.errors import ConfigError
from hpcddm.exchange.contract import PROBE
from hpcddm.runs import manifest
from hpcddm.runs.files import WEIGHTS
from hpcddm.runs.ranges import HELDOUT, PROBE_SAMPLES
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from tests.exchange.collaboration import Collaboration
from tests.exchange.hostile import entry_of, listed, row, sign_list
from tests.helpers import changed, hpcddm

EXPERT, UNIT = "train/expert-01", "probe/expert-01"
REASON = "trained for seconds"


@pytest.fixture(scope="module")
def exchanged(shared, tmp_path_factory):
    """South has trained its expert too briefly to pass, and sent it; north has imported it and probed it.

    Returns the collaboration, and what south's submit and north's said.
    """
    folder = tmp_path_factory.mktemp("exchanged") / "collaboration"
    shutil.copytree(shared.folder, folder)
    sites = Collaboration(folder)
    south = sites.submit(sites.contract, folder / "south", "--trust", sites.fingerprint("north"))
    pack = ("site", "bundle", folder / "south", EXPERT, "--sign", sites.key("south"), "--output", folder / "sent")
    assert hpcddm(*pack).exit_code == 0
    assert hpcddm("site", "import", sites.run, folder / "sent").exit_code == 0
    return sites, south, submit(sites)


def submit(sites):
    """Submit north's run up to the probe."""
    where = ("--site", sites.site("north"), "--run-dir", sites.run)
    return hpcddm("submit", sites.folder / "tiny.yaml", *where, "--until", "probe")


def test_the_site_that_trained_it_is_told_before_it_sends_it(exchanged):
    _, south, _ = exchanged
    assert south.exit_code == 1
    assert f"{EXPERT} of site south fails the probe: at t = 0.1 its loss is" in south.output
    assert "north will find the same: train it again, or tell north" in south.output


def test_the_site_that_imports_it_reads_it_only_when_somebody_accepts_that(exchanged, tmp_path):
    sites, _, north = exchanged
    assert north.exit_code == 1
    assert f"{EXPERT} of site south fails the probe: at t = 0.1 its loss is" in north.output
    again = f"hpcddm site import {sites.run} tiny-expert-01 --accept-probe REASON"
    assert f"ask south for another bundle, or take it as it is: {again}" in north.output
    assert row(sites.run, UNIT)[0] == "failed" and manifest.read(RunDir(sites.run).unit(UNIT)) is None
    for bad in ("", " ", "two\nlines", "x" * 400):
        done = hpcddm("site", "import", sites.run, sites.folder / "sent", "--accept-probe", bad)
        assert done.exit_code == 2 and "--accept-probe: name the reason in one line" in done.output
    done = hpcddm("site", "import", sites.run, sites.folder / "sent", "--accept-probe", REASON)
    assert done.exit_code == 0 and f"taken even if it fails the probe, because: {REASON}" in done.output
    assert submit(sites).exit_code == 0
    made = manifest.read(RunDir(sites.run).unit(UNIT))
    assert made.results["accepted"] == REASON and made.results["faults"]
    state, reason = row(sites.run, EXPERT)
    assert state == "complete" and reason.endswith(f"taken because: {REASON}") and "; fails the probe (at t" in reason


def test_weights_that_fail_without_a_condition_alone_are_found(exchanged, tmp_path):
    sites = Collaboration(shutil.copytree(exchanged[0].folder, tmp_path / "copy"))
    sent = sites.folder / "sent"
    tensors = load_file(sent / WEIGHTS)
    (name,) = (name for name in tensors if name.endswith("embed_class.weight"))
    tensors[name][-1] = 3e38
    save_file(tensors, sent / WEIGHTS)
    files = listed(sent, **entry_of((sent / WEIGHTS).read_bytes()))
    sign_list(sent, sites, signer="south", number=2, files=files)
    done = hpcddm("site", "import", sites.run, sent, "--replace")
    assert done.exit_code == 0, done.output
    done = submit(sites)
    assert done.exit_code == 1
    assert f"{EXPERT} of site south fails the probe: its loss without its condition is not finite" in done.output


def test_the_probe_is_of_the_images_in_the_contract(shared, tmp_path):
    run, experiment = RunDir(shared.run), stored_experiment(RunDir(shared.run))
    catalog = open_catalog(run, HELDOUT)
    numbers, of_sample = probe_samples(catalog, experiment), clusters(catalog).gather(range(len(catalog)))
    assert [len(own) for own in numbers] == [min(PROBE_SAMPLES, int((of_sample == k).sum())) for k in range(2)]
    assert all((of_sample[own] == k).all() and len(set(own.tolist())) == len(own) for k, own in enumerate(numbers))
    assert {f"images-{k:02d}" for k in range(2)} < load_file(shared.contract / PROBE).keys()


def test_other_images_than_in_the_contract_stop_the_probe(exchanged, tmp_path):
    folder = shutil.copytree(exchanged[0].folder, tmp_path / "copy")
    sites = Collaboration(folder)
    file = sites.run / "contract/1" / PROBE
    images = load_file(file)
    images["images-01"] = np.flip(images["images-01"], 2).copy()
    save_file(images, file)
    (sites.run / UNIT / "manifest.json").unlink(missing_ok=True)
    done = submit(sites)
    assert done.exit_code == 1 and "holds other images of cluster 1 than this run" in done.output


def test_the_rule_is_fixed_by_the_contract(shared):
    experiment = stored_experiment(RunDir(shared.run))
    assert experiment.experts.probe is None and with_agreed_probe(experiment, None) == experiment
    agreed = with_agreed_probe(experiment, shared.read())
    assert agreed.experts.probe.max_share == 0.9 and with_agreed_probe(agreed, shared.read()) == agreed
    values = changed(experiment.model_dump(mode="json"), experts__probe={"max_share": 0.99})
    with pytest.raises(ConfigError, match=r"experts.probe: .*0.99.* but the contract says .*0.9.*; leave it out"):
        with_agreed_probe(type(experiment).model_validate(values), shared.read())
