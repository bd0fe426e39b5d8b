"""Captions that are missing or blank, whatever holds them: broken samples, on which nothing is trained."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from hpcddm.data.run_samples import open_catalog
from hpcddm.launch.content_hashes import with_tar_counts
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest, ranges
from hpcddm.runs.unit_keys import CATALOG
from tests.data.test_existing_tars import encoded, written
from tests.stages.adopting import ADOPTED
from tests.stages.routes import Bench

COUNT = 60
BLANKS = {3: "", 4: " \n\n ", 5: "\ufeff", 6: "\u200b \u00a0"}
CAPTIONS = [BLANKS.get(number, f"picture {number}") for number in range(COUNT)]
HELDOUT = {"heldout": {"share": 0.5}}


def tar_members(member):
    return lambda root: webdataset(root, [member(caption) for caption in CAPTIONS])


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


def beside(extension):
    def write(root):
        source = folder(root)
        for number, caption in enumerate(CAPTIONS):
            (root / f"{number:03d}{extension}").write_text(caption)
        return source

    return write


def table(name):
    def write(root):
        source = folder(root)
        rows = pd.DataFrame({"file": [f"{number:03d}.png" for number in range(COUNT)], "caption": CAPTIONS})
        if name.endswith(".csv"):
            rows.to_csv(root / name, index=False)
        elif name.endswith(".parquet"):
            rows.to_parquet(root / name)
        else:
            rows.to_json(root / name, orient="records", lines=True)
        return source

    return write


def arrays(root):
    root.mkdir()
    np.savez(root / "all.npz", x=np.zeros((COUNT, 8, 8, 3), np.uint8), texts=np.array(CAPTIONS))
    return {"name": "arrays", "file": "images/all.npz", "images": "x", "captions": "texts", **HELDOUT}


def rows(write, captions=CAPTIONS, **keys):
    def write_rows(root):
        root.mkdir()
        write(pa.table({"image": [{"bytes": encoded(), "path": None}] * COUNT, "text": captions}), root)
        return {"name": "huggingface", "folder": "images", **HELDOUT, **keys}

    return write_rows


def write_arrow(values, root):
    with ipc.new_stream(root / "train.arrow", values.schema) as stream:
        stream.write_table(values)


def write_parquet(values, root):
    parquet.write_table(values, root / "train.parquet")


KINDS = {
    "tar, txt": tar_members(lambda caption: ("txt", caption.encode())),
    "tar, json": json_in_tars,
    "folder, .txt": beside(".txt"),
    "folder, .caption": beside(".caption"),
    "captions.csv": table("captions.csv"),
    "captions.jsonl": table("captions.jsonl"),
    "captions.parquet": table("captions.parquet"),
    "arrays": arrays,
    "parquet": rows(write_parquet),
    "arrow": rows(write_arrow),
    "lists in parquet": rows(write_parquet, [["other", caption] for caption in CAPTIONS], caption_item=1),
}


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


@pytest.mark.parametrize("shards, lost", [(1, "txt"), (9, "txt"), (1, "cls")])
@pytest.mark.parametrize("deal", DEALS)
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
