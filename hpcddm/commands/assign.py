"""The verb assign: the clusters of new samples, by the partition of a run, as a table of their keys."""

import glob
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcddm.commands.options import PATH, RUN
from hpcddm.config import variants
from hpcddm.config.data import DataSettings
from hpcddm.config.experiment import Experiment
from hpcddm.config.mistakes import Origins
from hpcddm.config.schema import validate
from hpcddm.config.strict_yaml import read_yaml
from hpcddm.errors import ConfigError, require
from hpcddm.loading import resolve_paths
from hpcddm.pipeline.plan import plan
from hpcddm.printing import echo
from hpcddm.runs import passed_over
from hpcddm.runs.files import PARTITION
from hpcddm.runs.layout import RunDir
from hpcddm.runs.stored_experiment import out_of_run, stored_experiment
from hpcddm.runs.unit_keys import CLUSTER
from hpcddm.unit_states import require_complete, survey

if TYPE_CHECKING:
    from hpcddm.data.new_samples import NewSample, NewSamples

AT_ONCE = 256
"""Samples that are encoded together."""
NAMED = 3
"""Number of broken samples that are named."""
TABLES, TEXT = (".csv", ".jsonl", ".parquet"), (".txt",)
"""Ends of the names of files that can be written: tables of clusters, or the keys of one cluster."""


@click.command()
@RUN
@click.argument("sources", nargs=-1, required=True, type=PATH, metavar="SOURCE...")
@click.option("--output", type=PATH, default=Path("clusters.csv"), show_default=True, help=".csv, .jsonl or .parquet.")
@click.option(
    "--cluster", type=click.IntRange(min=0), metavar="N", help="Write the keys of this cluster alone, into a .txt file."
)
def assign(root: Path, sources: tuple[Path, ...], output: Path, cluster: int | None) -> None:
    """Find the clusters of new images, by the clusters of RUN.

    SOURCE is a folder of images, or of classes; a folder of WebDataset tars, or a .tar file; or a YAML file, such as
    an experiment, of which data.source counts. All its images are encoded here as those of RUN were, and the table
    gets a row for each: key, cluster. Broken images are named and left out. RUN stays as it is.

    \b
    The table is what a run of these images takes as its clusters, each expert's as in RUN:
      cluster: {experts: 8, clustering: {name: file, table: {file: clusters.csv}}}
    The keys of one cluster are a list for an expert that joins (experts.joined), of images that its run has.
    Example: hpcddm assign runs/fashion_mnist new-images/ --output clusters.parquet
             srun --gpus 1 hpcddm assign runs/fashion_mnist new.yaml --cluster 3 --output threes.txt
    Next:    hpcddm submit new.yaml cluster.clustering='{name: file, table: {file: clusters.csv}}'
    """
    run = RunDir(root)
    experiment = out_of_run(stored_experiment(run), run)
    _check_options(experiment, output, cluster)
    data = [_data_of(experiment, source) for source in sources]
    require_complete(survey(plan(experiment), run), run, CLUSTER)
    from hpcddm.data.new_samples import NewSamples
    from hpcddm.data.table_writing import table_file

    collections = [NewSamples(settings) for settings in data]
    assigner = _Assigner(experiment, run)
    sizes, hashes = [0] * experiment.cluster.experts, _Hashes()
    total = sum(samples.count() for samples in collections)
    columns = {"key": str} | ({"cluster": int} if cluster is None else {})
    with click.progressbar(length=total, label="assign") as bar, table_file(output, columns) as append:
        for block in _blocks(collections):
            clusters, keys = assigner.clusters_of(block), [sample.key for sample in block]
            hashes.add(keys)
            rows = zip(keys, clusters, strict=True)
            append(rows if cluster is None else [(key,) for key, number in rows if number == cluster])
            for number in clusters:
                sizes[number] += 1
            bar.update(len(block))
        require(sum(sizes) > 0, f"{', '.join(map(str, sources))}: no sample that can be used")
        hashes.check()
    broken = [sample for samples in collections for sample in samples.broken]
    if broken:
        named = ", ".join(f"{key} ({reason})" for key, reason in broken[:NAMED])
        echo(f"left out {len(broken)} broken samples: {named}{', ...' * (len(broken) > NAMED)}", err=True)
    for line in passed_over.lines(passed_over.merged(samples.passed_over for samples in collections)):
        echo(f"passed over   {line}", err=True)
    written = sum(sizes) if cluster is None else sizes[cluster]
    echo(f"{output}: {written} of {sum(sizes)} samples; of clusters 0 to {len(sizes) - 1}: {sizes}")


def _check_options(experiment: Experiment, output: Path, cluster: int | None) -> None:
    """Raise `ConfigError` for a file that cannot be written so, or a cluster that the run does not have."""
    ends = TABLES if cluster is None else TEXT
    kind = "a table of clusters" if cluster is None else "a list of one cluster's keys"
    if output.suffix not in ends:
        raise ConfigError(f"--output {output}: {kind} needs a name that ends in {' or '.join(ends)}")
    if not output.parent.is_dir():
        raise ConfigError(f"--output {output}: {output.parent} is no folder")
    experts = experiment.cluster.experts
    if cluster is not None and cluster >= experts:
        raise ConfigError(f"--cluster {cluster}: valid clusters are 0 to {experts - 1}")


def _data_of(experiment: Experiment, source: Path) -> DataSettings:
    """Return the run's settings of data, with another source: what a YAML file, a folder or a tar says."""
    if source.suffix in (".yaml", ".yml"):
        values, origins = read_yaml(source)
        resolve_paths(values, source.resolve().parent)
        named = values.get("data")
        if not isinstance(named, dict) or "source" not in named:
            raise ConfigError(f"{source}: needs the key data.source; see 'Your own images' in docs/running.md")
        settings = named["source"]
    else:
        settings, origins = _settings_of(source.resolve()), Origins(str(source))
    own = experiment.data.model_dump() | {"source": settings, "content": None}
    data = validate(DataSettings, own, origins.below("data"))
    try:
        data.source.check(experiment)
    except ValueError as error:
        raise ConfigError(f"{source}: data.source: {error}") from None
    return data


def _settings_of(place: Path) -> dict[str, Any]:
    """Return the settings of a source that has all images, or all tars, in a folder; or one tar."""
    # Both splits are read: how samples are shared between them says nothing.
    shared = {"heldout": {"share": 0.5}}
    if place.suffix == ".tar":
        return {"name": "webdataset", "folder": str(place.parent), "tars": glob.escape(place.name), **shared}
    if not place.is_dir():
        raise ConfigError(f"{place}: neither a folder of images or tars, nor a .tar, .yaml or .yml file")
    if next(place.rglob("*.tar"), None) is not None:
        return {"name": "webdataset", "folder": str(place), **shared}
    has_splits = (place / "train").is_dir() and any((place / name).is_dir() for name in ("heldout", "val"))
    return {"name": "image_folder", "folder": str(place), **({} if has_splits else shared)}


class _Assigner:
    """Finds the clusters of samples by the partition of a run."""

    def __init__(self, experiment: Experiment, run: RunDir) -> None:
        from hpcddm.clusterings.base import Clustering
        from hpcddm.encoders.image.base import SampleEncoder

        own = experiment.cluster.clustering
        self._experiment = experiment
        self._partition = variants.create(Clustering, own).read(run.output(CLUSTER, PARTITION), experiment)
        self._encoder = variants.create(SampleEncoder, experiment.encode.encoder) if own.needs_features else None

    def clusters_of(self, block: list["NewSample"]) -> list[int]:
        """Return the cluster of each sample; raises `UserError` naming one that has none."""
        import numpy as np

        from hpcddm.clusterings.new_samples import NewBlock

        keys, labels = [row.key for row in block], [row.label for row in block]
        classes = None if None in labels else np.array(labels, dtype=np.int64)
        new = NewBlock(keys, self._features(block, keys, classes), classes)
        return self._partition.assign(new, range(len(block))).tolist()

    def _features(self, block: list["NewSample"], keys: list[str], classes: Any) -> Any:
        """Compute the features, float32 (N, D); None where the clustering needs none."""
        import numpy as np

        from hpcddm.data.reader import ArrayReader
        from hpcddm.encoders.image.column import as_column

        if self._encoder is None:
            return None
        nothing, images = np.zeros(len(block), dtype=np.int64), np.stack([row.image for row in block])
        captions = [row.caption for row in block if row.caption is not None]
        labels = nothing if classes is None else classes
        reader = ArrayReader(images, labels, nothing, captions if len(captions) == len(block) else None)
        computed = self._encoder.features(reader, range(len(block)))
        # In the precision of the columns, as another one might give another cluster.
        column = as_column(self._encoder.settings, self._experiment.data, computed, keys.__getitem__)
        return column.astype(np.float32)


def _blocks(collections: list["NewSamples"]) -> Iterator[list["NewSample"]]:
    """Yield the samples of all collections, some at a time."""
    for samples in collections:
        rows = iter(samples)
        while block := list(islice(rows, AT_ONCE)):
            yield block


class _Hashes:
    """Hashes of the keys, by which one that stands there twice is noticed at the end."""

    def __init__(self) -> None:
        self._blocks: list[Any] = []

    def add(self, keys: list[str]) -> None:
        """Add the keys of some samples."""
        import numpy as np

        from hpcddm.data.sample_keys import hash_of

        self._blocks.append(np.fromiter(map(hash_of, keys), np.uint64, len(keys)))

    def check(self) -> None:
        """Warn of keys that several samples have."""
        import numpy as np

        hashes = np.sort(np.concatenate(self._blocks))
        repeated = int((hashes[1:] == hashes[:-1]).sum())
        if repeated:
            advice = "the clustering 'file' refuses such a table; give each source a name of its own as 'collection'"
            echo(f"warning: {repeated} samples have a key that one before them has; {advice}", err=True)
