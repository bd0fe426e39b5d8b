"""Checks a source of images before anything is submitted: are there enough, with classes and captions as needed?"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from hpcddm.config import class_names, variants
from hpcddm.config.experiment import Experiment
from hpcddm.errors import ConfigError, require
from hpcddm.errors.printing import warn
from hpcddm.runs import passed_over
from hpcddm.runs.stored_results import all_class_names, check_numbers

if TYPE_CHECKING:
    from hpcddm.sources.base import Split

IMAGES_CHECKED = 16
"""Maximum number of images per split that `submit` tries to read until one succeeds."""


def check_source(experiment: Experiment, show: Callable[[str], object] = print) -> None:
    """Check that there are enough images, with the classes and captions that the experiment needs.

    Args:
        experiment: The experiment.
        show: Function that shows a line about files that are passed over.

    Raises:
        UserError: The images are missing, too few or wrong; the message names the key or the file.
    """
    from hpcddm.sources.base import Source
    from hpcddm.sources.filtering import Filter

    data = experiment.data
    source, chosen = variants.create(Source, data.source), Filter.from_settings(data)
    splits = []
    for split, shards in (("train", data.shards), ("heldout", data.heldout_shards)):
        records = source.open_split(split)
        for line in passed_over.count_lines(passed_over.count_items(records.passed_over)):
            show(f"passed over in {split}   {line}")
        if split == "train" and records.class_names:
            show(f"classes in {split}   {class_names.describe_names(records.class_names)}")
        if data.num_classes is not None and not records.has_labels:
            raise ConfigError(
                f"data.num_classes: {data.num_classes}, but the {split} images have no classes; remove it, or add the"
                " classes of these images"
            )
        if data.condition.reads_captions and not records.has_captions:
            raise ConfigError(
                f"data.condition: the {split} images have no captions; name a sentence for every class as prompts, or"
                " take the condition none"
            )
        _check_class_names(records, data.class_names)
        check_numbers(experiment, records.class_names, chosen.column_names)
        chosen.check(records.known)
        # Otherwise only the catalog knows the numbers, and checks them.
        if records.is_exact:
            _check_counts(records, split, shards, experiment)
        _check_readable(records)
        splits.append(records)
    for line in passed_over.count_lines(passed_over.count_items(chosen.samples_without_row(splits, source.prefix))):
        show(f"passed over   {line}")


def _check_class_names(records: "Split", names: list[str] | None) -> None:
    """Check that the source's names differ if they count, and warn of `data.class_names` in another order."""
    if names is None:
        try:
            class_names.require_distinct(records.class_names)
        except ValueError as error:
            raise ConfigError(f"data.source: {error}, or name all in data.class_names") from None
        return
    for number, name in enumerate(records.class_names):
        if name in names and names.index(name) != number:
            warn(
                f"note: data.source calls class {number} '{name}'; data.class_names gives this name to class"
                f" {names.index(name)}: list the names in the order of the classes"
            )
            return


def _check_readable(records: "Split") -> None:
    """Check that one of the first images can be read; some of them may be broken."""
    from hpcddm.data.image_decoding import ImageError

    tried = range(min(len(records), IMAGES_CHECKED))
    for number in tried:
        try:
            records[number]
            return
        except ImageError:
            if number == tried[-1]:
                raise


def _check_counts(records: "Split", split: str, shards: int, experiment: Experiment) -> None:
    """Check that a split has enough images, overall and of every class."""
    images, num_classes = experiment.evaluate.first_sample + experiment.evaluate.images, experiment.data.num_classes
    labels = records.labels
    place = "evaluate.first_sample" if experiment.evaluate.first_sample else "evaluate.images"
    require(len(records) >= shards, f"data: {len(records)} {split} images cannot fill {shards} shards", ConfigError)
    if num_classes is None or labels is None:
        if len(records) < images:
            raise ConfigError(
                f"{place}: {images} samples are compared with as many {split} images, there are {len(records)}"
            )
        return
    counts = [int((labels == label).sum()) for label in range(num_classes)]
    if sum(counts) < len(labels):
        named = f", of {len(records.class_names)} classes: {', '.join(records.class_names)}" * bool(records.class_names)
        raise ConfigError(f"data.num_classes: {num_classes}, but the {split} images have class {labels.max()}{named}")
    needed = max(images // num_classes, 1)
    if min(counts) < needed:
        scarce = counts.index(min(counts))
        raise ConfigError(
            f"{place}: {images} balanced images need {needed} {split} images of every class,"
            f" class {all_class_names(experiment, records.class_names)[scarce]} has {counts[scarce]}"
        )
