"""Flags that a site may not give to sbatch and srun: every way in which Slurm understands them is refused."""

import pytest

from hpcddm.config.sbatch_flags import SBATCH, SHORT, SRUN
from hpcddm.config.schema import validate
from hpcddm.config.site import Site
from hpcddm.errors import ConfigError


def site(**keys):
    return validate(Site, {"name": "here", "scheduler": "slurm", **keys}, "here.yaml")


def refusal(**keys):
    with pytest.raises(ConfigError) as caught:
        site(**keys)
    return str(caught.value)


@pytest.mark.parametrize("flag", SBATCH)
@pytest.mark.parametrize("form", ["--{}=x", "--{} x", "--exclusive --{}=x", "--comment='a b' --{} x"])
def test_a_flag_of_the_bookkeeping_is_refused_with_what_to_do(flag, form):
    said = refusal(extra_sbatch=[form.format(flag)])
    assert said.startswith(f"here.yaml: extra_sbatch.0: --{flag} cannot be given here: {SBATCH[flag]}")


SITE_KEYS = {"cluster": "-M north", "exclude": "-x n3", "partition": "--part=gpu", "requeue": "--no-r"}
REFUSED = {
    "max_parallel": ["-a0-3", "-Ha0-3", "--arr=0-3"],
    "finds its jobs by it": ["-J mine", "-Jmine"],
    "does not wait": ["-W", "-QW"],
    "hpcddm sets it": ["--dep afterok:3"],
    "resources.gpus_per_node": ["--gres=gpu:a100:4", "--gres nvme:1,gpu:4"],
} | {f"site key {key}": [line] for key, line in SITE_KEYS.items()}


@pytest.mark.parametrize("line, instead", [(line, instead) for instead, lines in REFUSED.items() for line in lines])
def test_short_forms_and_beginnings_are_refused_too(line, instead):
    assert instead in refusal(extra_sbatch=[line])
    assert "stages.train.extra_sbatch.0: " in refusal(stages={"train": {"extra_sbatch": [line]}})


@pytest.mark.parametrize(
    "line",
    [
        "--hold", "-H", "--exclusive", "--begin=now+1hour", "-b now", "--licenses=scratch:1", "-L a",
        "--comment='-J x y'", "--export=NONE", "--gres=nvme:1", "--gpu-bind=closest", "--mem-bind=local",
        "--time-min=10", "-w n3", "--nice=10",
        "--wait-all-nodes=1", "--comment=x # --array=3", "--switches=1@10:00", "--mail-type=FAIL", "-s",
    ],
)  # fmt: skip
def test_other_flags_are_the_users_own(line):
    assert site(extra_sbatch=[line]).extra_sbatch == (line,)


@pytest.mark.parametrize("line", ["--hold\nrm -rf x", "--comment='x", "", "hold", "# --hold"])
def test_what_is_no_line_of_flags_is_refused(line):
    assert "extra_sbatch.0: " in refusal(extra_sbatch=[line])


TWICE = {"--cpu-bind=cores": "site key cpu_bind", "-K0": "hpcddm sets it", "--output=x": "hpcddm sets it"}
TWICE |= {"--mpi pmix -n4": "ranks_per_node", "--exp=NONE": "site key setup"}


@pytest.mark.parametrize("words, instead", TWICE.items())
def test_srun_gets_no_flag_twice(words, instead):
    assert instead in refusal(srun_args=words.split())


def test_srun_gets_further_words():
    assert site(srun_args=["--mpi=pmix", "--gpu-bind", "closest"]).srun_args == ("--mpi=pmix", "--gpu-bind", "closest")


def test_every_short_flag_stands_for_a_refused_one():
    assert set(SHORT.values()) <= {*SBATCH, *SRUN}


EVIL = ["$(touch x)", "`touch x`", "a;touch x", 'x"y', "x'y", "\\x", "${A:-b}", "$", "${A", "$1", "a b", "x\ny"]


@pytest.mark.parametrize("word", EVIL)
@pytest.mark.parametrize("key", ["container", "python", "srun_args"])
def test_nothing_but_a_plain_variable_is_expanded_in_a_job(key, word):
    assert key in refusal(**{key: word if key == "python" else [word]})


@pytest.mark.parametrize("key", ["partition", "exclude", "reservation", "cluster", "cpu_bind"])
def test_names_hold_no_variables(key):
    assert key in refusal(**{key: "$HOME"})


def test_a_stage_and_a_unit_change_the_sites_keys():
    keys = {"train": {"setup": ["b"], "python": "python3"}, "train/expert-03": {"container": [], "cluster": "south"}}
    one = site(cluster="north", setup=["a"], container=["box"], stages=keys)
    assert one.resources_for("shard", "train-000").setup == ("a",)
    unit = one.resources_for("train", "expert-03")
    assert (unit.setup, unit.python, unit.container, unit.cluster) == (("b",), "python3", (), "south")
    assert one.resources_for("train", "expert-02").container == ("box",)
    assert validate(Site, one.model_dump(mode="json"), "stored").resources_for("train", "expert-03") == unit
