"""The verbs convert and export as a user calls them; stock diffusers reads what export writes."""

import json
import warnings

import pytest
import torch
from diffusers import AutoencoderKL, DiTPipeline, DiTTransformer2DModel
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from hpcddm.config import variants
from hpcddm.diffusion.objectives.base import Objective
from hpcddm.errors import UserError
from hpcddm.files import atomic
from hpcddm.launch.submission import store_experiment
from hpcddm.models.base import Denoiser
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.publishing.diffusers_folder import scheduler_config
from hpcddm.runs import initial_weights, manifest
from hpcddm.runs.initial_weights import init_request
from hpcddm.runs.manifest import Manifest
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import with_relative_paths
from tests.foreign_cases import edited
from tests.helpers import JOINED, REPOSITORY, hpcddm, python, tiny, write_source
from tests.models.checkpoints import public

EXPERT = "train/expert-01"
MODEL = {"width": public.WIDTH, "depth": public.DEPTH, "heads": public.HEADS, "patch": 2}
SMALL = {f"experts__model__{key}": value for key, value in MODEL.items()}
EPSILON = {"name": "epsilon", "schedule": {"name": "linear_beta_1000"}}


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A public checkpoint with random weights."""
    path = tmp_path_factory.mktemp("published") / "DiT.pt"
    torch.save(public.random_original(), path)
    return path


def convert(tmp_path, source, *options, output="seed.safetensors", **changes):
    """Convert to experts with the body of the public checkpoint; return the file and what is said."""
    if changes or not (tmp_path / "tiny.yaml").exists():
        tiny(tmp_path, **SMALL | changes)
    done = hpcddm("convert", source, "--like", tmp_path / "tiny.yaml", "--output", tmp_path / output, *options)
    assert done.exit_code == 0, done.output
    return tmp_path / output, done.output


def refused(code, *arguments):
    """The one line of a verb that refuses."""
    done = hpcddm(*arguments)
    assert done.exit_code == code and len(done.output.splitlines()) == 1, done.output
    return done.output


def export(tmp_path, run):
    """Export the expert of a run; return the folder."""
    done = hpcddm("export", run.root, EXPERT, "--output", tmp_path / "exported")
    assert done.exit_code == 0, done.output
    return tmp_path / "exported"


def trained(tmp_path, results=None, **changes):
    """A run in which one expert is complete, its network having random weights; returns run and network."""
    run = RunDir(tmp_path / "run")
    write_source(tmp_path / "images")
    experiment = tiny(tmp_path, **SMALL | changes)
    run.root.mkdir(exist_ok=True)
    store_experiment(with_relative_paths(experiment, run), run)
    model = experiment.expert_config().model
    network = variants.create(Denoiser, model, experiment.data).eval().requires_grad_(False)
    torch.manual_seed(5)
    for values in network.parameters():
        values.add_(0.2 * torch.randn_like(values))
    planned = next(one for one in plan_units(experiment) if one.key == EXPERT)
    folder = run.unit(EXPERT)
    folder.mkdir(parents=True)
    save_file(network.state_dict(), folder / "weights.safetensors")
    outputs = manifest.describe_outputs(folder, ["weights.safetensors"])
    manifest.publish(folder, Manifest(*EXPERT.split("/"), planned.fingerprint_settings, {}, outputs, results or {}))
    return run, network


def metadata(file):
    with safe_open(file, "pt") as opened:
        return json.loads(opened.metadata()["hpcddm"])


def test_a_published_checkpoint_becomes_a_start_and_the_file_says_how(tmp_path, published):
    output, said = convert(tmp_path, published)
    tensors, own = load_file(output), metadata(output)
    experiment = tiny(tmp_path, **SMALL)
    variants.create(Denoiser, experiment.experts.model, experiment.data).load_state_dict(tensors)
    assert (own["source"], own["source_sha256"]) == ("DiT.pt", atomic.sha256(published))
    assert own["layout"] == "original_dit" and own["verdicts"].keys() >= tensors.keys()
    # Images with 1 channel instead of 4, 4 classes instead of 10, velocity instead of epsilon.
    reset = {"trunk.embed_patch.weight", "trunk.embed_patch.bias", "head.weight", "head.bias"}
    found = {name for name, (verdict, _) in own["verdicts"].items() if verdict != "kept"}
    assert found == reset | {"trunk.embed_class.weight"}
    assert str(published.parent) not in json.dumps(own) and str(tmp_path) not in json.dumps(own)
    assert "trunk.blocks.*.attention.qkv.weight" in said and "10 classes there, 4 here: each begins" in said
    assert "0 folded, 5 reset, 0 dropped" in said and not list(tmp_path.glob(".*.part"))


def test_a_checkpoint_of_a_training_converts_as_its_average_alone_and_the_verdict_says_so(tmp_path):
    average, raw = public.random_original(seed=0), public.random_original(seed=1)
    contents = {
        "alone": average,
        "train": {"model": raw, "ema": average},
        "list": {"model": raw, "ema": list(average.values())},
        "wrapped": {"model": raw, "model_ema": {f"module._orig_mod.{name}": one for name, one in average.items()}},
    }
    made, notes = {}, {}
    for name, content in contents.items():
        torch.save(content, tmp_path / f"{name}.pt")
        output, said = convert(tmp_path, tmp_path / f"{name}.pt", output=f"{name}.safetensors")
        made[name], notes[name] = load_file(output), metadata(output)["notes"]
        assert all(torch.equal(made[name][key], values) for key, values in made["alone"].items())
        assert all(f"note: {note}" in " ".join(said.split()) for note in notes[name])
    assert "weights taken: all of the file" in notes["alone"][0]
    assert notes["train"][0] == "weights taken: 'ema'; not taken: 'model'"
    assert "'ema', a list that has the names of 'model' in their order" in notes["list"][0]
    assert notes["wrapped"][:2] == [
        "weights taken: 'model_ema'; not taken: 'model'",
        "prefix 'module._orig_mod.' taken off the names of the tensors",
    ]


@pytest.mark.parametrize(
    "path, moves",
    [
        ("linear_beta_1000", None),
        ("linear", "+2.25 at t = 0.1, +2.13 at t = 0.3, +2.47 at t = 0.5, +3.28 at t = 0.7, +3.82 at t = 0.9"),
        ("linear_beta", "+0.01 at t = 0.1, +0.01 at t = 0.3, +0.02 at t = 0.5, +0.04 at t = 0.7, +0.07 at t = 0.9"),
    ],
)
def test_the_verdict_says_by_how_much_log_snr_moves_where_the_paths_differ(tmp_path, published, path, moves):
    objective = {"name": "v_prediction", "schedule": {"name": path}}
    note = metadata(convert(tmp_path, published, experts__objective=objective)[0])["notes"][-1]
    shown = "linear_beta (beta_min 0.1, beta_max 20.0)" if path == "linear_beta" else path
    start = f"epsilon on the path linear_beta_1000 there, v_prediction on the path {shown} here"
    assert note == start + (f"; both are given 1000 t, and log-SNR here less that there is {moves}" if moves else "")


def test_the_same_command_writes_the_same_bytes(tmp_path, published):
    first, again, other = (atomic.sha256(convert(tmp_path, published, "--seed", seed)[0]) for seed in (0, 0, 1))
    assert first == again != other


def test_a_seed_model_and_a_unit_of_a_run_convert_alike(tmp_path):
    run, network = trained(tmp_path)
    output, _ = convert(tmp_path, run.unit(EXPERT))
    again, _ = convert(tmp_path, output, "--layout", "hpcddm", output="again.safetensors")
    for file in (output, again):
        assert metadata(file)["layout"] == "hpcddm"
        assert {verdict for verdict, _ in metadata(file)["verdicts"].values()} == {"kept"}
        tensors = load_file(file)
        assert all(torch.equal(tensors[name], values) for name, values in network.state_dict().items())


def test_overrides_shape_the_target_and_mixed_experts_have_their_own(tmp_path):
    run, _ = trained(tmp_path)
    single, mixed = "experts.model.modulation=single", [{"clusters": [1], "objective": EPSILON}]
    own = metadata(convert(tmp_path, run.unit(EXPERT), "--expert", 1, single, experts__overrides=mixed)[0])
    # The folder names expert 1, which in the run as it was trained predicted a velocity.
    assert own["objective"]["name"] == "epsilon"
    assert own["verdicts"]["head.weight"] == ["reset", "predicted flow_matching, shall predict epsilon"]
    assert own["verdicts"]["trunk.blocks.0.table"][0] == "folded"
    call = ("convert", run.unit(EXPERT), "--like", tmp_path / "tiny.yaml", "--output", tmp_path / "a.safetensors")
    assert hpcddm(*call, "--expert", 2).exit_code == 2
    extra = [JOINED | {"objective": EPSILON}]
    output, _ = convert(tmp_path, run.unit(EXPERT), "--expert", "hats", experts__extra=extra)
    assert metadata(output)["objective"]["name"] == "epsilon"
    assert "--expert bags: valid are 0, 1, hats" in hpcddm(*call, "--expert", "bags").output


def test_an_error_names_the_key_of_the_expert_that_was_asked_for(tmp_path):
    run, _ = trained(tmp_path)
    other = {"name": "dit", **MODEL, "heads": 2}
    mixed = [{"clusters": [0], "precision": "bf16"}, {"clusters": [1], "model": other}]
    output, _ = convert(tmp_path, run.unit(EXPERT), "--expert", 0, experts__overrides=mixed)
    call = ("convert", run.unit(EXPERT), "--like", tmp_path / "tiny.yaml", "--output", output, "--expert", 1)
    said = refused(1, *call)
    assert "experts.overrides.1.model.heads is 2 and the source's is 4" in said
    assert "set experts.overrides.1.model.heads=4" in said


def test_the_file_carries_what_its_source_cost_and_what_that_had_started_from(tmp_path):
    seed = {"sha256": "0" * 64, "source": "digits", "images": 1000, "train_flops": 70}
    run, _ = trained(tmp_path, results={"images": 24, "train_flops": 8, "start": seed})
    output, said = convert(tmp_path, run.unit(EXPERT))
    assert "its source saw 1,024 images" in said
    for file in (output, convert(tmp_path, output, output="again.safetensors")[0]):
        assert (metadata(file)["images"], metadata(file)["train_flops"]) == (1024, 78)
    seed["train_flops"] = None
    run, _ = trained(tmp_path / "unknown", results={"images": 24, "train_flops": 8, "start": seed})
    assert metadata(convert(tmp_path, run.unit(EXPERT))[0])["train_flops"] is None


def test_what_was_converted_is_taken_as_a_start_and_what_was_not_is_not(tmp_path):
    """The error says what to do, and then it works."""
    run, _ = trained(tmp_path, experts__objective=EPSILON)
    source = run.unit(EXPERT) / "weights.safetensors"
    output, _ = convert(tmp_path, source, experts__objective={"name": "flow_matching"})

    def check(file):
        experiment = tiny(tmp_path, **SMALL, experts__init_from={"weights": str(file)})
        initial_weights.check_file(init_request(experiment, "train/monolith"), file, None)

    check(output)
    with pytest.raises(UserError, match="experts.objective.name is flow_matching and the file's is epsilon"):
        check(source)


@pytest.mark.parametrize(
    "options, message, code",
    [
        (
            ["--layout", "flax"],
            "--layout flax: valid names are auto, diffusers_dit, hpcddm, lightningdit, original_dit",
            2,
        ),
        (["--output", "seed.pt"], "--output seed.pt: the name must end in .safetensors", 2),
        (["experts.model.width=32"], "experts.model.width is 32 and the source's is 64", 1),
        (["--layout", "diffusers_dit"], "config.json: needs whole numbers for num_attention_heads", 1),
        (["--layout", "hpcddm"], "nothing says what denoiser this is", 1),
    ],
)
def test_mistakes_of_convert_are_one_line(tmp_path, published, options, message, code):
    tiny(tmp_path, **SMALL)
    call = ("convert", published, "--like", tmp_path / "tiny.yaml", "--output", tmp_path / "seed.safetensors")
    assert message in refused(code, *call, *options) and not list(tmp_path.glob("*.safetensors"))


@pytest.mark.parametrize("verb", ["convert", "export"])
def test_changed_weights_of_a_run_are_refused_though_they_describe_themselves(tmp_path, verb):
    run, network = trained(tmp_path)
    file, made = run.unit(EXPERT) / "weights.safetensors", tmp_path / "made.safetensors"
    description = initial_weights.describe_network(file, {}, None)
    tensors = {name: values * 1.5 for name, values in network.state_dict().items()}
    save_file(tensors, file, {initial_weights.METADATA: json.dumps(description)} if verb == "export" else None)
    edited(file.with_name("manifest.json"), lambda own: own["outputs"][0].update(size=file.stat().st_size))
    call = {"convert": (file, "--like", tmp_path / "tiny.yaml"), "export": (run.root, EXPERT)}[verb]
    assert f"{file}: its bytes are not those of its manifest" in refused(1, verb, *call, "--output", made)
    assert not made.exists()


@torch.no_grad()
@pytest.mark.parametrize("spacing", ["original", "diffusers"])
def test_stock_diffusers_loads_an_export_and_says_what_our_network_says(tmp_path, spacing):
    run, network = trained(tmp_path, experts__objective=EPSILON, experts__model__time_spacing=spacing)
    folder = export(tmp_path, run)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = DiTTransformer2DModel.from_pretrained(folder, subfolder="transformer").eval()
    x = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0)).double()
    steps, classes = torch.tensor([0, 1, 250, 711, 999]), torch.arange(5)
    expected = network.double()(x, steps.double() / 1000, classes)
    if spacing == "original":
        public.use_the_originals_frequencies(model)
    found = model.double()(x, steps, torch.where(classes == 4, 1000, classes)).sample.float()
    assert expected.std() > 0.3
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    readme = (folder / "README.txt").read_text()
    for words in ("Classes are 0 to 3; the null class is 1000", "epsilon on the path linear_beta_1000", "(1, 8, 8)"):
        assert words in readme
    assert ("downscale_freq_shift = 0" in readme) == (spacing == "original") and str(tmp_path) not in readme


def test_what_an_export_names_is_enough_to_load_it(tmp_path):
    names = ["cat", "dog", 'a "bird"', "fish"]
    folder = export(tmp_path, trained(tmp_path, experts__objective=EPSILON, data__class_names=names)[0])
    lines = (folder / "README.txt").read_text().splitlines()
    (requirement,) = [line.removeprefix("pip install ").strip("'") for line in lines if line.startswith("pip install ")]
    assert f"    {requirement}\n" in (REPOSITORY / "setup.cfg").read_text()
    assert f"class_names = {json.dumps(names)}" in lines
    code = [line for line in lines if line.startswith(("from ", "transformer = ", "for ", "    "))]
    assert len(code) == 4
    # Packages that the tests have and `make install` has not, but for the one that is named.
    absent = ("transformers", "accelerate", "tokenizers", "torchmetrics", "pandas", "polars")
    script = (
        "import importlib.util as u\nfind = u.find_spec\n"
        f"u.find_spec = lambda name, *rest: None if name.split('.')[0] in {absent} else find(name, *rest)\n"
        "import sys\nfrom pathlib import Path\nFOLDER = Path(sys.argv[1])\n" + "\n".join(code)
    )
    done = python(script, folder, timeout=300)
    assert done.returncode == 0, done.stderr


def test_an_export_comes_back_to_the_bit(tmp_path):
    run, network = trained(tmp_path)
    output, _ = convert(tmp_path, export(tmp_path, run))
    tensors = load_file(output)
    assert metadata(output)["layout"] == "diffusers_dit"
    assert all(torch.equal(tensors[name], values) for name, values in network.state_dict().items())


@pytest.mark.parametrize("objective", [EPSILON, {"name": "flow_matching"}, {"name": "v_prediction"}])
def test_the_stock_pipeline_draws_with_an_export(tmp_path, objective):
    # The smallest one that there is: its images are not looked at.
    vae = AutoencoderKL(1, 1, block_out_channels=(8,), latent_channels=1, norm_num_groups=4, sample_size=8)
    folder = export(tmp_path, trained(tmp_path, experts__objective=objective)[0])
    pipeline = DiTPipeline.from_pretrained(folder, vae=vae)
    pipeline.set_progress_bar_config(disable=True)
    images = pipeline([0, 3], guidance_scale=2.0, num_inference_steps=4, output_type="np").images
    assert images.shape == (2, 8, 8, 3) or images.shape == (2, 8, 8, 1)


@pytest.mark.parametrize("name", ["flow_matching", "epsilon", "v_prediction", "x0_prediction"])
@pytest.mark.parametrize("schedule", ["linear", "cosine", "linear_beta_1000"])
def test_a_scheduler_goes_from_noise_to_the_image_of_an_ideal_network(name, schedule):
    import diffusers

    settings = variants.settings_class("diffusion/objectives", name)(name=name, schedule={"name": schedule})
    config = scheduler_config(settings)
    if (name == "flow_matching") != (schedule == "linear"):
        assert config is None
        return
    config = dict(config)
    scheduler = getattr(diffusers, config.pop("_class_name")).from_config(config)
    objective = variants.create(Objective, settings)
    if name != "flow_matching":
        levels = objective.level(torch.arange(1000, dtype=torch.float64) / 1000).alpha.square().float()
        torch.testing.assert_close(scheduler.alphas_cumprod, levels, rtol=4e-5, atol=1e-7)
    generator = torch.Generator().manual_seed(0)
    image, noise = (torch.randn(1, 1, 8, 8, generator=generator) for _ in range(2))
    scheduler.set_timesteps(20)
    first = float(scheduler.timesteps[0]) / 1000
    x = objective.perturb(image, noise, torch.tensor([first]))
    for step in scheduler.timesteps:
        t = torch.tensor([float(step) / 1000])
        x = scheduler.step(objective.predict(image, noise, t), step, scheduler.scale_model_input(x, step)).prev_sample
    torch.testing.assert_close(x, image, rtol=0, atol=5e-3)


@pytest.mark.parametrize(
    "unit, changes, message, code",
    [
        ("train/expert-00", {}, "train/expert-00 is missing", 1),
        ("router/all", {}, "router/all: no denoiser of this run; valid names: train/", 2),
        (EXPERT, {"experts__model__modulation": "single"}, "DiTTransformer2DModel is a dit with", 1),
    ],
)
def test_mistakes_of_export_are_one_line(tmp_path, unit, changes, message, code):
    run, _ = trained(tmp_path, **changes)
    assert message in refused(code, "export", run.root, unit, "--output", tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_what_is_made_anew_is_exported_only_when_it_is_complete_and_overwrites_nothing(tmp_path):
    """The clusters are, and so the expert is older than what it was made of, though its folder is whole."""
    run, _ = trained(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").write_text("")
    assert "is not empty" in refused(1, "export", run.root, EXPERT, "--output", tmp_path / "taken")
    run.unit("expert_lists/all").mkdir()
    assert f"{EXPERT} is waiting (" in refused(1, "export", run.root, EXPERT, "--output", tmp_path / "exported")
