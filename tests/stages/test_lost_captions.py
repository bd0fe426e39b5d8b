"""Captions that are missing or blank, whatever holds them: broken samples, on which nothing is trained."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from hpcddm.data.run_samples import open_catalog
from hpcddm.loading.content_hashes import with_tar_counts
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest, ranges
from hpcddm.runs.unit_keys import CATALOG
from tests.sources.tars.test_existing_tars import encoded, written
from tests.stages.adopting import ADOPTED
from tests.stages.routes import Bench

COUNT = 60
BLANKS = {3: "", 4: " \n\n ", 5: "\ufeff", 6: "\u200b \u00a0"}
CAPTIONS = [BLANKS.get(number, f"picture {number}") for number in range(COUNT)]
HELDOUT = {"heldout": {"share": 0.5}}


def texts_in_tars(root):
    return webdataset(root, [("txt", caption.encode()) for caption in CAPTIONS])


def webdataset(root, members):
    root.mkdir()
    pairs = [
        (f"{number:03d}.{end}", content)
        for number, (end, text) in enumerate(members)
        for end, content in (("png", encoded()), (end, text))
    ]
    written(root / "train.tar", pairs)
    return {"name": "webdataset", "folder": "images", **HELDOUT}


def json_in_tars(root):
    source = webdataset(root, [("json", json.dumps({"text": caption}).encode()) for caption in CAPTIONS])
    return source | {"caption": "json:text"}


def folder(root):
    root.mkdir()
    for number in range(COUNT):
        (root / f"{number:03d}.png").write_bytes(encoded())
    return {"name": "image_folder", "folder": "images", **HELDOUT}


def texts_beside(root):
    source = folder(root)
    for number, caption in enumerate(CAPTIONS):
        (root / f"{number:03d}.txt").write_text(caption)
    return source


def table(root):
    source = folder(root)
    rows = pd.DataFrame({"file": [f"{number:03d}.png" for number in range(COUNT)], "caption": CAPTIONS})
    rows.to_csv(root / "captions.csv", index=False)
    return source


def arrays(root):
    root.mkdir()
    np.savez(root / "all.npz", x=np.zeros((COUNT, 8, 8, 3), np.uint8), texts=np.array(CAPTIONS))
    return {"name": "arrays", "file": "images/all.npz", "images": "x", "captions": "texts", **HELDOUT}


def rows(captions=CAPTIONS, **keys):
    def write_rows(root):
        root.mkdir()
        values = pa.table({"image": [{"bytes": encoded(), "path": None}] * COUNT, "text": captions})
        parquet.write_table(values, root / "train.parquet")
        return {"name": "huggingface", "folder": "images", **HELDOUT, **keys}

    return write_rows


KINDS = {
    "tar, txt": texts_in_tars,
    "tar, json": json_in_tars,
    "folder, .txt": texts_beside,
    "captions.csv": table,
    "arrays": arrays,
    "parquet": rows(),
    "lists in parquet": rows([["other", caption] for caption in CAPTIONS], caption_item=1),
}
"""One of each kind of reader."""


def catalogued(tmp_path, source, **changes):
    """Make the catalog; return its results, and the captions of both splits."""
    changes = {"data__max_broken_share": 0.5, "data__num_classes": None, **changes}
    bench = Bench(tmp_path, "run", data__source=source, **(ADOPTED | changes))
    bench.settings = with_tar_counts(bench.settings)
    bench.make(*(unit.key for unit in plan_units(bench.settings) if unit.stage == "shard"), CATALOG)
    catalogs = [open_catalog(bench.run, split) for split in ("train", "heldout")]
    kept = [text for one in catalogs for text in one.texts("caption").gather(range(len(one)))]
    return manifest.read(bench.run.unit(CATALOG)).results, sorted(kept)


@pytest.mark.parametrize("kind", KINDS)
def test_blank_captions_are_broken_samples_in_whatever_holds_them(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    results, kept = catalogued(tmp_path, KINDS[kind](tmp_path / "images"))
    assert results["broken"] == len(BLANKS)
    assert kept == sorted(set(CAPTIONS).difference(BLANKS.values()))


DEALS = {"one tar": [[1, 0]], "two tars": [[1], [0]], "the other way": [[0], [1]], "parts": [[0], [1, 0], [1]]}


PAIRS = [("one tar", 1, "txt"), ("two tars", 9, "txt"), ("two tars", 1, "cls"), ("parts", 9, "txt")]
PAIRS += [("the other way", 9, "cls"), ("the other way", 1, "txt")]


@pytest.mark.parametrize("deal, shards, lost", PAIRS)
def test_how_samples_are_dealt_out_to_tars_changes_no_verdict(tmp_path, monkeypatch, deal, lost, shards):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    counts = {1: 40 // sum(tar.count(1) for tar in DEALS[deal]), 0: 12 // sum(tar.count(0) for tar in DEALS[deal])}
    start = 0
    for place, tar in enumerate([*DEALS[deal], [1]]):
        members = []
        for has_both in tar:
            for number in range(start, start + counts[has_both]):
                ends = {"png": encoded(), "txt": f"picture {number}".encode(), "cls": b"0"}
                members += [(f"{number:03d}.{end}", ends[end]) for end in ends if has_both or end != lost]
            start += counts[has_both]
        written(tmp_path / "images" / f"{place}.tar", members)
    source = {"name": "webdataset", "folder": "images", "heldout": {"shards": 1}}
    monkeypatch.setattr(ranges, "MAX_RANGES", shards)
    results, kept = catalogued(tmp_path, source)
    assert results["broken"] == 12 and len(kept) == 40 + counts[1]
