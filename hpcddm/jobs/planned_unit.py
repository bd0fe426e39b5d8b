"""A unit as an experiment plans it, which the login node and the unit's job share."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpcddm.runs.manifest import Manifest, input_name
from hpcddm.runs.unit_keys import stage_of


@dataclass(frozen=True)
class PlannedUnit:
    """One unit of an experiment: its inputs, and the settings in its fingerprint."""

    key: str
    """The unit, as `stage/unit`."""
    requires: list[str]
    """Units that it reads and needs."""
    fingerprint_settings: dict[str, Any]
    """Settings that determine its outputs, by dotted key."""
    site: str | None = None
    """Site that the experiment names for it; None for the site where the run is submitted."""
    optional: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Units that it reads if they exist, with the settings in their fingerprints."""
    min_optional: int = 0
    """Minimum number of optional units that must exist."""
    extras: tuple[str, ...] = ()
    """Optional units that do not count towards `min_optional`."""
    parts: dict[str, str] = field(default_factory=dict)
    """For some required units, the only part that counts in the fingerprint; '' if no part of the unit counts."""
    lengths: tuple[str, ...] = ()
    """Prefixes of the settings that affect only the number of images of its training."""
    gates: dict[str, str] = field(default_factory=dict)
    """For some inputs, the unit without which the input does not count: the probe of an expert of another site."""

    @property
    def stage(self) -> str:
        """Name of its stage."""
        return stage_of(self.key)

    @property
    def inputs(self) -> list[str]:
        """Units that this unit may read, required and optional, and the gates of these."""
        return [*self.requires, *self.optional, *self.gates.values()]

    def counts_in_fingerprint(self, key: str) -> bool:
        """Return True if a unit is an input that counts in the fingerprint; a copy of samples does not count."""
        return key in self.inputs and self.parts.get(key) != ""

    def expected(self, inputs: Mapping[str, Manifest]) -> Manifest:
        """Return the manifest that the unit should have with these inputs; its outputs are empty.

        Args:
            inputs: Manifests of the inputs, by key.
        """
        stage, _, unit = self.key.partition("/")
        counted = {name: manifest for name, manifest in inputs.items() if self.parts.get(name) != ""}
        references = {name: input_name(name, self.parts.get(name)) for name in counted}
        digests = {references[name]: manifest.digest_of(self.parts.get(name)) for name, manifest in counted.items()}
        return Manifest(stage, unit, self.fingerprint_settings, digests, [], lengths=tuple(self.lengths))

    def missing_inputs(self, gone: Container[str]) -> list[str]:
        """List the inputs without which the unit cannot run.

        Args:
            gone: Units that are unavailable.

        Returns:
            The unavailable required units, and the unavailable optional units if too few others remain.
        """
        behind = {key: self.gates[key] if key not in gone and key in self.gates else key for key in self.inputs}
        counted = [key for key in self.optional if key not in self.extras]
        missing = [behind[key] for key in counted if behind[key] in gone]
        is_enough = len(counted) - len(missing) >= self.min_optional
        return [behind[key] for key in self.requires if behind[key] in gone] + ([] if is_enough else missing)
