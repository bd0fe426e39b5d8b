"""Counts of concepts by cluster: exact for any cut into ranges, and against counting by hand."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcddm.config.concepts import ConceptSettings
from hpcddm.data.column_files import write_columns
from hpcddm.data.columns import Column, RaggedColumn
from hpcddm.evaluation.concepts import concept_selection
from hpcddm.evaluation.concepts.counting import Counts
from hpcddm.evaluation.concepts.presence import IMAGE, JOINT, TAG_SCORE, TAGGED, TEXT, Presence

CONCEPTS, CLUSTERS, SAMPLES = 6, 3, 40
THRESHOLDS = np.array([0.1, 0.1, 0.5, 0.5, np.inf, 0.3], np.float32)


def made(folder, seed=0, parts=(SAMPLES,)):
    """Mentions and tags of random samples in files of some parts, and what they are, sample by sample."""
    generator = np.random.default_rng(seed)
    mentioned = [np.flatnonzero(generator.random(CONCEPTS) < 0.3).astype("<u4") for _ in range(SAMPLES)]
    scores = generator.random((SAMPLES, CONCEPTS)).astype("<f2")
    shown = [set(np.flatnonzero(row >= THRESHOLDS.astype("<f2"))) for row in scores]
    order = np.argsort(-scores, axis=1, kind="stable").astype("<u4")
    files, start = ([], []), 0
    for number, size in enumerate(parts):
        rows = slice(start, start + size)
        write_columns(folder / f"mentions-{number}.h5", {"concepts": mentioned[rows]})
        tags = {TAGGED: order[rows], TAG_SCORE: np.take_along_axis(scores, order, 1)[rows]}
        write_columns(folder / f"tags-{number}.h5", tags)
        for kind, name in zip(files, ("mentions", "tags"), strict=True):
            kind.append((folder / f"{name}-{number}.h5", size))
        start += size
    mentions, tags = (dict(kind) for kind in files)
    columns = Column(TAGGED, tags), Column(TAG_SCORE, tags)
    return Presence(CONCEPTS, RaggedColumn("concepts", mentions), columns, THRESHOLDS), mentioned, shown


def counted(presence, blocks, clusters):
    counts = Counts.zeros(CONCEPTS, CLUSTERS)
    for start, stop in blocks:
        counts.add(presence.pairs(range(start, stop)), clusters[start:stop])
    return counts


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 99), st.lists(st.integers(1, SAMPLES - 1), max_size=4, unique=True))
def test_counts_are_those_by_hand_for_any_cut(tmp_path_factory, seed, cuts):
    folder = tmp_path_factory.mktemp("counts")
    edges = [0, *sorted(cuts), SAMPLES]
    presence, mentioned, shown = made(folder, seed, np.diff(edges).tolist())
    clusters = np.random.default_rng(seed).integers(0, CLUSTERS, SAMPLES)
    counts = counted(presence, zip(edges, edges[1:], strict=False), clusters)
    for concept in range(CONCEPTS):
        for cluster in range(CLUSTERS):
            own = [number for number in range(SAMPLES) if clusters[number] == cluster]
            text = {number for number in own if concept in mentioned[number]}
            image = {number for number in own if concept in shown[number]}
            found = [counts.table(kind)[concept, cluster] for kind in (TEXT, IMAGE, JOINT)]
            assert found == [len(text), len(image), len(text & image)]
    assert counts.samples.sum() == SAMPLES
    again = counted(presence, [(0, SAMPLES)], clusters)
    assert all((getattr(counts, name) == getattr(again, name)).all() for name in vars(counts))


def test_counts_are_read_as_they_were_written(tmp_path):
    presence, *_ = made(tmp_path)
    counts = counted(presence, [(0, SAMPLES)], np.arange(SAMPLES) % CLUSTERS)
    counts.write(tmp_path / "counts.h5")
    read = Counts.read(tmp_path / "counts.h5")
    assert all((getattr(counts, name) == getattr(read, name)).all() for name in vars(counts))


def test_without_captions_an_image_alone_says_what_it_has(tmp_path):
    presence, _, shown = made(tmp_path)
    pairs = Presence(CONCEPTS, None, presence.tags, THRESHOLDS).pairs(range(SAMPLES))
    found = [set(pairs[JOINT].concepts[pairs[JOINT].samples == number]) for number in range(SAMPLES)]
    assert found == shown and (pairs[TEXT].concepts == pairs[IMAGE].concepts).all()


def test_samples_without_any_concept_leave_the_others_where_they_are(tmp_path):
    nothing, one = np.empty(0, "<u4"), np.array([4], "<u4")
    write_columns(tmp_path / "first.h5", {"concepts": [nothing, nothing]})
    write_columns(tmp_path / "second.h5", {"concepts": [nothing, one, nothing]})
    column = RaggedColumn("concepts", {tmp_path / "first.h5": 2, tmp_path / "second.h5": 3})
    values, lengths = column.flat(range(5))
    assert values.tolist() == [4] and lengths.tolist() == [0, 0, 0, 1, 0]
    assert column.flat(range(4, 5))[1].tolist() == [0] and column.flat(range(2, 2))[1].tolist() == []


def own_settings(**changes):
    return ConceptSettings.model_construct(**{"per_bin": 3, "min_real": 2, "seed": 0} | changes)


def test_as_many_concepts_of_each_bin_are_chosen_and_only_those_with_real_images():
    frequency = np.array([0] * 5 + [1] * 5 + [20] * 5 + [500])
    heldout = np.full(16, 2)
    heldout[10:14] = 1
    chosen = concept_selection.select_concepts(frequency, heldout, own_settings())
    bins = list(chosen.values())
    assert [bins.count(number) for number in (-1, 0, 2, 5)] == [3, 3, 1, 1] and list(chosen) == sorted(chosen)
    assert 14 in chosen, "the only one of its bin that held-out images have"
    assert concept_selection.select_concepts(frequency, heldout, own_settings()) == chosen
    assert concept_selection.select_concepts(frequency, heldout, own_settings(seed=1)) != chosen
