"""The model card of a published ensemble: README.md with the YAML header of the hub, and grids of samples as PNG."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import yaml

from hpcddm.config.experiment import Experiment
from hpcddm.errors.printing import printable
from hpcddm.evaluation.metrics import columns, led_by, short_key
from hpcddm.evaluation.metrics.base import Metric
from hpcddm.evaluation.report.image_grids import grid
from hpcddm.evaluation.report.page import value_format
from hpcddm.evaluation.report.run_summary import describe_variant
from hpcddm.files import checked_reads, hdf5
from hpcddm.loading.ensemble_document import ENCODERS, EnsembleDocument
from hpcddm.publishing.published_settings import described_encoders
from hpcddm.runs.files import EVALUATION, METRICS, PUBLISHED_PARTITION
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import MONOLITH_ARM, REPORT, ROUTER, STUDENT_ARM
from hpcddm.runs.unit_training import resolve_training
from hpcddm.stages.evaluation.draw import draw_keys

CARD, SAMPLES = "README.md", "samples"
REAL = "real images"
COLUMNS, SHOWN = 8, 64
"""Columns of a grid, and its most samples: the first ones of the evaluation."""
LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]{0,40}")
"""Identifiers of licenses as the hub knows them; other licenses are 'other' there, with their name."""
MARKUP = re.compile(r"([\\`*_{}\[\]()#+!|<>~])")
"""Characters with a meaning in Markdown, or in the HTML that it may hold."""


def write_card(
    folder: Path, run: RunDir, experiment: Experiment, document: EnsembleDocument, copies: list[str]
) -> None:
    """Write README.md and the grids of an ensemble.

    Args:
        folder: Folder of the ensemble.
        run: The run, whose report is complete.
        experiment: Settings of the run.
        document: Description of the ensemble.
        copies: Paths of the experts in the layout of diffusers.
    """
    metrics: dict[str, Any] = checked_reads.read_required_json(run.output(REPORT, METRICS))
    # An expert that is left out has drawn parts of the ensemble's samples.
    arms = [arm for arm in metrics["arms"] if not document.left_out or arm in (MONOLITH_ARM, STUDENT_ARM)]
    shown = _write_grids(folder, run, experiment, arms)
    metric_columns = [one for one in led_by(metrics["leading_metric"], columns()) if one.key in metrics["floor"]]
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters["plain"] = plain
    template = environment.from_string(Path(__file__).with_name("card.md.j2").read_text())
    text = template.render(
        header=yaml.safe_dump(_header(experiment, document), sort_keys=False, allow_unicode=True),
        document=document,
        experiment=experiment,
        metrics=metrics,
        columns=metric_columns,
        rows=_rows(metrics, metric_columns),
        networks=_networks(experiment, document),
        encoders=list(described_encoders(experiment)),
        grids=shown,
        copies=copies,
        has_router=ROUTER in document.networks,
        has_partition=PUBLISHED_PARTITION in document.files,
        has_encoders=any(name.startswith(f"{ENCODERS}/") for name in document.files),
    )
    (folder / CARD).write_text(text)


def plain(text: object) -> str:
    """Return a text that Markdown shows as it is, on one line."""
    return MARKUP.sub(r"\\\1", printable(str(text), 2000))


def _header(experiment: Experiment, document: EnsembleDocument) -> dict[str, Any]:
    """Return the YAML header that the hub reads."""
    known = LICENSE.fullmatch(document.license.lower())
    terms = {"license": document.license.lower()} if known else {"license": "other"}
    if document.license and not known:
        terms["license_name"] = document.license
    task = "text-to-image" if experiment.data.condition.reads_captions else "unconditional-image-generation"
    tags = ["diffusion", "decentralized-diffusion", "mixture-of-experts"]
    return terms | {"library_name": "hpcddm", "pipeline_tag": task, "tags": tags}


def _rows(metrics: Mapping[str, Any], shown: list[Metric]) -> list[list[str]]:
    """Return the table of figures with their 95 % intervals: one row per arm, and one of real images."""
    rows, everyone = [], metrics["arms"] | {REAL: metrics["floor"]}
    forms = {metric.key: _format_of(metric, everyone.values()) for metric in shown}
    for name, values in everyone.items():
        of_name = metrics["intervals"].get("floor" if name == REAL else name, {})
        intervals = {short_key(key): ends for key, ends in reversed(of_name.items())}
        cells = [_cell(values.get(key), intervals.get(key, [None]), form) for key, form in forms.items()]
        flops = f"{values['train_flops']:.3g}" if "train_flops" in values else ""
        rows.append([name, *cells, f"{values['images']:,}", flops])
    return rows


def _format_of(metric: Metric, everyone: Iterable[Mapping[str, Any]]) -> str:
    """Return the format in which the report shows a metric of all arms."""
    return value_format(metric, [one[metric.key] for one in everyone if one.get(metric.key) is not None])


def _cell(value: float | None, ends: list[float | None], form: str) -> str:
    if value is None or None in ends:
        return "" if value is None else format(value, form)
    return f"{value:{form}} [{', '.join(format(end, form) for end in ends)}]"


def _networks(experiment: Experiment, document: EnsembleDocument) -> list[list[str]]:
    """Return the table of the networks: who trained which one, on what, and how long."""
    rows = []
    for key, one in document.networks.items():
        objective = describe_variant(resolve_training(experiment, key).denoiser.objective) if one.objective else ""
        cluster = "" if one.samples is None else f"{one.cluster} ({one.samples:,} images)"
        seen, flops = (
            "" if value is None else f"{value:{form}}" for value, form in ((one.images, ","), (one.train_flops, ".3g"))
        )
        rows.append([key, one.model["name"], f"{one.parameters:,}", objective, cluster, seen, flops, one.site or ""])
    return rows


def _write_grids(folder: Path, run: RunDir, experiment: Experiment, arms: list[str]) -> dict[str, str]:
    """Write a grid of every arm's first samples; return their paths by arm."""
    (folder / SAMPLES).mkdir()
    written = {}
    for arm in arms:
        images: list[np.ndarray] = []
        for key in draw_keys(experiment):
            if sum(map(len, images)) < SHOWN:
                with hdf5.open_checked(run.output(key, EVALUATION)) as file:
                    images.append(file[arm]["images"][:SHOWN])
        written[arm] = f"{SAMPLES}/{arm}.png"
        grid(np.concatenate(images)[:SHOWN], COLUMNS).save(folder / written[arm])
    return written
