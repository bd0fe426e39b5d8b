"""Links in units' folders: those of a sweep are followed, all others are named."""

import pytest

from hpcddm.errors import UserError
from hpcddm.runs.links import link_above, link_at, require_no_links
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.sweep_index import link_shared_units

UNIT = "train/expert-00"


@pytest.fixture
def runs(tmp_path):
    """Two settings of a sweep; the first has a unit."""
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep/sweep.json").write_text("{}")
    first, second = (RunDir(tmp_path / "sweep" / name) for name in ("a=1", "a=2"))
    first.unit(UNIT).mkdir(parents=True)
    second.root.mkdir()
    return first, second


@pytest.mark.parametrize("owners", [{UNIT: "a=1"}, {UNIT: "a=1", "train/expert-01": "a=2"}], ids=["stage", "unit"])
def test_what_a_sweep_shares_is_followed(runs, owners):
    first, second = runs
    link_shared_units(second, owners)
    assert (second.root / "train").is_symlink() == (len(owners) == 1)
    assert second.unit(UNIT).samefile(first.unit(UNIT)) and link_above(second, UNIT) is None


def test_a_link_of_a_sweep_to_one_that_was_never_its_own_or_is_in_none_now_is_named(runs, tmp_path):
    first, second = runs
    link_shared_units(second, {UNIT: "a=1"})
    (first.root.parent / "sweep.json").rename(tmp_path / "sweep.json")
    assert "is a link" in link_above(second, UNIT)
    (tmp_path / "sweep.json").rename(first.root.parent / "sweep.json")
    (first.root / "train").rename(tmp_path / "elsewhere")
    (first.root / "train").symlink_to(tmp_path / "elsewhere")
    assert link_above(second, UNIT) == f"{first.root}/train is a link; put the files themselves there, or remove it"


def test_other_links_are_named_in_a_sweep_too(runs):
    _, second = runs
    for target in ("/tmp", "../../a=1/train", "../../../a=1/train", "../../train", "../a=1/other"):
        (second.root / "train").symlink_to(target)
        assert link_above(second, UNIT).startswith(f"{second.root}/train is a link"), target
        (second.root / "train").unlink()


def test_links_that_lead_to_each_other_are_named(runs):
    first, second = runs
    first.unit(UNIT).rmdir()
    first.unit(UNIT).symlink_to(f"../../a=2/{UNIT}")
    second.unit(UNIT).parent.mkdir()
    second.unit(UNIT).symlink_to(f"../../a=1/{UNIT}")
    assert "is a link" in link_above(first, UNIT)


def test_links_of_the_user_in_the_way_of_a_sweeps_are_left_and_named(runs, tmp_path):
    _, second = runs
    for name in ("train", "logs"):
        (second.root / name).symlink_to(tmp_path)
        with pytest.raises(UserError, match=f"a=2/{name} is a link"):
            link_shared_units(second, {UNIT: "a=1"})
        assert (second.root / name).readlink() == tmp_path
        (second.root / name).unlink()


@pytest.mark.parametrize("inside", ["state", ".lease", "tensorboard", "state/images-1", "state/images-1/rank0"])
def test_a_link_anywhere_in_a_unit_is_named(tmp_path, inside):
    run = RunDir(tmp_path / "run")
    path = run.unit(UNIT) / inside
    path.parent.mkdir(parents=True)
    assert link_at(run, UNIT) is None
    path.symlink_to(tmp_path)
    with pytest.raises(UserError, match=f"{UNIT}: {path} is a link; put the files themselves there, or remove it"):
        require_no_links(run, UNIT)


def test_in_the_folder_of_a_stage_only_its_own_training_counts(tmp_path):
    run = RunDir(tmp_path / "run")
    (run.unit("expert_lists/all") / "hats").mkdir(parents=True)
    (run.unit("expert_lists/all") / "hats" / "link").symlink_to(tmp_path)
    assert link_at(run, "expert_lists/all") is None and "hats/link is a link" in link_at(run, "expert_lists/hats")
    (run.unit("expert_lists/all") / "state").symlink_to(tmp_path)
    assert "expert_lists/state is a link" in link_at(run, "expert_lists/all")
