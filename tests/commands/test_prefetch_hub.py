"""Weights by their name on a hub: fetched by the real package from a hub of this test's own, then used without it."""

import json
import shutil
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.commands.archives import files
from tests.helpers import hpcddm, python, write_experiment, write_source

COMMIT = "1a" * 20
CALL = "import sys\nfrom hpcddm.cli import main\nmain(sys.argv[1:])"


@pytest.fixture
def hub(tmp_path):
    """A server that answers as the hub does, with the files of a folder in the repository somebody/dinov2-tiny."""
    root = tmp_path / "hub"
    root.mkdir()
    (root / "config.json").write_text('{"model_type": "dinov2", "hidden_size": 24}')
    (root / "model.safetensors").write_bytes(b"values" * 1000)
    (root / "onnx").mkdir()
    for name in ("README.md", "pytorch_model.bin", "onnx/config.json"):
        (root / name).write_text("not fetched")
    asked = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            place = self.path.partition("?")[0]
            if place == "/api/models/somebody/dinov2-tiny/revision/v1":
                siblings = [{"rfilename": name} for name in files(root)]
                body = {"id": "somebody/dinov2-tiny", "sha": COMMIT, "siblings": siblings}
                return self.answer(json.dumps(body).encode())
            name = place.removeprefix(f"/somebody/dinov2-tiny/resolve/{COMMIT}/")
            path = root / name
            return self.answer(path.read_bytes()) if name != place and path.is_file() else self.send_error(404)

        do_HEAD = do_GET

        def answer(self, content):
            self.send_response(200)
            self.send_header("ETag", f'"{len(content)}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.asked, server.root = asked, root
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def prefetch(tmp_path, hub):
    """A function that runs prefetch for an experiment with these weights, in a process that sees this hub alone."""

    def run(endpoint=None, **weights):
        write_source(tmp_path / "images")
        path = write_experiment(tmp_path, encode__encoder={"name": "dinov2", "weights": weights, "width": 24})
        endpoint = endpoint or f"http://127.0.0.1:{hub.server_address[1]}"
        environment = {"HF_ENDPOINT": endpoint, "HOME": str(tmp_path), "HPCDDM_CACHE": str(tmp_path / "cache")}
        return python(CALL, "prefetch", path, **environment)

    return run


def test_the_files_of_the_layout_are_fetched_once_and_serve_without_the_hub(prefetch, hub, tmp_path, monkeypatch):
    done = prefetch(hub="somebody/dinov2-tiny", revision="v1")
    folder = tmp_path / "cache" / "hub" / "somebody--dinov2-tiny@v1"
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert (folder / "model.safetensors").read_bytes() == (hub.root / "model.safetensors").read_bytes()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert f"fetched  {folder}  " in done.stdout and f"model.safetensors at {COMMIT}" in done.stdout
    content = done.stdout.split()[-1]
    hub.asked.clear()
    again = prefetch(hub="somebody/dinov2-tiny", revision="v1", content_hash=content)
    assert again.stdout == done.stdout.splitlines(keepends=True)[-1].replace("fetched", "present") and not hub.asked
    monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path / "cache"))
    call = ("submit", tmp_path / "tiny.yaml", "--site", "embedded", "--dry-run", "--run-dir", tmp_path / "run")
    submitted = hpcddm(*call)
    assert submitted.exit_code == 0, submitted.output


NOT_FETCHED = {
    "offline": ({"hub": "somebody/dinov2-tiny"}, "by hand: copy config.json, model.safetensors of som"),
    "unknown name": ({"hub": "somebody/other"}, "somebody/other: cannot be fetched (Client error '404 Not Found'"),
    "no weights": ({"hub": "somebody/dinov2-tiny/onnx", "revision": "v1"}, "model.safetensors or "),
}


@pytest.mark.parametrize("case", NOT_FETCHED)
def test_what_cannot_be_fetched_ends_in_one_line(prefetch, tmp_path, case):
    weights, said = NOT_FETCHED[case]
    done = prefetch("http://127.0.0.1:9" if case == "offline" else None, **weights)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and last.startswith(f"error: {weights['hub']}: ") and said in last
    assert "Traceback" not in done.stderr and not list((tmp_path / "cache" / "hub").iterdir())


def test_a_folder_is_looked_at_where_it_lies(hub, tmp_path):
    write_source(tmp_path / "images")

    def prefetch(**weights):
        encoder = {"name": "dinov2", "weights": {"folder": str(hub.root)} | weights, "width": 24}
        done = hpcddm("prefetch", write_experiment(tmp_path, encode__encoder=encoder))
        return done.exit_code, done.output

    code, output = prefetch()
    assert code == 0 and output.startswith(f"present  {hub.root}  0.0 MB, content_hash: ")
    assert prefetch(content_hash=output.split()[-1]) == (code, output)
    code, output = prefetch(content_hash="0" * 64)
    assert code == 1 and "SHA-256 over config.json, model.safetensors begins" in output
    shutil.rmtree(hub.root)
    code, output = prefetch()
    assert code == 1 and output.startswith(f"error: encode.encoder: {hub.root}: weights of dinov2: no such folder")
    assert not hub.asked


def test_without_the_package_the_way_by_hand_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path))
    write_source(tmp_path / "images")
    weights = {"hub": "somebody/dinov2-tiny"}
    path = write_experiment(tmp_path, encode__encoder={"name": "dinov2", "weights": weights, "width": 24})
    done = hpcddm("prefetch", path)
    assert done.exit_code == 1 and "needs the package huggingface_hub; install it with" in done.output
    assert "by hand: copy config.json, model.safetensors of somebody/dinov2-tiny from a machine" in done.output
    assert str(Path(tmp_path / "hub" / "somebody--dinov2-tiny@main")) in done.output
