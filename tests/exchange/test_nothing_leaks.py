"""What leaves a site names no person, machine, place or time zone, though all of them are planted before."""

import base64
import getpass
import io
import json
import os
import pwd
import shutil
import socket
import subprocess
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open

from hpcddm.config import trusted_submissions
from hpcddm.exchange import ssh_keys
from hpcddm.exchange.contract import PROBE
from hpcddm.runs.contracts import run_contract, vouched
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from tests.exchange.agreed_runs import KEY, Agreed, train
from tests.exchange.collaboration import SITES
from tests.helpers import CLASSES, SIDE, hpcddm, write_experiment

PERSON, HOST, OWNER, SECRET = "plantedname", "plantedhost", "PlantedOwner", "planted-secret"
ZONE = "Asia/Kathmandu"
WORDS = (PERSON, HOST, OWNER, SECRET, ZONE, "+0545", "+05:45", "/home", "/tmp")
ENVIRONMENT = {"USER": PERSON, "LOGNAME": PERSON, "HOSTNAME": HOST, "HPCDDM_TOKEN": SECRET, "TZ": ZONE}


def picture(number: int) -> bytes:
    """A picture with the place where it was taken, and its owner."""
    exif = Image.Exif()
    exif[0x013B], exif[0x8298], exif[0x010F] = OWNER, OWNER, f"{HOST}-camera"
    exif.get_ifd(0x8825).update({1: "N", 2: (52.0, 31.0, 12.0), 3: "E", 4: (13.0, 24.0, 18.0)})
    values = np.random.default_rng(number).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(values).save(stream, format="JPEG", exif=exif, comment=OWNER.encode())
    return stream.getvalue()


def write_tars(folder: Path) -> None:
    """Write adopted tars, in whose samples people and places are named, and one of which is broken."""
    folder.mkdir(parents=True)
    for number in range(2):
        with tarfile.open(folder / f"{number}.tar", "w") as tar:
            for sample in range(80 * number, 80 * number + 80):
                is_broken = sample == 7
                key = f"u-{PERSON}-broken" if is_broken else f"{sample:06d}"
                image = b"no picture" if is_broken else picture(sample)
                for extension, content in (("jpg", image), ("cls", str(sample % CLASSES).encode())):
                    entry = tarfile.TarInfo(f"{key}.{extension}")
                    entry.size, entry.uname, entry.gname = len(content), PERSON, HOST
                    tar.addfile(entry, io.BytesIO(content))


def make_key(path: Path) -> None:
    """Make a key with a comment, as people's are."""
    comment = f"{PERSON}@{HOST}"
    if shutil.which("ssh-keygen"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path], check=True)
    else:
        ssh_keys.make_key(path)
        public = path.with_name(f"{path.name}.pub")
        public.write_text(f"{public.read_text().strip()} {comment}\n")


def call(*command: object) -> None:
    done = hpcddm(*command)
    assert done.exit_code == 0, done.output


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Folder of a person with everything planted; yields the run, and what leaves the site."""
    home = tmp_path_factory.mktemp("planted") / f"u-{PERSON}"
    write_tars(home / "tars")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENVIRONMENT, "HOME": str(home)}.items():
            patch.setenv(name, value)
        patch.chdir(home)
        time.tzset()
        source = {"name": "webdataset", "folder": "tars", "heldout": {"shards": 1}, "label": "cls", "caption": None}
        changes = {"data__source": source, "data__channels": 3, "data__max_broken_share": 0.1, "site": "north"}
        write_experiment(home, **changes, experts__sites=SITES)
        for site in SITES:
            make_key(home / f"{site}.key")
            (home / f"{site}.yaml").write_text(f"name: {site}\nscheduler: local\n")
        run = RunDir(home / "run")
        call("submit", "tiny.yaml", "--site", "north.yaml", "--run-dir", run.root, "--until", "expert_lists")
        call("site", "key", "south", "--key", "south.key", "--output", "sent-key")
        trusted = ("--site", "sent-key", "--trust", ssh_keys.read_public(home / "south.key").fingerprint)
        call("site", "contract", run.root, "--output", "sent-contract", "--sign", "north.key", *trusted)
        make_expert(run)
        call("site", "bundle", run.root, KEY, "--sign", "south.key", "--output", "sent-bundle")
        yield run, [home / f"sent-{name}" for name in ("key", "contract", "bundle")]
    time.tzset()


def make_expert(run: RunDir) -> None:
    """Complete the expert of south, and record who trained it, and where."""
    contract = run_contract(run)
    # The same person at both sites.
    trusted_submissions.remember(run.root, vouched(contract, "south"))
    agreed = Agreed(stored_experiment(run), run, run, contract)
    train(agreed, run, seed=1)
    attempt = run.logs(KEY) / "attempt-1"
    attempt.mkdir(parents=True)
    owner = {"host": HOST, "started": 1e9, "ranks": 1, "cpus": 2, "gpus": 1, "owner": PERSON}
    (attempt / "owner.json").write_text(json.dumps(owner))
    (attempt / "ended.json").write_text(json.dumps({"outcome": "complete", "started": 1e9, "ended": 1e9 + 60}))


def forms(word: str) -> set[bytes]:
    """Return a word as it may be written: in any case, in UTF-16, and in base64 wherever it begins there."""
    found = {word.lower().encode(), word.lower().encode("utf-16-le")}
    # A few letters of base64 are in any signature.
    for text in (word, word.lower(), word.upper()) if len(word) > 6 else ():
        for before in range(3):
            # Characters that other bytes determine, too, are left out.
            first, last = -(-before * 8 // 6), (before + len(text)) * 8 // 6
            found.add(base64.b64encode(bytes(before) + text.encode())[first:last].lower())
    return found


def texts(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from texts(inner)


def files(folders):
    return [path for folder in folders for path in folder.iterdir()]


def test_no_planted_word_leaves_the_site(planted):
    run, folders = planted
    own = [word for word in (getpass.getuser(), pwd.getpwuid(os.getuid()).pw_name, socket.gethostname()) if word[3:]]
    own.append(str(run.root.parent.parent))
    contents = {path.name: path.read_bytes() for path in files(folders)}
    found = [(name, word) for name, content in contents.items() for word in own if word.encode() in content]
    for name, content in contents.items():
        found += [(name, word) for word in WORDS if any(form in content.lower() for form in forms(word))]
    assert found == []


def test_no_text_is_a_path(planted):
    _, folders = planted
    for path in (path for path in files(folders) if path.suffix == ".json"):
        said = list(texts(json.loads(path.read_text())))
        assert said and [text for text in said if text.startswith(("/", "~")) or ".." in text.split("/")] == []


def test_tensors_have_no_metadata_and_the_probe_is_pixels(planted):
    _, folders = planted
    for path in (path for path in files(folders) if path.suffix == ".safetensors"):
        with safe_open(path, "np") as file:
            assert file.metadata() is None
            kinds = {(name.split("-")[0], str(file.get_tensor(name).dtype)) for name in file.keys()}
        assert path.name != PROBE or kinds == {("images", "uint8"), ("classes", "int64")}
