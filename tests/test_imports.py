"""Imports point one way, and nothing on the login node waits for torch."""

import ast

import pytest

from tests.helpers import REPOSITORY, python, tiny, write_source
from tests.structure import Package, floors, homonyms, imported_when_loaded, modules_of

PACKAGE = REPOSITORY / "hpcddm"

ROOMS = (
    *("errors", "files", "config", "exchange", "runs", "jobs", "pipeline"),
    *("data", "clustering", "encoders", "diffusion", "models", "training", "sampling", "evaluation"),
    *("launch", "stages", "api", "commands", "cli"),
)
"""The rooms, lowest first: each may import those before it, and none after it."""
LOOSE = {"api", "cli"}
"""Modules among them that are no folders; the version is in the package's own file."""
LATE = {"commands", "launch"}
"""Rooms in which functions may import: they wait for torch, numpy or matplotlib only where they need them."""
LATE_FILES = {
    "__init__.py": "opens a run without making `import hpcddm` wait for torch",
    "config/cross_checks.py": "needs numpy for a filter only",
    "clustering/file.py": "its settings are read without its code",
    "clustering/run.py": "its settings are read without its code",
    "runs/manifest.py": "verifies signatures in a run with a contract only",
    "evaluation/sweep_results/outputs.py": "needs matplotlib for a plot only",
}
"""Other files in which a function imports, and why."""
MOST_FILES = 40
"""Most Python files of a folder."""

FILES = sorted(file for file in PACKAGE.rglob("*.py") if file.name != "__init__.py" or file.stat().st_size)
IDS = [str(file.relative_to(PACKAGE)) for file in FILES]


def room(module: str) -> str | None:
    """The room of 'hpcddm.data.tar_writing' is 'data'; None for foreign modules and for the version."""
    parts = module.split(".")
    if parts[0] != "hpcddm" or len(parts) == 1:
        return None
    return parts[1]


def imported(nodes) -> set[str]:
    """The rooms that some statements import."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {room(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "hpcddm" else [node.module]
            )
            found |= {room(name) for name in names}
    return found - {None, "__version__"}


@pytest.mark.parametrize("file", FILES, ids=IDS)
def test_imports_point_downwards(file):
    own = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    assert imported(ast.walk(ast.parse(file.read_text()))) - {own} <= set(ROOMS[: ROOMS.index(own)])


@pytest.mark.parametrize("file", FILES, ids=IDS)
def test_functions_import_only_where_it_is_worth_it(file):
    name = str(file.relative_to(PACKAGE))
    functions = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)]
    late = imported(node for function in functions for node in ast.walk(function))
    assert bool(late) if name in LATE_FILES else not late or name.split("/")[0] in LATE


def test_no_two_classes_have_one_name():
    assert homonyms(PACKAGE)[0] == {}


def test_folders_are_few_and_none_is_full():
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert {folder.name for folder in folders if folder.parent == PACKAGE} == set(ROOMS) - LOOSE
    assert {path.stem for path in PACKAGE.glob("*.py")} == {"__init__", *LOOSE}
    assert [folder for folder in folders if len(list(folder.glob("*.py"))) > MOST_FILES] == []


HEAVY = {"torch", "deepspeed", "h5py", "faiss", "webdataset", "matplotlib", "numpy", "PIL"}
LIGHT = ("errors/*", "files/atomic.py", "config/*.py", "runs/*", "pipeline/*", "launch/*", "launch/*/*", "commands/*")
LIGHT += ("stages/*/*.py", "cli.py")
"""What the login node runs, but for jobs; it does not wait for the modules above when it is imported."""


def test_what_the_login_node_runs_imports_nothing_heavy():
    package = Package(REPOSITORY)
    light = {file for pattern in LIGHT for file in PACKAGE.glob(pattern) if file.suffix == ".py"}
    light -= {file for file in light if file.stem.endswith("_job")}
    assert len(light) > 150
    reached = light.union(*(package.reached(file) for file in light))
    heavy = {
        (str(file.relative_to(PACKAGE)), module.partition(".")[0])
        for file in reached
        for node in imported_when_loaded(ast.parse(file.read_text()).body)
        for module in modules_of(node)
        if module.partition(".")[0] in HEAVY
    }
    assert heavy == set()


def test_no_room_is_in_a_circle():
    rooms = Package(REPOSITORY).rooms()
    assert {name for floor in floors(rooms) for name in floor} == set(ROOMS)


def heavy_modules(code: str, *also: str) -> str:
    done = python(f"{code}\nimport sys\nprint('heavy', sorted({{'torch', *{also!r}}} & sys.modules.keys()))")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_help_imports_nothing_heavy():
    code = "import click\nfrom hpcddm.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert heavy_modules(code, "numpy", "pydantic", "submitit", "PIL") == "heavy []"


STORE = """
import sys
from pathlib import Path
from hpcddm.launch.load_experiment import load_experiment
from hpcddm.launch.submission import store_experiment
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import with_relative_paths
run = RunDir(Path(sys.argv[2]))
store_experiment(with_relative_paths(load_experiment(sys.argv[1]), run), run)
"""


@pytest.mark.parametrize("verb", ["submit", "status"])
def test_looking_at_a_run_imports_no_torch(tmp_path, verb):
    write_source(tmp_path / "images")
    tiny(tmp_path)
    experiment, run = str(tmp_path / "tiny.yaml"), str(tmp_path / "run")
    call = ["submit", experiment, "--site", "embedded", "--dry-run", "--run-dir", run]
    if verb == "status":
        assert python(STORE, experiment, run).returncode == 0
        call = ["status", run]
    code = f"from hpcddm.cli import main\ntry: main({call!r})\nexcept SystemExit as end: assert not end.code, end.code"
    assert heavy_modules(code, "deepspeed", "h5py", "faiss", "webdataset") == "heavy []"


def test_a_training_does_not_import_the_compiler_of_torch_for_an_optimiser_that_it_has_not():
    code = "import torch\nfrom hpcddm.training import deepspeed_patches\n"
    code += "deepspeed_patches.import_deepspeed(torch.device('cpu'))\n"
    code += "from deepspeed.runtime.zero.utils import is_zero_supported_optimizer\n"
    code += "from deepspeed.runtime.zero.muon.muon_optimizer import MuonWithAuxAdam"
    assert heavy_modules(code, "torch._inductor", "torch._dynamo") == "heavy ['torch']"


@pytest.mark.parametrize("module", ["input_gate", "requeue_policy"])
def test_what_a_batch_script_asks_answers_at_once(module):
    """Between the signal and the end of the job there may be seconds."""
    heavy = ("numpy", "pydantic", "submitit", "yaml")
    assert heavy_modules(f"import hpcddm.jobs.{module}", *heavy) == "heavy []"
