"""Imports point one way, and nothing on the login node waits for torch."""

import ast
from collections import defaultdict

import pytest

from hpcddm.launch.submission import store_experiment
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import with_relative_paths
from tests.helpers import REPOSITORY, python, tiny, write_source
from tests.structure import Package, floors, imported_when_loaded, modules_of

PACKAGE = REPOSITORY / "hpcddm"

ROOMS = (
    *("errors", "randomness", "files", "config", "exchange", "runs", "jobs", "pipeline"),
    *("data", "sources", "clustering", "encoders", "diffusion", "models", "training", "sampling", "evaluation"),
    *("loading", "launch", "collaboration", "stages", "publishing", "api", "commands", "cli"),
)
"""The rooms, lowest first: each may import those before it, and none after it."""
LOOSE = {"api", "cli"}
"""Modules among them that are no folders; the version is in the package's own file."""
LATE = {"commands", "launch", "loading", "collaboration"}
"""Rooms in which functions may import: they wait for torch, numpy or matplotlib only where they need them."""
LATE_FILES = {
    "__init__.py": "opens a run without making `import hpcddm` wait for torch",
    "config/cross_checks.py": "needs numpy for a filter only",
    "clustering/file.py": "its settings are read without its code",
    "runs/manifest.py": "verifies signatures in a run with a contract only",
    "evaluation/sweep_results/outputs.py": "needs matplotlib for a plot only",
}
"""Other files in which a function imports, and why."""
MOST_FILES = 40
"""Most Python files of a folder."""

TREES = {str(file.relative_to(PACKAGE)): ast.parse(file.read_text()) for file in sorted(PACKAGE.rglob("*.py"))}


def room(name: str) -> str:
    """The room of 'data/reader.py' and of 'data.reader' is 'data'."""
    return name.removesuffix(".py").replace("/", ".").split(".")[0]


def imported(nodes) -> set[str]:
    """The rooms that some statements import."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            assert not getattr(node, "level", 0), "imports are absolute"
            # Of 'from hpcddm import api' the second name is a room, of all others it is in one.
            modules = [name for name in modules_of(node) if name.startswith("hpcddm.")]
            found |= {room(name.removeprefix("hpcddm.")) for name in modules}
    return found - {"__version__"}


def test_imports_point_downwards():
    upwards = {
        name: rooms
        for name, tree in TREES.items()
        if (own := room(name)) != "__init__" and (rooms := imported(ast.walk(tree)) - {own, *ROOMS[: ROOMS.index(own)]})
    }
    assert upwards == {}


def test_no_files_import_each_other_not_even_late_or_for_types_alone():
    floors(Package(REPOSITORY).named())


def test_functions_import_only_where_it_is_worth_it():
    late = set()
    for name, tree in TREES.items():
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        if room(name) not in LATE and imported(node for function in functions for node in ast.walk(function)):
            late.add(name)
    assert late == LATE_FILES.keys()


def test_no_two_classes_have_one_name():
    """Unless one derives from another."""
    places = defaultdict(list)
    for name, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name not in map(ast.unparse, node.bases):
                places[node.name].append(name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


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


def heavy_modules(code: str, *also: str) -> str:
    done = python(f"{code}\nimport sys\nprint('heavy', sorted({{'torch', *{also!r}}} & sys.modules.keys()))")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_help_imports_nothing_heavy():
    code = "import click\nfrom hpcddm.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert heavy_modules(code, "numpy", "pydantic", "submitit", "PIL") == "heavy []"


@pytest.mark.parametrize("verb", ["submit", "status"])
def test_looking_at_a_run_imports_no_torch(tmp_path, verb):
    write_source(tmp_path / "images")
    experiment, run = tiny(tmp_path), RunDir(tmp_path / "run")
    call = ["submit", str(tmp_path / "tiny.yaml"), "--site", "embedded", "--dry-run", "--run-dir", str(run.root)]
    if verb == "status":
        store_experiment(with_relative_paths(experiment, run), run)
        call = ["status", str(run.root)]
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
