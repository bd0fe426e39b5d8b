"""The model card and the copies for diffusers of a published folder."""

import html
import json
import re
from pathlib import Path

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from safetensors.torch import load_file

from hpcddm.evaluation.metrics import columns, led_by, short_key
from hpcddm.evaluation.report.page import value_format
from hpcddm.models.checkpoints import file_formats
from tests.publishing.made_runs import content, made_run, published

EVIL = "<script>x</script>|[a](http://b)`c`*d*_e_"


@pytest.fixture(scope="module")
def ensemble(finished, tmp_path_factory) -> Path:
    """The finished run, published."""
    return published(finished, tmp_path_factory.mktemp("card") / "made", "--license", "CC-BY-4.0", "--terms", EVIL)


def header_and_text(folder: Path) -> tuple[dict, str]:
    _, header, text = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(header), text


def test_the_hub_reads_the_header(ensemble, tmp_path):
    header, text = header_and_text(ensemble)
    assert header["license"] == "cc-by-4.0" and header["library_name"] == "hpcddm"
    card = ModelCard.load(ensemble / "README.md")
    assert card.data.license == "cc-by-4.0" and card.text.strip() == text.strip()
    for number, license_id in enumerate(("my own: terms", "---", "# none", "\u9774")):
        made = published(made_run(tmp_path / f"{number}/run"), tmp_path / f"{number}/made", "--license", license_id)
        header, _ = header_and_text(made)
        assert (header["license"], header["license_name"]) == ("other", license_id)


def intervals_of(metrics: dict, name: str, key: str) -> list[float]:
    found = metrics["intervals"]["floor" if name == "real images" else name]
    return next((ends for full_key, ends in found.items() if short_key(full_key) == key), [])


def test_the_figures_are_those_of_the_report(ensemble, finished):
    metrics = json.loads((finished / "report/metrics.json").read_text())
    _, text = header_and_text(ensemble)
    lines = text.split("## Figures")[1].splitlines()
    title, _, *rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line[:1] == "|"]
    shown = [metric for metric in led_by(metrics["leading_metric"], columns()) if metric.key in metrics["floor"]]
    assert title[1 : 1 + len(shown)] == [metric.title for metric in shown]
    values = metrics["arms"] | {"real images": metrics["floor"]}
    assert [row[0] for row in rows] == list(values)
    for row in rows:
        for metric, cell in zip(shown, row[1:], strict=False):
            form = value_format(metric, [one[metric.key] for one in values.values() if metric.key in one])
            figures = [values[row[0]][metric.key], *intervals_of(metrics, row[0], metric.key)]
            # The brackets are escaped.
            assert cell.replace("\\", "").replace("[", "").replace("]", "").replace(",", "").split() == [
                format(figure, form).replace(",", "") for figure in figures
            ]
        assert row[1 + len(shown)] == f"{values[row[0]]['images']:,}"
    assert {path.name for path in (ensemble / "samples").iterdir()} == {f"{arm}.png" for arm in metrics["arms"]}


def test_what_others_wrote_is_text_and_not_markup(ensemble, tmp_path):
    run = made_run(tmp_path / "run", remark=EVIL, data__class_names=[EVIL, "b", "c", "d"])
    for folder in (ensemble, published(run, tmp_path / "made", "--terms", EVIL, "--license", EVIL)):
        _, text = header_and_text(folder)
        assert not re.search(r"(?<!\\)<script", text) and not re.search(r"(?<!\\)\]\(http", text)
        plain = html.unescape(re.sub(r"\\(.)", r"\1", text))
        assert EVIL in plain


def test_every_link_and_path_of_the_card_is_in_the_folder(ensemble):
    _, text = header_and_text(ensemble)
    paths = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert paths and set(paths) <= content(ensemble).keys()


def test_a_copy_for_diffusers_reads_back_to_the_same_tensors(ensemble):
    layout = file_formats.layout("diffusers_dit")
    copies = sorted((ensemble / "diffusers").iterdir())
    assert [copy.name for copy in copies] == [f"expert-{number:02d}" for number in range(4)]
    for copy in copies:
        tensors, info = layout.load(file_formats.read_checkpoint(copy / "transformer"), None)
        stored = load_file(ensemble / f"networks/{copy.name}.safetensors")
        for name, values in stored.items():
            if name in tensors:
                assert torch.equal(tensors[name][: len(values)], values) or name == "trunk.embed_class.weight", name
        table, own = tensors["trunk.embed_class.weight"], stored["trunk.embed_class.weight"]
        assert torch.equal(table[: len(own)], own) and torch.equal(table[-1], own[-1])
        assert json.loads((copy / "model_index.json").read_text())["_class_name"] == "DiTPipeline"
        assert info.model.width == 48
