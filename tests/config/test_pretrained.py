import hashlib

import pytest

from hpcddm.config import pretrained
from hpcddm.config.pretrained import PretrainedFile
from hpcddm.errors import ConfigError, UserError
from tests.helpers import python

CONTENT = b"bytes of a network" * 10
ONE = PretrainedFile("net.pth", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), "somebody-net==1.0", "net/net.pth")


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The weights, whole, in a cache of their own."""
    monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path))
    path = pretrained.cached_file(ONE)
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    return path


def test_what_is_whole_is_found_under_a_name_that_tells_its_bytes(kept):
    assert pretrained.find_verified(ONE) == kept
    assert kept.name == f"net-{ONE.sha256[:16]}.pth"


WRONG = {None: "missing", CONTENT[:-1]: "torn: 179 of 180 bytes", b"": "torn: 0 of 180 bytes"}
WRONG |= {CONTENT[:-1] + b"?": f"foreign: SHA-256 begins .* and not {ONE.sha256[:12]}"}


@pytest.mark.parametrize("content, wrong", WRONG.items())
def test_what_is_not_whole_is_told_with_the_command_that_mends_it(kept, content, wrong):
    kept.unlink()
    if content is not None:
        kept.write_bytes(content)
    with pytest.raises(UserError, match=f"{kept}: {wrong}; on a node with network run: hpcddm prefetch"):
        pretrained.find_verified(ONE)


def test_the_quick_look_sees_a_torn_file_and_reads_none(kept):
    kept.write_bytes(CONTENT[:-1] + b"?")
    assert pretrained.defect(ONE, kept, hashed=False) is None
    kept.write_bytes(CONTENT[:7])
    assert pretrained.defect(ONE, kept, hashed=False).startswith("torn")


def test_without_a_variable_the_cache_is_the_users(monkeypatch):
    monkeypatch.delenv("HPCDDM_CACHE", raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert str(pretrained.cache_folder()) == "/home/somebody/.cache/hpcddm"


def test_a_relative_cache_is_refused_because_jobs_stand_elsewhere(monkeypatch):
    monkeypatch.setenv("HPCDDM_CACHE", "cache")
    with pytest.raises(ConfigError, match="HPCDDM_CACHE: 'cache' is not an absolute path"):
        pretrained.cache_folder()


def test_paths_of_yaml_may_begin_with_the_cache(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("HPCDDM_CACHE", "/scratch/cache")
    names = ["$HPCDDM_CACHE/collections/x.json", "~/x.json", "x/$HPCDDM_CACHE.json", "$HPCDDM_CACHES/x.json"]
    expanded = ["/scratch/cache/collections/x.json", "/home/somebody/x.json", *names[2:]]
    assert [str(pretrained.expanded(name)) for name in names] == expanded
    monkeypatch.delenv("HPCDDM_CACHE")
    assert str(pretrained.expanded(names[0])) == "/home/somebody/.cache/hpcddm/collections/x.json"


def test_looking_for_weights_imports_nothing_that_asks_a_network():
    done = python(
        "import sys\nimport hpcddm.config.pretrained\n"
        "print({'socket', 'urllib.request', 'subprocess'} & set(sys.modules))"
    )
    assert (done.stdout, done.stderr) == ("set()\n", "")
