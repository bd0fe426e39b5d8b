"""Versions of packages: what a contract accepts, and whether this site has them."""

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from hpcddm.errors import UserError, require
from hpcddm.exchange.contract import Contract
from hpcddm.runs.provenance import environment

CHECKED = ("torch", "deepspeed", "numpy", "pillow")
"""Packages on whose versions the bits of a training depend."""


def accepted_versions() -> dict[str, str]:
    """Return the versions that a contract accepts: from the minor version that is here to the next major one."""
    here = environment()
    found = {name: Version(text) for name in CHECKED if (text := here[name]) is not None}
    return {name: f">={own.major}.{own.minor},<{own.major + 1}" for name, own in found.items()}


def check_packages(contract: Contract) -> None:
    """Check that this site has the package versions that a contract accepts.

    Raises:
        UserError: A package is missing or has another version; the message names it.
    """
    here = environment()
    for name in CHECKED:
        accepted, own = contract.packages.get(name), here[name]
        if accepted is None:
            continue
        try:
            fits = own is not None and SpecifierSet(accepted).contains(Version(own), prereleases=True)
        except (InvalidSpecifier, InvalidVersion):
            raise UserError(f"contract.json: packages.{name}: '{accepted}' does not name versions; refused") from None
        require(fits, f"{name} {own or 'is missing'}: the contract accepts {accepted}; install such a version")
