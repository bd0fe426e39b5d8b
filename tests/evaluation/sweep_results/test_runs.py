"""What settings share: by all that shapes a unit's outputs, made by one of them, seen by the others through links."""

import shutil

import pytest

from hpcddm.errors import ConfigError, UserError
from hpcddm.launch.sweep_runs import assign_owners, survey_sweep_runs
from hpcddm.pipeline.state import State
from hpcddm.pipeline.unit_states import survey_units
from hpcddm.runs import manifest
from hpcddm.runs.run_dir import set_aside
from hpcddm.runs.sweep_index import SweepIndex, link_shared_units, read_index, write_index
from hpcddm.runs.unit_keys import CAPTIONS, REPORT
from tests.helpers import DATA_STAGES, FINAL, FINAL_STAGES, JOINED, finish

MEASURED = {"evaluators", "measure_real"}
TRAINED = {*DATA_STAGES, *MEASURED, "train", "router"}


def shared_stages(first, second) -> set[str]:
    """The stages of which all units are the same work."""
    different = {key.split("/")[0] for key in second.identities if first.identities.get(key) != second.identities[key]}
    return {key.split("/")[0] for key in second.identities} - different


@pytest.mark.parametrize(
    ("key", "values", "shared"),
    [
        ("evaluate.guidance", [1.0, 2.0], TRAINED),
        ("experts.training.images", [64, 128], {*DATA_STAGES, *MEASURED, "router"}),
        ("cluster.clustering.fine_clusters", [8, 9], {"shard", "catalog", "encode", *MEASURED}),
        ("data.shards", [2, 3], set()),
        ("seed", [0, 1], {"shard", "catalog", "encode", *MEASURED}),
        ("experts.training.checkpoint_minutes", [1, 2], TRAINED | FINAL_STAGES),
        ("evaluate.min_experts", [1, 2], TRAINED),
        ("evaluate.snapshot", [16, 32], TRAINED),
    ],
)
def test_shared_is_what_the_varied_key_does_not_reach(sweep_runs, key, values, shared):
    snapshots = {"set": {"experts.training.snapshots": [16, 32]}} if key == "evaluate.snapshot" else {}
    assert shared_stages(*sweep_runs(grid={key: values}, **snapshots)) == shared


def test_lists_by_keys_are_made_beside_those_of_the_clusters(sweep_runs, tmp_path):
    (tmp_path / "hats.txt").write_text("key")
    (tmp_path / "bags.txt").write_text("other")
    hats = JOINED | {"list": str(tmp_path / "hats.txt")}
    bags = hats | {"name": "bags", "list": str(tmp_path / "bags.txt")}
    found = sweep_runs(grid={"experts.extra": [[], [hats], [bags]]})
    first, second, third = found
    assert shared_stages(second, first) == TRAINED | FINAL_STAGES
    assign_owners(found, SweepIndex())
    assert (second.owners["expert_lists/hats"], third.owners["expert_lists/bags"]) == (first.label, first.label)
    assert second.owners["train/hats"] == second.label and second.owners["train/expert-00"] == first.label


ENCODING = [CAPTIONS, "encode_captions/000", "encode_captions/001"]


def captioned(width):
    return {"name": "text", "encoder": {"name": "words", "width": width}, "cached": True}


def test_captions_that_are_encoded_otherwise_have_a_folder_of_their_own(sweep_runs):
    """The distinct captions are the same; but their unit has the folder of the whole stage."""
    grid = {"data.condition": [captioned(8), captioned(9)], "evaluate.guidance": [1.0, 2.0]}
    found, index = sweep_runs(grid=grid), SweepIndex()
    assign_owners(found, index)
    narrow, narrow_too, wide, wide_too = found
    assert narrow.identities[CAPTIONS] == wide.identities[CAPTIONS]
    assert {one.owners[key] for one in (narrow, narrow_too) for key in ENCODING} == {narrow.label}
    assert {one.owners[key] for one in (wide, wide_too) for key in ENCODING} == {wide.label}
    assert wide.owners["catalog/all"] == narrow.label
    again = sweep_runs(grid=grid)
    assign_owners(again, index)
    assert [one.owners for one in again] == [one.owners for one in found]


def test_experts_of_one_name_and_other_samples_are_refused_in_a_sweep(sweep_runs, tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).write_text(name)
    entries = [[JOINED | {"list": str(tmp_path / name)}] for name in ("one", "other")]
    with pytest.raises(ConfigError, match="experts.extra: hats has other samples in setting .*; give it another name"):
        sweep_runs(grid={"experts.extra": entries})


def settle(found, home):
    """What a submission does with the files of a sweep."""
    index = read_index(home) if home.root.exists() else SweepIndex()
    index.current = [sweep_run.label for sweep_run in found]
    assign_owners(found, index)
    for sweep_run in found:
        sweep_run.run.root.mkdir(parents=True, exist_ok=True)
        link_shared_units(sweep_run.run, sweep_run.owners)
    write_index(index, home)
    return index


def make(sweep_run):
    """Finish the units of a run that it makes itself."""
    finish([unit for unit in sweep_run.units if sweep_run.owners[unit.key] == sweep_run.label], sweep_run.run)


@pytest.fixture
def made(sweep_runs, home):
    """Settings of a finished sweep."""
    found = sweep_runs(1.0, 2.0, 3.0)
    settle(found, home)
    for sweep_run in found:
        make(sweep_run)
    return found


def test_what_is_shared_is_made_once_and_complete_in_every_run(made, home):
    assert len(list(home.root.rglob("manifest.json"))) == len(made[0].units) + 2 * len(FINAL)
    for sweep_run in made:
        states = survey_units(sweep_run.units, sweep_run.run)
        assert {status.state for status in states.values()} == {State.COMPLETE}, sweep_run.label
        assert states == survey_sweep_runs(made)[sweep_run.label]


def test_a_stage_of_one_other_setting_is_one_link_and_a_mixed_one_has_links_inside(sweep_runs, home):
    first, second = sweep_runs(grid={"evaluators.classifier.shift": [0, 1]})
    settle([first, second], home)
    assert str((second.run.root / "train").readlink()) == "../shift=0/train"
    assert str((second.run.root / "cluster").readlink()) == "../shift=0/cluster"
    measuring = second.run.root / "evaluators"
    assert not measuring.is_symlink()
    assert str((measuring / "extractor").readlink()) == "../../shift=0/evaluators/extractor"
    assert not (measuring / "classifier").exists() and not any(path.is_symlink() for path in first.run.root.rglob("*"))
    logs = second.run.root / "logs"
    assert str((logs / "train").readlink()) == "../../shift=0/logs/train"
    assert str((logs / "evaluators/extractor").readlink()) == "../../../shift=0/logs/evaluators/extractor"


def test_what_a_removed_setting_made_is_used_on_and_made_by_another_when_its_run_is_gone(sweep_runs, home):
    settle(sweep_runs(1.0, 2.0), home)
    (left,) = sweep_runs(2.0)
    settle([left], home)
    assert left.owners["train/monolith"] == "guidance=1.0"
    shutil.rmtree(home.root / "guidance=1.0")
    settle([left], home)
    assert set(left.owners.values()) == {"guidance=2.0"} and not (left.run.root / "train").is_symlink()


def test_without_its_index_a_sweep_finds_what_was_made(sweep_runs, home):
    found = sweep_runs(2.0, 3.0)
    settle(found, home)
    make(found[0])
    (home.root / "sweep.json").unlink()
    found = sweep_runs(1.0, 2.0, 3.0)
    settle(found, home)
    for sweep_run in found:
        states = survey_units(sweep_run.units, sweep_run.run)
        assert states["train/expert-01"].state is State.COMPLETE, sweep_run.label
        assert sweep_run.owners["train/expert-01"] == "guidance=2.0"


def test_a_torn_index_is_named_and_not_taken_for_a_new_sweep(home):
    home.root.mkdir()
    (home.root / "sweep.json").write_text('{"name": "tr')
    with pytest.raises(UserError, match=r"sweep.json: holds no usable JSON .*; remove it"):
        read_index(home)


def test_setting_aside_in_one_run_moves_no_folder_of_another(made):
    first, second, _ = made
    set_aside(second.run, REPORT)
    assert manifest.read(first.run.unit(REPORT)) and not manifest.read(second.run.unit(REPORT))
