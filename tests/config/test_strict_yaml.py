"""A plain word of YAML has one meaning, in files, in overrides and in sweeps alike."""

import pytest

from hpcddm.config import strict_yaml
from hpcddm.config.strict_yaml import parse_value, read_yaml
from hpcddm.errors import ConfigError
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.loading.load_sweep import matching_labels, read_sweep
from tests.helpers import write_experiment, write_source

VALUES = {
    "30000": 30000, "1_000": 1000, "12_345_678": 12345678, "-3": -3, "+7": 7, "0": 0,
    "0.5": 0.5, ".5": 0.5, "5.": 5.0, "1e6": 1e6, "1e-4": 1e-4, "1.5E3": 1500.0, "12e03": 12000.0,
    "true": True, "False": False, "null": None, "'010'": "010", '"no"': "no", '"2026-01-01"': "2026-01-01",
    "[1, {a: 2}]": [1, {"a": 2}],
}  # fmt: skip
VALUES |= {word: word for word in "none y n = 1.2.3 1,000 a:b n[3-5],n9 1-00:00:00 10.0.0.1".split()}


@pytest.mark.parametrize("text, value", VALUES.items())
def test_a_word_with_one_meaning_has_it(tmp_path, text, value):
    got = parse_value("key", text, "place")
    assert got == value and type(got) is type(value)
    (tmp_path / "a.yaml").write_text(f"key: {text}\n")
    assert read_yaml(tmp_path / "a.yaml")[0] == {"key": value}


READERS = {"060": "60", "010": "10", "-010": "-10", "08": "8", "072000": "72000", "00.5": "0.5", "00": "0"}
READERS |= {"1_0": "10", "1__000": "1000", "0.1_0": "0.10"}
ODD = {text: f"is not the same number to all readers of YAML; write {number}, or" for text, number in READERS.items()}
ODD |= {
    text: f"is not a decimal number; write {number}, or" for text, number in (("0o17", 15), ("0x1F", 31), ("0b11", 3))
}
for value, texts in {"true": ("yes", "ON"), "false": ("No", "off")}.items():
    ODD |= {text: f"is {value} to YAML 1.1; write {value}, or" for text in texts}
for advice, texts in {
    "is a number of base 60 to YAML 1.1; write a decimal number, or": "12:00:00 0:30:00 1:30 -1:30.5 16:9 1:2:3:4",
    "may be a text, or nothing; write null for nothing, or": "~ None",
    "is not a finite number; write": ".inf -.INF .nan 1e400 " + "9" * 400,
}.items():
    ODD |= dict.fromkeys(texts.split(), advice)
ODD |= dict.fromkeys(["2026-01-01", "2026-01-01 10:00:00"], "is a date to YAML 1.1; write")


@pytest.mark.parametrize("text, advice", ODD.items())
def test_a_word_with_several_meanings_is_refused_with_place_and_what_to_write(tmp_path, text, advice):
    with pytest.raises(ConfigError) as caught:
        parse_value("a.key", text, "'a.key=...'")
    assert str(caught.value) == f"'a.key=...': {text} {advice} 'a.key=\"{text}\"' for a text"
    place = tmp_path / "a.yaml"
    for content, at in ((f"a: 1\nb:\n  key: {text}\n", "3:8"), (f"a: 1\nkey: [x, {text}]\n", "2:10")):
        place.write_text(content)
        with pytest.raises(ConfigError) as caught:
            read_yaml(place)
        assert str(caught.value) == f'{place}:{at}: key: {text} {advice} "{text}" for a text'


TIMES = {"minutes=12:00:00": "720 minutes", "minutes=0:30:00": "30 minutes", "minutes=0:00:30": "1 minutes"}
TIMES |= {"watchdog_minutes=1:30": "90 for 1 h 30 min"}
TIMES |= {"signal_lead_seconds=2:00": "120 seconds", "signal_lead_seconds=1:00:05": "3605 seconds"}


@pytest.mark.parametrize("setting, number", TIMES.items())
def test_a_time_is_refused_with_the_number_in_the_unit_of_its_key(setting, number):
    with pytest.raises(ConfigError, match=f"; write {number}, or"):
        parse_value(*setting.split("="), "place")


@pytest.mark.parametrize(
    "override, message",
    [
        ("experts.training.images=072000", "'experts.training.images=072000': 072000 is not the same number"),
        ("seed=", "'seed=': no value; write seed=null for nothing, or 'seed=\"\"' for an empty text"),
        ("seed=#5", "'seed=#5': no value"),
        ("data.source.folder=a #b", "'data.source.folder=a #b': what follows would be a comment"),
        ("name=*a", "'*a' is not a YAML value (found undefined alias 'a'); write 'name=\"...\"' for a text"),
        ("name=1.10", "'name=1.10': name: input should be a valid string, found 1.1; put it in quotes"),
        ("monolith.enabled=1", "'monolith.enabled=1': monolith.enabled: needs true or false, found 1"),
        ('monolith.enabled="yes"', "monolith.enabled: needs true or false, found 'yes'"),
        ("monolith.enabled=y", "monolith.enabled: needs true or false, found 'y'"),
        ("seed=true", "'seed=true': seed: needs a value of another kind, found True"),
        ('data.source.folder="a\\0b"', "folder: 'a\\x00b' cannot be a path"),
        ("data.source.folder=~no-such-user/x", "folder: '~no-such-user/x' cannot be a path"),
    ],
)
def test_an_override_that_would_change_its_meaning_is_refused(tmp_path, override, message):
    with pytest.raises(ConfigError) as caught:
        load_experiment(str(write_experiment(tmp_path)), (override,))
    assert message in str(caught.value)


def test_a_sweep_and_a_choice_of_its_settings_are_read_as_an_experiment_is(tmp_path):
    write_source(tmp_path / "images")
    write_experiment(tmp_path)

    def read(section):
        (tmp_path / "sweep.yaml").write_text(f"name: trial\nexperiment: tiny.yaml\n{section}\n")
        return read_sweep(str(tmp_path / "sweep.yaml"))

    for section in ("set: {seed: 010}\ngrid: {evaluate.steps: [1]}", "grid: {seed: [1, 010]}"):
        with pytest.raises(ConfigError, match=r"sweep.yaml:3:\d+: seed: 010 is not the same number"):
            read(section)
    sweep = read("grid: {seed: [8, 10]}")
    assert matching_labels(sweep, ["seed=10"]) == {"seed=10"}
    for only in ("seed=010", "seed=[1"):
        with pytest.raises(ConfigError, match=f"^--only {only}: ".replace("[", r"\[")):
            matching_labels(sweep, [only])


def test_a_mark_of_utf_8_and_line_ends_of_windows_change_nothing(tmp_path):
    path = write_experiment(tmp_path)
    before = load_experiment(str(path))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_experiment(str(path)) == before


def test_anchors_and_merges_are_read_and_their_lines_are_those_where_they_stand(tmp_path):
    (tmp_path / "a.yaml").write_text("a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\nc: *a\nd: [5, &e {z: 6}]\n")
    values, origins = read_yaml(tmp_path / "a.yaml")
    assert values == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 1, "y": 2}, "d": [5, {"z": 6}]}
    lines = {("b", "x"): 1, ("b", "y"): 4, ("c",): 5, ("c", "x"): 1, ("d", 1, "z"): 6}
    assert {place: origins.lines[place] for place in lines} == lines


def test_many_values_without_anchors_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(strict_yaml, "MAX_VALUES", 100)
    (tmp_path / "a.yaml").write_text(f"key: [{'1, ' * 110}]\n")
    assert len(read_yaml(tmp_path / "a.yaml")[0]["key"]) == 110
