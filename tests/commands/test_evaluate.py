"""The verb evaluate: one ruler for a run's samples and anybody's, and samples in the forms that others read."""

import io
import json
import shutil
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from tests import whole_runs
from tests.helpers import hpcddm

HELD = "heldout"
SIDE, COUNT = 8, 20
ROWS = np.random.default_rng(0).integers(0, 256, (COUNT, SIDE, SIDE, 3), dtype=np.uint8)
LARGE = ROWS.repeat(SIDE, 1).repeat(SIDE, 2)
PIXELS = ("--extractor", "{name: pixels, size: 4}")


def refused(*arguments) -> str:
    done = hpcddm("evaluate", *arguments)
    assert done.exit_code in (1, 2), done.output
    assert "Traceback" not in done.output
    return done.output


def figures(*arguments) -> dict:
    done = hpcddm("evaluate", *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout[done.stdout.index("{") :])


def write_pngs(folder, rows, names=None):
    for number, pixels in enumerate(rows):
        path = folder / (names[number] if names else f"{number:03d}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.squeeze()).save(path)
    return folder


def values(found) -> dict:
    """Figures of all sets without their names."""
    return {key: value for arm in found["arms"].values() for key, value in arm.items() if "@" in key}


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """The same images in every form, and others to compare with."""
    root = tmp_path_factory.mktemp("sets")
    write_pngs(root / "flat", ROWS)
    write_pngs(root / "classes", ROWS, [f"{number % 2}/{number:03d}.png" for number in range(COUNT)])
    np.savez(root / "plain.npz", ROWS)
    np.savez_compressed(root / "small.npz", ROWS, np.arange(COUNT) % 2)
    with tarfile.open(root / "some.tar", "w") as tar:
        for path in sorted((root / "flat").iterdir()):
            tar.add(path, path.name)
    write_pngs(root / "real", 255 - ROWS[::-1])
    return root


def test_a_runs_table_and_its_samples_as_files_have_the_same_figures(finished, tmp_path):
    stored = json.loads((finished / "report/metrics.json").read_text())
    own = figures(f"{finished}:top-1", f"{finished}:monolith", "--against", f"{finished}:{HELD}")
    for arm in ("top-1", "monolith"):
        expected = {key: value for key, value in stored["arms"][arm].items() if "@" in key}
        found = {key: own["arms"][f"{finished}:{arm}"][key] for key in expected}
        assert found == pytest.approx(expected, rel=1e-6)
        # Sums of a processor depend on the threads of the process, in the eighth digit.
        for key, ends in stored["intervals"][arm].items():
            assert own["intervals"][f"{finished}:{arm}"][key] == pytest.approx(ends, rel=1e-6, abs=1e-6), key
    floor = {key: value for key, value in stored["floor"].items() if "@" in key}
    assert {key: own["floor"][key] for key in floor} == pytest.approx(floor, rel=1e-6, abs=1e-6)
    for name in ("top.npz", "pngs"):
        done = hpcddm("evaluate", f"{finished}:top-1", "--write", tmp_path / name)
        assert done.exit_code == 0 and "400 images" in done.output, done.output
    real = tmp_path / "real.npz"
    assert hpcddm("evaluate", f"{finished}:{HELD}", "--write", real).exit_code == 0
    encoder = ("--extractor", "{name: pixels, size: 7}")
    first, *others = (
        values(figures(name, "--against", real, *encoder))
        for name in (tmp_path / "top.npz", tmp_path / "pngs", f"{finished}:top-1")
    )
    assert first["fd@pixels-7"] > 0
    assert [other["fd@pixels-7"] for other in others] == [first["fd@pixels-7"]] * 2
    described = json.loads((tmp_path / "top.npz.json").read_text())
    assert (described["seed"], described["images"], described["sampler"]["steps"]) == (0, 400, 4)
    assert described["classes"][:12] == [*range(10), 0, 1]


def test_classes_drawn_at_random_are_those_of_the_samples_and_of_their_figures(finished, tmp_path):
    run = tmp_path / "uniform"
    shutil.copytree(finished, run)
    words = ("submit", run / "experiment.json", "--run-dir", run, "evaluate.labels=uniform", "evaluate.images=200")
    done = whole_runs.hpcddm(*words, "evaluate.units=1", "--redo", "draw", "--redo", "report")
    assert done.returncode == 0, done.stdout + done.stderr
    stored = json.loads((run / "report/metrics.json").read_text())
    own = figures(f"{run}:top-1", "--against", f"{run}:{HELD}")
    expected = {key: value for key, value in stored["arms"]["top-1"].items() if "@" in key}
    assert {key: own["arms"][f"{run}:top-1"][key] for key in expected} == pytest.approx(expected, rel=1e-6)
    assert "drawn at random" in stored["protocol"]["Conditions"] and "not comparable" in own["protocol"][f"{run}:top-1"]
    assert hpcddm("evaluate", f"{run}:top-1", "--write", tmp_path / "x.npz").exit_code == 0
    classes = np.bincount(json.loads((tmp_path / "x.npz.json").read_text())["classes"], minlength=10)
    assert classes.sum() == 200 and classes.std() > 1


def test_what_was_written_is_what_others_read(finished, tmp_path):
    assert hpcddm("evaluate", f"{finished}:top-1", "--write", tmp_path / "x.npz").exit_code == 0
    # As ADM's evaluator reads it: a stored or deflated member, whose header says the shape.
    with zipfile.ZipFile(tmp_path / "x.npz") as archive, archive.open("arr_0.npy") as file:
        assert np.lib.format.read_magic(file) == (1, 0)
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
        pixels = np.frombuffer(file.read(), dtype=dtype).reshape(shape)
    assert shape == (400, 28, 28, 3) and not is_fortran and dtype == np.uint8
    assert np.array_equal(np.load(tmp_path / "x.npz")["arr_0"], pixels) and (pixels[..., :1] == pixels).all()
    assert "exists" in refused(f"{finished}:top-1", "--write", tmp_path / "x.npz")


@pytest.mark.parametrize("name", ["classes", "plain.npz", "small.npz", "some.tar"])
def test_every_form_of_the_same_images_has_the_same_figures(sets, name):
    flat, other = (values(figures(sets / form, "--against", sets / "real", *PIXELS)) for form in ("flat", name))
    order = ("kid", "fd")
    assert {key: other[key] for key in flat if key.startswith(order)} == pytest.approx(
        {key: flat[key] for key in flat if key.startswith(order)}, rel=1e-9
    )


def test_the_same_images_twice_have_no_distance(sets):
    found = values(figures(sets / "flat", "--against", sets / "plain.npz", *PIXELS))
    assert found["fd@pixels-4"] == pytest.approx(0, abs=1e-6)


def test_statistics_give_the_distance_alone_by_the_extractor_that_the_user_states(sets, tmp_path):
    whole = values(figures(sets / "flat", "--against", sets / "real", *PIXELS))
    features = np.stack([np.asarray(Image.open(path)) for path in sorted((sets / "real").iterdir())])
    from hpcddm.config.image_encoders import ImageEncoderSettings
    from hpcddm.config.variants import create
    from hpcddm.encoders.image.base import ImageEncoder

    encoder = create(ImageEncoder, ImageEncoderSettings.model_validate({"name": "pixels", "size": 4}))
    encoded = encoder.encode(features).astype(np.float64)
    np.savez(tmp_path / "stats.npz", mu=encoded.mean(0), sigma=np.cov(encoded, rowvar=False))
    found = figures(sets / "flat", "--against", tmp_path / "stats.npz", *PIXELS)
    assert values(found) == pytest.approx({"fd@pixels-4": whole["fd@pixels-4"]}, rel=1e-6)
    assert "as stated by you: pixels-4" in found["against"]
    assert "--extractor" in refused(sets / "flat", "--against", tmp_path / "stats.npz")
    np.savez(tmp_path / "narrow.npz", mu=np.zeros(3), sigma=np.eye(3))
    assert "has 3 features" in refused(sets / "flat", "--against", tmp_path / "narrow.npz", *PIXELS)


def npz(**arrays) -> bytes:
    stored = io.BytesIO()
    np.savez(stored, **arrays)
    return stored.getvalue()


WRONG_ARRAYS = {
    "float": (npz(arr_0=ROWS / 255), "has the type float64"),
    "channels first": (npz(arr_0=ROWS.transpose(0, 3, 1, 2)), "transpose(0, 2, 3, 1)"),
    "one channel": (npz(arr_0=ROWS[..., :1]), "numpy.repeat"),
    "one image": (npz(arr_0=ROWS[0]), "has the shape (8, 8, 3)"),
    "pickled": (npz(arr_0=np.array([{}, {}], dtype=object)), "pickled objects, which are never loaded"),
    "truncated": (npz(arr_0=ROWS)[:-700], "cannot be read"),
    "damaged": (
        npz(arr_0=LARGE).replace(LARGE[-1].tobytes(), bytes(LARGE[-1].nbytes)),
        "arr_0 cannot be read at image 19",
    ),
    "other names": (npz(images=ROWS), "needs arr_0, or mu and sigma"),
    "statistics": (npz(mu=np.zeros(4), sigma=np.eye(4)), "not samples"),
    "no numbers": (npz(mu=np.full(4, np.nan), sigma=np.eye(4)), "not a finite mean"),
}


@pytest.mark.parametrize("content, named", WRONG_ARRAYS.values(), ids=WRONG_ARRAYS)
def test_an_array_that_is_no_set_of_images_is_refused_with_its_cause(sets, tmp_path, content, named):
    (tmp_path / "x.npz").write_bytes(content)
    assert named in refused(tmp_path / "x.npz", "--against", sets / "real", *PIXELS)


def spoil(folder):
    """Folders that are no set of images, and what the message has."""
    mixed = write_pngs(folder / "mixed", [*ROWS[:3], np.zeros((9, 8, 3), np.uint8)])
    yield mixed, "has 8 x 9 pixels"
    (folder / "empty").mkdir()
    yield folder / "empty", "has no images"
    both = write_pngs(folder / "both", ROWS[:2])
    yield write_pngs(both / "inner", ROWS[:2]).parent, "beside folders of images"
    torn = write_pngs(folder / "torn", ROWS[:4])
    (torn / "002.png").write_bytes((torn / "002.png").read_bytes()[:60])
    yield torn, "002.png"
    bomb = write_pngs(folder / "bomb", ROWS[:2])
    Image.new("L", (20_000, 20_000)).save(bomb / "000.png")
    yield bomb, "000.png"
    for name in ("000.jpg", "000.png"):
        lossy = write_pngs(folder / f"lossy-{name}", ROWS[:2])
        Image.fromarray(ROWS[0]).save(lossy / name, format="JPEG")
        yield lossy, "--allow-jpeg"
    yield folder / "missing", "is missing"


def test_a_folder_that_is_no_set_of_images_is_refused_by_name(tmp_path):
    for folder, named in spoil(tmp_path):
        assert named in refused(folder, "--against", folder, *PIXELS), folder


def test_sets_of_different_sizes_are_compared_only_by_equal_numbers(sets, tmp_path):
    few = write_pngs(tmp_path / "few", ROWS[:12])
    assert "add --images 12" in refused(few, "--against", sets / "real", *PIXELS)
    found = figures(few, sets / "flat", "--against", sets / "real", "--images", "12", *PIXELS)
    assert found["images"] == 12 and len(found["arms"]) == 2
    assert "are more" in refused(few, "--against", sets / "real", "--images", "13", *PIXELS)


def test_pictures_of_all_modes_are_read_as_three_channels(sets, tmp_path):
    folder = write_pngs(tmp_path / "modes", ROWS)
    Image.fromarray(ROWS[0]).convert("L").save(folder / "000.png")
    Image.fromarray(ROWS[1]).convert("RGBA").save(folder / "001.png")
    Image.fromarray(ROWS[2]).convert("P").save(folder / "002.png")
    assert figures(folder, "--against", sets / "real", *PIXELS)["images"] == COUNT


def test_the_table_and_the_csv_say_what_was_compared(sets):
    done = hpcddm("evaluate", sets / "flat", "--against", sets / "real", *PIXELS)
    assert "fd@pixels-4" in done.output and "20 images of each set" in done.output, done.output
    done = hpcddm("evaluate", sets / "flat", "--against", sets / "real", *PIXELS, "--csv")
    head, *rows = done.stdout[done.stdout.index("samples,") :].splitlines()
    assert head.startswith("samples,figure,value,low,high") and any("fd@pixels-4" in row for row in rows)


def test_what_cannot_be_done_is_said(sets, finished):
    assert "name a set of samples" in refused("--against", sets / "real")
    assert "--write" in refused(sets / "flat")
    assert "no arm 'top-9'; valid ones: " in refused(f"{finished}:top-9", "--against", sets / "real")
    assert "no set is of a run" in refused(sets / "flat", "--against", sets / "real", "--extractor", "own")
    assert "unknown name 'nothing'" in refused(sets / "flat", "--against", sets / "real", "--extractor", "nothing")
