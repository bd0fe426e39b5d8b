"""Thousands of damaged and forged bundles and contracts: each is refused in one line, or is what was signed."""

import hashlib
import os
import random
import shutil
import signal

import pytest

from hpcddm.collaboration.bundle_checks import imported_bundle
from hpcddm.exchange import contract as contracts
from hpcddm.exchange.bundle import FILE
from hpcddm.runs.contracts import revision_folder
from hpcddm.runs.import_records import read_signed_bundle
from tests.exchange.conftest import SECONDS
from tests.exchange.hostile import sign_bytes, sign_file, sign_json, tree
from tests.exchange.mutations import mutated

pytestmark = pytest.mark.usefixtures("limits")
SEED = int(os.environ.get("HPCDDM_FUZZ_SEED", 0))
HONEST_EVERY = 50
"""Cases between two honest bundles, which must be taken."""


def is_taken(call, *arguments):
    """Call a command within the time of a case; whether it accepts it, or else says why not in one line."""
    signal.alarm(SECONDS)
    done = call(*arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    if done.exit_code:
        (line,) = [line for line in done.stderr.splitlines() if line]
        assert line.startswith("error: ") and line.isascii() and line.isprintable() and len(line) < 2000, line
    return done.exit_code == 0


def is_imported(runs, sent):
    """Import a bundle; what is taken is what was signed, and what is refused leaves the run as it was."""
    before = tree(runs.home)
    if not is_taken(runs.take, sent):
        assert tree(runs.home) == before
        return False
    signed, _ = read_signed_bundle(sent)
    assert imported_bundle(runs.home, signed.unit) == signed
    found = {path.name: path for path in runs.home.unit(signed.unit).rglob("*.safetensors")}
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()}
    assert digests == {name: file.sha256 for name, file in signed.files.items()}
    shutil.rmtree(runs.home.unit(signed.unit))
    shutil.rmtree(runs.home.imports)
    if before.keys() != tree(runs.home).keys():
        (runs.home.root / "train").rmdir()
    return True


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.long)])
def test_what_is_loaded_was_signed(runs, tmp_path, count):
    """Half of the mutated bundles are signed again, so that what is behind the signature is reached."""
    generator, honest, sent = random.Random(SEED), runs.pack("honest"), tmp_path / "sent"
    kept, accepted = revision_folder(runs.home, 1), 0
    contents = {path.name: path.read_bytes() for path in honest.iterdir()}
    agreed = {path: path.read_bytes() for path in kept.iterdir()}
    names = [FILE] * 4 + sorted(contents)
    for number in range(count):
        shutil.rmtree(sent, ignore_errors=True)
        shutil.copytree(honest, sent)
        name, is_signed = generator.choice(names), generator.random() < 0.5
        if generator.random() < 0.1:
            content = mutated(agreed[kept / contracts.FILE], generator)
            (kept / contracts.FILE).write_bytes(content)
            if is_signed:
                sign_json(kept / contracts.FILE, content, runs.key("uni-a"))
        else:
            (sent / name).write_bytes(mutated(contents[name], generator))
            if is_signed and name == FILE:
                sign_bytes(sent, runs, (sent / name).read_bytes())
            elif is_signed and name.endswith(".safetensors"):
                sign_file(sent, runs, name)
        accepted += is_imported(runs, sent)
        for path, content in agreed.items():
            path.write_bytes(content)
        if number % HONEST_EVERY == 0:
            assert is_imported(runs, honest), "an honest bundle was refused"
    # The sums for coreutils are nobody's evidence, a loss may be another one, and a value of the weights, too.
    assert 0 < accepted < count / 2
