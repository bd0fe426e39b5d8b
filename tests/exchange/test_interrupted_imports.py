"""Imports that are cut off: half a bundle, a process killed at any moment, and a disk that is full."""

import os
import random
import shutil
import signal
import sys
import time
from dataclasses import replace
from itertools import count

import pytest

from hpcddm.collaboration.bundle_checks import imported_bundle
from hpcddm.exchange.bundle import FILE
from hpcddm.runs import manifest
from hpcddm.runs.import_records import read_signed_bundle
from hpcddm.runs.run_dir import RunDir
from tests.exchange.agreed_runs import KEY, train
from tests.exchange.hostile import refused


def bundle_to_import(runs, is_replaced):
    """A bundle, or a newer one than that which the run has imported."""
    sent = runs.pack("sent")
    if is_replaced:
        assert runs.take(sent).exit_code == 0
        train(runs, runs.partner, seed=2)
        sent = runs.pack("newer")
    return sent


NAMES = ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "ctypes.dlsym")
"""Events of Python that change names; the last is how two of them are exchanged."""


def is_killed(own, sent, options, changes=None, seconds=0.0):
    """Import in a process that is killed before one of its writes and changes of names, or by time; False if never."""

    def die(event, arguments):
        nonlocal changes
        if event in NAMES or event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            changes -= 1
            if changes < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        if changes is not None:
            sys.addaudithook(die)
        os._exit(own.take(sent, *options).exit_code)
    if changes is None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    ending = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ending in (0, -signal.SIGKILL)
    return ending != 0


@pytest.mark.parametrize("times", [0, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_killed_import_is_before_or_after_and_repeating_it_completes_it(runs, tmp_path, is_replaced, times):
    """Killed before each of its changes, and so many times at random moments."""
    sent = bundle_to_import(runs, is_replaced)
    options, (after, _) = ["--replace"] * is_replaced, read_signed_bundle(sent)
    before = manifest.read(runs.home.unit(KEY))
    for number in range(times) if times else count():
        own = replace(runs, home=RunDir(shutil.copytree(runs.home.root, tmp_path / "home")))
        moment = {"seconds": random.Random(number).uniform(0, 0.5)} if times else {"changes": number}
        if not is_killed(own, sent, options, **moment) and not times:
            break
        present, made = manifest.read(own.home.unit(KEY)), imported_bundle(own.home, KEY)
        assert present == before or made == after
        assert present is None or manifest.find_damage(own.home.unit(KEY), present) is None
        assert made is not None or not is_replaced
        assert own.take(sent, *options).exit_code == 0 and imported_bundle(own.home, KEY) == after
        assert [path.name for path in own.home.imports.iterdir()] == ["expert-01"]
        shutil.rmtree(own.home.root)
    assert number > 8


def test_half_a_bundle_is_completed_file_by_file(runs, tmp_path):
    sent, half = runs.pack("sent"), tmp_path / "half"
    half.mkdir()
    for name in (FILE, f"{FILE}.sig", *sorted(read_signed_bundle(sent)[0].files)):
        refused(runs, half, f"{name} is missing")
        # A file that is still on its way has its name already.
        content = (sent / name).read_bytes()
        (half / name).write_bytes(content[: len(content) // 2])
        refused(runs, half, name if name.endswith("safetensors") else "")
        shutil.copy(sent / name, half)
    assert runs.take(half).exit_code == 0 and imported_bundle(runs.home, KEY).number == 1
