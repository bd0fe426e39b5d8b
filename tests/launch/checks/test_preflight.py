import pytest

from hpcddm.errors import UserError
from hpcddm.files import atomic, checked_reads
from hpcddm.launch.checks import disk_estimates
from hpcddm.launch.checks import preflight as module
from hpcddm.launch.checks.preflight import check_snapshots, check_state, preflight
from hpcddm.launch.load_site import load_site
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.journal import Journal
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.training_states import FORMAT
from tests.helpers import finish, tiny, write_source


@pytest.fixture
def case(tmp_path, monkeypatch):
    """A function that runs the checks on the tiny experiment with some keys changed."""
    monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "NODE_LOCAL", ())
    write_source(tmp_path / "images")

    def check(stages=None, site="slurm", **changes):
        experiment = tiny(tmp_path, **changes)
        units = [unit for unit in plan_units(experiment) if stages is None or unit.stage in stages]
        preflight(experiment, load_site(site), RunDir(tmp_path / "run"), units)

    return check


LITE0 = {"encode__encoder": {"name": "efficientnet_lite0"}}


def test_weights_that_were_not_fetched_are_refused_with_the_command_where_a_unit_to_run_reads_them(case):
    words = r"encode\.encoder: efficientnet_lite0 needs .* is missing; .* run: hpcddm prefetch$"
    with pytest.raises(UserError, match=words):
        case(**LITE0)
    case(stages=("train", "router"), **LITE0)


@pytest.mark.parametrize("stage", ["latents", "train", "draw"])
def test_every_stage_that_needs_an_autoencoder_asks_for_its_weights(case, stage):
    autoencoder = {"name": "diffusers_kl", "weights": {"folder": "/nowhere/vae"}}
    changes = {"data__space": {"name": "autoencoder", "autoencoder": autoencoder}}
    with pytest.raises(UserError, match=r"data\.space\.autoencoder: .*/nowhere/vae"):
        case(stages=(stage,), data__image_size=64, data__channels=3, **changes)


def test_a_torn_file_of_weights_is_refused(case, tmp_path):
    path = tmp_path / "cache" / "weights" / "efficientnet_lite0-579344248a93e230.pth"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")
    with pytest.raises(UserError, match="is torn: 4 of 18826032 bytes"):
        case(**LITE0)


def test_a_file_system_without_room_for_bytes_or_inodes_is_refused(case, monkeypatch):
    make_room = "make room, or take another --run-dir"
    for free, said in (
        ((100_000, None), rf"about [0-9.]+ MB are needed and 100 kB are free; {make_room}"),
        ((10**12, 5), r"about [0-9]+ files are needed and 5 inodes are free; make room"),
    ):
        monkeypatch.setattr(disk_estimates, "free_space", lambda folder, free=free: free)
        with pytest.raises(UserError, match=said):
            case()
    # A file system that counts no inodes has enough, and what is left to run needs less than everything.
    for free, stages in (((10**12, None), None), ((700_000, 200), ("report",))):
        monkeypatch.setattr(disk_estimates, "free_space", lambda folder, free=free: free)
        case(stages=stages)
    with pytest.raises(UserError, match="are free"):
        case()


@pytest.mark.parametrize("site, warns", [("slurm", True), ("embedded", False)])
def test_a_disk_of_one_node_is_warned_of_where_others_must_see_it(case, monkeypatch, tmp_path, capsys, site, warns):
    monkeypatch.setattr(module, "NODE_LOCAL", (str(tmp_path),))
    case(site=site)
    assert ("is often a disk of one node only" in capsys.readouterr().err) == warns
    (tmp_path / "run").mkdir()
    Journal(tmp_path / "run" / "journal.jsonl").record_intent("slurm", site, ["catalog/all"])
    case(site=site)
    assert capsys.readouterr().err == "", "once for a run is enough"


@pytest.mark.parametrize(
    "flags, precision, site, warns",
    [
        ("fpu avx2", "bf16", "embedded", True),
        ("fpu avx2 avx512bw", "bf16", "embedded", False),
        ("fp asimd bf16", "bf16", "embedded", False),
        ("fpu avx2", "fp32", "embedded", False),
        ("fpu avx2", "bf16", "slurm", False),
    ],
)
def test_a_cpu_that_emulates_bf16_is_warned_of(case, monkeypatch, tmp_path, capsys, flags, precision, site, warns):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(module, "CPU_INFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(f"flags\t\t: {flags}\n")
    case(site=site, experts__training__precision=precision, router__training__precision=precision)
    keys = "append experts.training.precision=fp32 router.training.precision=fp32\n"
    assert capsys.readouterr().err.endswith(keys) == warns


KEY = "train/expert-01"


def change(path, **values):
    atomic.write_json(path, checked_reads.read_json(path) | values)


@pytest.fixture
def saved(tmp_path):
    """A run whose second expert was saved by two ranks, that expert as it is planned, and its states by images."""
    run = RunDir(tmp_path / "run")
    units = plan_units(tiny(tmp_path))
    finish(units, run)
    trajectory, states = manifest.read(run.unit(KEY)).trajectory, {}
    (run.unit(KEY) / "manifest.json").unlink()
    for images, made in ((16, trajectory), (32, trajectory), (64, "of other settings")):
        state = {"trajectory": made, "world_size": 2, "zero_stage": 1, "images": images, "format": FORMAT}
        states[images] = run.unit(KEY) / f"state/images-{images:012d}" / "state.json"
        atomic.write_json(states[images], state)
    return run, next(unit for unit in units if unit.key == KEY), states


def test_a_state_of_an_earlier_version_is_refused_before_the_queue_and_one_of_other_inputs_stops_nobody(saved):
    run, unit, states = saved
    change(states[64], format=4)
    check_state(unit, run)
    change(states[32], format=4)
    with pytest.raises(UserError, match=f"{KEY}: .*32 was saved by an earlier version of hpcddm; go on with that one"):
        check_state(unit, run)
    (run.unit("expert_lists/all") / "manifest.json").unlink()
    check_state(unit, run)


def test_a_state_beyond_a_snapshot_that_it_did_not_take_is_refused_before_the_queue(saved, tmp_path):
    run, unit, states = saved
    path = states[32]
    fits, late, last = (tiny(tmp_path, experts__training__snapshots=[own]) for own in (48, 44, 64))
    # The newest state is at 32 images, of which this one can still be taken.
    check_snapshots(last, unit, run)
    with pytest.raises(UserError, match=f"^{KEY}: snapshot 44, at 24 images .* {path.parent} is beyond it; take 44 "):
        check_snapshots(late, unit, run)
    change(path, loop={"snapshots": {"44": {"images": 24, "files": {}}}})
    check_snapshots(late, unit, run)
    with pytest.raises(UserError, match=f"^{KEY}: snapshot 48, at 24 images"):
        check_snapshots(fits, unit, run)
    change(path, loop={"snapshots": {"44": {"images": 16, "files": {}}}})
    with pytest.raises(UserError, match="is missing .it was taken at 16, from other images of router or experts., and"):
        check_snapshots(late, unit, run)
    change(path, images=16)
    check_snapshots(fits, unit, run)
