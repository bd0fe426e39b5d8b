"""Rows and analysis of the budget curve: python -m tests.benchmarks.budget rows | choose | table | fit | ...

The protocol is in docs/results/budget-protocol.md, the rows in docs/results/budget.csv.
"""

import signal
from collections.abc import Iterable
from pathlib import Path

from hpcddm.config.experiment import Experiment
from hpcddm.errors import UserError
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.sweep_index import read_index
from hpcddm.stages.evaluation.draw import arm_names
from tests.benchmarks import budget_curve, budget_figure, budget_tables, budget_tuning
from tests.benchmarks.budget_curve import CURVE_SWEEPS, Row
from tests.benchmarks.budget_rows import add, budget_of, recipe_of, rows_of, shown_arm, wall_seconds
from tests.benchmarks.budget_tuning import TUNED_BUDGET
from tests.benchmarks.tables import parser_of, run_main

ROWS = Path("docs/results/budget.csv")
ANALYSES = {
    "table": ("ratios to the monolith by three rulers; figures and FLOPs", budget_tables.table),
    "fit": ("where each arm is behind the monolith or ahead", budget_tables.fit),
    "ways": ("one expert per trajectory beside the other ways of drawing", budget_tables.ways),
    "rulers": ("where the rulers order arms alike", budget_tables.rulers),
}
"""What is said of the chosen rows, by verb: its help, and its function."""


def check_recipe(experiment: Experiment, known: Iterable[Row]) -> None:
    """Raise `UserError` where an arm of the curve is not trained, or not guided, as the tuning chose.

    An arm is drawn at the scale that was best where trainings were chosen, and at the best one of its budget.
    """
    choices = budget_tuning.chosen(known)
    for arm in arm_names(experiment):
        experts, *recipe = recipe_of(experiment, arm)
        planned, choice = (*recipe, experiment.evaluate.guidance), budget_tuning.choice_for(choices, experts)
        budgets = TUNED_BUDGET, budget_of(experiment)
        wanted = [choice.planned(shown_arm(experiment, arm), budget) for budget in budgets]
        if planned not in wanted:
            raise UserError(
                f"K={experts} {arm}: learning rate, batch, guidance are {planned}, and the tuning chose {wanted[0]} for"
                f" all budgets, {wanted[1]} for this one; write that into {' and '.join(CURVE_SWEEPS)}"
            )


def add_rows(runs: list[Path], file: Path) -> None:
    """Add the rows of finished runs of one sweep, or print by how much they differ from known ones."""
    known, seconds = budget_curve.read(file).values(), wall_seconds(map(RunDir, runs))
    for run in map(RunDir, runs):
        sweep = read_index(RunDir(run.root.resolve().parent)).name
        if sweep in CURVE_SWEEPS:
            check_recipe(stored_experiment(run), known)
        for remark in add(rows_of(sweep, run, seconds, sweep in CURVE_SWEEPS), file):
            print(remark)


def main() -> None:
    """Call what one of the verbs names."""
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=Path, default=ROWS, help="the file of the rows")
    verbs = parser.add_subparsers(dest="verb", required=True)
    finished = verbs.add_parser("rows", help="rows of finished runs, or by how much they differ from known ones")
    finished.add_argument("runs", nargs="+", type=Path, help="runs of one sweep")
    verbs.add_parser("choose", help="trainings and guidance scales of the tuning, the best first")
    for verb, (text, _) in ANALYSES.items():
        own = verbs.add_parser(verb, help=text)
        own.add_argument("--one-scale", action="store_true", help=f"scales of {TUNED_BUDGET:,} images at all budgets")
    figure = verbs.add_parser("figure", help="ratios by FD and Lite0's KID, as a file")
    figure.add_argument("file", type=Path, help="a PDF, PNG or SVG")
    given = parser.parse_args()
    known = budget_curve.read(given.rows).values()
    if given.verb == "rows":
        add_rows(given.runs, given.rows)
    elif given.verb == "choose":
        budget_tuning.choose(known)
    elif given.verb == "figure":
        budget_figure.draw(budget_tuning.of_choice(known), given.file)
    else:
        ANALYSES[given.verb][1](budget_tuning.of_choice(known, given.one_scale))


if __name__ == "__main__":
    # A reader such as head may leave before the end.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    run_main(main)
