"""Experiments that read a folder which nobody has described, from the proposals of all sources."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcddm.config import pretrained, variants
from hpcddm.config.cross_checks import are_classes_sampled, validate_experiment
from hpcddm.config.experiment import Experiment
from hpcddm.config.sampling import EvaluateSettings
from hpcddm.config.schema import validate
from hpcddm.config.sources import HELDOUT_SHARE, SourceSettings
from hpcddm.errors import ConfigError, UserError
from hpcddm.loading import experiment_defaults
from hpcddm.loading.run_defaults import flow_text
from hpcddm.loading.source_check import check_source

if TYPE_CHECKING:
    from hpcddm.sources.folders.picture_sample import PictureSample
    from hpcddm.sources.folders.proposal import SourceProposal
    from hpcddm.sources.folders.survey import FolderSurvey

MAX_FILES, MAX_OTHERS = 5000, 100
"""Files, and those of them without the extension of a picture, of a folder that is opened as submit opens it."""
TEXT_ENCODER, PLAIN_ENCODER = "minilm", "words"
"""Text encoder of the captions, and the one that needs no weights."""
TRAIN_NAMES = frozenset({"train", "training"})
HELDOUT_NAMES = frozenset({"val", "valid", "validation", "heldout", "test", "dev", "eval"})
DESCRIPTIONS = ("metadata.csv", "metadata.jsonl", "metadata.parquet", "captions.csv", "captions.jsonl", "classes.txt")
"""Files that describe the images of folders beside them."""


@dataclass
class ProposedExperiment:
    """A proposal of a source as an experiment.

    Attributes:
        name: Name of the source.
        proposal: Its proposal.
        sample: Sizes and formats of some of its pictures.
        condition: Condition of the networks: 'classes', 'captions' or ''.
        text: Lines of the experiment's file; empty if the source refuses the folder.
    """

    name: str
    proposal: "SourceProposal"
    sample: "PictureSample"
    condition: str
    text: str = ""


def survey_path(path: Path) -> "FolderSurvey":
    """Survey a folder, or the one file that a path names; raises `UserError` for a path that cannot be read."""
    from hpcddm.sources.folders.survey import FolderSurvey

    path = Path(os.path.abspath(path))
    try:
        if not path.exists():
            what = "a link that leads nowhere" if path.is_symlink() else "no such folder"
            raise ConfigError(f"{path}: {what}; name the folder with the images")
        if not (path.is_dir() or path.is_file()):
            raise ConfigError(f"{path}: neither a folder nor a file; name the folder with the images")
        return FolderSurvey(path) if path.is_dir() else FolderSurvey(path.parent, path.name)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); mend its permissions") from None


def propose_experiments(survey: "FolderSurvey") -> list[ProposedExperiment]:
    """Ask all sources how to read a folder; return those that can read it first, the more specific ones before."""
    from hpcddm.sources.base import Source
    from hpcddm.sources.folders.picture_sample import read_sample

    experiments = []
    with_classes = set[str]()
    for name in variants.list_variants(SourceSettings.package):
        proposals = variants.implementation(Source, SourceSettings.package, name).propose(survey)
        samples: dict[int, PictureSample] = {}
        for proposal in proposals:
            # Proposals that differ in their captions share the iterator of the pictures.
            key = id(proposal.pictures)
            sample = samples[key] = samples.get(key) or read_sample(proposal.pictures)
            if proposal.error is None and not sample.widths:
                first = f"; {sample.broken[0][0]}: {sample.broken[0][1]}" if sample.broken else ""
                proposal.error = f"none of {sample.opened} images that were opened can be used{first}"
            for condition in _conditions(proposal, name in with_classes):
                one = replace(proposal, remarks=[*proposal.remarks, *sample.remarks()])
                experiments.append(_experiment(ProposedExperiment(name, one, sample, condition), survey))
            with_classes.add(name)
    return sorted(experiments, key=lambda one: (one.proposal.error is not None, not one.proposal.is_specific))


def folder_above(root: Path) -> str:
    """Say which data set a folder is a part of; empty if the names beside it tell nothing."""
    above, name = root.parent, root.name.lower()
    siblings = HELDOUT_NAMES if name in TRAIN_NAMES else TRAIN_NAMES if name in HELDOUT_NAMES else frozenset[str]()
    if any(os.path.isdir(above / sibling) for sibling in siblings):
        return f"{root} looks like one split of {above}, which has others"
    table = next((file for file in DESCRIPTIONS if os.path.isfile(above / file)), None)
    return f"{above} has {table}, which may describe these images" if table else ""


def what_sources_read() -> Iterator[str]:
    """Yield a line for every source that recognises folders: its name, and the first sentence of its module."""
    from hpcddm.sources.base import Source

    for name in variants.list_variants(SourceSettings.package):
        kind = variants.implementation(Source, SourceSettings.package, name)
        if kind.propose.__func__ is not Source.propose.__func__:  # type: ignore[attr-defined]
            module = variants.import_variant(SourceSettings.package, name)
            yield f"{name}: {(module.__doc__ or 'a source of your own').strip().splitlines()[0].rstrip(':.')}"


def _conditions(proposal: "SourceProposal", has_first: bool) -> list[str]:
    """List the conditions that a proposal allows; has_first: another proposal of the source has the classes already."""
    is_usable = are_classes_sampled(len(proposal.class_names), proposal.heldout_of_class)
    classes = ["classes"] if is_usable and not (has_first and proposal.captions) else []
    return [*classes, *(["captions"] if proposal.captions else [])] or [""]


def _experiment(proposed: ProposedExperiment, survey: "FolderSurvey") -> ProposedExperiment:
    """Write the experiment's file, unless submit would refuse it; then the proposal has the error."""
    name, proposal = proposed.name, proposed.proposal
    if proposal.error is None:
        with proposal.keep_error():
            _hold_out_enough(name, proposal)
    if proposal.error is not None:
        return proposed
    data: dict[str, Any] = {"source": {"name": name, **proposal.source}, "image_size": proposed.sample.image_size}
    data |= {"channels": 1} if proposed.sample.is_grey else {}
    values: dict[str, Any] = {"data": data}
    comment = ""
    needs_number = variants.settings_class(SourceSettings.package, name).uses_existing_tars
    if proposed.condition == "classes" and needs_number:
        # Of other sources the defaults count the classes.
        data["num_classes"] = len(proposal.class_names)
        usual: EvaluateSettings = EvaluateSettings()
        of_class = min(proposal.heldout_of_class, max(usual.images // data["num_classes"], 2))
        values["evaluate"] = {"images": of_class * data["num_classes"]}
    elif proposed.condition == "captions":
        encoder = _text_encoder()
        data["condition"] = {"name": "text", "encoder": {"name": encoder}}
        if encoder == PLAIN_ENCODER:
            comment = f"  # {TEXT_ENCODER} knows what words mean; hpcddm prefetch fetches it"
    with proposal.keep_error():
        experiment = _check(values, survey)
        if experiment is not None and proposed.condition != "captions":
            proposed.condition = "classes" if experiment.data.num_classes else ""
        if not proposed.condition and len(proposal.class_names) > 1:
            proposal.remarks.append("classes are not used: too many, or too few images of one to measure it")
        lines = [f"  {key}: {flow_text(value)}" for key, value in data.items()]
        lines[-1] += comment
        lines += [f"{key}: {flow_text(value)}" for key, value in values.items() if key != "data"]
        proposed.text = "".join(f"{line}\n" for line in ["data:", *lines])
    return proposed


def _hold_out_enough(name: str, proposal: "SourceProposal") -> None:
    """Name the share that is held out where the default one is not of the right size."""
    from hpcddm.sources.base import Source
    from hpcddm.sources.folders.proposal import heldout_share

    settings = validate(SourceSettings, {"name": name, **proposal.source}, "data.source")
    share = heldout_share(proposal.images or 0)
    if share > HELDOUT_SHARE and not variants.create(Source, settings).has_heldout():
        proposal.source = proposal.source | {"heldout": {"share": share}}


def _text_encoder() -> str:
    """Return the text encoder of captions whose weights are here."""
    files = variants.settings_class("encoders/text", TEXT_ENCODER).pretrained
    is_here = all(pretrained.defect(file, pretrained.cached_file(file), hashed=False) is None for file in files)
    return TEXT_ENCODER if is_here else PLAIN_ENCODER


def _check(values: dict[str, Any], survey: "FolderSurvey") -> Experiment | None:
    """Return the experiment as submit reads it; None for a large folder, where only the keys are checked.

    Raises:
        UserError: Submit would refuse the experiment.
    """
    from hpcddm.sources.folders.survey import EXTENSIONS, SIDECAR_EXTENSIONS

    others = sum(count for name, count in survey.counts.items() if name not in EXTENSIONS | SIDECAR_EXTENSIONS)
    if not survey.is_whole or survey.file_count > MAX_FILES or others > MAX_OTHERS:
        validate(SourceSettings, values["data"]["source"], "data.source")
        return None
    # A copy, because filling in defaults changes it.
    values = {key: dict(section) for key, section in values.items()}
    experiment_defaults.fill_in(values, "data")
    # The remarks tell of the files that are passed over.
    experiment = validate_experiment(values, "the experiment")
    check_source(experiment, show=lambda line: None)
    return experiment
