"""Trainings of a DiT of the strong block, and of compiled blocks, in processes of their own."""

import itertools
import re

import pytest

from hpcddm.config.job_resources import JobResources
from hpcddm.config.schema import validate
from hpcddm.config.site import Site
from hpcddm.errors import ConfigError
from hpcddm.training import compile_choice
from tests.training import outside


def test_the_strong_block_goes_on_bit_for_bit_in_all_stages_of_zero(tmp_path):
    found, _ = outside.run("strong", tmp_path, "stages", timeout=580)
    for case, (whole, stopped) in ((own["case"], own["chains"]) for own in found):
        assert whole["codes"] == [[0, 0]] and stopped["codes"] == [[3, 3], [0, 0]], case
        assert stopped["weights"] == whole["weights"] and stopped["curve"] == whole["curve"], case
    cases = [own["case"] for own in found]
    for one, other in itertools.combinations(cases[0], 2):
        pairs = [{case[key] for case in cases} for key in (one, other)]
        assert {(case[one], case[other]) for case in cases} == set(itertools.product(*pairs)), (one, other)
    assert {case["zero_stage"] for case in cases} == {0, 1, 2, 3}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """What trainings with compiled blocks came to, and what each of them said."""
    found, output = outside.run("strong", tmp_path_factory.mktemp("compiled"), "compiled", timeout=580)
    parts = re.split(r"^== (.*)\n", output, flags=re.MULTILINE)[1:]
    said = dict.fromkeys(parts[::2], "")
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        said[name] += text
    # Errors come after all that was printed.
    return found, said | {"": output}


@pytest.mark.parametrize("name", ["forward", "backward", "on one rank", "recomputing", "required"])
def test_where_blocks_cannot_be_compiled_a_line_says_so_and_the_weights_are_those_without(compiled, name):
    found, said = compiled
    lines = [line for line in said[name].splitlines() if line.startswith("compile_blocks")]
    reason = "TransformerBlock cannot be compiled (ValueError: no such); continuing uncompiled"
    assert lines == [f"compile_blocks: {reason}"] and "Traceback" not in said[name]
    assert found[name]["codes"] == [[0, 0]] and found[name]["compiled"] is False
    assert found[name]["weights"] == found["never"]["weights"] and found[name]["curve"] == found["never"]["curve"]


@pytest.mark.parametrize(
    "name, reason, other",
    [
        ("no compiler", "the machine of rank 0 has no C++ compiler (g++)", "never"),
        ("short", "about 0 minutes at 0.001 TFLOP/s per GPU are less than 10", "never"),
        ("stage 3", "zero_stage: 3", "stage 3, never"),
    ],
)
def test_blocks_are_not_compiled_where_it_would_not_work_or_pay(compiled, name, reason, other):
    found, said = compiled
    assert f"; blocks not compiled (compile_blocks: auto, {reason})\n" in said[name]
    assert found[name]["compiled"] is False and found[name]["weights"] == found[other]["weights"]


def test_blocks_that_shall_be_compiled_need_a_compiler(compiled):
    assert compiled[0]["required, no compiler"]["codes"] == [[1, 1]]
    said = "compile_blocks: true: the machine of rank 0 has no C++ compiler (g++); load the module of one in the site's"
    assert said in compiled[1][""]


def test_long_trainings_are_compiled_on_gpus_and_with_blocks_that_recompute(compiled):
    found, said = compiled
    assert found["whole"]["compiled"] is True and "compile_blocks: Tr" not in said["whole"]
    reason = "compile_blocks: auto, about 667 minutes at 1e-09 TFLOP/s per GPU"
    assert f"; 2 compiled blocks ({reason}), activations of 2 of 2 blocks recomputed\n" in said["whole"]


@pytest.mark.parametrize("name, is_compiled", [("compiled first", True), ("compiled never", False)])
def test_an_attempt_keeps_the_choice_of_the_one_before(compiled, name, is_compiled):
    found, said = compiled
    for part in ("until", "after"):
        assert found[f"{name}, {part} a stop"]["compiled"] is is_compiled, part
    blocks = "2 compiled blocks" if is_compiled else "blocks not compiled"
    assert f"24 of 40 images seen, 8 images per step, 2 ranks, 30 samples, cpu; {blocks} (" in said[name]
    assert f"{blocks} (compile_blocks: auto, as in the attempt before)\n" in said[name]


def test_the_choice_without_a_gpu_and_of_the_user_is_not_explained():
    for resources, device in (({}, "cpu"), ({"compile_blocks": False}, "cuda")):
        chosen = compile_choice.choose(JobResources(**resources), device, 1e30)
        assert not chosen.active and chosen.describe(2) == ""
    assert compile_choice.choose(JobResources(compile_blocks=True), "cpu", 0).describe(2) == "2 compiled blocks"
    chosen = compile_choice.choose(JobResources(), "cuda", 1.2e17)
    assert chosen.describe(28) == "28 compiled blocks (compile_blocks: auto, about 20 minutes at 100 TFLOP/s per GPU)"
    assert not compile_choice.choose(JobResources(ranks_per_node=4), "cuda", 1.2e17).active


@pytest.mark.parametrize("value", [1, "yes", "Auto", None, ["auto"]])
def test_another_value_is_refused_with_the_key_and_what_is_valid(value):
    site = {"name": "here", "scheduler": "local", "stages": {"train": {"compile_blocks": value}}}
    with pytest.raises(ConfigError, match=r"(?i)stages\.train.*compile_blocks.*auto.*true.* false"):
        validate(Site, site, "here")
