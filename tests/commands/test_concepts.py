"""The verb concepts: the answer of a run, or of several together, and why there is none."""

import functools
import json

import pytest

from hpcddm.files import atomic
from hpcddm.launch.submission import store_experiment
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CONCEPT_ANALYSIS
from tests.concept_contents import content
from tests.helpers import finish, hpcddm, tiny

COUNTED = {"vocabulary": {"name": "labels"}, "tagger": {"name": "labels"}}
made = functools.cache(content)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs whose stages are complete, and one that counts no concepts."""
    folder = tmp_path_factory.mktemp("concepts")
    made_runs = [RunDir(folder / name) for name in ("first", "second", "bare")]
    for run, changes in zip(made_runs, ({"concepts": COUNTED}, {"concepts": COUNTED}, {}), strict=True):
        experiment = tiny(folder, **changes)
        store_experiment(experiment, run)
        if changes:
            finish(plan_units(experiment), run)
    return made_runs


def knows(run, content):
    """Let this be the content of a run's concepts.json."""
    atomic.write_json(run.unit(CONCEPT_ANALYSIS) / "concepts.json", content, durable=False)
    return run.root


def said(*arguments, code=0):
    done = hpcddm("concepts", *arguments)
    assert done.exit_code == code, done.output
    return done.output


def row_of(text, name):
    """The words of the first row of a table that begins with a name."""
    return next(line for line in text.splitlines() if line.strip().startswith(f"{name} ")).split()


def test_one_run_is_shown_with_its_concepts_and_its_proposal(runs):
    run, known = runs[0], made()
    text = said(knows(run, known))
    assert text.startswith("What counts is the frequency inside the expert.")
    slope = known["fits"]["arms"]["top-2"]["total"]["fit"]["slope"]
    assert f"{slope['value']:+.2f} ({slope['low']:+.2f} to {slope['high']:+.2f})" in " ".join(row_of(text, "top-2"))
    assert row_of(text, "top-2")[1] == str(known["fits"]["arms"]["top-2"]["total"]["concepts"])
    scored = [row for row in known["concepts"] if row["scores"]]
    never = str(len([row for row in scored if not row["frequency"]]))
    assert row_of(text, "never")[1:4] == [never, "of", never]
    frequent = [row for row in scored if row["frequency"]]
    worst = min(frequent, key=lambda row: row["scores"]["top-2"]["relative"])
    told = row_of(text[text.index("worst drawn") :], worst["name"])
    assert told[2:4] == [f"{worst['frequency']:,}", str(worst["home"])]
    assert told[5] == f"{worst['scores']['top-2']['relative']:.2f}"
    assert "starving experts: 0" in text and "120 training and 11 held-out samples move" in text
    table = run.unit(CONCEPT_ANALYSIS).resolve() / "proposal.csv"
    assert f"'cluster.clustering={{name: file, table: {{file: {table}}}, column: cluster}}'" in text
    assert f"page {run.unit(CONCEPT_ANALYSIS)}/concepts.html" in text


def test_several_runs_are_fitted_together_and_written(runs, tmp_path):
    roots = [knows(run, made(seed=seed)) for seed, run in enumerate(runs[:2])]
    text = said(*roots, "--json", tmp_path / "pooled.json")
    pooled = json.loads((tmp_path / "pooled.json").read_text())
    assert pooled["seeds"] == [0, 1] and pooled["runs"] == list(map(str, roots)) and pooled["fits"]["runs"] == 2
    assert pooled["answer"]["headline"] in text and "56 concepts, of each the mean of 2 runs" in text
    assert "relative score and frequency, 2 runs, 95 % intervals" in text and "advice" not in pooled
    assert "warning" not in text and "proposal" not in text
    said(roots[0], "--json", tmp_path / "alone.json")
    alone = json.loads((tmp_path / "alone.json").read_text())
    assert alone["fits"] == json.loads(json.dumps(made(seed=0)["fits"])) != pooled["fits"]


def test_runs_of_one_seed_are_warned_of(runs):
    assert "warning: several runs have seed 0" in said(*(knows(run, made()) for run in runs[:2]))


LACKING = [
    ({"scored": 0}, "This run cannot tell.\n  No concept has a score by top-2."),
    ({"dense": False}, "unless concepts of one expert are just easy"),
    ({"experts": 1}, "This run cannot tell: "),
    ({"experts": 2}, "What counts is"),
    ({"noise": 3.0}, "This run cannot tell: frequent concepts are not drawn better for sure."),
]


@pytest.mark.parametrize("known, wanted", LACKING)
def test_what_a_run_lacks_is_said(runs, known, wanted):
    assert wanted in said(knows(runs[0], made(**known)))


def test_names_that_are_no_words_are_shown(runs):
    named = "[red]\x1b[31m\ud83d \u2028" + 60 * "\u732b " + "{}"
    text = said(knows(runs[0], made(named=named)))
    assert r"[red]\x1b[31m\ud83d  " in text and "\x1b[31m" not in text


OTHERS = [
    ({"concepts": None}, "different vocabularies (90 and 91 concepts)"),
    ({"frequency": "text"}, "concepts.frequency is joint in"),
    ({"arm": "top-1"}, "the first strategy is top-2 in"),
    ({"dense": None}, "the monolith is monolith in"),
]


@pytest.mark.parametrize("other, wanted", OTHERS)
def test_runs_that_do_not_compare_are_refused(runs, other, wanted):
    content = made(concepts=91) if "concepts" in other else made() | other
    first, second = knows(runs[0], made()), knows(runs[1], content)
    text = said(first, second, code=2)
    assert wanted in text and str(second) in text and "Traceback" not in text


def test_a_run_given_twice_is_refused(runs):
    root = knows(runs[0], made())
    assert "a run is given twice" in said(root, root / ".", code=2)


def test_what_is_not_there_is_said_with_the_next_command(runs, tmp_path):
    _, run, bare = runs
    assert f"{bare.root}: its experiment has no key 'concepts'" in said(bare.root, code=1)
    (run.unit(CONCEPT_ANALYSIS) / "concepts.json").write_text("{")
    assert "concepts.json: holds no usable JSON (" in said(run.root, code=1)
    (run.unit(CONCEPT_ANALYSIS) / "manifest.json").unlink()
    assert f"concept_analysis/all is missing; next: hpcddm status {run.root}" in said(run.root, code=1)
    assert "no run here" in said(tmp_path, code=2)


def at(content, *place):
    """The mapping or list at a place of a copy of the content."""
    for key in place:
        content = content[key]
    return content


DAMAGED = {
    "another type": lambda known: known.update(concepts=5),
    "a row of text": lambda known: known["concepts"].__setitem__(3, "text"),
    "a number as text": lambda known: at(known, "concepts", 0).update(frequency="lots"),
    "counts that do not add up": lambda known: at(known, "concepts", 0).update(frequency=1),
    "no such expert": lambda known: at(known, "concepts", 0).update(home=99),
    "a score without end": lambda known: at(known, "concepts", 0, "scores", "top-2").update(relative=1e300),
    "rows in another order": lambda known: known["concepts"].reverse(),
    "a row too few": lambda known: known["concepts"].pop(0),
    "no such concept": lambda known: at(known, "advice").update(split=[10**6]),
    "another kind of frequency": lambda known: known.update(frequency="any"),
    "an expert without number": lambda known: at(known, "advice", "experts", 0).pop("expert"),
    "a split too few": lambda known: at(known, "proposal").update(moved={"train": 1}),
    "a line too short": lambda known: at(known, "alignment", "errors").update(best=[1.0]),
    "nothing": lambda known: known.clear(),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_file_of_another_content_is_one_line_that_names_it(runs, case):
    known = json.loads(json.dumps(made()))
    DAMAGED[case](known)
    text = said(knows(runs[0], known), code=1)
    assert "concept_analysis/concepts.json: holds no usable JSON (" in text and "--redo concept_analysis" in text
    assert len(text.splitlines()) == 1


def test_fits_are_made_of_the_table_whatever_the_file_has(runs):
    before = said(knows(runs[0], made()))
    assert said(knows(runs[0], made() | {"fits": {"runs": "none"}})) == before
