"""The verb concepts: prints which frequency counts, badly drawn concepts and advice, for one run or several seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console

from hpcddm.commands.options import PATH
from hpcddm.commands.terminal import make_table, plain_text, print_table
from hpcddm.errors import ConfigError, UserError
from hpcddm.errors.next_step import command
from hpcddm.errors.printing import echo
from hpcddm.files import atomic
from hpcddm.files.checked_reads import Unreadable
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.pipeline.unit_states import require_complete, survey_units
from hpcddm.runs.files import CONCEPTS_FILE, CONCEPTS_PAGE, CONCEPTS_PARQUET, CONCEPTS_TABLE, PROPOSAL_FILE
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.unit_keys import CONCEPT_ANALYSIS

if TYPE_CHECKING:
    from hpcddm.evaluation.concepts.concept_table import ConceptRow
    from hpcddm.evaluation.report.concept_facts import ConceptFacts

UNDERLINED: dict[str, Any] = {"box": box.SIMPLE, "padding": (0, 1, 0, 0)}
"""Form of the tables, with a line below the names of the columns."""
MUST_AGREE = {
    "frequency": "concepts.frequency",
    "arm": "the first strategy",
    "dense": "the monolith",
    "settings": "the key 'concepts'",
}
"""Keys of concepts.json that must agree among several runs, besides the vocabulary, and their names in messages."""


@click.command()
@click.argument("roots", nargs=-1, required=True, type=PATH, metavar="RUN...")
@click.option("--json", "json_file", type=PATH, metavar="FILE", help="Also write the results.")
def concepts(roots: Sequence[Path], json_file: Path | None) -> None:
    """Test which frequency of a concept determines its image quality.

    This is the frequency in the whole data set, or in the expert that serves the concept. Several RUNs, which must
    differ in their seeds, are fitted together.

    \b
    Example: hpcddm concepts runs/emoji-0 runs/emoji-1 runs/emoji-2 --json concepts.json
    Next:    the page and the proposal that it names for one run
    """
    from hpcddm.evaluation.concepts import analysis
    from hpcddm.evaluation.report.concept_facts import ConceptFacts

    files = [_file(RunDir(root)) for root in roots]
    try:
        known = [ConceptFacts.read(file) for file in files]
    except Unreadable as error:
        raise UserError(f"{error.path}: {error.reason}; submit again with --redo concept_analysis") from None
    contents = [facts.content for facts in known]
    _check_alike(roots, contents)
    first = ConceptFacts({**contents[0], "fits": analysis.fits(contents)}) if len(contents) > 1 else known[0]
    _print_fits(first)
    if len(contents) == 1:
        _print_concepts(first)
        _print_advice(first, roots[0])
    else:
        echo("each run alone:", *(f"  {command('hpcddm', 'concepts', root)}" for root in roots))
    if json_file:
        atomic.write_json(json_file, _as_json(roots, contents, first))
        echo(f"written: {json_file}")


def _file(run: RunDir) -> Path:
    """Return the file of a run; raises `UserError` with the next command where its stage is not complete."""
    experiment = stored_experiment(run)
    if experiment.concepts is None:
        raise UserError(
            f"{run.root}: its experiment has no key 'concepts'; add it (docs/concepts.md), and submit again"
        )
    require_complete(survey_units(plan_units(experiment), run), run, CONCEPT_ANALYSIS)
    return run.output(CONCEPT_ANALYSIS, CONCEPTS_FILE)


def _check_alike(roots: Sequence[Path], contents: Sequence[Mapping[str, Any]]) -> None:
    """Raise `ConfigError` for runs with different counts, or for a run given twice."""
    if len({root.resolve() for root in roots}) < len(roots):
        raise ConfigError("a run is given twice; several runs must differ in their seeds")
    seeds = [content["seed"] for content in contents]
    if repeated := sorted({seed for seed in seeds if seeds.count(seed) > 1}):
        named = ", ".join(map(str, repeated))
        echo(f"warning: several runs have seed {named}: they add no information to one of them", err=True)
    for root, content in zip(roots[1:], contents[1:], strict=True):
        for key, what in MUST_AGREE.items():
            if content[key] != contents[0][key]:
                both = f"{contents[0][key]} in {roots[0]}, {content[key]} in {root}"
                raise ConfigError(f"these runs do not compare: {what} is {both}")
        names = [[row["name"] for row in one["concepts"]] for one in (contents[0], content)]
        if names[0] != names[1]:
            sizes = f"{len(names[0]):,} and {len(names[1]):,} concepts"
            reason = f"{roots[0]} and {root} have different vocabularies ({sizes})"
            advice = "give both the same concepts.vocabulary and data"
            raise ConfigError(f"these runs do not compare: {reason}; {advice}")


def _print_fits(facts: "ConceptFacts") -> None:
    """Print the answer, the table of all arms, and the means by half decade."""
    from hpcddm.evaluation.report.concept_facts import FIT_COLUMNS

    Console().print(plain_text(facts.answer.headline, style="bold"), soft_wrap=True)
    echo(*(f"  {reason}" for reason in facts.answer.reasons))
    if not facts.fitted:
        return
    runs = facts.content["fits"]["runs"]
    title = f"relative score and frequency, {runs} {'run' if runs == 1 else 'runs'}, 95 % intervals"
    fits = ([arm, *(row[column] for column in FIT_COLUMNS)] for arm, row in facts.fit_rows().items())
    columns = [name.replace(", ", ",\n") for name in FIT_COLUMNS.values()]
    print_table(make_table(["arm", *columns], fits, ["arm"], title, **UNDERLINED))
    title = "mean relative score by frequency in all data; concepts that never occur are in no fit"
    shown = [arm for arm in facts.arms if arm in facts.fitted]
    bins = ([row["label"], row["concepts"], *(row.get(arm, "-") for arm in shown)] for row in facts.bins())
    samples = "training samples"
    print_table(make_table([samples, "n", *shown], bins, [samples], title, **UNDERLINED))


def _print_concepts(facts: "ConceptFacts") -> None:
    """Print the worst drawn and the split concepts."""
    from hpcddm.evaluation.report.concept_facts import MAX_NEVER, MAX_SPLIT

    if facts.indistinct:
        echo(f"{facts.indistinct} concepts were drawn and have no score: real images of them do not stand out")
    for title, rows in (
        (f"worst drawn of {len(facts.occurring)} concepts with a score, by {facts.arm}", facts.worst),
        (f"never in the training data: the worst of {len(facts.never)}", facts.never[:MAX_NEVER]),
        (f"split across experts, the most frequent of {len(facts.split)}", facts.split[:MAX_SPLIT]),
    ):
        if rows:
            _print_rows(facts, title, rows)


def _print_rows(facts: "ConceptFacts", title: str, rows: Sequence["ConceptRow"]) -> None:
    from hpcddm.evaluation.concepts.concept_table import HOME_ARM
    from hpcddm.evaluation.report.concept_facts import shown_name, title_of

    arms = [*facts.arms, HOME_ARM]
    cells = []
    for row in rows:
        share = "-" if row.share_at_home is None else f"{row.share_at_home:.0%}"
        scores = ["-" if (score := row.relative(arm)) is None else f"{score:.2f}" for arm in arms]
        home = "-" if row.home is None else str(row.home)
        cells.append([shown_name(row.name), f"{row.frequency:,}", home, share, *scores])
    columns = ("concept", "samples", "expert", "of them", *map(title_of, arms))
    table = make_table(columns, cells, ["concept"], title, **UNDERLINED)
    table.columns[0].max_width = 40
    print_table(table)


def _print_advice(facts: "ConceptFacts", root: Path) -> None:
    """Print starving experts, the proposal with its command, and the paths of the files."""
    run, starving = RunDir(root), ", ".join(map(str, facts.starving))
    echo(f"starving experts: {starving}" if starving else "no expert starves")
    moved = facts.moved
    if sum(moved.values()):
        echo(
            f"proposal: the samples of {len(facts.moved_concepts)} badly drawn concepts to the expert that has most of"
            f" them: {moved['train']:,} training and {moved['heldout']:,} held-out samples move; to try it:"
        )
        table = run.output(CONCEPT_ANALYSIS, PROPOSAL_FILE)
        setting = f"{{name: file, table: {{file: {table.resolve()}}}, column: cluster}}"
        # The paths of the run's experiment are relative to its folder.
        target, clustering = f"{root}-moved", f"cluster.clustering={setting}"
        echo(f"  {command('hpcddm', 'submit', run.experiment, '--run-dir', target, clustering)}")
    else:
        echo("no proposal: no badly drawn concept occurs in several experts")
    echo(f"page {run.output(CONCEPT_ANALYSIS, CONCEPTS_PAGE)}")
    tables = [run.output(CONCEPT_ANALYSIS, name) for name in (CONCEPTS_TABLE, CONCEPTS_PARQUET, CONCEPTS_FILE)]
    echo(f"tables {', '.join(str(table) for table in tables if table.exists())}")


def _as_json(roots: Sequence[Path], contents: Sequence[Mapping[str, Any]], facts: "ConceptFacts") -> dict[str, Any]:
    """Return the results: the answer and its fits, and for a single run also its advice and proposal."""
    same = ("experiment", "frequency", "arm", "dense", *(("advice", "proposal") if len(contents) == 1 else ()))
    return {
        "runs": [str(root) for root in roots],
        "seeds": [content["seed"] for content in contents],
        **{key: contents[0][key] for key in same},
        "answer": {"headline": facts.answer.headline, "reasons": facts.answer.reasons},
        "fits": facts.content["fits"],
    }
