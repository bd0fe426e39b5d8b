"""The verb site verify: says who signed what another site has sent, and whether it is whole."""

from pathlib import Path

import click

from hpcddm.commands.options import PATH
from hpcddm.errors import UserError
from hpcddm.errors.printing import echo
from hpcddm.exchange import bundle as bundles
from hpcddm.exchange import contract as contracts
from hpcddm.exchange import signed_folder, site_identity
from hpcddm.exchange.ssh_keys import PublicKey
from hpcddm.loading.ensemble_document import read_ensemble
from hpcddm.publishing import folder_sums
from hpcddm.runs.files import ENSEMBLE
from hpcddm.runs.import_records import read_signed_bundle
from hpcddm.runs.published_files import is_published


@click.command("verify")
@click.argument("folder", type=PATH)
@click.option("--fingerprint", help="The one that the site has told you, such as SHA256:kmYc...: another is an error.")
def site_verify(folder: Path, fingerprint: str | None) -> None:
    """Say who signed what another site has sent, and whether it is whole.

    FOLDER is a key, a contract, a bundle or a published ensemble, as another site wrote it. A file that was changed on
    its way is refused. Only the fingerprint tells whose key it is: compare it with the one that the site tells you by
    another channel. Whether a bundle is what was agreed on, 'hpcddm site import' checks.

    \b
    Example: hpcddm site verify uni-b-key --fingerprint SHA256:kmYcvdi2GkPeWxB6XLjrZB8JHsy2Hm8luHMFp9GMvqk
             hpcddm site verify cells-expert-02
    """
    name, what, key = _verified(folder)
    if fingerprint is not None and fingerprint != key.fingerprint:
        advice = "do not trust it, and ask the site for the folder again"
        raise UserError(f"{folder}: the key of {name} has the fingerprint {key.fingerprint}; {advice}")
    echo(f"{folder}: {what}, signed by the key of {name}, fingerprint {key.fingerprint}")
    if fingerprint is None:
        echo(f"compare the fingerprint with the one that {name} tells you by another channel")


def _verified(folder: Path) -> tuple[str, str, PublicKey]:
    """Return the site by its own word, what the folder is, and the key that signed it."""
    if (folder / contracts.FILE).exists():
        contract, key = contracts.read_contract(folder)
        signed_folder.receive(folder, contracts.FILE, contract.files, None, lambda size: None)
        return contract.coordinator, f"contract {contract.id}, revision {contract.revision}", key
    if (folder / bundles.FILE).exists():
        bundle, key = read_signed_bundle(folder)
        size = sum(file.size for file in bundle.files.values())
        with click.progressbar(length=size, label=f"checking {bundle.unit}") as bar:
            signed_folder.receive(folder, bundles.FILE, bundle.files, None, bar.update)
        return bundle.site, f"bundle {bundle.number} of {bundle.unit}", key
    if is_published(folder):
        size = sum((folder / name).stat().st_size for name in folder_sums.list_files(folder))
        with click.progressbar(length=size, label="checking") as bar:
            key = folder_sums.verify_folder(folder, bar.update)
        return "whoever published it", f"ensemble {read_ensemble(folder)[0].name}", key
    if folder.is_dir() and not (folder / site_identity.FILE).exists():
        names = f"{site_identity.FILE} (a key), {contracts.FILE}, {bundles.FILE} and {ENSEMBLE}"
        raise UserError(f"{folder}: has none of {names}; complete the folder, or name the one that the site sent")
    name, key = site_identity.read_identity(folder)
    return name, "a key", key
