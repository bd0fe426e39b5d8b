"""The tiny experiment, run once for the whole session."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import jaxtyping
import pytest

from tests import shape_checker

# As `make test` has it, for a plain pytest, too: a test that forks would wait for ever on OpenMP's threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Workers need one order of sets among themselves; what they start has its own, as a user's commands have.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.pop("PYTHONHASHSEED", None)
# What a user has submitted with is remembered there, and not in the home of whoever tests.
STATE_HOME = tempfile.TemporaryDirectory(prefix="hpcddm-tests-")
os.environ["XDG_STATE_HOME"] = STATE_HOME.name

PACKAGE = Path(__file__).parents[1] / "hpcddm"
SHAPES_CHECKED = ("clustering", "data", "diffusion", "encoders", "evaluation/concepts", "models", "randomness")
SHAPES_CHECKED += ("sampling", "sources")
"""Folders whose annotated shapes are checked at every call while tests run; jobs never check them."""
UNCHECKED = ("sources/downloads/*", "models/build_*", "sampling/load_ensemble.py", "sampling/draw_images.py")
UNCHECKED += ("sampling/router_samples.py", "sampling/posthoc_ema.py", "sampling/nfe.py")
UNCHECKED += ("sampling/denoiser_observer.py", "sampling/heldout_loss.py", "sampling/trained_model.py")
"""Files whose shapes are not checked: tests hand them simpler units and numbers than jobs do."""
FILES = {file for folder in SHAPES_CHECKED for file in (PACKAGE / folder).rglob("*.py")}
FILES -= {file for pattern in UNCHECKED for file in PACKAGE.glob(pattern)}
assert all(any(PACKAGE.glob(pattern)) for pattern in (*SHAPES_CHECKED, *UNCHECKED)), "a pattern that fits no file"
SLOW = (
    "test_foreign_folders.py",
    "stages/test_router.py",
    "test_foreign_*",
    "real/*",
    "exchange/*",
    "stages/*",
    "test_adding_a_variant.py",
    "commands/*",
    "training/*",
    "launch/test_code_copy.py",
    "launch/local/*",
    "late_names/*",
    "benchmarks/*",
    "sampling/test_native_sampler.py",
)
"""Files that `make test-fast` leaves out, the longest first; the second does not need the run that the first makes."""
MODULES = [".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts) for file in sorted(FILES)]
jaxtyping.install_import_hook(MODULES, f"{shape_checker.__name__}.checked")

# The hook sees only what is imported after it.
from hpcddm.config import variants  # noqa: E402
from tests.helpers import LOAD_VARIANTS  # noqa: E402
from tests.institutions import Institution, institution  # noqa: E402
from tests.whole_runs import TINY, TWO_RANKS, hpcddm  # noqa: E402


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow files, and begin with them, so that no worker is left with one of them at the end."""
    tests = PACKAGE.with_name("tests")
    ranks = {path: _rank(path.relative_to(tests)) for path in {item.path for item in items}}
    for item in items:
        if ranks[item.path] < len(SLOW):
            item.add_marker("slow")
    items.sort(key=lambda item: ranks[item.path])


def _rank(path: Path) -> int:
    """Return the place of a test's file in `SLOW`; the number of its patterns for a quick one."""
    return next((number for number, pattern in enumerate(SLOW) if fnmatch(str(path), pattern)), len(SLOW))


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site: this machine, two ranks for every expert."""
    made = tmp_path_factory.mktemp("sites") / "two-ranks.yaml"
    made.write_text(TWO_RANKS)
    # The same for all workers: a submission of the shared run from another place would write its command anew.
    folder = os.environ.get("HPCDDM_TEST_RUNS")
    return Path(shutil.move(made, Path(folder) / made.name)) if folder else made


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, two_ranks: Path) -> Path:
    """A finished run of the tiny experiment; copy it before you change it."""
    folder = os.environ.get("HPCDDM_TEST_RUNS")
    run = (Path(folder) if folder else tmp_path_factory.mktemp("finished")) / "run"
    # One worker makes it for all.
    with open(run.with_name("lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (run / "report/manifest.json").exists():
            done = hpcddm("submit", "quickstart", "--site", two_ranks, "--run-dir", run, *TINY, timeout=900)
            assert done.returncode == 0, done.stdout + done.stderr
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """An own copy of the finished run."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def load_variants(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The variants of the load test, beside those of the package."""
    monkeypatch.setenv(variants.VARIANTS_VARIABLE, str(LOAD_VARIANTS))
    variants.list_variants.cache_clear()
    yield
    variants.list_variants.cache_clear()


def _cluster(name: str) -> str:
    """The SLURM_CONF of a testbed cluster; in CI not having one is a failure."""
    folder = os.environ.get("HPCDDM_TESTBED")
    if folder is None and "CI" not in os.environ:
        pytest.skip("no testbed: 'make test' as root on Debian, or 'make testbed-up' and HPCDDM_TESTBED=its folder")
    assert folder is not None, "in CI the tests on a real Slurm may not be skipped"
    return f"{folder}/{name}/slurm.conf"


@pytest.fixture(scope="session")
def home() -> str:
    """SLURM_CONF of the cluster with accounting."""
    return _cluster("home")


@pytest.fixture(scope="session")
def partner() -> str:
    """SLURM_CONF of the cluster without accounting, another trust domain."""
    return _cluster("partner")


@pytest.fixture(scope="module")
def two_institutions(home: str) -> Iterator[tuple[Institution, Institution]]:
    """The clusters home and partner as sites that share no key, no Unix user and no network; needs root."""
    if os.getuid() != 0:
        assert "CI" not in os.environ, "CI runs as root"
        pytest.skip("users and network namespaces need root")
    # A socket's path is short, and users who are not root pass through this folder.
    folder = Path(tempfile.mkdtemp(prefix="hpcddm-"))
    folder.chmod(0o711)
    try:
        with institution("home", folder / "home") as first, institution("partner", folder / "partner") as second:
            yield first, second
    finally:
        shutil.rmtree(folder)
