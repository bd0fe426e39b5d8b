"""Fetching of weights by their name on the Hugging Face hub, for the verb prefetch."""

import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hpcddm.config import weights
from hpcddm.config.weights import SettingsWithWeights
from hpcddm.errors import UserError
from hpcddm.errors.next_step import install_command
from hpcddm.errors.printing import echo

SECONDS = "60"
"""Longest silence of the hub, as a variable of huggingface_hub."""


def verify_or_fetch(place: str, own: SettingsWithWeights) -> None:
    """Prove the weights of a variant by their hash, which is printed, after they are fetched where they are missing.

    place: the variant's key in the experiment. Raises `UserError` naming what is missing or other than stated, and the
    way by hand for weights that cannot be fetched.
    """
    folder, verb = own.weights.place, "present"
    if own.weights.hub is not None and not folder.exists():
        _fetch(own, folder)
        verb = "fetched"
    try:
        computed = weights.content_hash(own)
        weights.require_content(own, computed)
    except UserError as error:
        raise UserError(f"{place}: {error}") from None
    size = sum((folder / name).stat().st_size for name in weights.list_files(own))
    echo(f"{verb}  {folder}  {size / 1e6:.1f} MB, content_hash: {computed}")


def _fetch(own: SettingsWithWeights, folder: Path) -> None:
    """Download the files that are read into a folder, which appears once it is complete."""
    os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", SECONDS)
    os.environ.setdefault("HF_HUB_ETAG_TIMEOUT", SECONDS)
    hub = _hub_package(own, folder)
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as staged:
            os.replace(_download(hub, own, Path(staged)), folder)
    except LookupError as error:
        raise UserError(f"{own.weights.hub}: weights of {own.name}: {error.args[0]}; check its files") from None
    except Exception as error:
        # Network failures raise errors of the package's HTTP client, which differs between releases, often without a
        # message; then their cause has it.
        reason = (str(error) or str(error.__cause__ or "") or type(error).__name__).strip().splitlines()[0]
        raise UserError(f"{own.weights.hub}: cannot be fetched ({reason}); {_by_hand(own, folder)}") from error


def _download(hub: Any, own: SettingsWithWeights, staged: Path) -> Path:
    """Download the files that the layout needs from a repository, and return their folder."""
    of_hub = own.weights
    prefix = f"{of_hub.subfolder}/" if of_hub.subfolder else ""
    info = hub.HfApi().model_info(of_hub.repository, revision=of_hub.revision)
    names = [file.rfilename.removeprefix(prefix) for file in info.siblings if file.rfilename.startswith(prefix)]
    chosen = own.layout.select_files([name for name in names if "/" not in name])
    (staged / "whole").mkdir()
    for name in chosen:
        echo(f"fetching {of_hub.hub}/{name} at {info.sha}")
        # Of one commit, though the branch may move meanwhile.
        path = hub.hf_hub_download(of_hub.repository, prefix + name, revision=info.sha, local_dir=staged / "parts")
        shutil.move(path, staged / "whole" / name)
    return staged / "whole"


def _hub_package(own: SettingsWithWeights, folder: Path) -> Any:
    try:
        import huggingface_hub
    except ImportError:
        advice = f"install it with: {install_command('huggingface_hub')}; or {_by_hand(own, folder)}"
        raise UserError(f"{own.weights.hub}: needs the package huggingface_hub; {advice}") from None
    return huggingface_hub


def _by_hand(own: SettingsWithWeights, folder: Path) -> str:
    names = [*own.layout.required, *own.layout.one_of[:1], own.layout.weights[0]]
    return f"by hand: copy {', '.join(names)} of {own.weights.hub} from a machine that has them to {folder}"
