"""Settings that all solvers have in common in an experiment's YAML."""

from typing import ClassVar

from hpcddm.schema import VariantSettings


class SolverSettings(VariantSettings):
    """Settings of a solver of the sampling ODE."""

    room: ClassVar[str] = "ensemble/solvers"

    native: ClassVar[bool] = False
    """True for a solver that steps in one model's own coordinates, a `NativeSolver`."""
    nfe_per_step: ClassVar[int]
    """Number of velocity evaluations in one step."""
