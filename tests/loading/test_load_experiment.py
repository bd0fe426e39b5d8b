import shutil

import pytest

from hpcddm.config.schema import settings_to_hash
from hpcddm.errors import ConfigError, UserError
from hpcddm.files import atomic
from hpcddm.launch.load_site import load_site
from hpcddm.launch.submission import store_experiment
from hpcddm.loading.content_hashes import _hash_of, with_content_hashes
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment, with_relative_paths
from tests.helpers import JOINED, tiny, write_experiment, write_source


@pytest.mark.parametrize("section", ["cluster", "evaluate", "experts:\n  training"])
def test_a_section_without_keys_is_named_as_empty_and_takes_overrides(tmp_path, section):
    write_source(tmp_path / "photos")
    data = "data:\n  source: {name: image_folder, folder: photos}\n  image_size: 16\n"
    (tmp_path / "e.yaml").write_text(f"{data}{section}:\n    # a: 4\n")
    key = section.replace(":\n  ", ".")
    with pytest.raises(ConfigError, match=rf"e\.yaml:[45]: {key}: is empty; remove it, or write its keys below it"):
        load_experiment(str(tmp_path / "e.yaml"))
    with pytest.raises(ConfigError, match=rf"{key}.x: unknown key"):
        load_experiment(str(tmp_path / "e.yaml"), (f"{key}.x=1",))


def test_an_override_is_yaml_and_the_last_wins_and_may_make_new_keys(tmp_path):
    path = str(write_experiment(tmp_path))
    for number, value in (("32", 32), ("3e1", 30), ("1_000", 1000)):
        assert load_experiment(path, (f"experts.training.images={number}",)).experts.training.images == value
    assert load_experiment(path, ("monolith.enabled=true", "monolith.enabled=false")).monolith.enabled is False


def test_an_override_names_an_entry_of_a_list_by_its_number(tmp_path):
    path = write_experiment(tmp_path, experts__overrides=[{"clusters": [0]}, {"clusters": [1]}])
    experiment = load_experiment(str(path), ("experts.overrides.1.precision=bf16", "experts.overrides.0.clusters.0=0"))
    assert [own.precision for own in experiment.experts.overrides] == [None, "bf16"]


NO_LIST = "overrides is a list of 1; its entries are numbered from 0"
WRONG_OVERRIDES = [
    ("experts.training.image=32", "experts.training.image: unknown key; valid keys: images, batch"),
    ("images=32", "images: unknown key; valid keys: name, seed"),
    ("seed", "'seed': an override is key.key=value"),
    ("=3", "'=3': an override is key.key=value"),
    ("name.first=x", "'name.first=x': name holds a value and no further keys"),
    ("experts.overrides.1.batch=8", NO_LIST),
    ("experts.overrides.first.batch=8", NO_LIST),
    ("seed=[1", "'[1' is not a YAML value"),
    ("seed.=1", "seed"),
]


@pytest.mark.parametrize("override, message", WRONG_OVERRIDES)
def test_a_wrong_override_is_named(tmp_path, override, message):
    with pytest.raises(ConfigError) as caught:
        load_experiment(str(write_experiment(tmp_path, experts__overrides=[{"clusters": [1]}])), (override,))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def multiplied(form):
    """Eight keys, each of which holds ten times the one before."""
    return b"".join(form % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 10)) for i in range(8))


MANY = "no readable YAML (its anchors expand to more than 100,000 values)"


WRONG_FILES = {
    "syntax": (b"name: tiny\ndata: [1, 2\nseed: 0\n", ":3:5: no readable YAML"),
    "tab": (b"name: tiny\n\tseed: 0\n", ":2:1: no readable YAML"),
    "no mapping": (b"- name\n", "needs a mapping of keys at the top"),
    "empty": (b"", "needs a mapping of keys at the top"),
    "bytes": (b"\xff\xfe\x00name", "no readable YAML"),
    "control character": (b"name: x\nseed: \x01\n", ":2: no readable YAML"),
    "a key twice": (b"name: tiny\nseed: 0\nseed: 1\n", ":3:1: key 'seed' appears twice, first in line 2"),
    "a nested key twice": (b"data: {shards: 1, channels: 1, shards: 2}\n", ":1:32: key 'shards' appears twice"),
    "a number as key": (b"a: 1\n1: 2\n", ":2:1: '1' as a key: a key needs to be a text; put it in quotes"),
    "a truth value as key": (b"true: 2\n", ":1:1: 'true' as a key: a key needs to be a text"),
    "a word as key that is one to YAML 1.1": (b"data: {on: 2}\n", ":1:8: 'on' as a key: a key needs to be a text"),
    "a list as key": (b"[1, 2]: 2\n", ":1:1: a list or a mapping as a key"),
    "two documents": (b"name: tiny\n---\nname: tiny\n", ":2:1: no readable YAML (expected a single document"),
    "a tag": (b"name: tiny\nseed: !!int 010\n", ":2:7: no readable YAML (the tag tag:yaml.org,2002:int is not read"),
    "an object of Python": (b"name: !!python/name:os.system\n", ":1:7: no readable YAML (the tag"),
    "an alias in itself": (b"name: &a [*a]\n", MANY),
    "aliases that multiply": (b"a: &a [x,x,x,x,x,x,x,x,x,x]\n" + multiplied(b"%c: &%c [%s]\n"), MANY),
    "merges that multiply": (b"a: &a {x: 1}\n" + multiplied(b"%c: &%c {<<: [%s]}\n"), MANY),
    "a list in a thousand lists": (b"name: " + b"[" * 5000, "no readable YAML (it is nested too deeply)"),
}


@pytest.mark.parametrize("content, message", WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_file_that_is_no_yaml_is_named_with_line_and_column(tmp_path, content, message):
    path = tmp_path / "wrong.yaml"
    path.write_bytes(content)
    for load in (load_experiment, load_site):
        with pytest.raises(ConfigError) as caught:
            load(str(path))
        assert str(caught.value).startswith(str(path)) and message in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_unknown_name_lists_the_known_ones_and_a_missing_path_is_named():
    for load, known in ((load_experiment, "quickstart"), (load_site, "embedded, slurm")):
        with pytest.raises(ConfigError, match=f"named 'nowhere'; valid names: .*{known}"):
            load("nowhere")
    for name in ("missing.yaml", "./missing", "/tmp"):
        with pytest.raises(ConfigError, match=f"{name}: no such experiment file"):
            load_experiment(name)


@pytest.fixture
def run(tmp_path):
    """A run beside the images."""
    write_source(tmp_path / "images")
    return RunDir(tmp_path / "runs" / "tiny")


def test_a_bare_name_is_looked_up_here_first(tmp_path, monkeypatch):
    write_experiment(tmp_path).rename(tmp_path / "quickstart.yaml")
    monkeypatch.chdir(tmp_path)
    assert load_experiment("quickstart").name == "tiny"


def test_a_file_of_keys_goes_by_its_content_and_is_stored_relative_to_the_run(tmp_path, run):
    (tmp_path / "hats.txt").write_text("key\n")
    experiment = tiny(tmp_path, experts__extra=[JOINED])
    (joined,) = experiment.experts.extra
    assert (joined.list, joined.content_hash) == (str(tmp_path / "hats.txt"), None)
    complete = with_content_hashes(experiment, run)
    assert complete.experts.extra[0].content_hash == atomic.sha256(tmp_path / "hats.txt")
    store_experiment(with_relative_paths(complete, run), run)
    assert stored_experiment(run).experts.extra[0].list == "../../hats.txt"
    (tmp_path / "hats.txt").unlink()
    assert with_content_hashes(experiment, run) == complete
    missing = tiny(tmp_path, experts__extra=[JOINED | {"list": "bags.txt"}])
    with pytest.raises(ConfigError, match="bags.txt: no keys of samples .No such file.*; experts.extra names"):
        with_content_hashes(missing, run)


def with_table(folder, file):
    """The tiny experiment with a table, whose file is hashed anew."""
    _hash_of.cache_clear()
    return tiny(folder, data__filter="score > 1", data__table={"file": file})


def test_a_table_goes_by_its_content_and_other_values_choose_other_samples(tmp_path, run):
    shards = []
    for score in (1, 2):
        (tmp_path / "scores.csv").write_text(f"key,score\na,{score}\n")
        experiment = with_content_hashes(with_table(tmp_path, "scores.csv"), run)
        assert experiment.data.table.content_hash == atomic.sha256(tmp_path / "scores.csv")
        shards.append(settings_to_hash(experiment.data))
    assert shards[0] != shards[1]
    (tmp_path / "scores.csv").unlink()
    with pytest.raises(ConfigError, match=r"scores\.csv: no table .No such file.*; a table of the experiment"):
        with_content_hashes(with_table(tmp_path, "scores.csv"), run)


def test_a_table_may_be_a_folder_and_what_is_no_table_is_refused_at_once(tmp_path, run):
    folder, hashes = tmp_path / "scores", []
    folder.mkdir()
    with pytest.raises(UserError, match="scores: no table in this folder"):
        with_content_hashes(with_table(tmp_path, "scores"), run)
    for part in ("a", "b"):
        (folder / f"{part}.csv").write_text(f"key,score\n{part},1\n")
        complete = with_content_hashes(with_table(tmp_path, "scores"), run)
        hashes.append(complete.data.table.content_hash)
    assert hashes[0] != hashes[1]
    store_experiment(with_relative_paths(complete, run), run)
    shutil.rmtree(folder)
    assert with_content_hashes(with_table(tmp_path, "scores"), run).data.table.content_hash == hashes[1]
    folder.write_text("key,score\n")
    with pytest.raises(UserError, match="scores: no folder, and a table's name ends in one of .csv"):
        with_content_hashes(with_table(tmp_path, "scores"), run)


def test_a_folder_without_a_run_is_named(tmp_path):
    for content in (None, "{", "[]", '{"name": "x"}'):
        if content:
            (tmp_path / "experiment.json").write_text(content)
        with pytest.raises(ConfigError, match=str(tmp_path)):
            stored_experiment(RunDir(tmp_path))
