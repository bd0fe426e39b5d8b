"""The page about the concepts, alone and as a part of the report, and the sentence that it begins with."""

import functools
import json
import re

import h5py
import numpy as np
import pytest

from hpcddm.evaluation.concepts.summary_text import summarise
from hpcddm.evaluation.report import concept_images, concepts_page
from hpcddm.evaluation.report.concept_facts import MAX_LETTERS, MAX_NEVER, MAX_SHOWN, ConceptFacts, shown_name
from tests.concept_contents import ARM, DENSE, content, pictures
from tests.evaluation.report.test_page import Page, require_whole

HOSTILE = '<script>alert("{}")</script>&amp;\u2028 \U0001f600\ud83d'
NAMES = (HOSTILE, 300 * "w" + " {}", "\u732b\u306e{}", "a\x00\x1b[0m{}")
CASES = {
    "everything": {},
    "nothing scored": {"scored": 0},
    "three scored": {"scored": 3},
    "no monolith": {"dense": False},
    "one expert": {"experts": 1},
    "two experts": {"experts": 2},
    "many experts": {"experts": 20, "scored": 12},
}


@functools.cache
def facts(case):
    return ConceptFacts(content(**CASES[case]))


@functools.cache
def rendered(case):
    made = facts(case)
    return concepts_page.render(made, pictures(made.content, made.pictured()))


def estimate(value, half=0.1):
    return {"value": value, "low": value - half, "high": value + half}


def fits(home, total, gain=None, slope=0.5, runs=1, spread=0.0):
    """Fits whose partial correlations are these; gain, spread: of the ensemble less the monolith."""

    def against(home, total):
        return {"concepts": 40, "comparison": {"home_given_total": estimate(home), "total_given_home": estimate(total)}}

    found = {"top-2": against(home, total)} | ({} if gain is None else {"top-2 minus monolith": against(gain, spread)})
    curve = {"fit": {"slope": estimate(slope)}, "concepts": 41, "effective_concepts": 12.6}
    arms = {"top-2": {"total": curve}}
    return {"runs": runs, "against": found, "arms": arms}


@pytest.mark.parametrize(
    "given, headline",
    [
        ((0.3, 0.0, 0.3), "What counts is the frequency inside the expert."),
        ((0.3, -0.3, 0.3), "What counts is the frequency inside the expert."),
        ((0.3, 0.3, 0.3), "Both frequencies count."),
        ((0.3, 0.0, 0.05), "This run cannot tell: concepts of one expert are drawn better, but may just be easy."),
        ((0.3, 0.0, None), "What counts is the frequency inside the expert, unless concepts of one expert are just "),
        ((0.0, 0.3, 0.3, 0.5, 1, 0.3), "What counts is the frequency in all the data."),
        ((0.0, 0.3, 0.3), "This run cannot tell: concepts of many experts are drawn better, but may just be easy."),
        ((-0.3, 0.3, None), "What counts is the frequency in all the data, unless concepts of many experts are just "),
        ((0.05, -0.05, 0.3), "This run cannot tell: frequent concepts are drawn better, but frequent in all and in"),
        ((0.0, 0.0, 0.3, 0.05), "This run cannot tell: frequent concepts are not drawn better for sure."),
        ((0.0, 0.0, None, 0.05, 3), "These 3 runs cannot tell: frequent concepts are not drawn better for sure."),
    ],
)  # fmt: skip
def test_the_answer_follows_from_intervals_that_do_not_hold_zero(given, headline):
    told = summarise(fits(*given), "top-2", "top-2 minus monolith")
    assert told.headline.startswith(headline)
    assert f"partial r {given[0]:+.2f} ({given[0] - 0.1:+.2f} to {given[0] + 0.1:+.2f})" in told.reasons[0]
    assert ("No monolith says" in told.text) == (given[2] is None) and "over 40 concepts" in told.text
    assert told.text.endswith("They share captions: their mean is as certain as that of at least 13.")


@pytest.mark.parametrize("case", CASES)
def test_the_page_is_whole_and_self_contained(case):
    made, parsed = facts(case), require_whole(rendered(case))
    assert made.answer.headline in parsed.text and all(reason in parsed.text for reason in made.answer.reasons)
    shown = sum(len(made.pictured()[row.concept]) for row in (*made.worst, *made.never[:MAX_NEVER]))
    assert len(parsed.all("img")) == shown and shown <= 4 * (MAX_SHOWN + MAX_NEVER)


def test_a_page_of_equal_contents_is_equal_to_the_byte_and_that_of_a_file_too(tmp_path):
    again = ConceptFacts(json.loads(json.dumps(content())))
    text = concepts_page.render(again, pictures(again.content, again.pictured()))
    (tmp_path / "concepts.html").write_text(text)
    assert (tmp_path / "concepts.html").read_text() == rendered("everything")


def test_the_curve_says_its_numbers_with_the_zeros_apart():
    made = facts("everything").content
    said = next(svg["aria-label"] for svg in Page(rendered("everything")).all("svg"))
    for arm in (ARM, DENSE):
        curve = made["fits"]["arms"][arm]["total"]
        slope, zeros = curve["fit"]["slope"], curve["zeros"]
        slope_said = f"slope per decade {slope['value']:+.2f} ({slope['low']:+.2f}"
        assert f"{arm}, {curve['concepts']} concepts: {slope_said}" in said
        assert f"never: {zeros['score']['value']:.2f}" in said and f"n {zeros['concepts']}." in said
    assert curve["concepts"] + zeros["concepts"] == len(facts("everything").scored)


def test_what_is_shown_of_concepts_experts_and_proposal():
    made, text = facts("everything"), Page(rendered("everything")).text
    order = [row.relative(ARM) for row in made.occurring]
    assert order == sorted(order) and made.worst == made.occurring[:MAX_SHOWN]
    assert all(row.frequency for row in made.worst)
    for row in made.worst:
        assert f"{row.name} {row.frequency:,} samples, {row.share_at_home:.0%} in {row.home}" in text
        assert f"{row.relative(ARM):.2f}" in text
    split = made.split[0]
    assert f"{split.name} {split.frequency:,} {split.share_at_home:.0%}" in text
    assert all(f"expert {expert}: {count:,}" in text for expert, count in enumerate(split.experts) if count)
    assert "starving: 0, with less than half of the mean" in text and "120 training and 11 held-out" in text
    assert "table: {file: RUN/concept_analysis/proposal.csv}" in text and "4 experts" not in text


def test_what_is_missing_is_not_shown():
    nothing, alone = Page(rendered("nothing scored")).text, Page(rendered("one expert")).text
    assert "No concept has a score by top-2." in nothing and "Worst drawn" not in nothing
    assert "The proposal moves no sample" in nothing and "The proposal moves no sample" in alone
    assert "Split across experts <" not in alone and "Alignment" not in alone and "none starves" in alone
    assert DENSE not in Page(rendered("no monolith")).text.replace("No monolith says", "")
    assert "a fit needs 4 concepts" in rendered("three scored")


@pytest.mark.parametrize(
    "alignment, wanted, missing",
    [
        ({"left_out": "some experts are missing"}, ["Left out: some experts are missing."], "Error by noise level"),
        ({"distances": None, "reason": "no features"}, ["Left out: no features.", "Error by noise level"],
         "Distance to the clusters"),
    ],
)  # fmt: skip
def test_alignment_says_what_it_leaves_out(alignment, wanted, missing):
    known = content(scored=8)
    changed = alignment if "left_out" in alignment else known["alignment"] | alignment
    text = Page(concepts_page.render(ConceptFacts(known | {"alignment": changed}), {})).text
    assert all(words in text for words in wanted) and missing not in text


def test_names_are_escaped_cut_and_printable():
    known = content(scored=8) | {"experiment": HOSTILE, "alignment": None}
    for number, row in enumerate(known["concepts"]):
        row["name"] = NAMES[number % len(NAMES)].format(number)
    made = ConceptFacts(known)
    text = concepts_page.render(made, pictures(made.content, made.pictured()))
    told, shown = Page(text).text, [" ".join(shown_name(row.name).split()) for row in (*made.worst, *made.split)]
    assert text.isascii() and "<script" not in text
    assert not re.search("&#(0|27|8232|55357);", text.partition("<main>")[2])
    assert all(name in told and len(name) <= MAX_LETTERS for name in shown)
    assert all(any(start in name for name in shown) for start in ("<script>", "www...", "\u732b", r"a\x00\x1b[0m"))


def test_pictures_are_gathered_under_the_names_of_the_arms(tmp_path):
    made = facts("everything")
    every = pictures(made.content, made.pictured())
    stored = {concept: {place: every[concept][arm] for arm, place in arms} for concept, arms in made.pictured().items()}
    halves = [dict(list(stored.items())[part::2]) for part in range(2)]
    for part, half in enumerate(halves):
        concept_images.write(half | {999: {"real": np.zeros((1, 2, 2, 1), np.uint8)}}, tmp_path / f"{part}.h5")
    gathered = concept_images.gather([tmp_path / "0.h5", tmp_path / "1.h5"], made.pictured())
    concept_images.write(gathered, tmp_path / "page_images.h5")
    again = concept_images.read(tmp_path / "page_images.h5")
    assert again.keys() == every.keys() and "home" in again[made.worst[0].concept]
    assert all((again[one][arm] == every[one][arm]).all() for one in every for arm in every[one])
    with h5py.File(tmp_path / "0.h5") as file:
        assert any(arm.startswith("expert-") for arm in file)
    assert concepts_page.render(made, again) == rendered("everything")
