"""Concepts of a finished run of Fashion-MNIST, by its classes: only what is new is made, and the report shows it."""

import json
import shutil

import h5py
import numpy as np
import polars
import pytest

from hpcddm.runs import manifest
from hpcddm.runs.run_dir import RunDir
from tests.whole_runs import TINY, hpcddm

CONCEPTS = "concepts={vocabulary: {name: labels}, tagger: {name: labels}, samples: 4, min_real: 50}"
CLASSES = 10


@pytest.fixture(scope="module")
def counted(finished, two_ranks, tmp_path_factory):
    """The run with its concepts, and what submitting them said."""
    run = shutil.copytree(finished, tmp_path_factory.mktemp("concepts") / "run")
    done = hpcddm("submit", "quickstart", "--site", two_ranks, "--run-dir", run, *TINY, CONCEPTS, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return RunDir(run), done.stdout


def content_of(counted):
    return json.loads((counted[0].unit("concept_analysis/all") / "concepts.json").read_text())


def test_nothing_is_trained_again(counted, finished):
    run, said = counted
    assert "train/" not in said and "router/" not in said
    assert (
        manifest.read(run.unit("train/expert-00")).digest
        == manifest.read(RunDir(finished).unit("train/expert-00")).digest
    )


def test_classes_are_counted_by_expert(counted):
    run, content = counted[0], content_of(counted)
    lists = manifest.read(run.unit("expert_lists/all")).results["lists"]
    counts = np.array([row["experts"] for row in content["concepts"]])
    assert counts.shape == (CLASSES, len(lists)) and content["concepts"][9]["name"] == "Ankle boot"
    assert counts.T.tolist() == [own["class_counts"] for own in lists.values()]
    for row in content["concepts"]:
        assert row["frequency"] == sum(row["experts"]) and row["at_home"] == max(row["experts"])


def test_every_class_is_scored_in_every_arm_beside_real_images(counted):
    content = content_of(counted)
    arms = {"monolith", "top-1", "home"}
    seen = [row for row in content["concepts"] if "top-1" in row["scores"]]
    assert len(seen) >= 8, "of the others the classifier does not tell real images, and nothing is drawn"
    for row in seen:
        assert (
            set(row["scores"]) == arms | {"real", "others", "prompts", "train"}
            and row["scores"]["top-1"]["images"] == 4
        )
        assert row["scores"]["real"]["different"] == row["scores"]["real"]["images"] == 64
        assert row["scores"]["real"]["score"] > row["scores"]["others"]["score"]
        assert np.isfinite(row["scores"]["top-1"]["kid"]) and 0 <= row["scores"]["top-1"]["home_usage"] <= 1
        assert row["scores"]["monolith"]["relative"] is not None


def test_the_page_shows_what_was_drawn_beside_real_images(counted):
    folder = counted[0].unit("concept_analysis/all")
    with h5py.File(folder / "page_images.h5") as file:
        assert set(file) == {"real", "monolith", "top-1", "home"}
        assert all(images.shape == (4, 28, 28, 1) for arm in file.values() for images in arm.values())
    page = (folder / "concepts.html").read_text()
    assert page.count("data:image/png;base64,") > 8 and "://" not in page


def test_equally_frequent_classes_tell_nothing_of_frequency_and_the_fits_say_so(counted):
    fits = content_of(counted)["fits"]
    assert {row["frequency"] for row in content_of(counted)["concepts"]} == {1400}
    for arm in ("top-1", "monolith", "home", "top-1 minus monolith"):
        assert fits["arms"][arm]["total"]["fit"] is None
        assert "the same frequency" in fits["arms"][arm]["total"]["no_fit"], arm
        assert fits["against"][arm]["comparison"] is None and fits["against"][arm]["not_identified"], arm


def test_tables_and_proposal_are_there_for_other_programs(counted):
    folder = counted[0].unit("concept_analysis/all")
    table = polars.read_parquet(folder / "concepts.parquet")
    assert table.height == CLASSES and table["frequency"].sum() == 14000
    proposal = polars.read_csv(folder / "proposal.csv")
    assert proposal.columns == ["key", "cluster"] and proposal["key"].n_unique() == proposal.height


def test_alignment_compares_the_experts_that_are_asked_with_the_others(counted):
    found = content_of(counted)["alignment"]
    assert all(
        best <= min(own, other)
        for best, own, other in zip(*(found["errors"][name] for name in ("best", "selected", "others")), strict=True)
    )
    assert all(0 <= share <= 1 for share in found["distances"]["top-1"]["nearest_asked"])
