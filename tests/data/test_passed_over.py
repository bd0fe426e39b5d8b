"""Nothing vanishes unsaid: what is put in is a sample, broken, or counted, from every source."""

import os
import tarfile
from collections import Counter

import numpy as np
import pytest

from hpcddm.errors import UserError
from hpcddm.sources.base import SPLITS
from hpcddm.stages.data import shard_job
from tests.data.oddities import HEIC, JPEG_XL, class_folder, encoded, write_tar
from tests.helpers import write_idx
from tests.stages.routes import Bench

PNG, JPEG = encoded(1), encoded(2, "JPEG")
ONE_TAR = {"data__shards": 1, "data__image_size": 8, "data__channels": 3, "data__num_classes": None}
ONE_TAR |= {"evaluators__classifier": None, "data__condition": {"name": "none"}}
SAMPLE, BROKEN, COUNTED = "sample", "broken", "counted"
FILES = {
    ".png": (PNG, SAMPLE),
    ".JPG": (JPEG, SAMPLE),
    ".jfif": (JPEG, SAMPLE),
    ".jpe": (PNG, SAMPLE),
    ".heic": (HEIC, BROKEN),
    ".jxl": (JPEG_XL, BROKEN),
    "-torn.png": (PNG[:60], BROKEN),
    "-empty.jpg": (b"", BROKEN),
    ".html": (b"<html>gone</html>", COUNTED),
    "": (b"README", COUNTED),
    "-without": (JPEG, SAMPLE),
    ".npy": (b"\x93NUMPY\x01\0", COUNTED),
    ".bmp.txt": (b"BM is how this text begins, and not a bitmap", COUNTED),
}
"""Contents by the end of a name, and what becomes of them in a folder and in a tar."""
BY_CONTENT = {".dat": (PNG, SAMPLE), ".img": (PNG, SAMPLE)}
"""Pictures that a folder has as samples; in a tar, where extensions say what a member is, they are broken."""
LINKS = {"-lost.png": "nowhere.png", "-self.png": None}


def accounted(root, source):
    """Count the samples, the broken ones and what else is passed over, of both splits, as the stage shard does."""
    bench, counts = Bench(root, "run", **ONE_TAR, data__source=source), Counter()
    for split in SPLITS:
        try:
            found = shard_job.run(bench.settings, bench.unit(f"shard/{split}-000")).results
        except UserError:
            # A share of few images may leave a split without any.
            continue
        others = [one["count"] for one in found["passed_over"].values() if not one["is_broken"]]
        counts += Counter({SAMPLE: found["images"], BROKEN: found["broken"]["samples"], COUNTED: sum(others)})
    return counts


ODD = {
    "hidden": (".{}", b"hidden", COUNTED),
    "hidden picture": (".{}.png", PNG, BROKEN),
    "junk": ("._{}.png", PNG, COUNTED),
    "junk folder": ("@eaDir/{}.png/SYNOPHOTO_THUMB_M.jpg", JPEG, COUNTED),
}
"""Forms of names, contents, and what becomes of them."""


def described(name, kind):
    """The whole name of a file, its content, and what becomes of it."""
    form, content, becomes = ODD[kind] if kind in ODD else ("{}" + kind, *(FILES | BY_CONTENT)[kind])
    return form.format(name), content, becomes


def put_files(folder, named):
    """Write files, links and junk of a mixture; count what becomes of them."""
    expected = Counter()
    for name, kind in named:
        becomes = BROKEN if kind in LINKS else COUNTED
        if kind in LINKS:
            (folder / f"{name}{kind}").symlink_to(LINKS[kind] or f"{name}{kind}")
        elif kind == "pipe":
            os.mkfifo(folder / f"{name}.png")
        else:
            whole, content, becomes = described(name, kind)
            (folder / whole).parent.mkdir(parents=True, exist_ok=True)
            (folder / whole).write_bytes(content)
        expected[becomes] += 1
    return expected


def image_folder(root, named):
    """A folder of two classes, the second with a mixture, and one folder that is empty."""
    class_folder(root / "data")
    (root / "data" / "empty").mkdir()
    expected = put_files(root / "data" / "dog", named) + Counter({SAMPLE: 8, COUNTED: 1})
    return {"name": "image_folder", "folder": str(root / "data"), "heldout": {"share": 0.5}}, expected


def images_alone(root, named):
    """A folder of pictures, and a mixture among them."""
    class_folder(root, ("data",))
    expected = put_files(root / "data", named) + Counter({SAMPLE: 4})
    return {"name": "image_folder", "folder": str(root / "data"), "heldout": {"share": 0.5}}, expected


def two_folders(root, named):
    """Folders of both splits, with a mixture in the one that holds both, where no file is a sample."""
    for split in ("train", "val"):
        class_folder(root / "data" / split)
    expected = _lost(put_files(root / "data", named)) + Counter({SAMPLE: 16})
    return {"name": "image_folder", "folder": str(root / "data")}, expected


def imagenet(root, named):
    """Two classes of ILSVRC, the second with a mixture, and a val in folders."""
    for split in ("train", "val"):
        class_folder(root / "data" / split, ("n01440764",) if split == "val" else ("n01440764", "n01443537"))
    expected = put_files(root / "data" / "train" / "n01443537", named) + Counter({SAMPLE: 12})
    return {"name": "imagenet", "folder": str(root / "data")}, expected


def idx(root, named):
    """Four IDX files, and a mixture beside them."""
    for prefix in ("train", "t10k"):
        write_idx(root / "data" / f"{prefix}-images-idx3-ubyte", np.zeros((3, 8, 8)))
        write_idx(root / "data" / f"{prefix}-labels-idx1-ubyte", np.zeros(3))
    return {"name": "idx", "folder": str(root / "data")}, _lost(put_files(root / "data", named)) + Counter({SAMPLE: 6})


def arrays(root, named):
    """A file with an array of pictures, and others with the mixture's names."""
    others = {f"{name}{kind}".replace("/", ""): np.zeros(2) for name, kind in named}
    np.savez(root / "a.npz", images=np.zeros((5, 8, 8, 3), np.uint8), **others)
    source = {"name": "arrays", "file": str(root / "a.npz"), "heldout": {"share": 0.5}}
    return source, Counter({SAMPLE: 5, COUNTED: len(others)})


def beside_tars(root, named):
    """A tar, and a mixture beside it."""
    write_tar(root / "data" / "x.tar", [(f"{number}.png", PNG) for number in range(8)])
    expected = _lost(put_files(root / "data", named)) + Counter({SAMPLE: 8})
    return {"name": "webdataset", "folder": str(root / "data"), "heldout": {"share": 0.5}}, expected


def inside_tars(root, named):
    """A mixture in a tar, among samples; pictures with extensions of something else are broken there."""
    members: list = [(f"s{number}.png", PNG) for number in range(8)]
    members += [("s7.seg", b"mask"), ("folder", (tarfile.DIRTYPE, ""))]
    expected = Counter({SAMPLE: 8, COUNTED: 1})
    for name, kind in named:
        becomes = BROKEN if kind in LINKS else COUNTED
        if kind in LINKS:
            members.append((f"{name}.png", (tarfile.SYMTYPE if LINKS[kind] else tarfile.LNKTYPE, "s0.png")))
        elif kind == "pipe":
            members.append((f"{name}.png", (tarfile.FIFOTYPE, "")))
        else:
            whole, content, becomes = described(name, kind)
            members.append((whole, content))
        expected[BROKEN if kind in BY_CONTENT else becomes] += 1
    write_tar(root / "data" / "x.tar", members)
    return {"name": "webdataset", "folder": str(root / "data"), "heldout": {"share": 0.5}}, expected


def collections(root, named):
    """Two folders as one collection."""
    (root / "one").mkdir()
    (root / "two").mkdir()
    (first, expected), (second, more) = image_folder(root / "one", named), images_alone(root / "two", named[:2])
    return [first | {"collection": "one"}, second | {"collection": "two"}], expected + more


def _lost(counts):
    """Count all pictures as broken, where none is a sample."""
    return Counter({BROKEN: counts[SAMPLE] + counts[BROKEN], COUNTED: counts[COUNTED]})


SOURCES = [image_folder, images_alone, two_folders, imagenet, idx, arrays, beside_tars, inside_tars, collections]


KINDS = [*FILES, *BY_CONTENT, *ODD, *LINKS, "pipe"]


@pytest.mark.parametrize("kinds", [[], KINDS, KINDS[::-3] + KINDS[::4]], ids=["nothing", "each kind", "some twice"])
@pytest.mark.parametrize("place", SOURCES)
def test_what_is_put_in_is_a_sample_or_broken_or_counted(tmp_path, place, kinds):
    source, expected = place(tmp_path, [(f"x{number:02d}", kind) for number, kind in enumerate(kinds)])
    assert accounted(tmp_path, source) == expected
