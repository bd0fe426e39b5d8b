import json
import os
import pwd
from dataclasses import replace

import pytest

from hpcddm.files.checked_reads import Unreadable
from hpcddm.runs import manifest, provenance
from hpcddm.runs.manifest import Manifest, Output
from tests.helpers import REPOSITORY


@pytest.fixture
def finished(tmp_path):
    """A unit's folder with two outputs and its manifest."""
    (tmp_path / "a.bin").write_bytes(b"aaaa")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.bin").write_bytes(b"b")
    outputs = manifest.describe_outputs(tmp_path, ["deep/b.bin", "a.bin"])
    settings, results = {"x.y": [1, 2.5], "z": None}, {"images": 7, "train_flops": 10**26}
    made = Manifest("train", "expert-00", settings, {"cluster/all": "d"}, outputs, results)
    manifest.publish(tmp_path, made)
    return tmp_path, made


def test_what_was_published_is_read(finished):
    folder, made = finished
    assert manifest.read(folder) == made
    assert made.outputs[0] == Output("a.bin", 4, "61be55a8e2f6b4e172338bddf184d6dbee29c98853e0a0485ecee7f27b9af0b4")
    assert manifest.find_damage(folder, made) is None


def test_a_manifest_that_is_torn_at_any_byte_is_damaged(finished):
    folder, _ = finished
    content = (folder / "manifest.json").read_bytes()
    for end in range(0, len(content) - 2, 7):
        (folder / "manifest.json").write_bytes(content[:end])
        with pytest.raises(Unreadable, match="manifest.json: holds no usable JSON"):
            manifest.read(folder)
        assert manifest.read_if_usable(folder) is None


OUTPUT = {"path": "a", "size": 1, "sha256": "x"}
NO_ROW = {"rows": 1, "with_row": 0, "without_row": 1, "first_without_row": None}
OTHER_TYPES = [
    *({"settings": "text"}, {"inputs": []}, {"inputs": {"a": 1}}, {"record": {"seconds": "1"}}, {"lengths": []}),
    *({"outputs": [OUTPUT | {"path": path}]} for path in (3, "/etc/passwd", "../a", "a\0b", "")),
    *({"outputs": [OUTPUT | {"size": True}]}, {"outputs": [3]}, {"results": None}),
]
RESULTS_OF_OTHER_TYPES = [
    *({"train_flops": "lots"}, {"train_flops": -1}, {"images": 1 << 63}, {"class_counts": [1, -1]}, {"digests": "x"}),
    *({"lists": {"expert-00": {}}}, {"lists": {"expert-00": {"samples": -1}}}, {"warnings": 3}, {"table": NO_ROW}),
    *({"snapshots": {"x": {"images": 1}}}, {"snapshots": {"1": {}}}, {"splits": {"train": {"samples": "all"}}}),
    *({"tars": [{"file": "a"}]}, {"broken": {"first": []}}, {"passed_over": {"others": {"count": 1}}}),
    *({"statistics": {"sums": [1.0], "squares": [], "count": 1}}, {"noise_levels": [0.5], "nll": [1.0, 2.0]}),
]


def refusal(folder, content):
    """Why what lies there instead of a manifest is none."""
    (folder / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(Unreadable, match="manifest.json: ") as caught:
        manifest.read(folder)
    return caught.value.reason


def test_a_manifest_of_other_types_is_damaged_and_its_key_named(finished):
    folder, _ = finished
    content = json.loads((folder / "manifest.json").read_text())
    for change in OTHER_TYPES:
        assert refusal(folder, content | change).startswith(f"holds no usable JSON ({next(iter(change))}"), change
    for results in RESULTS_OF_OTHER_TYPES:
        said = refusal(folder, content | {"results": results})
        assert said.startswith(f"holds no usable JSON (results.{next(iter(results))}") or "results: " in said, results


def test_a_missing_output_and_one_of_another_size_are_named(finished):
    folder, made = finished
    (folder / "a.bin").write_bytes(b"aaa")
    assert manifest.find_damage(folder, made) == f"{folder}/a.bin has 3 bytes instead of 4"
    (folder / "a.bin").unlink()
    assert manifest.find_damage(folder, made) == f"{folder}/a.bin is missing"


def test_the_digest_is_over_the_outputs_and_the_fingerprint_over_what_shaped_them(finished):
    _, made = finished
    assert replace(made, results={}, record={"seconds": 1}).digest == made.digest
    assert replace(made, results={}, record={"seconds": 1}).fingerprint == made.fingerprint
    other = replace(made, outputs=made.outputs[:1])
    assert other.digest != made.digest and other.fingerprint == made.fingerprint
    for change in ({"settings": {"x.y": [1, 2.5], "z": 0}}, {"inputs": {"cluster/all": "e"}}, {"inputs": {}}):
        assert replace(made, **change).fingerprint != made.fingerprint
        assert replace(made, **change).digest == made.digest


def test_a_record_names_no_host_user_or_path():
    origin = provenance.origin()
    record = manifest.provenance_record(0.0, 2, origin)
    assert record.keys() == origin.keys() | {"world_size", "seconds", "finished"}
    assert {"hpcddm", "code", "commit", "modified", "python", "torch", "cuda", "deepspeed", "numpy"} <= record.keys()
    words = json.dumps(record)
    for private in (os.uname().nodename, pwd.getpwuid(os.getuid()).pw_name, str(REPOSITORY)):
        assert f'"{private}' not in words and f"{private}/" not in words


def test_the_trajectory_of_a_training_does_not_know_where_it_ends():
    settings = {"training.images": 100, "training.batch": 10, "experts.model.images": 3}
    first = Manifest("train", "a", settings, {"expert_lists/a": "x"}, [])
    longer = replace(first, settings=settings | {"training.images": 200})
    assert longer.trajectory == first.trajectory and longer.fingerprint != first.fingerprint
    for key in ("training.batch", "experts.model.images"):
        assert replace(first, settings=settings | {key: 7}).trajectory != first.trajectory
    assert replace(first, inputs={"expert_lists/a": "y"}).trajectory != first.trajectory


def test_a_rate_that_falls_to_the_end_of_a_training_makes_its_end_a_part_of_the_trajectory():
    settings = {"training.images": 100, "training.schedule": "cosine"}
    first = Manifest("train", "a", settings, {}, [])
    assert replace(first, settings=settings | {"training.images": 200}).trajectory != first.trajectory
    for own in ({"training.decay_images": 100}, {"training.schedule": "inverse_root"}):
        named = replace(first, settings=settings | own)
        assert replace(named, settings=settings | own | {"training.images": 200}).trajectory == named.trajectory


def test_a_part_of_an_input_may_alone_count_or_nothing_of_it():
    lists = Manifest("expert_lists", "all", {}, {}, [Output("a", 1, "x")], {"digests": {"expert-00": "d0"}})
    inputs = {"expert_lists/all": lists, "catalog/all": lists, "cluster/all": lists}
    parts = {"expert_lists/all": "expert-00", "catalog/all": ""}
    expected = Manifest.expected("train/expert-00", {}, inputs, parts)
    assert expected.inputs == {"expert_lists/all#expert-00": "d0", "cluster/all": lists.digest}
    assert lists.digest_of("unknown") == lists.digest_of(None) == lists.digest
    named = [manifest.parse_input_name(name) for name in expected.inputs]
    assert named == [("expert_lists/all", "expert-00"), ("cluster/all", None)]


def test_a_result_that_a_manifest_lacks_is_named_with_its_file(finished):
    folder, _ = finished
    results = manifest.read(folder).results
    assert results["images"] == 7 and results.get("tars") is None and "tars" not in results
    with pytest.raises(Unreadable, match=r"manifest\.json: lacks the result 'tars'; fetch or make it again"):
        results["tars"]
