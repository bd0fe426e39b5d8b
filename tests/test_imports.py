"""Imports point one way, and nothing on the login node waits for torch."""

import ast

import pytest

from tests.helpers import REPOSITORY, python, tiny, write_source

PACKAGE = REPOSITORY / "hpcddm"

BELOW = {"errors", "exit_codes", "printing", "next_step"}
GROUND = BELOW | {"files", "config"}
FOUNDATION = GROUND | {"runs", "jobs"}
NUMERIC = FOUNDATION | {"data", "pipeline", "tensors"}
MAY_IMPORT = {
    "exit_codes": set(),
    "printing": set(),
    "errors": {"exit_codes", "printing"},
    "next_step": {"printing"},
    "files": BELOW,
    "config": BELOW | {"files"},
    "runs": GROUND,
    "fetched": GROUND,
    "tensors": {"errors", "files"},
    "pipeline": GROUND | {"runs"},
    "jobs": GROUND | {"runs", "pipeline"},
    "data": FOUNDATION | {"pipeline"},
    "spaces": NUMERIC | {"encoders"},
    "objectives": NUMERIC,
    "models": NUMERIC | {"encoders", "spaces"},
    "encoders": NUMERIC,
    "conditions": NUMERIC | {"encoders"},
    "clustering": NUMERIC,
    "metrics": {"config"},
    "uncertainty": set(),
    "training": NUMERIC | {"objectives", "models"},
    "ensemble": NUMERIC | {"spaces", "objectives", "models", "metrics", "training"},
    "networks": NUMERIC
    | {"spaces", "conditions", "objectives", "models", "encoders", "metrics", "training", "ensemble"},
    "concepts": NUMERIC | {"encoders", "models", "metrics", "spaces", "networks", "fetched", "uncertainty"},
    "missing_images": GROUND | {"fetched"},
    "defaults": GROUND,
    "loading": GROUND | {"fetched", "defaults"},
    "run_defaults": GROUND | {"runs", "defaults", "loading"},
    "unit_states": FOUNDATION | {"pipeline"},
    "arms": FOUNDATION | {"pipeline", "unit_states"},
    "api": NUMERIC | {"arms", "conditions", "spaces", "ensemble", "networks", "unit_states"},
    "sweep": FOUNDATION | {"pipeline", "unit_states", "loading", "metrics", "defaults", "launch"},
    "launch": FOUNDATION | {"pipeline", "unit_states", "missing_images"},
    "checks": set(),
    "selftest": FOUNDATION | {"checks", "launch"},
    "commands": FOUNDATION
    | {"pipeline", "unit_states", "loading", "sweep", "launch", "selftest", "checks", "metrics", "arms", "fetched"}
    | {"run_defaults", "missing_images"},
    "cli": BELOW,
    "report": GROUND | {"runs", "metrics", "pipeline", "networks", "concepts"},
    "stages": NUMERIC
    | {"objectives", "models", "encoders", "clustering", "metrics", "training", "ensemble", "networks", "report"}
    | {"spaces", "conditions", "sweep", "concepts"},
    "planning": NUMERIC | {"models", "conditions", "encoders", "spaces", "training", "ensemble", "networks"},
}
LATE = {
    "defaults": {"data"},
    "launch": {"data", "networks"},
    "selftest": {"training"},
    "commands": {"report", "objectives", "networks", "planning", "models", "conditions", "api"} | {"data", "concepts"},
}
"""What a room may import inside a function only: it costs time, or needs torch, when it is used."""

FILES = sorted(file for file in PACKAGE.rglob("*.py") if file.name != "__init__.py" or file.stat().st_size)


def room(module: str) -> str | None:
    """The room of 'hpcddm.data.tar' is 'data'; None for foreign modules and for the version."""
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


def for_checkers_only(statement: ast.stmt) -> bool:
    """True for 'if TYPE_CHECKING', whose imports are never executed."""
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_one_way(file):
    own = room("hpcddm." + ".".join(file.relative_to(PACKAGE).with_suffix("").parts))
    if own == "__init__":
        return
    tree = ast.parse(file.read_text())
    inside = [
        node for function in ast.walk(tree) if isinstance(function, ast.FunctionDef) for node in ast.walk(function)
    ]
    checked = [node for block in tree.body if for_checkers_only(block) for node in ast.walk(block)]
    late = {id(node) for node in inside + checked}
    allowed = MAY_IMPORT[own] | {own}
    assert imported(node for node in ast.walk(tree) if id(node) not in late) <= allowed
    assert imported(inside) <= allowed | LATE.get(own, set())


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
from hpcddm.runs.layout import RunDir
from hpcddm.runs.stored_experiment import within_run
run = RunDir(Path(sys.argv[2]))
store_experiment(within_run(load_experiment(sys.argv[1]), run), run)
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
    code = "import torch; from hpcddm.training import corrections; corrections.import_deepspeed(torch.device('cpu'))\n"
    code += "from deepspeed.runtime.zero.utils import is_zero_supported_optimizer\n"
    code += "from deepspeed.runtime.zero.muon.muon_optimizer import MuonWithAuxAdam"
    assert heavy_modules(code, "torch._inductor", "torch._dynamo") == "heavy ['torch']"


@pytest.mark.parametrize("module", ["input_gate", "requeue_policy"])
def test_what_a_batch_script_asks_answers_at_once(module):
    """Between the signal and the end of the job there may be seconds."""
    heavy = ("numpy", "pydantic", "submitit", "yaml")
    assert heavy_modules(f"import hpcddm.jobs.{module}", *heavy) == "heavy []"
