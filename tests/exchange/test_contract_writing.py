"""Who may write the revisions of a contract, and what is said before anything is written."""

import shutil

import pytest

from hpcddm.commands.planning.benchmark import Benchmark
from hpcddm.exchange import ssh_keys
from hpcddm.exchange.contract import PARTITION
from hpcddm.runs import contracts as run_contracts
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from tests.exchange.collaboration import Collaboration
from tests.helpers import hpcddm


@pytest.fixture
def own(shared, tmp_path) -> Collaboration:
    """A copy of the collaboration that may be changed."""
    shutil.copytree(shared.folder, tmp_path / "own")
    return Collaboration(tmp_path / "own")


def refused(done, code: int, *words: str) -> None:
    said = [line for line in done.stderr.splitlines() if line]
    assert done.exit_code == code and len(said) == 1 and said[0].startswith("error: "), done.output
    assert all(word in said[0] for word in words), said


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--revoke", "north"), 2, ("--revoke north", "new key")),
        (("--revoke", "east"), 1, ("--revoke east", "north, south")),
        (("--trust", "SHA256:x"), 2, ("--trust SHA256:x", "no --site has this key")),
        (("--license", "Universit\xe4t"), 1, ("printable ASCII", "other sites would refuse it")),
        (("--terms", "a\nb"), 1, ("printable ASCII",)),
        (("--license", "x" * 401), 1, ("data.license", "400")),
        (("--site", "nowhere"), 1, ("nowhere is missing",)),
    ],
)
def test_a_slip_in_an_option_is_said_and_writes_nothing(shared, tmp_path, options, code, words):
    before = run_contracts.current_folder(RunDir(shared.run))
    refused(shared.write_contract(tmp_path / "new", *options), code, *words)
    assert not (tmp_path / "new").exists() and run_contracts.current_folder(RunDir(shared.run)) == before


def test_a_new_key_and_a_revocation_exclude_each_other(shared, tmp_path):
    trusted = ("--site", shared.folder / "south-key", "--trust", shared.fingerprint("south"))
    done = shared.write_contract(tmp_path / "new", *trusted, "--revoke", "south")
    refused(done, 2, "--revoke south", "--site with a new key")


def test_a_key_that_is_missing_is_named_itself(shared, tmp_path):
    done = hpcddm("site", "contract", shared.run, "--output", tmp_path / "new", "--sign", tmp_path / "none")
    refused(done, 1, f"{tmp_path / 'none'} is missing", "hpcddm site key SITE")
    shutil.copy(shared.key("north"), tmp_path / "half")
    done = hpcddm("site", "contract", shared.run, "--output", tmp_path / "new", "--sign", tmp_path / "half")
    refused(done, 1, "ssh-keygen -y -f")


def test_only_the_coordinator_writes_a_revision(shared, own, tmp_path, monkeypatch):
    monkeypatch.setattr(Benchmark, "seconds", lambda *work: 1.0)
    # A partner that calls the command in its own run, by mistake.
    partner = tmp_path / "partner"
    done = shared.submit(shared.contract, partner, "--trust", shared.fingerprint("north"), "--until", "shard")
    assert done.exit_code == 0, done.output
    done = hpcddm("site", "contract", partner, "--output", tmp_path / "new", "--sign", shared.key("south"))
    refused(done, 1, "only north writes revisions", shared.fingerprint("north"), shared.fingerprint("south"))
    assert not (tmp_path / "new").exists() and not (partner / "contract/2").exists()
    # The coordinator itself takes a new key as it takes one of any site.
    for path in (own.key("north"), ssh_keys.public_file(own.key("north"))):
        path.unlink()
    ssh_keys.make_key(own.key("north"))
    refused(own.write_contract(tmp_path / "new"), 1, "only north writes revisions")
    made = hpcddm("site", "key", "north", "--key", own.key("north"), "--output", own.folder / "north-key")
    assert made.exit_code == 0, made.output
    done = own.write_contract(tmp_path / "new", "--site", own.folder / "north-key", "--trust", own.fingerprint("north"))
    assert done.exit_code == 0, done.output
    # A partner that knows the other key is asked again.
    done = shared.submit(tmp_path / "new", partner)
    assert done.exit_code == 1 and f"then add: --trust {own.fingerprint('north')}" in done.output


def test_a_contract_that_a_run_has_lost_is_put_back(shared, tmp_path):
    run, trust = tmp_path / "run", ("--trust", shared.fingerprint("north"))
    assert shared.submit(shared.contract, run, *trust, "--until", "shard").exit_code == 0
    shutil.rmtree(run / "contract")
    done = shared.submit(shared.contract, run, *trust, "--until", "shard")
    assert done.exit_code == 0 and run_contracts.run_contract(RunDir(run)) == shared.read(), done.output
    # A run of other clusters does not follow it.
    shutil.rmtree(run / "contract")
    forged = shared.forge(tmp_path / "forged", lambda content: content["files"][PARTITION].update(sha256="0" * 64))
    refused(shared.submit(forged, run, *trust), 2, "a run without a contract; name another folder")


def test_a_folder_that_cannot_be_written_leaves_the_contract_in_the_run(own, tmp_path):
    (tmp_path / "file").write_text("")
    done = own.write_contract(tmp_path / "file/new")
    refused(done, 1, "--output", "send that", str(own.run / "contract/2"))
    assert own.read(own.run / "contract/2").revision == 2


def test_a_key_that_does_not_sign_leaves_no_folder(own, tmp_path):
    own.key("north").write_text("not a key")
    own.key("north").chmod(0o600)
    assert own.write_contract(tmp_path / "new").exit_code == 1
    assert not (tmp_path / "new").exists() and not (own.run / "contract/2").exists()


def test_stages_that_a_contract_needs_are_named_with_their_command(own, tmp_path):
    shutil.rmtree(own.run / "expert_lists")
    done = own.write_contract(tmp_path / "new")
    refused(done, 1, "expert_lists/all is missing; next: ", "hpcddm submit", "--until expert_lists")


def test_an_expert_changes_its_site_though_nothing_runs_again(own):
    options = ("--site", own.site("north"), "--run-dir", own.run, "--until", "expert_lists")
    done = hpcddm("submit", own.folder / "tiny.yaml", "experts.sites=[south, south]", *options)
    assert done.exit_code == 0 and "all requested units are complete" in done.output, done.output
    assert stored_experiment(RunDir(own.run)).experts.sites == ["south", "south"]
    assert own.write_contract(own.folder / "second").exit_code == 0
    assert own.read(own.folder / "second").units_of("south") == ["train/expert-00", "train/expert-01"]


def test_submit_takes_an_experiment_or_a_contract(shared, tmp_path):
    done = hpcddm("submit", "quickstart", "--contract", shared.contract, "--site", shared.site("south"))
    refused(done, 2, "--contract", "leave quickstart out")
    done = hpcddm("submit", "quickstart", "--trust", "SHA256:x", "--run-dir", tmp_path / "run")
    assert done.exit_code == 2 and "error: --trust: " in done.stderr
    assert not (tmp_path / "run").exists()
