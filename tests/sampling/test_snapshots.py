"""Snapshots: where they lie in every unit's own images, what they cost, who names them, and what they leave alone."""

import pytest
import torch
from safetensors.torch import save_file

from hpcddm.errors import ConfigError, UserError
from hpcddm.files.tensor_file import TensorSpec
from hpcddm.models import build_denoiser, build_router
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.unit_keys import MONOLITH, ROUTER, STUDENT, expert_key
from hpcddm.runs.unit_training import resolve_training
from hpcddm.runs.weights_files import WeightsChoice, power_average_name, weights_file, weights_name
from hpcddm.sampling import load_ensemble, posthoc_ema
from hpcddm.training import ema, flops_budget
from hpcddm.training.ema import exponent
from tests.helpers import JOINED, hpcddm, tiny

KEPT = {"experts__training__images": 640, "experts__training__snapshots": [100, 320, 640]}
KEPT |= {"router__training__images": 320}
POWERS = {"experts__training__power_ema": [0.05, 0.1], "experts__training__snapshots": [16, 32, 48]}
LARGE = [{"clusters": [1], "model": {"name": "dit", "width": 32, "depth": 2, "heads": 2, "patch": 4}}]

FORMS = {"a": TensorSpec("F32", (2,)), "b": TensorSpec("I64", (1,))}


def files_of(experiment, snapshot):
    keys = [MONOLITH, STUDENT, ROUTER, expert_key(0), expert_key("hats")]
    return {key: weights_file(experiment, key, WeightsChoice(snapshot)) for key in keys}


def publish(folder, key, files, results=None):
    """A complete unit with files of weights."""
    (folder / "snapshots").mkdir(parents=True)
    for name, weights in files.items():
        save_file(weights, folder / name)
    outputs = manifest.describe_outputs(folder, list(files))
    manifest.publish(folder, Manifest(*key.split("/"), {}, {}, outputs, results or {}))


def test_a_snapshot_is_taken_at_the_first_step_that_reaches_it(tmp_path):
    experiment = tiny(tmp_path, **KEPT, distill={"share": 0.25}, experts__extra=[JOINED | {"images": 200}])
    assert resolve_training(experiment, expert_key(0)).settings.by_experiment_number == {100: 56, 320: 160, 640: 320}
    assert resolve_training(experiment, STUDENT).settings.by_experiment_number == {100: 28, 320: 80, 640: 160}
    # As many steps as the others', of which it makes fewer.
    assert resolve_training(experiment, expert_key("hats")).settings.by_experiment_number == {100: 56, 320: 160}
    name = "snapshots/images-000000000640.safetensors"
    others = {ROUTER: "weights.safetensors", expert_key("hats"): "weights.safetensors"}
    assert files_of(experiment, 640) == dict.fromkeys([MONOLITH, STUDENT, expert_key(0)], name) | others
    assert set(files_of(experiment, None).values()) == {"weights.safetensors"}


@pytest.mark.parametrize("overrides", [[], LARGE])
@pytest.mark.parametrize("router_snapshots", [[], [50, 160, 320]])
def test_the_monoliths_snapshots_cost_what_those_of_experts_and_router_cost(tmp_path, overrides, router_snapshots):
    changes = {"experts__overrides": overrides, "router__training__snapshots": router_snapshots}
    experiment = tiny(tmp_path, **KEPT, **changes)
    monolith = flops_budget.training_of(experiment, MONOLITH).settings
    *experts, dense = (
        flops_budget.train_flops(experiment, experiment.expert_config(expert)) for expert in (0, 1, None)
    )
    per_image = flops_budget.router_fit_flops(experiment) // 320
    for place, (number, images) in enumerate(monolith.by_experiment_number.items()):
        seen = [
            resolve_training(experiment, expert_key(expert)).settings.by_experiment_number[number] for expert in (0, 1)
        ]
        own = [images * flops for images, flops in zip(seen, experts, strict=True)]
        routed = resolve_training(experiment, ROUTER).settings.snapshots[place] if router_snapshots else 320
        assert abs(images * dense - sum(own) - routed * per_image) <= 8 * dense and images % 16 == 0
    assert images == monolith.images
    # More images move none of those before them.
    longer = tiny(tmp_path, **(KEPT | {"experts__training__images": 6400}), **changes)
    longer = flops_budget.training_of(longer, MONOLITH).settings
    assert longer.snapshots == monolith.snapshots and longer.images > 6 * monolith.images


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"experts__training__snapshots": [32, 16]}, "snapshots: each number must be larger"),
        ({"experts__training__snapshots": [65]}, "snapshots: 65 is beyond the 64 images"),
        ({"evaluate__snapshot": 32}, "evaluate.snapshot: 32 is not kept; valid numbers: none, name some in experts"),
        (KEPT | {"evaluate__snapshot": 32}, "evaluate.snapshot: 32 is not kept; valid numbers: 100, 320, 640"),
        (KEPT | {"router__training__snapshots": [9]}, "router.training.snapshots: 1 here, 3 in experts.training"),
        ({"evaluators__extractor__training__snapshots": [16]}, "extractor.training.snapshots: nothing reads them"),
        ({"experts__training__power_ema": [0.1]}, "power_ema: needs two or more lengths to"),
        ({"experts__training__power_ema": [0.1, 0.3]}, "power_ema.1: input should be less than 0.28"),
        ({"evaluate__sigma_rel": 0.1}, "evaluate.sigma_rel: is made of averages .* names none"),
        (POWERS | {"evaluate__sigma_rel": 0.28}, "evaluate.sigma_rel: 0.28: needs a length above 0 and below 0.28"),
    ],
)
def test_snapshots_that_nothing_names_or_keeps_are_refused(tmp_path, changes, words):
    with pytest.raises(ConfigError, match=words):
        tiny(tmp_path, **changes)


def test_snapshots_are_under_the_fingerprint_and_not_in_the_trajectory(tmp_path):
    def expected(**changes):
        return {unit.key: unit.expected({}) for unit in plan_units(tiny(tmp_path, **changes)) if unit.stage in STAGES}

    none, one = expected(), expected(experts__training__snapshots=[32], router__training__snapshots=[16])
    assert len(none) == 4 and all(not any("snapshot" in key for key in each.settings) for each in none.values())
    assert none[expert_key(0)].settings | {"training.snapshots.32": 16} == one[expert_key(0)].settings
    for key, before in none.items():
        assert one[key].fingerprint != before.fingerprint and one[key].trajectory == before.trajectory


STAGES = ("train", "router")


def test_further_averages_are_hashed_and_have_files_at_the_end_and_of_every_snapshot(tmp_path):
    changes = {"experts__training__power_ema": [0.05, 0.1], "experts__training__snapshots": [32]}
    experiment = tiny(tmp_path, **changes, distill__share=0.25)
    units = {unit.key: unit.expected({}) for unit in plan_units(experiment) if unit.stage in ("train", "distill")}
    powers = [[value for name, value in unit.settings.items() if "power" in name] for unit in units.values()]
    assert len(powers) == 4 and all(own == [[0.05, 0.1]] for own in powers)
    # An average cannot be had of a training that has begun without it.
    plain = {unit.key: unit.expected({}) for unit in plan_units(tiny(tmp_path)) if unit.stage == "train"}
    assert all(unit.trajectory != units[key].trajectory for key, unit in plain.items())
    averages = ema.update_weights(resolve_training(experiment, expert_key(0)).settings)
    assert list(averages) == ["ema", "power-0.05", "power-0.1"]
    assert [weights_name(number, average) for number in (None, 32) for average in averages] == [
        f"{stem}{added}.safetensors"
        for stem in ("weights", "snapshots/images-000000000032")
        for added in ("", "-power-0.05", "-power-0.1")
    ]


def test_an_average_of_any_length_is_made_of_those_that_were_kept(tmp_path):
    """The weights grow by 1 with every image: then an average at T is (gamma + 1) / (gamma + 2) T."""
    experiment, run = tiny(tmp_path, **POWERS), RunDir(tmp_path / "run")
    for key, rate in ((MONOLITH, 2), (expert_key(0), 1)):
        folder, images = run.unit(key), {"16": 8 * rate, "32": 16 * rate, "48": 24 * rate}
        points = {int(number): own for number, own in images.items()} | {None: 32 * rate}
        files = {}
        for number, own in points.items():
            for sigma_rel in (0.05, 0.1):
                name, gamma = weights_name(number, power_average_name(sigma_rel)), exponent(sigma_rel)
                files[name] = {"a": torch.full((2,), (gamma + 1) / (gamma + 2) * own), "b": torch.tensor([7])}
        snapshots = {number: {"images": own} for number, own in images.items()}
        publish(folder, key, files, {"images": 32 * rate, "snapshots": snapshots})
        for number, own in points.items():
            for sigma_rel, most in ((0.05, 1e-6), (0.1, 1e-6), (0.07, 0.01), (0.15, 0.06)):
                made = posthoc_ema.average(experiment, key, folder, WeightsChoice(number, sigma_rel), FORMS)
                gamma = exponent(sigma_rel)
                aim = (gamma + 1) / (gamma + 2) * own
                assert made["a"].dtype == torch.float32 and made["b"].item() == 7
                assert (made["a"] - aim).abs().max() <= most * own, (key, number, sigma_rel)
    changed = folder / weights_name(16, power_average_name(0.1))
    changed.write_bytes(changed.read_bytes()[:-1] + b"\1")
    with pytest.raises(UserError, match="its bytes are not those of its manifest"):
        posthoc_ema.average(experiment, key, folder, WeightsChoice(None, 0.07), FORMS)


def test_the_weights_that_were_chosen_are_loaded(tmp_path):
    experiment, run = tiny(tmp_path, experts__training__snapshots=[32]), RunDir(tmp_path / "run")
    keys = [MONOLITH, ROUTER, expert_key(0), expert_key(1)]
    for number, key in enumerate(keys):
        denoiser, router = build_denoiser.build(experiment, experiment.expert_config()), build_router.build(experiment)
        weights = (router if key == ROUTER else denoiser).state_dict()
        values = {"weights.safetensors": 0.5, "snapshots/images-000000000032.safetensors": number}
        files = ({name: torch.full_like(one, own) for name, one in weights.items()} for own in values.values())
        publish(run.unit(key), key, dict(zip(values, files, strict=True)))
    for choice, values in ((WeightsChoice(), [0.5] * 4), (WeightsChoice(32), [0, 0.5, 2, 3])):
        loaded = load_ensemble.load_ensemble(experiment, run.unit, keys, torch.device("cpu"), choice)
        networks = [loaded.monolith.model, loaded.router, *(expert.model for expert in loaded.experts)]
        assert [next(network.parameters()).flatten()[0].item() for network in networks] == values


REFUSED = [
    (["--snapshot", 7], "--snapshot: 7 is not kept; valid numbers: 1000, 2048"),
    (["--sigma-rel", 0.3], "--sigma-rel: 0.3: needs a length above 0 and below 0.28"),
]


@pytest.mark.usefixtures("two_ranks")
def test_a_finished_run_is_sampled_as_it_was_on_the_way(finished, tmp_path):
    pictures = []
    options = (["--snapshot", 1000], ["--snapshot", 2048], [], ["--sigma-rel", 0.07])
    for option in (*options, ["--sigma-rel", 0.07, "--snapshot", 1000]):
        file = tmp_path / f"{len(pictures)}.png"
        done = hpcddm("sample", finished, "--num-images", 4, *option, "--output", file)
        assert done.exit_code == 0, done.output
        pictures.append(file.read_bytes())
    assert pictures[0] != pictures[1] == pictures[2] and len(set(pictures)) == 4
    for option, words in REFUSED:
        assert hpcddm("sample", finished, *option).output == f"error: {words}\n"
    experiment = stored_experiment(RunDir(finished))
    taken = {key: manifest.read(RunDir(finished).unit(key)) for key in (MONOLITH, ROUTER, expert_key(0))}
    monolith, routed, expert = (taken[key].results for key in taken)
    assert expert["snapshots"] == {
        number: {"images": images, "train_flops": images * expert["train_flops"] // expert["images"]}
        for number, images in (("1000", 1024 // experiment.cluster.experts), ("2048", expert["images"]))
    }
    batch = experiment.experts.training.batch * monolith["train_flops"] / monolith["images"]
    spent = experiment.cluster.experts * expert["snapshots"]["1000"]["train_flops"] + routed["train_flops"]
    assert abs(monolith["snapshots"]["1000"]["train_flops"] - spent) <= batch / 2
    assert "snapshots/images-000000001000.safetensors" in manifest.output_names(RunDir(finished).unit(MONOLITH))
