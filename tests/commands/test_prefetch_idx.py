"""Images of shipped experiments: from a Debian package by an apt-get that copies it, from a server, or by advice."""

import gzip
import http.server
import threading
from dataclasses import replace
from functools import partial
from hashlib import sha256

import pytest

from hpcddm.commands import prefetch
from hpcddm.loading import content_hashes
from hpcddm.loading.content_hashes import images_note
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.sources.downloads import idx_files
from hpcddm.sources.downloads.idx_files import FASHION_MNIST
from tests.helpers import REPOSITORY, hpcddm, write_experiment, write_source

APT = "#!/bin/sh\n[ \"$*\" = 'download dataset-fashion-mnist' ] && touch fashion.deb\n"
DPKG = """#!/bin/sh
case "$*" in
  "--extract "*"fashion.deb unpacked") mkdir -p unpacked{0} && cp {1}/* unpacked{0}/;;
  *) exit 1;;
esac
"""


def know(files, monkeypatch):
    """Let these be the only data set that can be fetched."""
    for module in (idx_files, prefetch, content_hashes):
        monkeypatch.setattr(module, "IDX_FILES", (files,))


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A data set like Fashion-MNIST of a few images, which lies on a server and nowhere else."""
    write_source(tmp_path / "server")
    contents = {path.name: path.read_bytes() for path in (tmp_path / "server").iterdir()}
    hashes = {name: sha256(gzip.decompress(content)).hexdigest() for name, content in contents.items()}
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "server")
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *arguments: None)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        mirror = f"http://127.0.0.1:{server.server_port}"
        own = replace(FASHION_MNIST, folder=tmp_path / "debian" / "fashion", mirror=mirror, files=hashes)
        know(own, monkeypatch)
        monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        monkeypatch.chdir(tmp_path)
        (tmp_path / "bin").mkdir()
        write_experiment(tmp_path, data__source__folder=str(own.folder), name="fashion_mnist")
        yield own
        server.shutdown()


@pytest.mark.parametrize("has_debian", [True, False])
def test_the_images_are_fetched_proven_and_read_where_the_experiment_lacks_them(
    files, tmp_path, monkeypatch, has_debian
):
    if has_debian:
        for name, script in {"apt-get": APT, "dpkg-deb": DPKG.format(files.folder, tmp_path / "server")}.items():
            (tmp_path / "bin" / name).write_text(script)
            (tmp_path / "bin" / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
        files = replace(files, mirror="http://127.0.0.1:1")
        know(files, monkeypatch)
    assert load_experiment("tiny.yaml").data.source.folder == str(files.folder)
    done = hpcddm("prefetch", "tiny.yaml")
    assert done.exit_code == 0 and done.output.startswith(f"fetched  {files.place()}"), done.output
    assert load_experiment("tiny.yaml").data.source.folder == str(files.place())
    assert hpcddm("prefetch", "tiny.yaml").output.startswith(f"present  {files.place()}")
    done = hpcddm("submit", "tiny.yaml", "--dry-run", "--site", "embedded", "--run-dir", "run")
    assert done.exit_code == 0, done.output
    # What the machine has comes first.
    write_source(files.folder)
    assert load_experiment("tiny.yaml").data.source.folder == str(files.folder)


def test_damaged_images_are_fetched_anew_and_foreign_ones_are_not_kept(files, tmp_path):
    assert hpcddm("prefetch", "tiny.yaml").exit_code == 0
    labels = files.place() / "train-labels-idx1-ubyte.gz"
    labels.write_bytes(labels.read_bytes()[:-9])
    done = hpcddm("prefetch", "tiny.yaml")
    assert "damaged: train-labels" in done.output and files.defect(files.place()) is None
    labels.unlink()
    (tmp_path / "server" / labels.name).write_bytes(gzip.compress(b"other bytes"))
    done = hpcddm("prefetch", "tiny.yaml")
    assert done.exit_code == 1 and "damaged: train-labels-idx1-ubyte.gz" in done.output


@pytest.mark.parametrize("verb", ["plan", "submit"])
def test_an_error_about_the_images_names_what_fetches_them(files, verb):
    done = hpcddm(verb, "tiny.yaml", "--site", "embedded", "--run-dir", "run")
    advice = "is not a folder; this fetches the images; next: hpcddm prefetch fashion_mnist"
    assert done.exit_code == 1 and done.output.count("\n") == 1 and f"{files.folder} {advice}" in done.output


def test_without_a_network_prefetch_says_how_to_get_them(files, monkeypatch):
    know(replace(files, mirror="http://127.0.0.1:1"), monkeypatch)
    done = hpcddm("prefetch", "tiny.yaml")
    assert done.exit_code == 1 and done.output.count("\n") == 1
    assert "apt-get install dataset-fashion-mnist" in done.output and "curl --remote-name-all" in done.output
    assert "data.source.folder=FOLDER" in done.output and not files.place().exists()


SHIPPED = sorted(path.stem for path in (REPOSITORY / "experiments").glob("*.yaml"))


@pytest.mark.parametrize("name", SHIPPED)
def test_images_of_every_shipped_experiment_come_along_or_can_be_had(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path))
    fetched = []
    for function in ("fetch_download", "fetch_idx"):
        monkeypatch.setattr(prefetch, function, lambda one, *rest: fetched.append(one.name))
    # Only the images are the subject here: no test may reach for the hub, nor for anybody's token of it.
    monkeypatch.setattr(prefetch, "_fetch_weights", lambda files, cache: None)
    monkeypatch.setattr(prefetch.prefetch_hub, "verify_or_fetch", lambda place, variant: None)
    done = hpcddm("prefetch", name)
    described = [line for line in done.output.splitlines() if line.startswith("images ")]
    if name == "quickstart":
        assert not fetched and not described
    else:
        # WordNet, which concepts need, is not their images.
        noted = [line.endswith(images_note(name)) for line in described]
        assert FASHION_MNIST.name in fetched or (noted and all(noted))
